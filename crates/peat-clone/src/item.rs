//! What a clone knows.

use peat_ledger::{FileRow, Rank};
use peat_types::{Hash, ItemPath, Seq, Unit};

/// One item as the ledger knows it. The content may or may not be here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The unit it belongs to.
    pub unit: Unit,
    /// Its path: identity within the unit, and place in the tree.
    pub path: ItemPath,
    /// Its rank in the unit.
    pub rank: Rank,
    /// Size, hash and place of the content.
    pub row: FileRow,
}

impl Item {
    /// Size of the content in bytes.
    pub fn size(&self) -> u64 {
        self.row.size
    }

    /// Hash of the content.
    pub fn hash(&self) -> Hash {
        self.row.hash
    }
}

/// A unit as this clone knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitInfo {
    /// The unit.
    pub unit: Unit,
    /// The entry that changed it last, as far as this clone has seen.
    pub seq: Seq,
    /// Up to which entry this clone knows that to be true.
    pub as_of: Seq,
    /// Number of items.
    pub items: u64,
}

/// What to bring up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole namespace.
    All,
    /// These units only, all at one head. Costs are bounded by them, and the global position stays where it is.
    Units(Vec<Unit>),
}

/// What a pull did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    /// Where the clone (or, scoped, its knowledge of the head) stood.
    pub from: Option<Seq>,
    /// Where it stands.
    pub to: Seq,
    /// Entries between the two.
    pub entries: u64,
    /// Items set or removed here.
    pub items: u64,
    /// Items besides these whose contents were not here and are now: what an earlier pull left out, or files that went away
    /// with their folder.
    pub restored: u64,
    /// Bytes of contents that became local.
    pub bytes: u64,
}
