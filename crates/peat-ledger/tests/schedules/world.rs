//! One simulated namespace: its judge, its units, what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peat_ledger::{Ledger, NewLedger, Params};
use peat_testkit::sim::{Process, Sim, SimClock};
use peat_types::{ChangeId, CloneId, Env, Error, InstanceId, Kind, Mutation, Namespace, Result, Seq, TxId, Unit};

use super::leases::Leases;
use super::replay::Replay;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Judge {
    replay: Replay,
    acked: BTreeMap<ChangeId, Seq>,
    lost: BTreeSet<TxId>,
    made: BTreeSet<ChangeId>,
}

/// Handle of everything a schedule shares.
#[derive(Clone)]
pub struct World {
    pub sim: Sim,
    pub units: Arc<Vec<Unit>>,
    pub mutation: Option<Mutation>,
    /// Whether there is garbage collection that keeps states for moments only: then nobody may rely on time.
    pub collects: bool,
    judge: Arc<Mutex<Judge>>,
}

pub fn params() -> Params {
    Params { inline_file: 2 << 10, inline_tx: 4 << 10, ring: 6, ..Params::default() }
}

impl World {
    pub fn new(sim: &Sim, units: usize, mutation: Option<Mutation>, collects: bool) -> Self {
        let units = (0..units).map(|n| format!("model/{n}").parse().expect("unit")).collect();
        let judge = Arc::<Mutex<Judge>>::default();
        lock(&judge).replay.leases = Some(Leases::default());
        let watching = judge.clone();
        let env = Env::seeded(Arc::new(SimClock::new(Duration::ZERO, 0)), 0, []);
        let counting = sim.clone();
        sim.watch(Box::new(move |store, wrote| {
            let replay = &mut lock(&watching).replay;
            let verdict = replay.watch(store, wrote, &env).map(drop);
            replay.seen.drain(..).for_each(|what| counting.count(what));
            verdict
        }));
        Self { sim: sim.clone(), units: Arc::new(units), mutation, collects, judge }
    }

    /// A handle of the ledger in a process; it is created if it is not there.
    pub async fn ledger(&self, process: &Process) -> Result<Ledger> {
        let env = process.env();
        self.ledger_as(process, CloneId::random(env), InstanceId::random(env)).await
    }

    /// The same, for a process that says who it is.
    pub async fn ledger_as(&self, process: &Process, clone: CloneId, instance: InstanceId) -> Result<Ledger> {
        let env = process.env();
        let new = NewLedger {
            namespace: Namespace::default(),
            owner: "repo".to_owned(),
            params: Params { fresh_ms: if self.collects { 0 } else { params().fresh_ms }, ..params() },
            probe: serde_json::Value::Null,
        };
        Ledger::create(process.store(), env, new, clone, instance).await
    }

    /// Whether an error only says that somebody was too slow for a collector that keeps states for moments.
    pub fn is_behind(&self, error: &Error) -> bool {
        self.collects && Ledger::is_gone(error)
    }

    /// Whether an error is one that a client may be told of.
    pub fn is_expected(&self, error: &Error) -> bool {
        error.kind() == Kind::Offline || self.is_behind(error)
    }

    /// A client cannot know any more whether `change` was committed after entry `since`.
    pub fn untold(&self, change: ChangeId, since: Seq) {
        let mut judge = lock(&self.judge);
        if judge.replay.head.as_ref().is_none_or(|head| head.root.keep <= since.next()) {
            self.sim.violation(format_args!("A7: {change} cannot be told after {since}, although everything is kept"));
        }
        judge.made.remove(&change);
        self.sim.count("change that cannot be told");
    }

    /// A10: every state that is kept is what it was.
    pub fn audit(&self) {
        if let Err(what) = lock(&self.judge).replay.audit(self.sim.store(), self.sim.server()) {
            self.sim.violation(what);
        }
    }

    pub fn any_unit(&self, process: &Process) -> Unit {
        self.units[usize::try_from(process.below(self.units.len() as u64)).expect("small")].clone()
    }

    pub fn made(&self, change: ChangeId) {
        lock(&self.judge).made.insert(change);
    }

    /// A client was told that `change` is in entry `seq` as `tx`.
    pub fn acked(&self, change: ChangeId, tx: TxId, seq: Seq) {
        let mut judge = lock(&self.judge);
        let (change_at, tx_at) = (judge.replay.changes.get(&change).copied(), judge.replay.txs.get(&tx).copied());
        if let Some(other) = judge.acked.insert(change, seq).filter(|other| *other != seq) {
            self.sim.violation(format_args!("A3: change {change} was acknowledged in entries {other} and {seq}"));
        }
        if change_at != Some(seq) || tx_at != Some(seq) {
            self.sim
                .violation(format_args!("A3: change {change} was acknowledged in entry {seq}, it is in {change_at:?}"));
        }
        if judge.replay.unanswered.contains(&seq) {
            self.sim.count("stored entry adopted");
        }
    }

    /// A client was told that `tx`, sent on `base`, is dead for ever.
    pub fn lost(&self, tx: TxId, base: Seq) {
        let mut judge = lock(&self.judge);
        judge.lost.insert(tx);
        if let Some(seq) = judge.replay.txs.get(&tx).filter(|seq| **seq > base) {
            self.sim.violation(format_args!("R7: transaction {tx} was called dead and is in entry {seq}"));
        }
    }

    /// A client was told of an error that nothing explains.
    pub fn unexpected(&self, who: &str, error: &Error) {
        self.sim.violation(format_args!("error: {who} was told {error:?}"));
    }

    /// Digest of everything after entry `seq`.
    pub fn digest_at(&self, seq: Seq) -> Option<u64> {
        lock(&self.judge).replay.digests.get(usize::try_from(seq.0).ok()?).copied()
    }

    /// Last seq and digest of a unit as of entry `seq`.
    pub fn unit_at(&self, unit: &Unit, seq: Seq) -> Option<(Seq, u64)> {
        lock(&self.judge).replay.unit_at(unit, seq)
    }

    /// What must hold when all is done: every change made is in the log.
    pub fn finish(&self) {
        let judge = lock(&self.judge);
        for change in &judge.made {
            if !judge.replay.changes.contains_key(change) {
                self.sim.violation(format_args!("A9: change {change} never got into the log"));
            }
        }
        for tx in judge.lost.iter().filter(|tx| judge.replay.txs.contains_key(tx)) {
            // It may have been committed below the base of the attempt that was called dead.
            self.sim.event(format_args!("{tx} had been committed before"));
        }
    }
}
