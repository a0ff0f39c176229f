//! Keeping the ledger in shape: checkpoints and garbage collection, asked for or by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use peat_clone::{Checkpoint, Doomed, ObjectKind};
use peat_types::{Error, Kind, Result, in_span, operation};

use crate::Repo;
use crate::report::{
    CheckpointMade, DatastoreGc, DoctorFinding, FreedObjects, LedgerMaintain, Maintenance, MaintenanceDone, Warning,
};

/// So many entries since the last checkpoint make a new clone slow enough that the command itself makes one.
const IN_LINE: u64 = 512;
/// How long a command is held up by that.
const IN_LINE_TIME: Duration = Duration::from_secs(20);

/// What became of maintenance after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptUp {
    /// Nothing was to be done, or nothing may be.
    No,
    /// Another process was started for it.
    Elsewhere,
    /// A checkpoint was made (or others were faster).
    Here,
}

impl Repo {
    /// After a command: starts what is due of maintenance. A command that committed nothing starts nothing.
    ///
    /// # Errors
    /// What went wrong. The command was carried out all the same, and the next one tries again.
    pub async fn keep_up(&self) -> Result<KeptUp> {
        let (Some(keeper), Some((clone, _))) = (&self.host().keeper, self.opened_now()) else { return Ok(KeptUp::No) };
        if !clone.has_committed() || !self.marker().upkeep.by_itself() {
            return Ok(KeptUp::No);
        }
        let Some(upkeep) = clone.upkeep()?.filter(peat_clone::Upkeep::is_due) else { return Ok(KeptUp::No) };
        if clone.is_maintained_now()? {
            return Ok(KeptUp::No);
        }
        if upkeep.tail.entries < IN_LINE {
            keeper.start(self.root())?;
            return Ok(KeptUp::Elsewhere);
        }
        let made = self.host().env.timeout(IN_LINE_TIME, clone.checkpoint(false, false)).await;
        made.unwrap_or_else(|| Err(Error::new(Kind::Offline, "a checkpoint took too long"))).map(|_| KeptUp::Here)
    }

    /// `peat ledger maintain` as started by [`keep_up`](Self::keep_up): what is due, unless another process of this clone
    /// is at it. Nobody reads what it comes to.
    pub async fn maintain_by_itself(&self) -> Result<()> {
        let work = async { self.clone_of().await?.maintain(self.marker().upkeep.keep()).await.map(drop) };
        in_span(operation!("maintain"), Box::pin(work)).await
    }

    /// What is known of the maintenance of the ledger. No request.
    pub(crate) fn maintenance(&self) -> Result<Option<Maintenance>> {
        let Some((clone, _)) = self.opened_now() else { return Ok(None) };
        let (settings, Some(upkeep)) = (&self.marker().upkeep, clone.upkeep()?) else { return Ok(None) };
        let done = |done: Option<(peat_types::Seq, peat_types::Timestamp)>| {
            done.map(|(seq, time)| MaintenanceDone { seq, time })
        };
        let may_delete = upkeep.last_try.as_ref().map(|tried| tried.may_delete);
        let stored = upkeep.last_try.as_ref().and_then(|tried| tried.stored);
        let mut notes = Vec::new();
        if upkeep.checkpoint_due() {
            let entries = upkeep.tail.entries;
            notes.push(format!(
                "a checkpoint is due, {entries} entries since the last one: 'peat ledger maintain' makes it"
            ));
        }
        if may_delete == Some(false) {
            notes
                .push("the store does not let this clone delete: run 'peat datastore gc' where that is allowed".into());
        }
        notes.extend(too_large(stored, settings.max_bytes()));
        Ok(Some(Maintenance {
            by_itself: settings.by_itself() && self.host().keeper.is_some(),
            checkpoint_due: upkeep.checkpoint_due(),
            tail_entries: upkeep.tail.entries,
            tail_bytes: upkeep.tail.bytes,
            last_checkpoint: done(upkeep.checkpointed),
            collect_due_since: upkeep.collect_since,
            last_collection: done(upkeep.collected),
            may_delete,
            retention_days: settings.keep().as_secs() / (24 * 3600),
            oldest_state: upkeep.floor,
            stored_bytes: stored,
            notes,
        }))
    }

    /// `peat ledger maintain`: does what is due, or with `force` or `full` also what is not.
    pub async fn ledger_maintain(&self, force: bool, full: bool) -> Result<LedgerMaintain> {
        in_span(operation!("maintain"), Box::pin(self.make_checkpoint(force, full))).await
    }

    async fn make_checkpoint(&self, force: bool, full: bool) -> Result<LedgerMaintain> {
        let (clone, place) = self.opened().await?;
        let mut report = LedgerMaintain {
            store: place.opened.url.clone(),
            namespace: place.namespace.clone(),
            status: "done".to_owned(),
            reason: None,
            tail_entries: None,
            checkpoint: None,
        };
        match clone.checkpoint(force, full).await? {
            Checkpoint::NotDue(tail) => {
                "not-due".clone_into(&mut report.status);
                report.tail_entries = Some(tail.entries);
            }
            Checkpoint::Later(reason) => {
                "later".clone_into(&mut report.status);
                report.reason = Some(reason);
            }
            Checkpoint::Done { seq, cut, full, pages, contents, introduced, dropped } => {
                report.checkpoint = Some(CheckpointMade {
                    seq,
                    cut,
                    full,
                    metadata_bytes: pages,
                    content_bytes: contents,
                    packs: introduced,
                    packs_dropped: dropped,
                });
            }
        }
        Ok(report)
    }

    /// What the doctor says of maintenance: it being due for long tells that it does not run.
    pub(crate) fn upkeep_finding(&self) -> Result<Option<DoctorFinding>> {
        let Some(now) = self.maintenance()? else { return Ok(None) };
        let last = |done: Option<MaintenanceDone>| {
            done.map_or("never".to_owned(), |done| format!("entry {} of {}", done.seq, done.time))
        };
        let (checkpoint, collection) = (last(now.last_checkpoint), last(now.last_collection));
        let mut message = format!(
            "{} {} since the last checkpoint ({checkpoint}), garbage collected last: {collection}",
            now.tail_entries,
            if now.tail_entries == 1 { "entry" } else { "entries" }
        );
        if let Some(since) = now.collect_due_since {
            message.push_str(&format!(", due since {since}"));
        }
        let passed = now.tail_entries < IN_LINE;
        let hint = (!passed).then(|| "'peat ledger maintain' makes a checkpoint".to_owned());
        Ok(Some(DoctorFinding { check: "maintenance".to_owned(), passed, item: None, message, hint, repair: None }))
    }

    /// `peat datastore gc`: keeps what was current within `keep`, or as long as the repository says, and frees the rest.
    /// With `dry_run` it only says so.
    pub async fn datastore_gc(&self, keep: Option<Duration>, dry_run: bool) -> Result<DatastoreGc> {
        in_span(operation!("gc", peat.dry_run = dry_run), Box::pin(self.collect(keep, dry_run))).await
    }

    async fn collect(&self, keep: Option<Duration>, dry_run: bool) -> Result<DatastoreGc> {
        let (clone, place) = self.opened().await?;
        let settings = &self.marker().upkeep;
        let keep = keep.unwrap_or_else(|| settings.keep());
        let plan = clone.plan_gc(keep).await?;
        let mut report = DatastoreGc {
            store: place.opened.url.clone(),
            namespace: place.namespace.clone(),
            dry_run,
            keep_ms: u64::try_from(keep.as_millis()).unwrap_or(u64::MAX),
            floor: plan.floor.into(),
            first_entry: plan.keep.into(),
            held_by: plan.held_by.clone(),
            entry: None,
            freed: by_kind(&plan.doomed),
            left: Vec::new(),
            denied: None,
            retained_bytes: plan.retained,
            warnings: Vec::new(),
        };
        let warn = |message| Warning { name: "retention".to_owned(), message };
        report.warnings.extend(too_large(Some(plan.retained), settings.max_bytes()).map(warn));
        if !dry_run {
            let done = clone.gc(&plan, keep).await?;
            report.entry = done.entry;
            report.freed = by_kind(&done.deleted);
            report.left = by_kind(&done.left);
            report.denied = done.denied;
            clone.note_collection(report.denied.is_none(), Some(plan.retained))?;
        }
        Ok(report)
    }
}

/// Says so when more is stored than wanted. Nothing is removed because of it.
fn too_large(stored: Option<u64>, most: Option<u64>) -> Option<String> {
    let (stored, most) = stored.zip(most).filter(|(stored, most)| stored > most)?;
    Some(format!(
        "the store holds {stored} bytes, more than the {most} of datastore.retention.maxBytes; nothing was removed because \
         of that: keep fewer days, or raise the limit"
    ))
}

pub(super) fn by_kind(objects: &[Doomed]) -> Vec<FreedObjects> {
    let mut sums: BTreeMap<ObjectKind, (u64, u64)> = BTreeMap::new();
    for object in objects {
        let sum = sums.entry(object.kind).or_default();
        *sum = (sum.0 + 1, sum.1 + object.size);
    }
    let name = |kind| match kind {
        ObjectKind::Entry => "entries",
        ObjectKind::Pack => "packs",
        ObjectKind::Staged => "staged",
        ObjectKind::Beat => "beats",
        ObjectKind::Probe => "probes",
    };
    let row = |(kind, (objects, bytes))| FreedObjects { kind: name(kind).to_owned(), objects, bytes };
    sums.into_iter().map(row).collect()
}
