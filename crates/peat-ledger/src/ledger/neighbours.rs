//! Processes that write through one clone: what they know of one another.

use std::fmt;

use bytes::Bytes;
use peat_types::{Seq, TxId};

/// How the processes that share a clone get on with one another: one of them is at the store at a time and takes along
/// those who wait. Nothing true rests on it: what it hands out is checked like what strangers stage, and what it tells is
/// asked of the store. So whatever fails here is simply not there.
pub trait Neighbours: fmt::Debug + Send + Sync {
    /// Takes the turn to go to the store, if it is free now.
    fn turn(&self) -> Turn;

    /// Whoever has the turn has had it for too long: it keeps nobody waiting any more.
    fn depose(&self);

    /// Leaves a group of staged transactions, the first of which is `tx`, for whoever has the turn. `None` when that is
    /// not possible, and then nobody has seen it.
    fn leave(&self, tx: TxId, group: &[u8]) -> Option<Held>;

    /// At most `most` groups left by processes that still live, none larger than `room` bytes.
    fn waiting(&self, most: usize, room: u64) -> Vec<Bytes>;

    /// What was told last.
    fn news(&self) -> News;

    /// Tells those who wait, and whoever comes next.
    fn tell(&self, news: News);
}

/// Whose turn it is.
pub enum Turn {
    /// The caller's, until it drops this or its process ends.
    Mine(Held),
    /// Somebody else's.
    Taken,
    /// Nobody's: it cannot be told, so everybody goes.
    Unknown,
}

/// Given back when it is dropped.
pub type Held = Box<dyn Send + Sync>;

/// How far the log goes, as far as the processes of a clone know. A hint: it says what to ask the store for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The newest entry.
    pub head: Seq,
    /// The newest entry whose writer met others than these processes.
    pub crowd: Seq,
}
