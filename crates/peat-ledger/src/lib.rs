//! The on-store format and protocol of Peat: one append-only log per namespace, committed with create-if-absent only.
//!
//! `model` holds what a ledger says, [`mod@format`] the bytes it says it in, `ledger` the protocol. See
//! `docs/design/001-ledger.md`.

pub mod format;
mod ledger;
mod model;

pub use ledger::{
    Again, Broken, Built, Checkpoint, Checkpointing, Collected, Collecting, Commit, Copied, Copies, CopyPlan, Dead,
    Doomed, Flaw, Follow, GcPlan, Held, Kept, KnownUnit, Ledger, LogLine, LogPage, LogQuery, Lost, MendPlan, Mended,
    Mending, Neighbours, NewLedger, News, ObjectKind, Orphan, Page, Past, Piece, Pieces, Pin, Prints, PurgePlan,
    Purged, Purging, Rebuild, Scoped, Stored, StoredPiece, Tables, Tail, Together, Turn, UnitDiff, Verified,
};
pub use model::{
    Ancestor, Beat, Claim, Content, ContentRef, Draft, DraftUnit, Entry, FileRow, Guard, Lease, Mark, Moved,
    NewContent, NewPack, NsInfo, Op, OpRecord, PageCache, Params, Part, Rank, Ref, Ring, Root, Segment, State, TxHead,
    TxKind, TxUnit, UnitOps, UnitRow,
};
