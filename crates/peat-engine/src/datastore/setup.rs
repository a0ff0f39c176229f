//! `peat datastore setup`: making, joining or following a shared ledger, or moving one to another store.
//!
//! First everything is looked at and a plan made; nothing is changed by that. A move copies the objects of the ledger, closes
//! it where it was, opens the copy, and only then switches the marker: killed anywhere, one of both can be read, and the same
//! command goes on where it stopped. See `docs/design/011-moving.md`.

mod cleanup;
mod inspect;
mod plan;
mod previous;
mod rest;

use std::sync::Arc;

use futures::future::join;
use peat_clone::{BegunIndex, Copied, LocalClone, NewNamespace, NsInfo, Scope};
use peat_types::{Error, Kind, Result, in_span, operation};
use serde_json::Value;
use tracing::field::Empty;

pub(super) use self::inspect::{all as namespaces_of, went};
use self::plan::{Action, Plan};
use crate::planner::DomainPlanner;
use crate::repo::{Datastore, MARKER, Place, options, place, with_datastore};
use crate::report::{DatastoreSetup, SetupAction};
use crate::{Repo, files};

/// `peat datastore setup`.
#[derive(Clone, Debug, Default)]
pub struct SetupRequest {
    /// The datastore to use from now on.
    pub datastore: Datastore,
    /// `--skip-migration`: what is in the present datastore stays where it is.
    pub skip_migration: bool,
    /// `--dry-run`: only the plan.
    pub dry_run: bool,
}

impl Repo {
    /// Makes, joins or follows the namespace of a store, or moves the present ledger there, and switches the marker.
    ///
    /// # Errors
    /// `Invalid` for settings, and for a place that holds something else; `AlreadyExists` when the namespace belongs to
    /// another repository; `Unsupported` when the store cannot keep a ledger; `Conflict` when pending changes or another
    /// history forbid it, `Contended` for runs in progress.
    pub async fn datastore_setup(&self, request: &SetupRequest) -> Result<DatastoreSetup> {
        let span =
            operation!("setup", peat.namespace = Empty, peat.setup.action = Empty, peat.dry_run = request.dry_run);
        let request = &self.with_kept_settings(request);
        let work = async {
            let plan = Box::pin(self.plan_setup(request)).await?;
            let mut report = self.describe(request, &plan)?;
            span.record("peat.namespace", report.namespace.as_str());
            span.record("peat.setup.action", report.action.as_str());
            if !request.dry_run {
                Box::pin(self.carry_out(request, &plan, &mut report)).await?;
            }
            Ok(report)
        };
        in_span(span.clone(), Box::pin(work)).await
    }

    /// What does not say where a datastore is stays as the marker has it, unless the request says otherwise.
    fn with_kept_settings(&self, request: &SetupRequest) -> SetupRequest {
        let mut request = request.clone();
        if let Some(before) = &self.marker().datastore {
            let datastore = &mut request.datastore;
            datastore.hydration = datastore.hydration.take().or_else(|| before.hydration.clone());
            datastore.delete_limit = datastore.delete_limit.or(before.delete_limit);
        }
        request
    }

    fn describe(&self, request: &SetupRequest, plan: &Plan<'_>) -> Result<DatastoreSetup> {
        let (action, copy) = match &plan.action {
            Action::Create => (SetupAction::Create, None),
            Action::Join(_) => (SetupAction::Join, None),
            Action::Follow(_) => (SetupAction::Follow, None),
            Action::Move(copy) => (SetupAction::Move, Some(copy.as_ref())),
        };
        let source = plan.source.as_ref();
        Ok(DatastoreSetup {
            kind: plan.target.opened.kind.to_owned(),
            url: plan.target.opened.url.clone(),
            namespace: plan.target.namespace.clone(),
            action,
            already: action == SetupAction::Join && self.is_in_use(&plan.target)?,
            dry_run: request.dry_run,
            ledger: plan.there().map(|info| info.ledger),
            created: matches!(action, SetupAction::Create | SetupAction::Move),
            clone_path: plan.target.dir.clone(),
            from: source.filter(|_| copy.is_some()).map(|source| source.place.opened.url.clone()),
            units_copied: copy.map_or(0, |copy| copy.root.units),
            items_copied: copy.map_or(0, |copy| copy.root.files),
            objects_copied: copy.map_or(0, |copy| copy.objects.len() as u64),
            bytes_copied: copy.map_or(0, peat_clone::CopyPlan::bytes),
            objects_there: copy.map_or(0, |copy| copy.there.0),
            pending_taken: 0,
            files_pulled: None,
            bytes_pulled: None,
            kept: self.kept(request, plan),
            previous_namespace: self.previous_namespace(plan),
            probe: plan.there().map_or(Value::Null, |info| info.probe.clone()),
            warnings: plan.warnings.clone(),
        })
    }

    /// Whether the marker names this place already.
    fn is_in_use(&self, target: &Place) -> Result<bool> {
        let Some(now) = &self.marker().datastore else { return Ok(false) };
        Ok(place(self.host(), self.root(), &self.marker().repo_id, Some(now))?.dir == target.dir)
    }

    /// Where something stays behind.
    fn kept(&self, request: &SetupRequest, plan: &Plan<'_>) -> Option<String> {
        match &plan.source {
            Some(source) => Some(source.place.opened.url.clone()),
            None if request.skip_migration => match &self.marker().datastore {
                None => plan.private.clone(),
                Some(before) => Some(before.url.clone()),
            },
            None => None,
        }
    }

    /// The namespace of what is moved, or used so far.
    fn previous_namespace(&self, plan: &Plan<'_>) -> Option<String> {
        match &plan.source {
            Some(source) => Some(source.place.namespace.to_string()),
            None => self.marker().datastore.as_ref().and_then(|before| before.namespace.clone()),
        }
    }

    async fn carry_out(&self, request: &SetupRequest, plan: &Plan<'_>, report: &mut DatastoreSetup) -> Result<()> {
        let env = &self.host().env;
        let target = &plan.target;
        // The last step: a ledger that moved and a marker that leads to where it was are no state to end in.
        files::check_writable(env, &self.root().join(MARKER))?;
        let info = match &plan.action {
            Action::Create => {
                report.probe = self.probe(target).await?;
                None
            }
            Action::Move(_) => Some(self.arrive(plan, report).await?),
            Action::Join(info) => Some(info.clone()),
            Action::Follow(info) => {
                let begun = self.begin_hand_over(plan).await;
                self.hand_over(plan, begun, info).await;
                Some(info.clone())
            }
        };
        env.step("setup.there").await;
        let shared = self.open_target(target, info.is_none(), report).await?;
        if let Some(info) = info.filter(|info| info.ledger != shared.info().ledger) {
            return Err(Error::damaged(format!(
                "{} knows {} as ledger {}, but it holds {}",
                target.dir.display(),
                target.opened.url,
                shared.info().ledger,
                info.ledger
            ))
            .with_code("fork")
            .with_hint(format!("if the store was replaced on purpose, move {} away first", target.dir.display())));
        }
        report.ledger = Some(shared.info().ledger);
        report.probe = shared.info().probe.clone();
        if let (Some(source), Action::Move(_) | Action::Follow(_)) = (&plan.source, &plan.action) {
            report.pending_taken = shared.take_journal(&source.place.dir).await?;
            previous::remember(self, target)?;
        }
        env.step("setup.taken").await;
        // The canonical spelling, so that every checkout means the same clone.
        self.switch(&Datastore { url: target.opened.url.clone(), ..request.datastore.clone() })?;
        env.step("setup.switched").await;
        match (&plan.source, &plan.action) {
            (Some(source), Action::Move(_) | Action::Follow(_)) => {
                self.bring_tree(&shared, source.clone, plan, report).await;
            }
            // Whoever was killed before that runs the same command again.
            _ if report.already => match previous::clone_of(self, target, &shared).await {
                Ok(Some(before)) => self.bring_tree(&shared, &before, plan, report).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "the clone before cannot be opened"),
            },
            _ => {}
        }
        match shared.pull(&Scope::All).await {
            Ok(pulled) => {
                report.files_pulled = Some(pulled.items + pulled.restored);
                report.bytes_pulled = Some(pulled.bytes);
            }
            Err(error) => report.warnings.push(format!(
                "the datastore is set up, but not everything could be fetched yet ({error}): 'peat datastore sync --pull' goes on"
            )),
        }
        Ok(())
    }

    /// Takes the tree along, or says what stays in it.
    async fn bring_tree(&self, shared: &LocalClone, before: &LocalClone, plan: &Plan<'_>, report: &mut DatastoreSetup) {
        match shared.take_tree(before).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the files are fetched again"),
        }
        let left = self.edited(before).unwrap_or_else(|_| plan.edited.clone());
        if !left.is_empty() {
            report.warnings.retain(|told| *told != rest::goes_along(&plan.edited));
            report.warnings.push(rest::stays(before, &left));
        }
    }

    async fn open_target(&self, target: &Place, new: bool, report: &DatastoreSetup) -> Result<LocalClone> {
        let host = self.host();
        let planner = Arc::new(DomainPlanner::of(self.root()));
        let options = options(host, target, &self.marker().repo_id)?;
        if !new {
            return LocalClone::open(options, host.env.clone(), planner).await;
        }
        let new = NewNamespace { params: host.params.clone(), probe: report.probe.clone() };
        LocalClone::create(options, host.env.clone(), planner, new)
            .await
            .map_err(|error| if error.kind() == Kind::AlreadyExists { plan::taken(error, target) } else { error })
    }

    /// Makes the folder of a store if it is one, and asks whether a ledger can live there. (Who joins may only be allowed to
    /// read, and whoever made the namespace has asked already.)
    async fn probe(&self, target: &Place) -> Result<Value> {
        target.make_folder()?;
        let store = target.opened.within(target.namespace.as_str())?;
        self.host().stores.probe(&store, &self.host().env).await
    }

    /// Moves the ledger, and what this clone knows of it.
    async fn arrive(&self, plan: &Plan<'_>, report: &mut DatastoreSetup) -> Result<NsInfo> {
        let relocate = async {
            let probe = self.probe(&plan.target).await?;
            self.relocate(plan, &probe, report).await
        };
        // The index is as large as a part of the ledger, so it is copied meanwhile.
        let (info, begun) = join(Box::pin(relocate), self.begin_hand_over(plan)).await;
        match info {
            Ok(info) => {
                self.hand_over(plan, begun, &info).await;
                Ok(info)
            }
            Err(error) => {
                if let Some(Err(left)) = begun.map(BegunIndex::discard) {
                    tracing::warn!(%left, "the next opening of the new clone removes it");
                }
                Err(error)
            }
        }
    }

    /// Begins to copy the index of the clone that is left. Without it all is read again.
    async fn begin_hand_over(&self, plan: &Plan<'_>) -> Option<BegunIndex> {
        let begin = async {
            let Some(source) = &plan.source else { return Ok(None) };
            source.clone.begin_hand_over(&options(self.host(), &plan.target, &self.marker().repo_id)?).await
        };
        begin.await.unwrap_or_else(|error: Error| {
            tracing::warn!(%error, "the index is built anew");
            None
        })
    }

    async fn hand_over(&self, plan: &Plan<'_>, begun: Option<BegunIndex>, info: &NsInfo) {
        let hand_over = async {
            let (Some(source), Some(begun)) = (&plan.source, begun) else { return Ok(false) };
            let options = options(self.host(), &plan.target, &self.marker().repo_id)?;
            source.clone.hand_over(begun, &options, info).await
        };
        if let Err(error) = hand_over.await {
            tracing::warn!(%error, "the index is built anew");
        }
    }

    /// Copies the ledger, closes it where it is, and opens the copy.
    async fn relocate(&self, plan: &Plan<'_>, probe: &Value, report: &mut DatastoreSetup) -> Result<NsInfo> {
        let (target, Some(source)) = (&plan.target, &plan.source) else {
            return Err(Error::internal("a move from nowhere"));
        };
        let again = |error: Error| {
            // What is there, or what was asked for, will not be another one the next time.
            if matches!(error.kind(), Kind::Conflict | Kind::AlreadyExists | Kind::Invalid | Kind::Unsupported) {
                return error;
            }
            error.with_hint(format!(
                "it is safe to run it again: '{}' goes on where it stopped",
                target.opened.setup(&target.namespace)
            ))
        };
        let store = target.opened.within(target.namespace.as_str())?;
        let going = source.standing.moved.is_some();
        let copy = source.clone.plan_copy(Some(&store)).await?;
        let copied: Copied = source.clone.copy(&store, &copy).await.map_err(again)?;
        (report.objects_copied, report.bytes_copied) = (copied.objects, copied.bytes);
        if !going {
            // Since it was planned a while has passed.
            self.at_rest(source.clone, target).await?;
        }
        let to = (target.opened.url.as_str(), target.opened.endpoint.as_deref());
        source.clone.move_to(&store, to, &target.namespace, probe).await.map_err(again)
    }

    fn switch(&self, datastore: &Datastore) -> Result<()> {
        let path = self.root().join(MARKER);
        let text = files::read(&path)?
            .ok_or_else(|| Error::not_found(format!("{MARKER} went away")).with_code("not_a_repo"))?;
        files::write(&self.host().env, &path, with_datastore(&text, datastore)?.as_bytes())
    }
}
