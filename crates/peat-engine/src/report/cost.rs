//! What commands cost, and how much is here.

use peat_types::Timestamp;
use serde::Serialize;

/// What a command asked of the store.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandCost {
    /// When it ended, by this machine's clock.
    pub at: Timestamp,
    /// Its name, without what it was given.
    pub command: String,
    /// Requests.
    pub requests: u64,
    /// Bytes of bodies sent.
    pub bytes_sent: u64,
    /// Bytes of bodies received.
    pub bytes_received: u64,
    /// How long it took.
    pub duration_ms: u64,
    /// Dollars for the requests at list price, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_usd: Option<f64>,
}

/// How much of the contents is on this machine.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalContents {
    /// Items known.
    pub items: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Items whose contents are here.
    pub local_items: u64,
    /// Bytes of them.
    pub local_bytes: u64,
}

/// Objects of a namespace in its store.
#[derive(Clone, Debug, Serialize)]
pub struct StoreSize {
    /// How many.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
}
