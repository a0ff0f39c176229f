//! What a ledger is: its `ns.json`, and where it came from and went.

use peat_types::{LedgerId, Namespace, Seq, Timestamp};
use serde::{Deserialize, Serialize};

/// `ns.json`: written once when a namespace is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NsInfo {
    /// Major format version; a reader that does not know it refuses.
    pub format: u32,
    /// Identity of the ledger.
    pub ledger: LedgerId,
    /// The namespace it was created under.
    pub namespace: Namespace,
    /// `repoId` of the repository that owns the namespace.
    pub owner: String,
    /// The ledgers whose entries this one goes on from, oldest first; empty for one that was not moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origin: Vec<Ancestor>,
    /// When it was created; informational.
    pub created: Timestamp,
    /// Limits every client of this ledger keeps.
    pub params: Params,
    /// What the capability probe found; opaque here.
    #[serde(default)]
    pub probe: serde_json::Value,
    /// What a newer version wrote beside; it stays when the file is written again.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, serde_json::Value>,
}

impl NsInfo {
    /// The ledger that the entry in a slot names: this one, or the ancestor whose entries reach so far.
    pub fn ledger_at(&self, seq: Seq) -> LedgerId {
        self.origin.iter().find(|from| seq <= from.upto).map_or(self.ledger, |from| from.ledger)
    }

    /// Whether it is that ledger, or what became of it.
    pub fn comes_from(&self, ledger: LedgerId) -> bool {
        self.ledger == ledger || self.origin.iter().any(|from| from.ledger == ledger)
    }
}

/// What stands in the place of `ns.json` while a ledger is moved there: whose copy it will be. It is replaced by the one of
/// the copy, by whoever comes so far with the same ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Major format version, as in [`NsInfo`].
    pub format: u32,
    /// Identity of the ledger that is moved, where it is now.
    pub arriving: LedgerId,
}

impl Claim {
    /// The claim that these bytes are, if they are one.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// A ledger that was moved: its entries are the first ones of the ledger that took its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// Identity it had.
    pub ledger: LedgerId,
    /// Its last entry that counts.
    pub upto: Seq,
}

/// Where a ledger went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// URL of the store that holds it from here on.
    pub url: String,
    /// The namespace in it.
    pub namespace: Namespace,
    /// Identity of the ledger there.
    pub ledger: LedgerId,
    /// The last entry that it took along.
    pub upto: Seq,
    /// Address of the server, where the store has one of its own: without it the URL leads elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

/// Limits that hold for one ledger. Sizes in bytes, times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Params {
    /// Largest content that may travel inside an entry.
    pub inline_file: u64,
    /// Largest sum of contents that may travel inside one transaction.
    pub inline_tx: u64,
    /// Largest entry.
    pub entry_max: u64,
    /// Entries the ring remembers.
    pub ring: u32,
    /// Preferred size of a pack.
    pub pack_target: u64,
    /// Larger contents are cut into parts of this size, each a block of its own.
    pub part: u64,
    /// How long after a look at the head a probe of the next slot is enough.
    pub fresh_ms: u64,
    /// How long after a LIST of the log the next one is due (notices a bucket that was set back).
    pub relist_ms: u64,
    /// Time-to-live of leases.
    pub lease_ttl_ms: u64,
    /// Time-out of one create.
    pub create_timeout_ms: u64,
}

impl Params {
    /// Largest content: more parts than a row may have would be needed for a larger one.
    pub fn largest(&self) -> u64 {
        self.part.saturating_mul(u64::from(crate::format::row::MAX_PARTS))
    }
}

impl Default for Params {
    fn default() -> Self {
        Self {
            inline_file: 64 << 10,
            inline_tx: 256 << 10,
            entry_max: 8 << 20,
            ring: 512,
            pack_target: 16 << 20,
            part: 8 << 20,
            fresh_ms: 2 * 3600 * 1000,
            relist_ms: 15 * 60 * 1000,
            lease_ttl_ms: 30_000,
            create_timeout_ms: 10_000,
        }
    }
}
