//! Keeping the ledger in shape: checkpoints and garbage collection.

use std::collections::BTreeMap;
use std::time::Duration;

use peat_clone::{Checkpoint, Doomed, ObjectKind};
use peat_types::Result;

use crate::Repo;
use crate::report::{CheckpointMade, DatastoreGc, FreedObjects, LedgerMaintain};

impl Repo {
    /// `peat ledger maintain`: does what is due, or with `force` or `full` also what is not.
    pub async fn ledger_maintain(&self, force: bool, full: bool) -> Result<LedgerMaintain> {
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

    /// `peat datastore gc`: keeps what was current within `keep`, and frees the rest. With `dry_run` it only says so.
    pub async fn datastore_gc(&self, keep: Duration, dry_run: bool) -> Result<DatastoreGc> {
        let (clone, place) = self.opened().await?;
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
        };
        if !dry_run {
            let done = clone.gc(&plan, keep).await?;
            report.entry = done.entry;
            report.freed = by_kind(&done.deleted);
            report.left = by_kind(&done.left);
            report.denied = done.denied;
        }
        Ok(report)
    }
}

fn by_kind(objects: &[Doomed]) -> Vec<FreedObjects> {
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
    };
    let row = |(kind, (objects, bytes))| FreedObjects { kind: name(kind).to_owned(), objects, bytes };
    sums.into_iter().map(row).collect()
}
