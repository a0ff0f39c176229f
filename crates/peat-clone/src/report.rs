//! Answers about the state of things.

use std::fmt;

use peat_ledger::Lease;
use peat_types::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

use crate::Item;
use crate::repair::many;

/// A lease as this clone knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// What it is for.
    pub unit: Unit,
    /// The record.
    pub lease: Lease,
    /// Whether a process of this clone holds it and lives.
    pub alive_here: bool,
}

/// One thing the doctor looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Slug of the check.
    pub check: &'static str,
    /// Whether all was well.
    pub passed: bool,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// What [`LocalClone::repair`](crate::LocalClone::repair) would do about it.
    pub repair: Option<Repair>,
}

/// What puts a clone in order. Nothing that is only here is lost by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Makes the tree what the index says.
    Tree {
        /// Items whose files are missing.
        missing: Vec<Item>,
        /// Items whose files hold something else, which is put aside.
        altered: Vec<Item>,
        /// Files that belong to no item, as paths of the tree. They are moved aside, never deleted.
        foreign: Vec<String>,
    },
    /// Commits what can be committed of the journal, and releases what processes that are gone left.
    Settle,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = |n: usize| many(n, "file");
        match self {
            Self::Tree { missing, altered, foreign } => {
                let mut does = Vec::new();
                if !missing.is_empty() {
                    does.push(format!("write {} again", files(missing.len())));
                }
                if !altered.is_empty() {
                    does.push(format!("put {} aside and write again what the datastore holds", files(altered.len())));
                }
                if !foreign.is_empty() {
                    does.push(format!("move {} out of the tree", files(foreign.len())));
                }
                f.write_str(&does.join(", "))
            }
            Self::Settle => f.write_str("commit what can be committed, and release leases of processes that are gone"),
        }
    }
}

/// What a command asked of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// When it ended.
    pub at: Timestamp,
    /// Its name.
    pub command: String,
    /// Requests in all.
    pub requests: u64,
    /// PUT and LIST among them.
    pub writes: u64,
    /// GET among them.
    pub reads: u64,
    /// Bytes of bodies sent.
    pub bytes_out: u64,
    /// Bytes of bodies received.
    pub bytes_in: u64,
    /// How many milliseconds it took.
    pub ms: u64,
}

/// How much of what is known is on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Items known, lease records left out.
    pub items: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Items whose contents are here, by name and size.
    pub local_items: u64,
    /// Bytes of them.
    pub local_bytes: u64,
}
