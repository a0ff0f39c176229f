//! What a command cost: requests and bytes, for `--stats`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use peat_engine::Prices;
use peat_objects::{Counts, Op};
use serde::Serialize;

use crate::page::{bytes, count, dollars, millis};

/// Requests and bytes of one command, as its store counted them.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    pub requests: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub duration_ms: u64,
    /// Requests by operation, those that were made.
    pub operations: BTreeMap<Op, u64>,
    /// Dollars for the requests at list price, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_usd: Option<f64>,
}

impl Stats {
    /// What was counted in `elapsed`.
    pub fn new(counted: &Counts, elapsed: Duration, prices: Option<Prices>) -> Self {
        let mut operations = BTreeMap::new();
        for (op, _, count) in counted.rows() {
            *operations.entry(op).or_default() += count.requests;
        }
        let total = counted.total();
        Self {
            requests: total.requests,
            bytes_sent: total.bytes_out,
            bytes_received: total.bytes_in,
            operations,
            estimated_usd: prices.map(|prices| prices.estimate(counted)),
            duration_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// What two machines did at the same time.
    pub fn plus(mut self, other: Self) -> Self {
        for (op, count) in other.operations {
            *self.operations.entry(op).or_default() += count;
        }
        Self {
            operations: self.operations,
            estimated_usd: self.estimated_usd.zip(other.estimated_usd).map(|(ours, theirs)| ours + theirs),
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
        write!(f, "{}", count(self.requests, "request"))?;
        if !self.operations.is_empty() {
            let list: Vec<String> = self.operations.iter().map(|(op, count)| format!("{count} {op}")).collect();
            write!(f, " ({})", list.join(", "))?;
        }
        write!(f, ", {sent} sent, {received} received, {}", millis(self.duration_ms))?;
        self.estimated_usd.map_or(Ok(()), |usd| write!(f, ", about {}", dollars(usd)))
    }
}
