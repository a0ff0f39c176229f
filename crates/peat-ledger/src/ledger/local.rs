//! Writers of one process: one of them is at the store at a time, and takes along those who wait for it.
//!
//! Nothing that is true rests on this. Who waits judges for itself, by the entries that become known here, what became
//! of its transaction; who leads may be cancelled, stuck or wrong, and whoever waited too long does without it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peat_types::Seq;
use tokio::sync::watch;

use crate::format::Section;
use crate::model::Entry;

/// How writers that come at the same time get on with one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Together {
    /// Those of one process go out in one entry; those of several help one another.
    #[default]
    Batched,
    /// All help one another, those of one process like strangers. For `bench/`, which shows what batching is worth.
    Helped,
    /// Each for itself with jittered retries, as on any log with one winner for each slot. For `bench/`, which shows
    /// what helping is worth; nobody should want it otherwise.
    Alone,
}

/// Entries kept for those who come with an older base, and their size.
const RECENT: usize = 8;
const RECENT_BYTES: usize = 1 << 20;

/// Shared by all copies of a handle.
#[derive(Debug, Default)]
pub(super) struct Local {
    queue: Mutex<Queue>,
    /// Counts what those who wait should hear of.
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct Queue {
    next: u64,
    /// Who is at the store.
    leader: Option<u64>,
    /// Who waits, in the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    /// The newest entries read or written by this process, without a gap.
    recent: VecDeque<Entry>,
}

impl Queue {
    fn is_first(&self, ticket: u64) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == ticket)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("leader", &self.leader).field("waiting", &self.waiting.len()).finish()
    }
}

#[derive(Clone)]
struct Waiting {
    passenger: Passenger,
    aboard: Arc<AtomicU32>,
}

/// A transaction that waits.
#[derive(Clone)]
pub(super) struct Passenger {
    /// The slot it was planned for.
    pub planned_for: Seq,
    pub section: Section,
}

/// A place in the queue, given back when it is dropped.
pub(super) struct Seat {
    local: Arc<Local>,
    ticket: u64,
    news: watch::Receiver<u64>,
    /// In how many attempts of others the transaction is that may still land.
    aboard: Arc<AtomicU32>,
}

/// Those who were taken along in one attempt.
#[derive(Default)]
pub(super) struct Aboard(Vec<Arc<AtomicU32>>);

impl Local {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.news.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Queues up.
    pub(super) fn sit(self: &Arc<Self>, passenger: Passenger) -> Seat {
        let aboard = Arc::<AtomicU32>::default();
        let mut queue = self.lock();
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.insert(ticket, Waiting { passenger, aboard: aboard.clone() });
        Seat { local: self.clone(), ticket, news: self.news.subscribe(), aboard }
    }

    /// An entry became known.
    pub(super) fn publish(&self, entry: &Entry) {
        let mut queue = self.lock();
        match queue.recent.back().map(|last| last.state.seq) {
            Some(last) if entry.state.seq <= last => return,
            Some(last) if entry.state.seq != last.next() => queue.recent.clear(),
            _ => {}
        }
        queue.recent.push_back(entry.clone());
        while queue.recent.len() > RECENT
            || queue.recent.iter().map(|entry| entry.body.len()).sum::<usize>() > RECENT_BYTES
        {
            queue.recent.pop_front();
        }
        // They will find themselves in it, and wait for no turn any more.
        let there = |waiting: &Waiting| entry.txs.iter().any(|tx| tx.tx == waiting.passenger.section.head.tx);
        queue.waiting.retain(|_, waiting| !there(waiting));
        drop(queue);
        self.tell();
    }

    /// The entries known here after `seq`; `None` when there are newer ones, but not the next.
    pub(super) fn after(&self, seq: Seq) -> Option<Vec<Entry>> {
        let queue = self.lock();
        let later: Vec<Entry> = queue.recent.iter().filter(|entry| entry.state.seq > seq).cloned().collect();
        later.first().is_none_or(|first| first.state.seq == seq.next()).then_some(later)
    }

    /// The first `most` of those who wait.
    pub(super) fn waiting(&self, most: usize) -> Vec<(Passenger, Ticket)> {
        let queue = self.lock();
        let first = queue.waiting.values().take(most);
        first.map(|waiting| (waiting.passenger.clone(), Ticket(waiting.aboard.clone()))).collect()
    }
}

/// Lets a passenger be taken along.
pub(super) struct Ticket(Arc<AtomicU32>);

impl Aboard {
    pub(super) fn take(&mut self, Ticket(aboard): Ticket) {
        aboard.fetch_add(1, Ordering::Relaxed);
        self.0.push(aboard);
    }

    /// The attempt is known to have come to nothing.
    pub(super) fn ashore(self) {
        for aboard in self.0 {
            aboard.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Seat {
    /// Whether it is this writer's turn. From then on it does not wait any more, and others wait for it.
    pub(super) fn leads(&self) -> bool {
        let mut queue = self.local.lock();
        if queue.leader.is_some() || !queue.is_first(self.ticket) {
            return false;
        }
        queue.waiting.remove(&self.ticket);
        queue.leader = Some(self.ticket);
        true
    }

    /// Leads instead of whoever does, or should, and is not heard of.
    pub(super) fn depose(&self) {
        let mut queue = self.local.lock();
        // Whoever should have led and does not come to it keeps nobody waiting again.
        if queue.leader.is_none() && !queue.is_first(self.ticket) {
            queue.waiting.pop_first();
        }
        queue.waiting.remove(&self.ticket);
        queue.leader = Some(self.ticket);
        drop(queue);
        self.local.tell();
    }

    /// Resolves when there is something to hear: an entry, or that nobody leads.
    pub(super) async fn news(&mut self) {
        // The sender lives in `self`.
        let _ = self.news.changed().await;
    }

    /// Whether an attempt of somebody else may still commit it.
    pub(super) fn is_aboard(&self) -> bool {
        self.aboard.load(Ordering::Relaxed) > 0
    }

    /// Gives the place to the next.
    pub(super) fn leave(&self) {
        let mut queue = self.local.lock();
        let led = queue.leader == Some(self.ticket);
        if led {
            queue.leader = None;
        }
        let next = led || queue.leader.is_none() && queue.is_first(self.ticket);
        queue.waiting.remove(&self.ticket);
        drop(queue);
        if next {
            self.local.tell();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}
