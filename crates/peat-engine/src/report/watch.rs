//! What is seen when a namespace is followed.

use peat_types::{ChangeId, Seq, Timestamp, TxId};
use serde::Serialize;

use super::schema;

/// One line of `peat datastore watch`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchEvent {
    /// `change`; or `jumped` when the changes up to `seq` are no longer kept by the ledger.
    pub event: &'static str,
    /// The entry that holds the change; of a jump, the entry that is followed from now on.
    pub seq: Seq,
    /// Of a jump: the last entry that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Seq>,
    /// The change.
    #[serde(flatten)]
    pub change: Option<WatchChange>,
    /// Units it changed; of a jump, all that changed in between.
    pub units: Vec<WatchUnit>,
}

/// What a change is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchChange {
    /// Identity of the change: the same however often it is given.
    pub change: ChangeId,
    /// Identity of the attempt.
    pub tx: TxId,
    /// `change`, `start`, `end`, `abort`, ….
    pub kind: String,
    /// When it was made, by its author's clock.
    pub time: Timestamp,
    /// Who.
    pub author: String,
    /// One line.
    pub message: String,
}

/// A unit that changed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchUnit {
    /// The unit.
    pub unit: String,
    /// Name of the model behind it, where this repository or the change itself knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// Of a jump: whether the unit is not there any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// Data versions that were written.
    pub data: Vec<WatchData>,
    /// Output records that were written.
    pub outputs: Vec<WatchOutput>,
    /// Paths that were set, without lease records.
    pub put: Vec<WatchItem>,
    /// Paths that were removed.
    pub deleted: Vec<String>,
}

/// A version of data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchData {
    /// Name of the data item.
    pub name: String,
    /// The version.
    pub version: u64,
}

/// An output record.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchOutput {
    /// Id of the output, when the record could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The method.
    pub method_name: String,
    /// How it stands: `running`, `succeeded`, …; absent when the record could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// A path that was set.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchItem {
    /// The path.
    pub path: String,
    /// Size of its content.
    pub size: u64,
}

schema! {
    WatchEvent => "peat.datastore.watch/1",
}
