//! Reports about the datastore: its log, its state, what is pending, and its repair.

use std::path::PathBuf;

use peat_types::{CloneId, LedgerId, Namespace, Seq, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::{ByHandFile, CommandCost, LocalContents, Maintenance, PendingChange, StoreSize, Warning, schema};

/// Who holds a lease.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LockHolder {
    /// What is held.
    pub unit: String,
    /// Name of the model behind it, where this repository knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// `user@host`.
    pub holder: String,
    /// Machine.
    pub hostname: String,
    /// The clone that holds it.
    pub clone: CloneId,
    /// Since when, by the holder's clock.
    pub acquired_at: Timestamp,
    /// Time-to-live.
    pub ttl_ms: u64,
    /// How often the lease was taken.
    pub generation: u64,
    /// The run that holds it.
    pub nonce: String,
    /// Whether a living process of this machine holds it.
    pub alive_here: bool,
}

/// `peat status`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// Root of the repository.
    pub path: PathBuf,
    /// Identity of the repository.
    pub repo_id: String,
    /// URL of the store.
    pub store: String,
    /// Whether the store is the private one in `.peat/store`.
    pub private: bool,
    /// Namespace.
    pub namespace: Namespace,
    /// Identity of the ledger.
    pub ledger: LedgerId,
    /// Folder of the clone.
    pub clone_path: PathBuf,
    /// Everything up to here has been seen; absent before the first whole pull.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Seq>,
    /// Newest entry known of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Seq>,
    /// When the store was last asked, by this machine's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync: Option<Timestamp>,
    /// How long ago that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_age_ms: Option<i64>,
    /// Units known here.
    pub units: u64,
    /// Items known here.
    pub items: u64,
    /// Changes that are not in the log.
    pub pending: Vec<PendingChange>,
    /// Leases held, as far as known here.
    pub leases: Vec<LockHolder>,
    /// How the ledger is kept in shape; absent while no entry is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
    /// Files of the tree that were changed, added or removed by hand.
    pub by_hand: Vec<ByHandFile>,
    /// What deserves attention.
    pub notes: Vec<String>,
}

/// `peat datastore status`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreStatus {
    /// `file` or `s3`.
    #[serde(rename = "type")]
    pub kind: String,
    /// URL of the store.
    pub url: String,
    /// The folder of a `file` store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Namespace.
    pub namespace: Namespace,
    /// Whether the store is the private one in `.peat/store`.
    pub private: bool,
    /// Whether the store answered and its ledger is well.
    pub healthy: bool,
    /// What was found.
    pub message: String,
    /// How long the store took to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// Newest entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Seq>,
    /// Up to where everything has been seen here; absent before the first whole pull.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Seq>,
    /// Changes of this machine that are not in the log.
    pub pending: u64,
    /// Leases held, as far as known here.
    pub leases: u64,
    /// `full` or `lazy`.
    pub hydration: String,
    /// How much of the contents is on this machine.
    pub contents: LocalContents,
    /// What the namespace holds in the store, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<StoreSize>,
    /// What the last commands cost, newest first.
    pub recent: Vec<CommandCost>,
    /// How the ledger is kept in shape; absent while no entry is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
}

/// `peat datastore lock status`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    /// Whether any lease is held.
    pub held: bool,
    /// The first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<LockHolder>,
    /// All of them.
    pub leases: Vec<LockHolder>,
    /// `file` or `s3`.
    pub datastore_type: String,
    /// What deserves attention.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// `peat datastore lock release`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LockReleased {
    /// Whether a lease was released.
    pub released: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who held it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_holder: Option<LockHolder>,
}

/// An object of the ledger.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerObject {
    /// Its key below the namespace.
    pub key: String,
    /// Its size.
    pub size: u64,
    /// When it was written, by the store's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<Timestamp>,
}

/// `peat ledger ls`.
#[derive(Clone, Debug, Serialize)]
pub struct LedgerLs {
    /// URL of the store.
    pub store: String,
    /// Namespace.
    pub namespace: Namespace,
    /// Objects in the store's order.
    pub objects: Vec<LedgerObject>,
    /// Whether there are more.
    pub limited: bool,
}

/// `peat ledger cat`.
#[derive(Clone, Debug, Serialize)]
pub struct LedgerCat {
    /// Key of the object below the namespace.
    pub key: String,
    /// The object.
    pub object: Value,
}

/// Something a check looked at.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorFinding {
    /// Slug of the check, or the object.
    pub check: String,
    /// Whether all was well.
    pub passed: bool,
    /// The item that is concerned: model, data and version, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// What was found.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What `peat doctor --repair` would do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<String>,
}

/// An object that no state that is kept refers to.
#[derive(Clone, Debug, Serialize)]
pub struct LedgerOrphan {
    /// Its key below the namespace.
    pub key: String,
    /// Its size.
    pub size: u64,
    /// What becomes of it, and when.
    pub message: String,
}

/// `peat ledger verify`.
#[derive(Clone, Debug, Serialize)]
pub struct LedgerVerify {
    /// URL of the store.
    pub store: String,
    /// Namespace.
    pub namespace: Namespace,
    /// Entries looked at.
    pub entries: u64,
    /// Contents hashed.
    pub contents: u64,
    /// What is wrong.
    pub findings: Vec<DoctorFinding>,
    /// Objects that nothing needs, which is no fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<LedgerOrphan>,
    /// Whether nothing is wrong.
    pub passed: bool,
}

/// `peat doctor datastores`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    /// `pass` or `fail`.
    pub overall_status: String,
    /// `file` or `s3`.
    pub datastore_type: String,
    /// What was looked at.
    pub health_findings: Vec<DoctorFinding>,
    /// What `--repair` did, before this was looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<String>,
    /// What deserves attention.
    pub warnings: Vec<Warning>,
}

schema! {
    StatusReport => "peat.status/1",
    DatastoreStatus => "peat.datastore.status/1",
    LockStatus => "peat.datastore.lock.status/1",
    LockReleased => "peat.datastore.lock.release/1",
    LedgerLs => "peat.ledger.ls/1",
    LedgerCat => "peat.ledger.cat/1",
    LedgerVerify => "peat.ledger.verify/1",
    DoctorReport => "peat.doctor.datastores/1",
}
