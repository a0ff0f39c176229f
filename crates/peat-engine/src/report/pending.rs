//! Reports about changes that are not in the log.

use peat_types::{ChangeId, Seq, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::schema;

/// A change that is not in the log yet.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingChange {
    /// Its id.
    pub change: ChangeId,
    /// What it does.
    pub kind: String,
    /// `pending`, `unknown`, `parked` or `starting`.
    pub status: String,
    /// One line.
    pub message: String,
    /// Who.
    pub author: String,
    /// When.
    pub time: Timestamp,
    /// Units it touches.
    pub units: Vec<String>,
    /// Names of the models behind them, where this repository knows them.
    pub models: Vec<String>,
    /// Contents it brings.
    pub contents: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Times it was sent.
    pub attempts: u32,
    /// Slug of the reason it is parked for or of what went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// That reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `peat pending list`.
#[derive(Clone, Debug, Serialize)]
pub struct PendingList {
    /// Oldest first.
    pub changes: Vec<PendingChange>,
    /// How many.
    pub total: u64,
}

/// `peat pending show`.
#[derive(Clone, Debug, Serialize)]
pub struct PendingShow {
    /// The change.
    #[serde(flatten)]
    pub change: PendingChange,
    /// What it is to do.
    pub payload: Value,
    /// Its contents: size, and text when it is short text.
    pub content: Vec<Value>,
}

/// `peat pending adopt` and `peat pending drop`.
#[derive(Clone, Debug, Serialize)]
pub struct PendingDone {
    /// The change.
    pub change: ChangeId,
    /// `adopted` or `dropped`.
    pub status: String,
    /// The entry that holds it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
}

schema! {
    PendingList => "peat.pending.list/1",
    PendingShow => "peat.pending.show/1",
    PendingDone => "peat.pending.done/1",
}
