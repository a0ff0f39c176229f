//! Reports about keeping a ledger in shape: maintenance, garbage collection, pins.

use peat_types::{Namespace, Seq, Timestamp};
use serde::Serialize;

use super::{Warning, schema};

/// `peat ledger maintain`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerMaintain {
    /// URL of the store.
    pub store: String,
    /// Namespace.
    pub namespace: Namespace,
    /// `done`, `not-due` or `later`.
    pub status: String,
    /// Why it is to be tried again later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Entries since the last checkpoint, when none was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_entries: Option<u64>,
    /// The checkpoint that was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointMade>,
}

/// What is known of the maintenance of a ledger, without asking the store.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// Whether it runs by itself after commands of this repository, as far as its settings say.
    pub by_itself: bool,
    /// Whether a checkpoint is due.
    pub checkpoint_due: bool,
    /// Entries since the last checkpoint.
    pub tail_entries: u64,
    /// Bytes of their sections.
    pub tail_bytes: u64,
    /// The last checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checkpoint: Option<MaintenanceDone>,
    /// Since when garbage is to be collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collect_due_since: Option<Timestamp>,
    /// The last collection of garbage that changed something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_collection: Option<MaintenanceDone>,
    /// Whether the store lets this clone delete; absent while it was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_delete: Option<bool>,
    /// Days of states that are kept.
    pub retention_days: u64,
    /// The oldest state that can be read.
    pub oldest_state: Seq,
    /// Bytes of the store when garbage was collected here last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// What deserves attention.
    pub notes: Vec<String>,
}

/// An entry of maintenance.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MaintenanceDone {
    /// Its number.
    pub seq: Seq,
    /// When it was made, by its writer's clock.
    pub time: Timestamp,
}

/// A checkpoint.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointMade {
    /// Its entry.
    pub seq: Seq,
    /// The state needs no entry below this one any more.
    pub cut: Seq,
    /// Whether all metadata was rewritten and packs were compacted.
    pub full: bool,
    /// Bytes of metadata written.
    pub metadata_bytes: u64,
    /// Bytes of contents copied.
    pub content_bytes: u64,
    /// Packs introduced.
    pub packs: u64,
    /// Packs that nothing refers to any more.
    pub packs_dropped: u64,
}

/// `peat datastore gc`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreGc {
    /// URL of the store.
    pub store: String,
    /// Namespace.
    pub namespace: Namespace,
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// Milliseconds of states that are kept.
    pub keep_ms: u64,
    /// The oldest state that can be read, before and after.
    pub floor: [Seq; 2],
    /// The first entry that is kept, before and after.
    pub first_entry: [Seq; 2],
    /// The pin that keeps the floor from rising.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// The entry that raised the floors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Seq>,
    /// What is (or would be) freed, by kind.
    pub freed: Vec<FreedObjects>,
    /// What could be freed but was not, by kind.
    pub left: Vec<FreedObjects>,
    /// Why the store refused to delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
    /// Bytes of everything that stays.
    pub retained_bytes: u64,
    /// What deserves attention.
    pub warnings: Vec<Warning>,
}

/// Objects of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct FreedObjects {
    /// `entries`, `packs`, `staged`, `beats` or `probes`.
    pub kind: String,
    /// How many.
    pub objects: u64,
    /// Their size.
    pub bytes: u64,
}

/// A state that is kept under a name.
#[derive(Clone, Debug, Serialize)]
pub struct PinRow {
    /// Its name.
    pub name: String,
    /// The entry after which the state was current.
    pub seq: Seq,
    /// When that was written, by its writer's clock.
    pub time: Timestamp,
}

/// `peat pin list`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PinList {
    /// Namespace.
    pub namespace: Namespace,
    /// By name.
    pub pins: Vec<PinRow>,
    /// The oldest state that can be read, as far as this clone knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_state: Option<Seq>,
}

/// `peat pin add` and `peat pin rm`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PinDone {
    /// Namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: String,
    /// The entry after which the state was current.
    pub seq: Seq,
    /// Whether it is there now.
    pub pinned: bool,
    /// The entry that says so.
    pub entry: Seq,
}

/// `peat datastore purge`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastorePurge {
    /// URL of the store.
    pub store: String,
    /// Namespace.
    pub namespace: Namespace,
    /// The unit.
    pub unit: String,
    /// What is removed: items, or folders of them.
    pub paths: Vec<String>,
    /// Items that are there now.
    pub items: Vec<String>,
    /// Whether entries that are kept tell of them.
    pub in_history: bool,
    /// Items that share a block with what goes, and are stored again.
    pub again: u64,
    /// Bytes of them.
    pub again_bytes: u64,
    /// Items elsewhere with the same bytes, which are not touched: `unit path`.
    pub elsewhere: Vec<String>,
    /// Pins that must be removed first.
    pub pins: Vec<String>,
    /// The oldest state that can be read before it.
    pub oldest_state: Seq,
    /// Entries that are overwritten.
    pub entries: u64,
    /// Bytes of packs, which may all be rewritten.
    pub pack_bytes: u64,
    /// Requests, roughly.
    pub requests_about: u64,
    /// What it does not reach.
    pub out_of_reach: Vec<String>,
    /// What was done; absent when this only says what would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<PurgeDone>,
}

/// What a purge did.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PurgeDone {
    /// Items removed from the present.
    pub items: u64,
    /// Items stored again.
    pub again: u64,
    /// The oldest state that can be read now.
    pub oldest_state: Seq,
    /// Entries overwritten.
    pub overwritten: u64,
    /// What was freed, by kind.
    pub freed: Vec<FreedObjects>,
    /// What could not be overwritten or removed, and may still hold it, by kind.
    pub left: Vec<FreedObjects>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
}

schema! {
    DatastorePurge => "peat.datastore.purge/1",
    LedgerMaintain => "peat.ledger.maintain/1",
    DatastoreGc => "peat.datastore.gc/1",
    PinList => "peat.pin.list/1",
    PinDone => "peat.pin.done/1",
}
