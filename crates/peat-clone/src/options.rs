//! What a clone is opened from, and how it talks while it works.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use peat_ledger::{Params, Together};
use peat_objects::Store;
use peat_types::{ChangeId, Error, Namespace, Timestamp, Unit};

/// Everything a clone is derived from. There is no second construction site.
#[derive(Clone)]
pub struct Options {
    /// The store, already prefixed to the namespace.
    pub store: Arc<dyn Store>,
    /// The folder that holds the objects of the namespace, where the store is a folder. It is taken for the store only
    /// while it holds the ledger that the clone knows.
    pub folder: Option<PathBuf>,
    /// URL of the store, for people; a clone refuses to be opened with another one than it was made with.
    pub url: String,
    /// The namespace.
    pub namespace: Namespace,
    /// Folder of the clone; holds `clone.json`, `state.db`, `journal/`, `tree/` and `run/`.
    pub dir: PathBuf,
    /// `repoId` of the repository this clone works for; the owner of a namespace that it creates.
    pub repo_id: String,
    /// Which contents are kept here.
    pub hydration: Hydration,
    /// How hard the journal tries to survive a power cut.
    pub durability: Durability,
    /// How writers that come at the same time get on with one another; the default, but for benchmarks.
    pub together: Together,
    /// For people: who works here.
    pub user: String,
    /// For people: on which machine.
    pub host: String,
    /// Is told what takes long.
    pub reporter: Arc<dyn Reporter>,
}

/// Which contents are kept in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hydration {
    /// All of them: a pull downloads what it learns about.
    #[default]
    Full,
    /// Facts, contents of at most 64 bytes and what whole entries brought along; the rest on demand.
    Lazy,
}

/// How hard the journal tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Survives a power cut: file and folder are synced before a change is sent.
    #[default]
    Synced,
    /// Survives the end of the process only. For tests.
    Process,
}

/// What a namespace is created with.
#[derive(Clone, Debug, Default)]
pub struct NewNamespace {
    /// Limits of the ledger.
    pub params: Params,
    /// What [`peat_objects::Verdict`] became in JSON, or anything else when the store was not probed.
    pub probe: serde_json::Value,
}

/// Is told what takes long or went wrong without being an error. Must not block.
pub trait Reporter: Send + Sync {
    /// Something happened.
    fn report(&self, event: Event<'_>);
}

/// A reporter that says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Reporter for Silent {
    fn report(&self, _: Event<'_>) {}
}

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What is held.
    pub unit: Unit,
    /// For people.
    pub user: String,
    /// For people.
    pub host: String,
    /// Since when, by the holder's clock.
    pub since: Timestamp,
}

/// To what a file of the tree that was changed by hand gave way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// The item was changed or removed in the ledger, too.
    Changed,
    /// The item is as it was, and somebody asked for what the ledger holds.
    Wanted,
    /// Nothing tells what it was made from: there was no item here before, or the index was built anew.
    Unknown,
}

/// What a [`Reporter`] hears.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A begin waits for a lease; told at the first poll and at every following one.
    Waiting {
        /// Who holds it.
        holder: &'a Holder,
        /// How long it has waited.
        waited: Duration,
        /// How long it will wait at most.
        limit: Duration,
    },
    /// The holder of a lease was found dead and its lease is taken over.
    TakingOver {
        /// Who held it.
        holder: &'a Holder,
    },
    /// No beat of a run got through for two thirds of its time-to-live.
    BeatLate {
        /// How long none got through.
        silence: Duration,
    },
    /// A change that had waited was refused and put aside.
    Parked {
        /// The change.
        change: ChangeId,
        /// Why.
        why: &'a str,
    },
    /// `state.db` could not be used and was rebuilt.
    Rebuilt {
        /// Why.
        why: &'a str,
    },
    /// A file of the tree was missing or altered and was written again.
    Repaired {
        /// Its path in the tree.
        path: &'a str,
    },
    /// A follower cannot go on for now and keeps trying; told once.
    StoreAway {
        /// Why.
        error: &'a Error,
    },
    /// It goes on.
    StoreBack {
        /// How long it could not.
        away: Duration,
    },
    /// Contents are being downloaded.
    Hydrating {
        /// Items done.
        done: u64,
        /// Items in all.
        of: u64,
        /// Bytes downloaded so far.
        bytes: u64,
    },
    /// Contents of a large change are being uploaded.
    Uploading {
        /// Bytes done.
        done: u64,
        /// Bytes in all.
        of: u64,
    },
    /// A file that somebody had changed by hand had to give way; what it held is elsewhere now.
    PutAside {
        /// To what.
        why: Aside,
        /// Its path in the tree.
        path: &'a str,
        /// Where its content is.
        to: &'a std::path::Path,
    },
    /// A ledger is being copied to another store.
    Copying {
        /// Objects done.
        done: u64,
        /// Objects in all.
        of: u64,
    },
    /// Garbage is being removed from the store.
    Collecting {
        /// Objects done.
        done: u64,
        /// Objects in all.
        of: u64,
    },
}
