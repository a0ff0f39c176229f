//! `peat datastore sync`: what is to be sent and fetched as a plan, and doing exactly that.

use std::collections::{BTreeMap, BTreeSet};

use peat_clone::{Committed, LocalClone, Pending, REWRITE, Rewrite, Scope, Settled};
use peat_types::{ChangeId, Error, ItemPath, Kind, Result, in_span, operation};
use serde::de::DeserializeOwned;

use crate::Repo;
use crate::add::{Hand, HandFile, compare};
use crate::planner::{ADD, DELETE, HandChange};
use crate::report::{AsideFile, PendingChange, PulledPlan, SyncPlan, SyncReport};
use crate::status::pending_change;

/// `peat datastore sync`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncRequest {
    /// Only fetch.
    pub pull: bool,
    /// Only send: pending changes, and what was changed in the tree by hand.
    pub push: bool,
    /// With `push`: items whose file was put here and was removed by hand are deleted.
    pub deletes: bool,
    /// However much is deleted.
    pub allow_deletes: bool,
}

impl SyncRequest {
    fn sends(self) -> bool {
        self.push || !self.pull
    }

    fn fetches(self) -> bool {
        self.pull || !self.push
    }

    /// What people changed by hand is sent only when they ask for sending and nothing else.
    fn adds(self) -> bool {
        self.push && !self.pull
    }

    fn mode(self) -> &'static str {
        match (self.sends(), self.fetches()) {
            (true, true) => "sync",
            (true, false) => "push",
            _ => "pull",
        }
    }
}

/// Changes of the journal that can still be sent.
#[derive(Default)]
pub(super) struct Open {
    pub changes: BTreeMap<ChangeId, Pending>,
    /// Items that each of them removes.
    pub deletes: BTreeMap<ChangeId, u64>,
    /// Files of the tree that they were made from.
    paths: BTreeSet<ItemPath>,
    /// Items that must still be what they were for a change to be committed.
    relied_on: BTreeMap<ItemPath, ChangeId>,
}

impl Repo {
    /// Settles pending changes, brings the clone up to date, or (with both or neither) both.
    pub async fn sync(&self, pull: bool, push: bool) -> Result<SyncReport> {
        self.synchronise(SyncRequest { pull, push, ..SyncRequest::default() }).await
    }

    /// As [`sync`](Self::sync), with all that can be asked for.
    ///
    /// # Errors
    /// `Conflict` with code `many_deletes` when pending changes delete more than the limit; nothing was sent then.
    pub async fn synchronise(&self, request: SyncRequest) -> Result<SyncReport> {
        let span = operation!("sync", peat.sync.mode = request.mode());
        in_span(span, Box::pin(self.send_and_fetch(request))).await
    }

    async fn send_and_fetch(&self, request: SyncRequest) -> Result<SyncReport> {
        let clone = self.clone_of().await?;
        let (from, arrived) = (clone.position()?, clone.arrived());
        let mut report = SyncReport {
            mode: request.mode().to_owned(),
            changes_committed: None,
            files_pushed: None,
            files_deleted: None,
            settled: Vec::new(),
            files_pulled: None,
            bytes_pulled: None,
            from: None,
            to: None,
            interrupted: 0,
            parked: Vec::new(),
            pending: Vec::new(),
            aside: Vec::new(),
            by_hand: 0,
            missing: 0,
            errors: Vec::new(),
        };
        if request.adds() {
            compare(clone).await?;
        }
        let mut skipped: BTreeSet<String> = BTreeSet::new();
        // Looked for once, before anything comes that need not be looked at.
        let mut by_hand = clone.by_hand()?;
        if request.sends() {
            let open = self.open_changes(clone)?;
            let hand = match request.adds() {
                true => self.hand(clone, by_hand.clone(), &[]).without(&open.paths).deleting(clone, request.deletes)?,
                false => Hand::default(),
            };
            if !request.allow_deletes
                && let Some(error) = self.too_many(open.deletes.values().sum::<u64>() + hand.deletes(), clone)?
            {
                return Err(pushing(error, request.deletes, open.deletes.values().any(|deletes| *deletes > 0)));
            }
            let settled = clone.settle().await?;
            self.settled(&mut report, settled, &open)?;
            if request.adds() {
                // What was settled just now is nobody's work any more, and what was not is still another change's.
                let hand = if open.paths.is_empty() {
                    hand
                } else {
                    by_hand = clone.still_by_hand(&by_hand)?;
                    let found = self.hand(clone, by_hand.clone(), &[]).without(&self.open_changes(clone)?.paths);
                    found.deleting(clone, request.deletes)?
                };
                let added = self.commit_by_hand(hand, false).await?;
                let count = |sum: Option<u64>, more: u64| Some(sum.unwrap_or_default() + more);
                report.changes_committed = count(report.changes_committed, added.entries.len() as u64);
                report.files_pushed = count(report.files_pushed, added.files.len() as u64 - added.deletes);
                report.files_deleted = count(report.files_deleted, added.deletes);
                skipped.extend(added.skipped.iter().map(|file| file.path.clone()));
                report.errors.extend(added.skipped.into_iter().map(|file| format!("{}: {}", file.path, file.why)));
                let done: BTreeSet<String> = added.files.into_iter().map(|file| file.path).collect();
                by_hand.changed.retain(|file| !done.contains(&file.path));
                by_hand.missing.retain(|item| !done.contains(item.path.as_str()));
            }
        }
        if request.fetches() {
            let pulled = clone.pull(&Scope::All).await?;
            // What came while pending changes were sent was fetched by this, too.
            let (items, bytes) = clone.arrived();
            report.from = from;
            report.to = Some(pulled.to);
            report.files_pulled = Some(pulled.items + pulled.restored + items - arrived.0);
            report.bytes_pulled = Some(pulled.bytes + bytes - arrived.1);
        }
        report.aside = clone.take_aside().into_iter().map(|(path, kept)| AsideFile { path, kept }).collect();
        // What cannot be committed, or not by this, is not what the next command would commit.
        let hand = self.hand(clone, clone.still_by_hand(&by_hand)?, &[]);
        let left =
            |files: &[HandFile]| files.iter().filter(|file| !skipped.contains(file.path.as_str())).count() as u64;
        (report.by_hand, report.missing) = (left(&hand.files), left(&hand.missing));
        Ok(report)
    }

    fn settled(&self, report: &mut SyncReport, settled: Settled, open: &Open) -> Result<()> {
        let names = self.model_names()?;
        report.changes_committed = Some(settled.committed.len() as u64);
        let deletes = |done: &Committed| open.deletes.get(&done.change).copied().unwrap_or_default();
        report.files_deleted = Some(settled.committed.iter().map(deletes).sum()).filter(|deleted| *deleted > 0);
        let row = |done: &Committed| open.changes.get(&done.change).cloned();
        report.settled = settled.committed.iter().filter_map(row).map(|p| pending_change(&names, p)).collect();
        report.files_pushed = Some(settled.committed.iter().map(|c| c.items.len() as u64).sum());
        report.interrupted = settled.interrupted.len() as u64;
        report.parked = settled.parked.into_iter().map(|p| pending_change(&names, p)).collect();
        report.pending = settled.unknown.into_iter().map(|p| pending_change(&names, p)).collect();
        for change in report.parked.iter().chain(&report.pending) {
            let reason = change.reason.as_deref().unwrap_or("the store did not answer");
            let line = format!("change {} ({}) is {}: {reason}", change.change, change.message, change.status);
            report.errors.push(line);
        }
        // Whoever works on them says what becomes of them.
        let busy = settled.busy.into_iter().map(|p| pending_change(&names, p));
        report.pending.extend(busy.map(|change| PendingChange {
            reason: Some("another process works on it".to_owned()),
            status: "busy".to_owned(),
            ..change
        }));
        Ok(())
    }

    /// What a synchronisation would do now. Reads the store, and changes nothing.
    pub async fn sync_plan(&self, request: SyncRequest) -> Result<SyncPlan> {
        let clone = self.clone_of().await?;
        let names = self.model_names()?;
        let mut plan = SyncPlan {
            mode: request.mode().to_owned(),
            changes: Vec::new(),
            by_hand: Vec::new(),
            skipped: Vec::new(),
            puts: 0,
            deletes: 0,
            bytes: 0,
            requests: 0,
            pull: None,
            conflicts: Vec::new(),
            blocked: None,
        };
        let open = self.open_changes(clone)?;
        if request.sends() {
            for pending in clone.pending()?.into_iter().filter(|p| p.status != peat_clone::PendingStatus::Parked) {
                plan.changes.push(pending_change(&names, pending));
            }
            plan.deletes = open.deletes.values().sum();
            let foreseen = clone.foresee().await?;
            (plan.puts, plan.bytes) = (foreseen.puts, foreseen.bytes);
            let refused = foreseen.refused.into_iter();
            plan.conflicts.extend(refused.map(|(change, error)| format!("change {change} would be refused: {error}")));
        }
        let mut hand = self.hand(clone, clone.by_hand()?, &[]);
        if request.adds() {
            hand = hand.without(&open.paths);
        }
        if request.adds() && request.deletes {
            hand = hand.deleting(clone, true)?;
        }
        if request.adds() {
            plan.requests += u64::from(!hand.files.is_empty());
            plan.puts += hand.files.len() as u64 - hand.deletes();
            plan.deletes += hand.deletes();
            plan.bytes += hand.bytes();
        }
        if request.sends() && !request.allow_deletes {
            plan.blocked = self.too_many(plan.deletes, clone)?.map(|e| e.to_string());
        }
        plan.skipped = hand.skipped;
        let files = hand.files;
        // A commit is one create when nobody else is writing.
        plan.requests += plan.changes.len() as u64;
        if request.fetches() {
            let preview = clone.preview().await?;
            // One request tells that nothing is new; each entry is one more.
            let entries = preview.to.0.saturating_sub(preview.from.map_or(0, |from| from.0));
            plan.requests += 1 + if preview.exact { entries } else { 0 };
            let changed = preview.puts.iter().map(|(_, path, _)| path);
            for path in changed.chain(preview.deletes.iter().map(|(_, path)| path)) {
                let by_hand = files.iter().any(|file| file.path == *path && !file.missing);
                if by_hand {
                    plan.conflicts
                        .push(format!("{path} was changed by hand, and in the datastore: it will be put aside"));
                }
                if request.sends()
                    && let Some(change) = open.relied_on.get(path)
                {
                    // (Others are planned anew on what is there by then.)
                    plan.conflicts.push(format!(
                        "{path} changed in the datastore: change {change}, which was made from what it was, is refused"
                    ));
                }
            }
            plan.pull = Some(PulledPlan {
                from: preview.from,
                to: preview.to,
                exact: preview.exact,
                puts: preview.puts.len() as u64 + preview.restores.0,
                deletes: preview.deletes.len() as u64,
                bytes: preview.puts.iter().map(|(.., size)| size).sum::<u64>() + preview.restores.1,
            });
        }
        plan.by_hand = files.iter().chain(&hand.missing).map(HandFile::report).collect();
        Ok(plan)
    }

    /// What changes of the journal that can still be sent are about.
    pub(super) fn open_changes(&self, clone: &LocalClone) -> Result<Open> {
        let mut open = Open::default();
        for pending in clone.pending()?.into_iter().filter(|p| p.status != peat_clone::PendingStatus::Parked) {
            let mut deletes = 0;
            match pending.kind.as_str() {
                DELETE => {
                    for unit in &pending.units {
                        let items = clone.items(unit, "")?;
                        deletes +=
                            items.iter().filter(|item| !item.path.as_str().starts_with("leases/")).count() as u64;
                    }
                }
                ADD => {
                    let hand: HandChange = payload(clone, &pending).unwrap_or_default();
                    deletes = hand.deletes.len() as u64;
                    let files = hand.files.into_iter().map(|file| file.path);
                    for path in files.chain(hand.deletes.into_iter().map(|file| file.path)) {
                        open.relied_on.insert(path.clone(), pending.change);
                        open.paths.insert(path);
                    }
                }
                REWRITE => {
                    let steps = payload(clone, &pending).map_or_else(Vec::new, |rewrite: Rewrite| rewrite.units);
                    let steps = steps.iter().flat_map(|unit| &unit.steps);
                    deletes = steps.clone().filter(|step| step.to.is_none()).count() as u64;
                    open.relied_on.extend(steps.map(|step| (step.path.clone(), pending.change)));
                }
                _ => {}
            }
            open.deletes.insert(pending.change, deletes);
            open.changes.insert(pending.change, pending);
        }
        Ok(open)
    }

    /// The refusal of so many deletes, when they are too many.
    pub(crate) fn too_many(&self, deletes: u64, clone: &LocalClone) -> Result<Option<Error>> {
        let limit = self.marker().datastore.as_ref().and_then(|datastore| datastore.delete_limit).unwrap_or_default();
        let all: u64 = clone.units()?.iter().map(|unit| unit.items).sum();
        let share = (deletes * 100).checked_div(all).unwrap_or_default();
        if deletes <= limit.items && share <= limit.percent {
            return Ok(None);
        }
        let message = format!(
            "this would delete {deletes} of {all} items, more than {} or {} %; nothing was sent",
            limit.items, limit.percent
        );
        Ok(Some(Error::new(Kind::Conflict, message).with_code("many_deletes")))
    }
}

/// What a pending change says. (Another process may have sent it by now.)
fn payload<T: DeserializeOwned>(clone: &LocalClone, pending: &Pending) -> Option<T> {
    let (_, change) = clone.pending_show(pending.change).ok()?;
    serde_json::from_value(change.payload).ok()
}

/// How to go on when a push deletes too much.
fn pushing(error: Error, deletes: bool, waiting: bool) -> Error {
    let push = if deletes { "peat datastore sync --push --deletes" } else { "peat datastore sync --push" };
    let journal = if waiting { " and 'peat pending list'" } else { "" };
    error
        .with_hint(format!("see them with '{push} --dry-run'{journal}"))
        .with_hint(format!("if that is meant: '{push} --allow-deletes'"))
}
