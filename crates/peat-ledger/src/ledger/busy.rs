//! What one process has noticed about the others: whether they are writing now, and which transactions are settled.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peat_objects::Meta;
use peat_types::{Env, Timestamp, TxId, Unit};

use super::{Ledger, Neighbours, Together};
use crate::model::{State, TxHead};

/// What was written less than this ago tells of others who are writing now, and is believed for as long. (Server times
/// often come in whole seconds.)
const YOUNG: Duration = Duration::from_secs(1);
/// A unit stays contested for so long after a loss.
const CONTESTED: Duration = Duration::from_secs(5);
/// More ids than this are not remembered: forgetting them costs a request each.
const REMEMBERED: usize = 10_000;

/// Shared by all copies of a handle.
#[derive(Debug, Default)]
pub(super) struct Busy(Mutex<Noticed>);

#[derive(Debug, Default)]
struct Noticed {
    /// On the monotonic clock.
    until: Duration,
    /// The server's clock, and when it was read.
    server: Option<(Timestamp, Duration)>,
    /// Committed, or dead for ever (R7): nothing is gained by carrying them.
    settled: HashSet<TxId>,
    /// Units that somebody else was faster to change, and until when that matters.
    contested: Vec<(Unit, Duration)>,
}

/// Age of an object when the server answered, by the server's own clock; `None` when it does not say.
pub(super) fn age(meta: &Meta) -> Option<Duration> {
    let millis = meta.date?.millis_since(meta.last_modified?);
    Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

/// Whether an object was written a moment ago. Who does not know is told no.
pub(super) fn young(meta: &Meta) -> bool {
    age(meta).is_some_and(|age| age <= YOUNG)
}

impl Ledger {
    /// An entry was read.
    pub(super) fn noticed(&self, state: &State, txs: &[TxHead], meta: &Meta) {
        self.busy.read(&self.env, txs, meta, || self.is_strange(state));
    }

    /// Whether an entry tells of others than this process and its neighbours. Who carried strangers knows it, or told.
    fn is_strange(&self, state: &State) -> bool {
        let near = |neighbours: &Arc<dyn Neighbours>| {
            state.clone == self.clone && self.together == Together::Batched && neighbours.news().crowd < state.seq
        };
        state.writer != self.instance && !self.neighbours.as_ref().is_some_and(near)
    }
}

impl Busy {
    fn lock(&self) -> MutexGuard<'_, Noticed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry was read. Only a stranger's makes the log busy.
    fn read(&self, env: &Env, txs: &[TxHead], meta: &Meta, strange: impl FnOnce() -> bool) {
        self.settled(txs.iter().map(|tx| tx.tx));
        if let Some(date) = meta.date {
            self.lock().server = Some((date, env.monotonic()));
        }
        if young(meta) && strange() {
            self.contended(env);
        }
    }

    /// The server's clock now, as far as it is known.
    pub(super) fn server_now(&self, env: &Env) -> Option<Timestamp> {
        let (date, at) = self.lock().server?;
        let since = i64::try_from(env.monotonic().saturating_sub(at).as_millis()).ok()?;
        Some(Timestamp::from_millis(date.as_millis().saturating_add(since)))
    }

    /// Others are writing now.
    pub(super) fn contended(&self, env: &Env) {
        self.lock().until = env.monotonic() + YOUNG;
    }

    pub(super) fn is_busy(&self, env: &Env) -> bool {
        env.monotonic() < self.lock().until
    }

    /// A transaction died because somebody else changed `unit` first.
    pub(super) fn contested(&self, env: &Env, unit: &Unit) {
        let now = env.monotonic();
        let mut noticed = self.lock();
        noticed.contested.retain(|(other, until)| other != unit && *until > now);
        noticed.contested.push((unit.clone(), now + CONTESTED));
    }

    pub(super) fn is_contested<'a>(&self, env: &Env, mut units: impl Iterator<Item = &'a Unit>) -> bool {
        let (now, noticed) = (env.monotonic(), self.lock());
        units.any(|unit| noticed.contested.iter().any(|(other, until)| other == unit && *until > now))
    }

    pub(super) fn settled(&self, ids: impl IntoIterator<Item = TxId>) {
        let mut noticed = self.lock();
        if noticed.settled.len() > REMEMBERED {
            noticed.settled.clear();
        }
        noticed.settled.extend(ids);
    }

    pub(super) fn is_settled(&self, id: TxId) -> bool {
        self.lock().settled.contains(&id)
    }
}
