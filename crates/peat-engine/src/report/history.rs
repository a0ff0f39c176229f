//! Reports about the past: the log, what entries did, what differs, and what was taken back.

use peat_types::{ChangeId, CloneId, Namespace, Seq, Timestamp, TxId};
use serde::Serialize;

use super::schema;

/// A transaction in the log.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogTransaction {
    /// Identity of the attempt.
    pub tx: TxId,
    /// Identity of the change.
    pub change: ChangeId,
    /// `change`, `start`, `end`, `abort`, ….
    pub kind: String,
    /// Who.
    pub author: String,
    /// One line.
    pub message: String,
    /// When the change was made, by its author's clock.
    pub time: Timestamp,
    /// The run it is part of: its start and its end say the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Units it changed.
    pub units: Vec<String>,
    /// Names of the models behind the units, where this repository knows them.
    pub models: Vec<String>,
}

/// An entry of the log.
#[derive(Clone, Debug, Serialize)]
pub struct LogEntry {
    /// Its number.
    pub seq: Seq,
    /// When it was made, by its writer's clock.
    pub time: Timestamp,
    /// When it was written, by the store's clock where that tells.
    pub written: Timestamp,
    /// Its size in the store.
    pub size: u64,
    /// Its transactions.
    pub transactions: Vec<LogTransaction>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde wants it
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// `peat log`.
#[derive(Clone, Debug, Serialize)]
pub struct LogReport {
    /// Namespace.
    pub namespace: Namespace,
    /// `store` or `clone`.
    pub source: String,
    /// Of a clone: how many entries it never read, from the newest one it knows of down to the oldest shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub unseen: u64,
    /// The model asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The first entry that is still kept.
    pub first: Seq,
    /// Whether there are older ones.
    pub more: bool,
    /// Newest first.
    pub entries: Vec<LogEntry>,
    /// Those that should be among or between them and cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadEntry>,
}

/// An entry that cannot be read.
#[derive(Clone, Debug, Serialize)]
pub struct UnreadEntry {
    /// Its number.
    pub seq: Seq,
    /// Why.
    pub reason: String,
}

/// A data version that a path is a file of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryData {
    /// Name of the data.
    pub name: String,
    /// The version.
    pub version: u64,
}

/// How a content differs from the version before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContentDiff {
    /// What it is compared with, when that is not the same path before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The difference in the unified form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Why there is none, or what was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An item and what happened, or would happen, to it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryItem {
    /// Its unit.
    pub unit: String,
    /// Name of the model behind the unit, where this repository knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// Its path.
    pub path: String,
    /// `set`, `removed`, `added`, `changed`; in a plan `put` or `delete`.
    pub change: &'static str,
    /// Its size before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_before: Option<u64>,
    /// Its size after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The data version it is a file of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<HistoryData>,
    /// With `--content`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<ContentDiff>,
}

/// A transaction with its items.
#[derive(Clone, Debug, Serialize)]
pub struct ShowTransaction {
    /// The transaction.
    #[serde(flatten)]
    pub about: LogTransaction,
    /// Items it set or removed.
    pub items: Vec<HistoryItem>,
}

/// `peat show`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShowReport {
    /// Namespace.
    pub namespace: Namespace,
    /// The entry.
    pub seq: Seq,
    /// When it was made, by its writer's clock.
    pub time: Timestamp,
    /// When it was written, by the store's clock where that tells.
    pub written: Timestamp,
    /// Its size in the store.
    pub size: u64,
    /// The clone that wrote it.
    pub writer: CloneId,
    /// The oldest state that can be read.
    pub oldest_state: Seq,
    /// Its transactions.
    pub transactions: Vec<ShowTransaction>,
}

/// `peat diff`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffReport {
    /// Namespace.
    pub namespace: Namespace,
    /// Entry of the state before.
    pub from: Seq,
    /// When that was written.
    pub from_written: Timestamp,
    /// Entry of the state after.
    pub to: Seq,
    /// When that was written.
    pub to_written: Timestamp,
    /// The model asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Items that are only in the state after.
    pub added: u64,
    /// Items with another content.
    pub changed: u64,
    /// Items that are only in the state before.
    pub removed: u64,
    /// All of them, by unit and path.
    pub items: Vec<HistoryItem>,
}

/// A transaction that is taken back.
#[derive(Clone, Debug, Serialize)]
pub struct UndoneChange {
    /// Its entry.
    pub seq: Seq,
    /// The transaction.
    #[serde(flatten)]
    pub about: LogTransaction,
}

/// `peat undo`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoReport {
    /// Namespace.
    pub namespace: Namespace,
    /// The entry that was named.
    pub seq: Seq,
    /// Whether this only says what would happen.
    pub dry_run: bool,
    /// What is taken back: of a run its start and its end.
    pub undone: Vec<UndoneChange>,
    /// The entry that takes it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Seq>,
    /// Items that are again what they were.
    pub puts: u64,
    /// Items that go.
    pub deletes: u64,
    /// All of them.
    pub items: Vec<HistoryItem>,
}

/// `peat restore`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreReport {
    /// Namespace.
    pub namespace: Namespace,
    /// Entry of the state that the present becomes equal to.
    pub at: Seq,
    /// When that was written.
    pub written: Timestamp,
    /// Entry of the state that it was compared with: the newest.
    pub from: Seq,
    /// The model asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether this only says what would happen.
    pub dry_run: bool,
    /// The entry that did it; absent when the present is equal already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Seq>,
    /// Items that are again what they were.
    pub puts: u64,
    /// Items that go.
    pub deletes: u64,
    /// Whether so many deletes need `--allow-deletes`.
    pub needs_allow_deletes: bool,
    /// All of them.
    pub items: Vec<HistoryItem>,
}

schema! {
    LogReport => "peat.log/1",
    ShowReport => "peat.show/1",
    DiffReport => "peat.diff/1",
    UndoReport => "peat.undo/1",
    RestoreReport => "peat.restore/1",
}
