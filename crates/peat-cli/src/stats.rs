//! What a command cost: requests and bytes, for `--stats`.

use std::fmt;
use std::time::Duration;

use peat_objects::Count;
use serde::Serialize;

use crate::page::{bytes, count, millis};

/// Requests and bytes of one command, as its store counted them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    pub requests: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub duration_ms: u64,
}

impl Stats {
    /// What was counted in `elapsed`.
    pub fn new(counted: Count, elapsed: Duration) -> Self {
        Self {
            requests: counted.requests,
            bytes_sent: counted.bytes_out,
            bytes_received: counted.bytes_in,
            duration_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// What two machines did at the same time.
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
            duration_ms: self.duration_ms.max(other.duration_ms),
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, received) = (bytes(self.bytes_sent), bytes(self.bytes_received));
        write!(f, "{}, {sent} sent, {received} received, {}", count(self.requests, "request"), millis(self.duration_ms))
    }
}
