//! What a setup will do: found out with reads only.

use std::path::Path;

use peat_clone::{Claim, CopyPlan, LocalClone, NsInfo, Standing};
use peat_objects::{List, Pages, Range};
use peat_types::{Error, Kind, LedgerId, Result};

use super::{SetupRequest, inspect};
use crate::Repo;
use crate::repo::{LOCAL, Place, place, private_left};

/// The datastore as it is now, if it holds anything.
pub(super) struct Source<'a> {
    pub clone: &'a LocalClone,
    pub place: &'a Place,
    pub standing: Standing,
}

pub(super) enum Action {
    /// Make a namespace, or finish one that somebody began to make.
    Create,
    /// Use the one that is there.
    Join(NsInfo),
    /// Use the one that the present ledger moved to.
    Follow(NsInfo),
    /// Move the present ledger there.
    Move(Box<CopyPlan>),
}

pub(super) struct Plan<'a> {
    pub target: Place,
    pub source: Option<Source<'a>>,
    pub action: Action,
    /// URL of a private datastore that is left alone.
    pub private: Option<String>,
    pub warnings: Vec<String>,
    /// Files changed by hand whose tree is to go along.
    pub edited: Vec<String>,
}

/// What `ns.json` of the target says.
enum There {
    Ledger(Box<NsInfo>),
    /// This ledger is being moved there.
    Claimed(LedgerId),
}

impl Plan<'_> {
    /// The ledger that is there already.
    pub fn there(&self) -> Option<&NsInfo> {
        match &self.action {
            Action::Join(info) | Action::Follow(info) => Some(info),
            Action::Create | Action::Move(_) => None,
        }
    }
}

impl Repo {
    pub(super) async fn plan_setup(&self, request: &SetupRequest) -> Result<Plan<'_>> {
        let host = self.host();
        let repo_id = &self.marker().repo_id;
        request.datastore.hydration()?;
        let target = place(host, self.root(), repo_id, Some(&request.datastore))?;
        let local = self.root().join(LOCAL);
        if let Some(folder) = &target.opened.folder {
            if folder.starts_with(&local) {
                return Err(Error::invalid("that is inside the private datastore of this repository").with_hint(
                    "choose a folder outside .peat/, or a bucket: 'peat datastore setup s3://bucket/prefix'",
                ));
            }
            inspect::not_nested(folder)?;
        }
        let private = local.join("store");
        let known = private.is_dir() || LocalClone::has_seen_a_ledger(&local);
        let mut plan = Plan {
            source: None,
            action: Action::Create,
            private: known.then(|| private.display().to_string()),
            warnings: Vec::new(),
            edited: Vec::new(),
            target,
        };
        // A folder that is not there yet holds nothing; a store that was there once is lost.
        let fresh = plan.target.opened.folder.as_ref().is_some_and(|folder| !folder.exists());
        let there = if fresh && !LocalClone::has_seen_a_ledger(&plan.target.dir) {
            None
        } else {
            self.existing(&plan.target, request).await?
        };
        let (there, claimed) = match there {
            Some(There::Ledger(info)) => (Some(*info), None),
            Some(There::Claimed(by)) => (None, Some(by)),
            None => (None, None),
        };
        if let Some(info) = there.as_ref().filter(|info| info.owner != *repo_id) {
            let what = Error::new(Kind::AlreadyExists, format!("its owner is repository {}", info.owner));
            return Err(taken(what.with_code("namespace_taken"), &plan.target));
        }
        if there.is_none() {
            self.not_the_same_address(&plan.target, request)?;
        }
        if request.skip_migration {
            plan.warnings.extend(self.left_behind(&plan));
        } else {
            plan.source = self.source(&plan.target, known).await?;
        }
        if let Some(by) = claimed {
            is_ours(&plan, by)?;
        }
        plan.action = self.action(&plan, there, fresh).await?;
        if let Action::Join(info) = &plan.action {
            if is_unfinished(&plan.target, info).await? {
                plan.action = Action::Create;
            } else {
                let store = plan.target.opened.within(plan.target.namespace.as_str())?;
                // Nothing can be written there any more.
                if let (_, Some(gone)) = Standing::of(store, &host.env, info.clone()).await? {
                    return Err(gone);
                }
            }
        }
        if let (Some(info), true) = (plan.there(), self.marker().datastore.is_some()) {
            let note = private_left(host, self.root(), info).await.map(|items| {
                format!(
                    "{items} items of the private datastore in {LOCAL}/ are not in this one: 'peat status' says more"
                )
            });
            plan.warnings.extend(note);
        }
        plan.warnings.extend(plan.target.opened.folder.as_deref().and_then(in_work_tree));
        let (told, edited) = self.left_over(&plan).await?;
        plan.warnings.extend(told);
        plan.edited = edited;
        Ok(plan)
    }

    /// Refuses a bucket that differs from the present one by its server only: clones and moves are known by URL and
    /// namespace.
    fn not_the_same_address(&self, target: &Place, request: &SetupRequest) -> Result<()> {
        let Some(before) = &self.marker().datastore else { return Ok(()) };
        let now = place(self.host(), self.root(), &self.marker().repo_id, Some(before))?;
        if now.dir != target.dir || before.endpoint == request.datastore.endpoint {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the present datastore has the same URL and namespace on another server ({}), and the two cannot be told apart",
            before.endpoint.as_deref().unwrap_or("the service itself")
        ))
        .with_code("same_address")
        .with_hint(format!("move to another prefix there: '{} --namespace {}'", target.opened.setup_at("/new"), target.namespace)))
    }

    /// The `ns.json` of the target, when what lies there is Peat's or nothing.
    async fn existing(&self, target: &Place, request: &SetupRequest) -> Result<Option<There>> {
        let store = target.opened.within(target.namespace.as_str())?;
        if request.datastore.namespace.is_none() {
            inspect::root(&target.opened, &target.namespace, &self.marker().repo_id, &self.host().env).await?;
        }
        let Some(object) = store.get("ns.json", Range::All).await? else {
            inspect::namespace(&target.opened, &target.namespace).await?;
            Box::pin(inspect::not_nested_in_bucket(self.host(), &request.datastore)).await?;
            return Ok(None);
        };
        if let Some(claim) = Claim::of(&object.bytes) {
            return Ok(Some(There::Claimed(claim.arriving)));
        }
        inspect::info(&target.opened, &target.namespace, &object.bytes).map(|info| Some(There::Ledger(Box::new(info))))
    }

    fn left_behind(&self, plan: &Plan<'_>) -> Option<String> {
        match &self.marker().datastore {
            Some(before) if before.url != plan.target.opened.url => {
                Some(format!("what is in {} stays there and is not copied", before.url))
            }
            Some(before) => before.namespace().ok().filter(|before| *before != plan.target.namespace).map(|before| {
                format!("what is in namespace {before} stays there: 'peat datastore namespace set {before}' leads back")
            }),
            None => plan.private.as_ref().map(|private| format!("the private datastore in {private} was not copied")),
        }
    }

    /// What there is to take along.
    async fn source(&self, target: &Place, private: bool) -> Result<Option<Source<'_>>> {
        match &self.marker().datastore {
            None if !private => return Ok(None),
            None => {}
            Some(before) => {
                let now = place(self.host(), self.root(), &self.marker().repo_id, Some(before))?;
                if now.dir == target.dir {
                    return Ok(None);
                }
            }
        }
        let opened = async {
            let (clone, place) = self.opened().await?;
            Ok::<_, Error>((clone, place, clone.standing().await?))
        };
        let (clone, place, standing) = opened.await.map_err(|error| {
            let error = error.context("the present datastore cannot be read, so it cannot be taken along");
            if error.has_code("disk_full") {
                return error;
            }
            error.with_hint("to leave what it holds behind, add --skip-migration")
        })?;
        Ok(Some(Source { clone, place, standing }))
    }

    async fn action(&self, plan: &Plan<'_>, there: Option<NsInfo>, fresh: bool) -> Result<Action> {
        let Some(source) = &plan.source else { return Ok(there.map_or(Action::Create, Action::Join)) };
        let (url, namespace) = (&plan.target.opened.url, &plan.target.namespace);
        let ledger = source.clone.info().ledger;
        let went = source.standing.moved.as_ref();
        match there {
            // Another way to the same one.
            Some(info) if info.ledger == ledger => Ok(Action::Join(info)),
            Some(info) if went.is_some_and(|went| info.comes_from(went.ledger)) => Ok(Action::Follow(info)),
            Some(info) if info.comes_from(ledger) => Err(Error::damaged(format!(
                "{url} holds a copy of this ledger, yet the one in {} was written to afterwards",
                source.place.opened.url
            ))
            .with_code("fork")
            .with_hint("it was probably restored from a backup: compare both before you go on; nothing was touched")),
            Some(info) if source.clone.info().comes_from(info.ledger) => Err(Error::new(
                Kind::Conflict,
                format!(
                    "namespace '{namespace}' of {url} is where this ledger was before it moved to {}, and a place that was \
                     left is not used again",
                    source.place.opened.url
                ),
            )
            .with_code("left_behind")
            .with_hint(format!("choose another namespace there: '{}'", plan.target.opened.setup("NAME")))),
            Some(info) if source.standing.items == 0 && went.is_none() => Ok(Action::Join(info)),
            Some(_) => {
                let message = format!(
                    "namespace '{namespace}' of {url} has a history of its own, and the datastore in {} has {} items that \
                     are not part of it; they are not merged",
                    source.place.opened.url, source.standing.items
                );
                Err(Error::new(Kind::Conflict, message)
                    .with_code("two_histories")
                    .with_hint(format!(
                        "to use the shared one and keep the other aside, untouched: '{} --skip-migration'",
                        plan.target.opened.setup(namespace)
                    ))
                    .with_hint(format!(
                        "to share the other one beside it: '{}-2'",
                        plan.target.opened.setup(namespace)
                    )))
            }
            None => match went {
                Some(went) if (&went.url, &went.namespace) != (url, namespace) => Err(source.clone.gone_to(went)),
                // (An empty one that is shared would stay where it was, for ever, and for others to write to.)
                None if source.place.private && source.standing.seq.0 == 0 => Ok(Action::Create),
                _ => {
                    let store = plan.target.opened.within(namespace.as_str())?;
                    Ok(Action::Move(Box::new(source.clone.plan_copy((!fresh).then_some(&store)).await?)))
                }
            },
        }
    }
}

/// Refuses a place to which another ledger is being moved, or was when that was interrupted.
fn is_ours(plan: &Plan<'_>, claimed: LedgerId) -> Result<()> {
    let ours = plan.source.as_ref().map(|source| source.clone.info().ledger);
    if ours == Some(claimed) {
        return Ok(());
    }
    let Place { namespace, opened, .. } = &plan.target;
    let message = format!("ledger {claimed} is being moved to namespace '{namespace}' of {}", opened.url);
    let (kind, code) = match ours {
        Some(_) => (Kind::Conflict, "not_this_ledger"),
        None => (Kind::Damaged, "half_a_ledger"),
    };
    Err(Error::new(kind, message)
        .with_code(code)
        .with_hint("if that was interrupted, run the same 'peat datastore setup <url>' again where it began")
        .with_hint(format!("otherwise choose another one: '{}'", opened.setup("NAME"))))
}

/// Whether somebody was interrupted while making a namespace: it has a description, and no entry yet. (The entries of a
/// ledger that was moved are there before its description.)
async fn is_unfinished(target: &Place, info: &NsInfo) -> Result<bool> {
    if !info.origin.is_empty() {
        return Ok(false);
    }
    let store = target.opened.within(target.namespace.as_str())?;
    let first = List { prefix: "log/".to_owned(), max_keys: Some(1), ..List::default() };
    let mut pages = Pages::new(&*store, first);
    while let Some(page) = pages.next().await? {
        if !page.keys.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Says that a store in this folder would be part of a git repository.
fn in_work_tree(folder: &Path) -> Option<String> {
    let root = folder.ancestors().find(|above| above.join(".git").exists())?;
    Some(format!(
        "{} lies in the git work tree {}: choose a folder outside, or keep it out of git with a line in .gitignore",
        folder.display(),
        root.display()
    ))
}

pub(super) fn taken(error: Error, target: &Place) -> Error {
    error
        .context(format!("namespace '{}' of {} belongs to another repository", target.namespace, target.opened.url))
        .with_hint(format!("choose another one: '{}'", target.opened.setup("NAME")))
}
