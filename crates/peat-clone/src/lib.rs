//! One machine's side of a ledger: what it has seen (SQLite and a materialised tree), what it has not committed yet (a
//! durable journal), and the leases of the runs that happen on it.
//!
//! Units, item paths and kinds of change are opaque here: a [`Planner`] knows what they mean. See
//! `docs/design/002-clone.md`.

mod anchor;
mod beside;
mod byhand;
mod change;
mod commit;
mod db;
mod doctor;
mod files;
mod handle;
mod history;
mod identity;
mod item;
mod journal;
mod lease;
mod mend;
mod moving;
mod options;
mod planner;
mod repair;
mod report;
mod sync;
mod tree;
mod upkeep;
mod watch;

pub use byhand::{ByHand, HandFile, Preview};
pub use change::{Adopt, Change, Committed, NewChange, OnRefusal, Pending, PendingStatus, Settled, Source};
pub use commit::Foreseen;
pub use handle::{LocalClone, WHOLE};
pub use history::{REWRITE, Restore, Rewrite, RewriteUnit, Step, Stored, Undo, plan_rewrite};
pub use item::{Item, Pulled, Scope, UnitInfo};
pub use journal::{Brought, NOT_JOURNALLED};
pub use lease::{Capability, Grant, LeaseMode, NewRun, Run};
pub use moving::{BegunIndex, Standing};
pub use options::{Aside, Durability, Event, Holder, Hydration, NewNamespace, Options, Reporter, Silent};
pub use planner::{Interrupted, NOTHING_LEFT, Plan, PlanContent, PlanOp, Planner, Refusal, View};
pub use report::{Finding, LeaseInfo, Local, Repair, Spent};
pub use upkeep::{Maintained, Tried, Upkeep};
pub use watch::{Jumped, Watch, WatchOptions, Watched, WatchedChange};

// What a caller needs to read the answers of this room.
pub use peat_ledger::{
    Ancestor, Broken, Built, Checkpoint, Claim, Collected, Copied, CopyPlan, Doomed, Entry, FileRow, Flaw, GcPlan,
    Kept, Lease, LogLine, LogPage, LogQuery, MendPlan, Mended, Moved, NsInfo, ObjectKind, OpRecord, Orphan, Params,
    Past, Pin, PurgePlan, Purged, Rank, Rebuild, Tail, Together, TxHead, TxKind, UnitDiff, UnitOps, Verified,
};
