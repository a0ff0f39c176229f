//! Changes: intentions that are journalled first, planned at every attempt, and committed at most once.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use peat_types::{ChangeId, Seq, Timestamp, Unit};

use crate::{Brought, Capability, Item};

/// How long one call keeps trying to commit unless told otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that a change brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// These.
    Bytes(Bytes),
    /// Those of a file, which is copied into the journal: nobody else's edit changes what was meant.
    File(PathBuf),
}

impl From<Bytes> for Source {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// What somebody wants to happen.
#[derive(Clone, Debug)]
pub struct NewChange {
    /// Names the planner's way of carrying it out.
    pub kind: String,
    /// What the planner needs to know.
    pub payload: serde_json::Value,
    /// The units it may touch.
    pub units: Vec<Unit>,
    /// Contents it brings, journalled with it.
    pub contents: Vec<Source>,
    /// One line for people.
    pub message: String,
    /// For people; `user@host` of the clone when absent.
    pub author: Option<String>,
    /// What to do when it is refused while the caller is still there.
    pub on_refusal: OnRefusal,
    /// The lease of a parent process it is made under.
    pub capability: Option<Capability>,
    /// How long to keep trying before it is left pending.
    pub patience: Duration,
}

impl NewChange {
    /// A change of `kind` to `units`, with nothing else said.
    pub fn new(kind: impl Into<String>, units: Vec<Unit>, payload: serde_json::Value) -> Self {
        Self {
            kind: kind.into(),
            payload,
            units,
            contents: Vec::new(),
            message: String::new(),
            author: None,
            on_refusal: OnRefusal::Park,
            capability: None,
            patience: PATIENCE,
        }
    }
}

/// What becomes of a change that is refused while the caller that made it is still there to hear about it. One that is
/// found later, after a crash, is always parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRefusal {
    /// Put it aside: its bytes exist nowhere else.
    #[default]
    Park,
    /// Forget it: the caller has all of it and gets the error.
    Drop,
}

/// A journalled change, as a [`Planner`](crate::Planner) sees it.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its permanent id.
    pub id: ChangeId,
    /// As in [`NewChange`].
    pub kind: String,
    /// As in [`NewChange`].
    pub payload: serde_json::Value,
    /// As in [`NewChange`].
    pub units: Vec<Unit>,
    /// As in [`NewChange`]; they stay in the journal.
    pub contents: Vec<Brought>,
    /// As in [`NewChange`].
    pub message: String,
    /// Who made it, for people.
    pub author: String,
    /// When it was made.
    pub time: Timestamp,
    /// Whether it ends a run that never held a lease, or was adopted after its lease was lost.
    pub unleased: bool,
}

/// A change that is in the log.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The entry that holds it.
    pub seq: Seq,
    /// Its id.
    pub change: ChangeId,
    /// What the planner answered for the attempt that was committed.
    pub answer: serde_json::Value,
    /// The items it set, as stored.
    pub items: Vec<Item>,
}

/// How a change of the journal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingStatus {
    /// To be committed.
    Pending,
    /// An attempt may or may not be in the log.
    Unknown,
    /// Refused; waits for a decision.
    Parked,
    /// The start of a run; only ever resolved, never sent again by another invocation.
    Starting,
}

/// A change of the journal.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its id.
    pub change: ChangeId,
    /// As in [`NewChange`].
    pub kind: String,
    /// As in [`NewChange`].
    pub message: String,
    /// Who made it.
    pub author: String,
    /// When.
    pub time: Timestamp,
    /// As in [`NewChange`].
    pub units: Vec<Unit>,
    /// Number of contents it brings.
    pub contents: usize,
    /// Bytes they have.
    pub bytes: u64,
    /// How it stands.
    pub status: PendingStatus,
    /// Times it was sent.
    pub attempts: u32,
    /// Why it is parked or what went wrong last: slug and message.
    pub reason: Option<(String, String)>,
}

/// How a parked change is taken up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopt {
    /// As it is: guards are checked again.
    Retry,
    /// Without the lease it was made under; the planner sees it as unleased.
    Unleased,
}

/// What became of the changes earlier invocations left behind.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// Found in the log or committed now.
    pub committed: Vec<Committed>,
    /// Put aside now.
    pub parked: Vec<Pending>,
    /// Still open, because the store did not answer.
    pub unknown: Vec<Pending>,
    /// Still open, because another process works on them, and hears what becomes of them.
    pub busy: Vec<Pending>,
    /// Runs whose start was in the log and whose process is gone: released as interrupted.
    pub interrupted: Vec<ChangeId>,
    /// Starts that never got into the log and never will.
    pub aborted: Vec<ChangeId>,
}
