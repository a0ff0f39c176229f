//! What a ledger says, without its bytes.

use std::sync::Arc;

mod info;

use bytes::Bytes;
use peat_types::{
    ChangeId, CloneId, EntryId, Hash, InstanceId, ItemPath, LedgerId, PackId, RunNonce, Seq, Timestamp, TxId, Unit,
};
use serde::{Deserialize, Serialize};

pub use info::{Ancestor, Claim, Moved, NsInfo, Params};

/// An object that others point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// The log entry with this number.
    Log(Seq),
    /// A pack: the slot it was uploaded for (`s + 1` when the head was `s`), and its random id.
    Pack(Seq, PackId),
}

impl Segment {
    /// Stands for the object that holds the reference itself, in a section whose slot is not known yet. Offsets then
    /// count from the start of the section (or, in directory pages, from the first section; two's complement).
    pub(crate) const OWN: Self = Self::Log(OWN_SEQ);
}

/// The number in [`Segment::OWN`]; no slot has it.
pub(crate) const OWN_SEQ: Seq = Seq(u64::MAX);

/// Where a record lies, resolved to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref {
    /// The object.
    pub segment: Segment,
    /// First byte of the record.
    pub off: u64,
    /// Bytes of the record.
    pub len: u32,
}

/// Where a content lies: inside a block record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentRef {
    /// The block.
    pub block: Ref,
    /// Offset of the content in the unpacked block.
    pub sub: u32,
}

/// A part of a large content: a block of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The block.
    pub block: Ref,
    /// Bytes of the part.
    pub size: u64,
    /// Hash of the part.
    pub hash: Hash,
}

/// Bytes of a file row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// At most 64 bytes, in the row itself.
    Tiny(Bytes),
    /// In a block of an entry or a pack.
    At(ContentRef),
    /// In parts, which together are the content. At least two.
    Parts(Arc<[Part]>),
}

impl Content {
    /// The blocks it lies in.
    pub fn blocks(&self) -> Vec<Ref> {
        match self {
            Self::Tiny(_) => Vec::new(),
            Self::At(at) => vec![at.block],
            Self::Parts(parts) => parts.iter().map(|part| part.block).collect(),
        }
    }
}

/// One file of a unit. Has an encoding of its own (`format::encode_row`/`decode_row`) so that a clone can keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// Whether the file is executable.
    pub executable: bool,
    /// Size in bytes.
    pub size: u64,
    /// Hash of the content.
    pub hash: Hash,
    /// Where the content is.
    pub content: Content,
}

impl FileRow {
    /// Whether both say the same file, wherever its content lies.
    pub fn same_file(&self, other: &Self) -> bool {
        (self.executable, self.size, self.hash) == (other.executable, other.size, other.hash)
    }
}

/// Order of a row within its unit: what is current comes first, what was superseded after it, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rank {
    /// Definition, lease, newest data, last outputs.
    Current,
    /// Superseded; a higher number sorts earlier.
    History(u64),
}

/// A unit as the directory knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitRow {
    /// The entry that changed the unit last.
    pub last_seq: Seq,
    /// Root page of its table; none when the unit is empty.
    pub table: Option<Ref>,
    /// Number of files.
    pub files: u64,
    /// Sum of their sizes.
    pub bytes: u64,
}

/// Kind of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TxKind {
    /// Creation of the ledger (entry 0).
    Genesis,
    /// An ordinary change.
    Change,
    /// Start of a run: takes a lease. Never resubmitted by another invocation.
    Start,
    /// End of a run: data, final output, lease free.
    End,
    /// Empty change of a unit that makes an earlier attempt fail for ever.
    Abort,
    /// The namespace lives elsewhere from here on.
    Moved,
    /// What lay in the log was copied into packs; the state is the same.
    Checkpoint,
    /// The floors were raised: older states are no longer kept.
    Gc,
    /// A state got a name, under which it is kept, or lost it.
    Pin,
}

impl TxKind {
    /// Whether it changes where things are and how long they are kept, but nothing that is there. Such a transaction names
    /// no unit; it is neither staged nor carried.
    pub fn is_maintenance(self) -> bool {
        matches!(self, Self::Moved | Self::Checkpoint | Self::Gc | Self::Pin)
    }
}

/// Proof that a lease is held, checked in the state a transaction is planned on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Guard {
    /// Path of the lease record.
    pub path: ItemPath,
    /// Generation of the lease.
    pub generation: u64,
    /// The run that holds it.
    pub nonce: RunNonce,
}

/// Content of a lease record (JSON at `leases/<unit>`). Never deleted; its generation never decreases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Counts the times the lease was taken.
    pub generation: u64,
    /// Whether a run holds it.
    pub held: bool,
    /// The run that took it last.
    pub nonce: RunNonce,
    /// The clone it ran on.
    pub clone: CloneId,
    /// The process instance it ran in.
    pub instance: InstanceId,
    /// Sequence number in the name of the instance's beat.
    pub base: Seq,
    /// For people.
    pub user: String,
    /// For people.
    pub host: String,
    /// When it was taken; for people.
    pub since: Timestamp,
    /// Time-to-live in milliseconds.
    pub ttl_ms: u64,
}

/// Content of a beat object (JSON), overwritten by its own instance only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Counts the beats.
    pub count: u64,
    /// Runs alive in the instance.
    pub nonces: Vec<RunNonce>,
}

/// One operation on a unit, as planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a path.
    Put {
        /// The path.
        path: ItemPath,
        /// Its rank from now on.
        rank: Rank,
        /// Its rank before, when it existed.
        old: Option<Rank>,
        /// Whether the file is executable.
        executable: bool,
        /// New bytes, or a live reference to equal bytes.
        content: NewContent,
    },
    /// Removes a path.
    Delete {
        /// The path.
        path: ItemPath,
        /// Its rank.
        rank: Rank,
    },
    /// Moves a path to another rank; nothing else about it changes.
    Rank {
        /// The path.
        path: ItemPath,
        /// Its rank before.
        from: Rank,
        /// Its rank from now on.
        to: Rank,
    },
}

/// Content of a planned put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewContent {
    /// Bytes to store.
    Bytes(Bytes),
    /// Bytes that are stored already: a row this clone knows to be live (A11).
    Known(FileRow),
    /// Bytes that were uploaded for this change, and the packs they lie in, which it introduces.
    Uploaded(FileRow, Arc<[NewPack]>),
}

/// A pack that a transaction introduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NewPack {
    /// The slot it was uploaded for.
    pub base: Seq,
    /// Its id.
    pub id: PackId,
    /// Bytes of the object.
    pub size: u64,
    /// Whether it holds tree pages, and nothing else.
    pub pages: bool,
}

impl NewPack {
    /// The object.
    pub fn segment(&self) -> Segment {
        Segment::Pack(self.base, self.id)
    }
}

/// What a transaction does to one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftUnit {
    /// The unit.
    pub unit: Unit,
    /// The seq it was at when the ops were planned; `None` when it did not exist.
    pub expected: Option<Seq>,
    /// The operations; may be empty.
    pub ops: Vec<Op>,
}

/// A planned transaction: one attempt at a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Identity of the attempt.
    pub tx: TxId,
    /// Identity of the change.
    pub change: ChangeId,
    /// Kind.
    pub kind: TxKind,
    /// Who, for people: `user@host`.
    pub author: String,
    /// One line for people.
    pub message: String,
    /// When the change was made; informational.
    pub time: Timestamp,
    /// The lease it is made under.
    pub guard: Option<Guard>,
    /// What it does, sorted by unit, each unit once.
    pub units: Vec<DraftUnit>,
}

/// A unit as named in a transaction head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxUnit {
    /// The unit.
    pub unit: Unit,
    /// The seq it was planned on.
    pub expected: Option<Seq>,
    /// Root page of the table it was planned on. A checkpoint moves the table without touching the seq; what was
    /// planned on the old pages would undo that and may point at what is gone.
    pub planned: Option<Ref>,
    /// The unit after the transaction. Its `last_seq` is the entry's.
    pub row: UnitRow,
}

/// Head of a transaction in an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxHead {
    /// Identity of the attempt.
    pub tx: TxId,
    /// Identity of the change.
    pub change: ChangeId,
    /// Kind.
    pub kind: TxKind,
    /// Who, for people.
    pub author: String,
    /// One line for people.
    pub message: String,
    /// Informational.
    pub time: Timestamp,
    /// The lease it was made under.
    pub guard: Option<Guard>,
    /// Units it changed.
    pub units: Vec<TxUnit>,
    /// Packs it introduced.
    pub packs: Vec<NewPack>,
    /// Lowest log slot it refers to outside its own section.
    pub ext_log: Option<Seq>,
    /// Packs it refers to outside its own section.
    pub ext_packs: Vec<(Seq, PackId)>,
    /// Setsum of the files it added minus that of the files it took away.
    pub setsum: [u8; 32],
    /// Offset of its section in the entry.
    pub off: u64,
    /// Length of its section.
    pub len: u64,
    /// First 16 bytes of the BLAKE3 of its section.
    pub hash: [u8; 16],
}

/// One operation as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpRecord {
    /// A path was set.
    Put(ItemPath, Rank, FileRow),
    /// A path was removed.
    Delete(ItemPath),
    /// A path changed its rank.
    Rank(ItemPath, Rank),
}

/// Operations of a transaction on one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitOps {
    /// The unit.
    pub unit: Unit,
    /// In order.
    pub ops: Vec<OpRecord>,
}

/// Root of the state after an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Root page of the directory.
    pub directory: Option<Ref>,
    /// Root page of the pack table.
    pub packs: Option<Ref>,
    /// Named states that GC keeps.
    pub pins: Vec<(String, Seq)>,
    /// H: pack horizon.
    pub horizon: Seq,
    /// F: oldest readable state.
    pub floor: Seq,
    /// K: first valid slot.
    pub keep: Seq,
    /// Lowest log slot the state refers to.
    pub minlog: Seq,
    /// Number of units.
    pub units: u64,
    /// Number of files.
    pub files: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Setsum over (unit, path, size, hash, executable) of all files.
    pub setsum: [u8; 32],
    /// The newest pages of the last checkpoint.
    pub checkpoint: Option<Ref>,
    /// The entry of the last checkpoint, and when its writer says it was made.
    pub checkpointed: Option<(Seq, Timestamp)>,
    /// The entry of the last garbage collection, and when its writer says it was made.
    pub collected: Option<(Seq, Timestamp)>,
    /// Bytes of the sections since the last checkpoint: tells when the next one is due.
    pub tail: u64,
    /// Where the ledger went; then nobody writes here any more.
    pub moved: Option<Moved>,
    /// Unknown non-critical keys and their CBOR values, carried forward byte for byte.
    pub unknown: Vec<(u32, Vec<u8>)>,
}

/// Which units the newest entries changed: tags only, so a hit must be confirmed, and when the entry does not name the
/// unit, the directory must be asked. A tag stands only with the newest entry that has it. The ring of `n` entries at
/// `head` covers the slots after `head - n`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Per entry, oldest first, ending with the entry that holds the ring: tags (20 bits) of the units it changed
    /// and no later one did.
    pub entries: Vec<Vec<[u8; 3]>>,
}

/// The state after an entry: all that is needed to read from it and to build the next one.
/// `format::encode_state`/`decode_state` give the bytes a clone keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The ledger.
    pub ledger: LedgerId,
    /// The entry.
    pub seq: Seq,
    /// Mark of the entry.
    pub entry: EntryId,
    /// First 16 bytes of the BLAKE3 of the entry as stored.
    pub hash: [u8; 16],
    /// The clone that wrote it.
    pub clone: CloneId,
    /// The instance of it that did.
    pub writer: InstanceId,
    /// Root of the state.
    pub root: Root,
    /// Recent changes.
    pub ring: Ring,
    /// Lowest version that may write after this entry.
    pub min_writer: u32,
}

/// A place in the log: what somebody who follows it must remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The entry.
    pub seq: Seq,
    /// First 16 bytes of the BLAKE3 of the entry as stored, so that the next one can be checked to follow it; zeros when
    /// it is not known.
    pub hash: [u8; 16],
}

/// An entry as read whole.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The state after it.
    pub state: State,
    /// Hash of the entry before it.
    pub prev: [u8; 16],
    /// Informational.
    pub time: Timestamp,
    /// Its transactions.
    pub txs: Vec<TxHead>,
    /// Their operations, one list per transaction.
    pub ops: Vec<Vec<UnitOps>>,
    /// The whole object, for contents and pages that lie in it.
    pub body: Bytes,
    /// Where the tree pages in it lie.
    pub pages: Vec<Ref>,
}

/// Keeps tree pages (records as stored, not unpacked) near. Losing one costs a request, never correctness: the caller
/// checks every page it is given.
pub trait PageCache: Send + Sync {
    /// The record at `at`, if it is here.
    fn get(&self, at: &Ref) -> Option<Bytes>;
    /// Keeps a record.
    fn put(&self, at: &Ref, record: &Bytes);
    /// Keeps many at once.
    fn put_all(&self, records: &[(Ref, Bytes)]) {
        records.iter().for_each(|(at, record)| self.put(at, record));
    }
}
