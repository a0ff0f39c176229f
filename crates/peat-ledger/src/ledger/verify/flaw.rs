//! What a verification says.

use std::collections::{BTreeMap, BTreeSet};

use peat_types::{Hash, ItemPath, Unit};
use setsum::Setsum;

use crate::format::tree::Hole;
use crate::model::{Content, ContentRef, FileRow, Part, Segment, State, UnitRow};

/// What helps against an object that is missing or damaged, where nothing else does.
pub(super) const RESTORE: &str = "restore it: from a backup, or from an older version of the object where the bucket keeps those; then run \
     'peat ledger verify' again";
/// What helps against a content that cannot be read.
pub(super) const PUT_AGAIN: &str =
    "'peat doctor --repair' puts it back from any copy it finds: run it on each machine that may have the file";
/// What helps against a page of a tree that cannot be read.
pub(super) const BUILD_AGAIN: &str = "'peat doctor --repair' builds what it held again, from the log, from older states and from what the machine knows \
     it is run on: try it on one that was in step; else restore the object from a backup";
/// What helps when an older state is not whole.
pub(super) const LET_GO: &str = "restore the object from a backup, or let that state go: 'peat datastore gc --keep 24h' once it is a day old \
     (a pin on it: 'peat pin rm <name>')";

/// Something that is wrong with a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Key of the object, below the namespace.
    pub object: String,
    /// The unit that is concerned, where it is not all of them.
    pub unit: Option<Unit>,
    /// The item that is concerned.
    pub path: Option<ItemPath>,
    /// What is wrong.
    pub what: String,
    /// What helps.
    pub remedy: String,
    /// Whether only states before the newest one are concerned.
    pub past: bool,
}

impl Flaw {
    pub(super) fn new(object: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (object, what, remedy) = (object.into(), what.into(), remedy.into());
        Self { object, unit: None, path: None, what, remedy, past: false }
    }

    pub(super) fn of(self, unit: &Unit) -> Self {
        Self { unit: Some(unit.clone()), ..self }
    }
}

/// A content, or one part of a large one, that cannot be read from where the newest state says it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its unit.
    pub unit: Unit,
    /// Its item.
    pub path: ItemPath,
    /// Which part of the content; `None` for all of it.
    pub part: Option<u32>,
    /// Where it should lie.
    pub at: ContentRef,
    /// Its size in bytes.
    pub size: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Broken {
    /// The pieces of a file that lie in blocks.
    pub(super) fn pieces(unit: &Unit, path: &ItemPath, row: &FileRow) -> Vec<Self> {
        let piece = |part, at, size, hash| Self { unit: unit.clone(), path: path.clone(), part, at, size, hash };
        match &row.content {
            Content::Tiny(_) => Vec::new(),
            Content::At(at) => vec![piece(None, *at, row.size, row.hash)],
            Content::Parts(parts) => (0..)
                .zip(&**parts)
                .map(|(n, part)| piece(Some(n), ContentRef { block: part.block, sub: 0 }, part.size, part.hash))
                .collect(),
        }
    }

    /// As the row of a file that is this piece and nothing else.
    pub(crate) fn row(&self) -> FileRow {
        self.row_at(self.at)
    }

    /// The same, lying elsewhere.
    pub(crate) fn row_at(&self, at: ContentRef) -> FileRow {
        let (size, hash) = (self.size, self.hash);
        let content = match self.part {
            None => Content::At(at),
            // All of its block, as a part has to be.
            Some(_) => Content::Parts([Part { block: at.block, size, hash }].into()),
        };
        FileRow { executable: false, size, hash, content }
    }
}

/// Pages of the newest state that cannot be read, and what is known of the rest of it.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The newest state.
    pub(crate) state: State,
    /// Pages of the directory.
    pub(crate) directory: Vec<Hole>,
    /// Pages of the pack table.
    pub(crate) packs: Vec<Hole>,
    /// Units whose tables cannot be read whole, as the directory has them.
    pub(crate) units: BTreeMap<Unit, UnitRow>,
    /// Units, files, bytes and setsum of all other units that the directory has.
    pub(crate) sound: Sums,
    /// Where everything else lies that was read: pages, and contents.
    pub(crate) pages: BTreeSet<Segment>,
    pub(crate) blocks: BTreeSet<Segment>,
}

/// Units, files, bytes and setsum.
pub(crate) type Sums = (u64, u64, u64, Setsum);

impl Lost {
    /// Whether all can be read.
    pub(super) fn is_nothing(&self) -> bool {
        self.directory.is_empty() && self.packs.is_empty() && self.units.is_empty()
    }
}

/// An object that no state that is kept refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its key below the namespace.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// What becomes of it, and when.
    pub what: &'static str,
}
