//! The state of things: `status`, `log`, `pending`, locks, running methods.

use std::collections::HashMap;
use std::time::Duration;

use peat_clone::{Adopt, Change, LeaseInfo, LocalClone, Pending, PendingStatus};
use peat_types::{ChangeId, Error, Result, Timestamp};
use serde_json::{Value, json};

use crate::history::model_of;
use crate::repo::{LOCAL, MARKER, private_left};
use crate::report::{
    CancelReport, CancelledRun, LockHolder, PendingChange, PendingDone, PendingList, PendingShow, StatusReport,
};
use crate::run::LocalRuns;
use crate::{Repo, duration, foreign};

/// How long `model cancel` waits for runs to end.
const CANCEL_WAIT: Duration = Duration::from_secs(15);
/// Largest text content that `pending show` shows.
const SHOW_MAX: usize = 4096;

pub(crate) type Names = HashMap<String, String>;

pub(crate) fn pending_change(names: &Names, pending: Pending) -> PendingChange {
    let status = match pending.status {
        PendingStatus::Pending => "pending",
        PendingStatus::Unknown => "unknown",
        PendingStatus::Parked => "parked",
        PendingStatus::Starting => "starting",
    };
    let (code, reason) = pending.reason.unzip();
    PendingChange {
        change: pending.change,
        kind: pending.kind,
        status: status.to_owned(),
        message: pending.message,
        author: pending.author,
        time: pending.time,
        models: pending.units.iter().filter_map(|unit| model_of(names, unit)).collect(),
        units: pending.units.iter().map(ToString::to_string).collect(),
        contents: pending.contents as u64,
        bytes: pending.bytes,
        attempts: pending.attempts,
        code,
        reason,
    }
}

pub(crate) fn holder(names: &Names, info: LeaseInfo) -> LockHolder {
    let lease = info.lease;
    LockHolder {
        model_name: model_of(names, &info.unit),
        unit: info.unit.to_string(),
        holder: format!("{}@{}", lease.user, lease.host),
        hostname: lease.host,
        clone: lease.clone,
        acquired_at: lease.since,
        ttl_ms: lease.ttl_ms,
        generation: lease.generation,
        nonce: lease.nonce.to_string(),
        alive_here: info.alive_here,
    }
}

pub(crate) fn held(clone: &LocalClone, names: &Names) -> Result<Vec<LockHolder>> {
    Ok(clone.leases()?.into_iter().filter(|info| info.lease.held).map(|info| holder(names, info)).collect())
}

/// Two private ledgers with one id cannot be told apart by anything that was written, so people must know.
fn copied_note(clone: &LocalClone) -> String {
    format!(
        "this private datastore was copied or restored with its folder: the original, if it is still used, is ledger {} \
         too, and neither knows what runs in the other; to share one, run 'peat datastore setup s3://bucket/prefix' in the \
         one to keep, commit .peat.yaml, and remove .peat/ in the other",
        clone.info().ledger
    )
}

impl Repo {
    /// `peat status`. Asks nothing of the store.
    pub async fn status(&self) -> Result<StatusReport> {
        let (clone, place) = self.opened().await?;
        let names = self.model_names()?;
        let last_sync = clone.synced_at()?;
        let units = clone.units()?;
        let mut notes = Vec::new();
        if place.second_checkout {
            notes.push(self.second_checkout_note());
        }
        notes.extend(self.private_note().await?);
        if place.private && clone.was_copied() {
            notes.push(copied_note(clone));
        }
        let pending: Vec<_> = clone.pending()?.into_iter().map(|p| pending_change(&names, p)).collect();
        if pending.iter().any(|p| p.status == "parked") {
            notes.push("some changes were refused and wait for a decision: 'peat pending list'".to_owned());
        } else if !pending.is_empty() {
            notes.push(
                "some changes are not in the datastore yet: 'peat datastore sync --push' commits them".to_owned(),
            );
        }
        if clone.is_suspect()? {
            notes.push(format!(
                "the store was seen to be set back or replaced: nothing is written to it until it is what it was, and \
                 'peat doctor' looks again; if what is there now shall be it, remove {}",
                place.dir.join("state.db").display()
            ));
        }
        if clone.is_unread()? {
            notes.push(
                "state.db was built anew, and files lie in the tree that were there before: \
                 'peat datastore sync --pull' compares them with the datastore"
                    .to_owned(),
            );
        }
        if clone.is_lost()? {
            notes.push(
                "the folder of the tree was not there, and was made anew: 'peat datastore sync --pull' puts its files back"
                    .to_owned(),
            );
        }
        let hand = self.hand(clone, clone.by_hand()?, &[]);
        if !hand.files.is_empty() {
            notes.push(
                "some files of the tree were changed by hand: 'peat add <path>' or 'peat datastore sync --push' commits them"
                    .to_owned(),
            );
        }
        if !hand.missing.is_empty() {
            notes.push(
                "some files were removed from the tree by hand, and are still in the datastore: \
                 'peat add --deletes <path>' or 'peat datastore sync --push --deletes' deletes them there, too"
                    .to_owned(),
            );
        }
        if let Some(folder) = clone.kept_aside() {
            notes.push(format!(
                "{} holds files that had to give way to the datastore, or were moved out of the tree: remove what nobody needs",
                folder.display()
            ));
        }
        notes.extend(
            hand.skipped.iter().take(5).map(|file| format!("{} is no part of the datastore: {}", file.path, file.why)),
        );
        Ok(StatusReport {
            path: self.root().to_owned(),
            repo_id: self.marker().repo_id.clone(),
            store: place.opened.url.clone(),
            private: place.private,
            namespace: place.namespace.clone(),
            ledger: clone.info().ledger,
            clone_path: place.dir.clone(),
            position: clone.position()?,
            head: clone.head()?,
            last_sync,
            last_sync_age_ms: last_sync.map(|time| self.host().env.now().millis_since(time)),
            units: units.len() as u64,
            items: units.iter().map(|unit| unit.items).sum(),
            pending,
            leases: held(clone, &names)?,
            maintenance: self.maintenance()?,
            by_hand: hand.files.iter().chain(&hand.missing).map(crate::add::HandFile::report).collect(),
            notes,
        })
    }

    /// What is to be known of private data that the datastore in use hides.
    pub(crate) async fn private_note(&self) -> Result<Option<String>> {
        let (clone, place) = self.opened().await?;
        if place.private || self.is_foreign() {
            return Ok(None);
        }
        let left = private_left(self.host(), self.root(), clone.info()).await;
        Ok(left.map(|items| {
            let items = if items == 1 { "1 item".to_owned() } else { format!("{items} items") };
            format!(
                "{LOCAL}/ holds a private datastore with {items} that are in no shared one, and nothing shows them while {MARKER} \
                 names one: take 'datastore' out of the file for a while to read them, or to share them under a name of \
                 their own with 'peat datastore setup <url> --namespace NAME'"
            )
        }))
    }

    fn second_checkout_note(&self) -> String {
        "this checkout has a private datastore of its own that does not know what ran in other checkouts of this \
         repository; to share one, run 'peat datastore setup s3://bucket/prefix' where the data is and commit .peat.yaml"
            .to_owned()
    }

    /// Completes an error about something that is not here: how old the knowledge is, and how to renew it.
    pub(crate) fn miss(&self, error: Error) -> Error {
        let Some((clone, place)) = self.opened_now() else { return error };
        if let Some(namespace) = self.via() {
            return error.with_hint(foreign::news(namespace));
        }
        if place.second_checkout {
            return error.with_hint(self.second_checkout_note());
        }
        if place.private {
            return if clone.was_copied() { error.with_hint(copied_note(clone)) } else { error };
        }
        let age = clone.synced_at().ok().flatten().map(|time| self.host().env.now().millis_since(time));
        let age = match age {
            Some(ms) => {
                let age = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
                format!("the last synchronisation was {} ago", duration::human(age))
            }
            None => "this clone was never synchronised".to_owned(),
        };
        error.with_hint(format!("{age}; 'peat datastore sync --pull' brings this clone up to date"))
    }

    /// `peat pending list`.
    pub async fn pending_list(&self) -> Result<PendingList> {
        let names = self.model_names()?;
        let changes: Vec<_> =
            self.clone_of().await?.pending()?.into_iter().map(|p| pending_change(&names, p)).collect();
        Ok(PendingList { total: changes.len() as u64, changes })
    }

    /// What this process leaves in the journal when it is stopped now: of the changes made since it began those that the next
    /// command that settles would commit, one line each.
    pub fn left_open(&self, since: Timestamp) -> Vec<String> {
        let Some((clone, _)) = self.opened_now() else { return Vec::new() };
        let mut left = clone.pending().unwrap_or_default();
        left.retain(|change| {
            let open = matches!(change.status, PendingStatus::Pending | PendingStatus::Unknown);
            open && change.time.millis_since(since) >= 0
        });
        let line = |change: Pending| {
            format!(
                "change {} ({}) waits in the journal: 'peat datastore sync' commits it, and \
                 'peat pending drop {}' forgets it",
                change.change, change.message, change.change
            )
        };
        left.into_iter().map(line).collect()
    }

    /// The pending change whose id is, or begins with, `wanted`.
    async fn pending_id(&self, wanted: &str) -> Result<ChangeId> {
        let all: Vec<ChangeId> = self.clone_of().await?.pending()?.into_iter().map(|p| p.change).collect();
        let matches: Vec<ChangeId> =
            all.into_iter().filter(|id| !wanted.is_empty() && id.to_string().starts_with(wanted)).collect();
        match matches.as_slice() {
            [one] => Ok(*one),
            [] => Err(Error::not_found(format!("there is no pending change '{wanted}'"))
                .with_hint("'peat pending list' lists them")),
            many => {
                let ids: Vec<String> = many.iter().map(ToString::to_string).collect();
                Err(Error::invalid(format!("'{wanted}' begins the ids of {} changes: {}", ids.len(), ids.join(", ")))
                    .with_code("ambiguous"))
            }
        }
    }

    /// `peat pending show`.
    pub async fn pending_show(&self, wanted: &str) -> Result<PendingShow> {
        let id = self.pending_id(wanted).await?;
        let (pending, change): (Pending, Change) = self.clone_of().await?.pending_show(id)?;
        let content = change
            .contents
            .iter()
            .map(|kept| {
                let short = kept.size() <= SHOW_MAX as u64;
                let text = if short { String::from_utf8(kept.read()?.to_vec()).ok() } else { None };
                Ok(match text {
                    Some(text) => json!({"size": kept.size(), "text": text}),
                    None => json!({"size": kept.size()}),
                })
            })
            .collect::<Result<Vec<Value>>>()?;
        Ok(PendingShow { change: pending_change(&self.model_names()?, pending), payload: change.payload, content })
    }

    /// `peat pending adopt`: `retry` checks the lease again instead of doing without.
    pub async fn pending_adopt(&self, wanted: &str, retry: bool) -> Result<PendingDone> {
        let id = self.pending_id(wanted).await?;
        let how = if retry { Adopt::Retry } else { Adopt::Unleased };
        let committed = self.clone_of().await?.adopt(id, how).await?;
        Ok(PendingDone { change: id, status: "adopted".to_owned(), seq: Some(committed.seq) })
    }

    /// `peat pending drop`.
    pub async fn pending_drop(&self, wanted: &str) -> Result<PendingDone> {
        let id = self.pending_id(wanted).await?;
        self.clone_of().await?.drop_change(id).await?;
        Ok(PendingDone { change: id, status: "dropped".to_owned(), seq: None })
    }

    /// `peat model cancel`: ends runs of this machine, of one model or all.
    pub async fn model_cancel(&self, model: Option<&str>, reason: &str) -> Result<CancelReport> {
        let definition = model.map(|model| self.definition(model)).transpose()?;
        let (clone, place) = self.opened().await?;
        let env = &self.host().env;
        let runs = LocalRuns::new(&place.dir);
        let mut found = runs.list()?;
        found.retain(|run| definition.as_ref().is_none_or(|d| d.id == run.definition_id));
        if found.is_empty()
            && let Some(definition) = &definition
        {
            return Err(Error::not_found(format!("no run of '{}' is in progress on this machine", definition.name))
                .with_hint("'peat datastore lock status' shows runs on other machines"));
        }
        let (alive, dead): (Vec<_>, Vec<_>) = found.into_iter().partition(|run| runs.alive(run));
        for run in &alive {
            runs.cancel(env, run, reason)?;
        }
        if !dead.is_empty() {
            // Their starts are resolved like any other left-over of the journal: released as interrupted.
            clone.settle().await?;
        }
        let until = env.monotonic() + CANCEL_WAIT;
        while alive.iter().any(|run| runs.alive(run)) && env.monotonic() < until {
            env.sleep(Duration::from_millis(50)).await;
        }
        let row = |run: &crate::run::LocalRun, status: &str| CancelledRun {
            id: run.output_id.clone(),
            type_name: run.type_name.clone(),
            model_name: run.model_name.clone(),
            method: run.method_name.clone(),
            status: status.to_owned(),
        };
        let mut cancelled: Vec<CancelledRun> =
            alive.iter().map(|run| row(run, if runs.alive(run) { "cancelling" } else { "cancelled" })).collect();
        cancelled.extend(dead.iter().map(|run| row(run, "interrupted")));
        let one = cancelled.first().filter(|_| definition.is_some());
        Ok(CancelReport {
            id: one.map(|run| run.id.clone()),
            status: one.map(|run| run.status.clone()),
            count: cancelled.len() as u64,
            cancelled,
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
        })
    }
}
