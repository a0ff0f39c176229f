//! What a command cost: requests and bytes, for `--stats`.

use std::fmt;

use serde::Serialize;

use crate::page::{bytes, count, millis};

/// Requests and bytes of one command, as its store counted them.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    pub requests: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub duration_ms: u64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, received) = (bytes(self.bytes_sent), bytes(self.bytes_received));
        write!(f, "{}, {sent} sent, {received} received, {}", count(self.requests, "request"), millis(self.duration_ms))
    }
}
