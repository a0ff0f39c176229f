//! The seam to whoever knows what a change means: it turns an intention into operations on the state of the moment.

use async_trait::async_trait;
use bytes::Bytes;
use peat_ledger::{FileRow, Lease, Rank};
use peat_types::{Error, Hash, ItemPath, Kind, Result, Seq, Unit};

use crate::{Change, Item};

/// Plans changes. Called at every attempt, each time with the newest known state of the change's units, so it must
/// assign version numbers and "latest" from the view it is given and remember nothing (invariant A2). Changes of earlier
/// invocations, and of other versions of the program, are planned too.
#[async_trait]
pub trait Planner: Send + Sync {
    /// The operations that carry out `change` on the state shown by `view`.
    async fn plan(&self, change: &Change, view: &dyn View) -> Result<Plan, Refusal>;

    /// The operations that mark what a dead run left behind as interrupted; they are committed together with the
    /// takeover or release of its lease.
    async fn interrupt(&self, dead: &Interrupted, view: &dyn View) -> Result<Plan, Refusal>;

    /// The files of the tree that a change was made from, each with the hash of what it held then; without one where it
    /// had been removed. Whatever they hold when the change is committed is newer than it.
    fn made_from(&self, change: &Change) -> Vec<(ItemPath, Option<Hash>)> {
        let _ = change;
        Vec::new()
    }

    /// What people call a unit; for messages.
    fn name_of(&self, unit: &Unit) -> String {
        unit.to_string()
    }
}

/// The units of a change at one head. Reads are local but for contents that are not here yet.
#[async_trait]
pub trait View: Send + Sync {
    /// The units of the change.
    fn units(&self) -> &[Unit];

    /// The entry that changed the unit last; `None` when the unit does not exist.
    fn seq(&self, unit: &Unit) -> Option<Seq>;

    /// Items of the unit whose path starts with `prefix`, by path.
    fn items(&self, unit: &Unit, prefix: &str) -> Result<Vec<Item>>;

    /// One item.
    fn item(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Item>>;

    /// The content of an item, fetched when it is not here. `Offline` when that fails; never null, never stale.
    async fn read(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Bytes>>;
}

/// Code of a refusal that says: the ledger holds all of that already. Such a change is forgotten, not put aside.
pub const NOTHING_LEFT: &str = "nothing_left";

/// What a change comes to on one state.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In order; later ones see earlier ones.
    pub ops: Vec<PlanOp>,
    /// Handed back by the commit (version numbers and the like).
    pub answer: serde_json::Value,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum PlanOp {
    /// Sets a path.
    Put {
        /// Unit of the change.
        unit: Unit,
        /// The path.
        path: ItemPath,
        /// Its rank from now on.
        rank: Rank,
        /// Whether the file is executable.
        executable: bool,
        /// The bytes.
        content: PlanContent,
    },
    /// Removes a path; nothing happens when it does not exist.
    Delete {
        /// Unit of the change.
        unit: Unit,
        /// The path.
        path: ItemPath,
    },
    /// Moves a path to another rank; nothing happens when it does not exist.
    Rank {
        /// Unit of the change.
        unit: Unit,
        /// The path.
        path: ItemPath,
        /// Its rank from now on.
        rank: Rank,
    },
}

/// Content of a put.
#[derive(Clone, Debug)]
pub enum PlanContent {
    /// These bytes.
    Bytes(Bytes),
    /// The content with this index in [`Change::contents`].
    Journalled(usize),
    /// A content that some kept state has. It is referred to where it lies as long as the newest state may (R3), else
    /// stored again.
    Stored(FileRow),
}

/// Why a change was not planned.
#[derive(Debug)]
pub enum Refusal {
    /// The change does not fit the state and never will without somebody's decision: it is parked (or dropped, see
    /// [`OnRefusal`](crate::OnRefusal)).
    Refused(Error),
    /// Planning was not possible now, say because a content could not be read: the change stays pending.
    Failed(Error),
}

/// For `?`: an error that says something about the change refuses it, one that says something about the moment (a
/// content that could not be read) leaves it pending.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error.kind() {
            Kind::Invalid | Kind::Conflict | Kind::AlreadyExists | Kind::NotFound | Kind::Unsupported => {
                Self::Refused(error)
            }
            _ => Self::Failed(error),
        }
    }
}

/// A run whose process is gone.
#[derive(Clone, Debug)]
pub struct Interrupted {
    /// The unit whose lease it held.
    pub unit: Unit,
    /// The lease as it was held; its nonce names the run.
    pub lease: Lease,
}
