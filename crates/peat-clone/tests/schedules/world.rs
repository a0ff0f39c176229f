//! What a schedule shares: the units, the judge, the rules everybody is under.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peat_ledger::Params;
use peat_testkit::sim::{Process, Sim, SimClock};
use peat_types::{ChangeId, Env, Error, Kind, Mutation, Seq, Unit};

use super::acts::Act;
use super::judge::Judge;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What collectors keep: the least that the ledger lets them.
pub fn keep() -> Duration {
    Duration::from_millis(12 * FRESH_MS)
}

/// For how long a slot is not cleared away, where garbage is collected.
const FRESH_MS: u64 = 1000;

/// Code of the error that says: the log no longer tells whether a change is in it.
pub const UNTOLD: &str = "history_gone";

/// Short times, so that takeovers and collections happen within a schedule.
fn params(collects: bool) -> Params {
    Params {
        fresh_ms: if collects { FRESH_MS } else { Params::default().fresh_ms },
        lease_ttl_ms: 1500,
        relist_ms: 500,
        ring: 8,
        inline_file: 1 << 10,
        inline_tx: 4 << 10,
        ..Params::default()
    }
}

/// Handle of everything a schedule shares.
#[derive(Clone)]
pub struct World {
    pub sim: Sim,
    pub mutation: Option<Mutation>,
    /// Whether garbage is collected here.
    pub collects: bool,
    units: Arc<Vec<Unit>>,
    /// What people do here, some of it more often.
    pub acts: Arc<Vec<Act>>,
    judge: Arc<Mutex<Judge>>,
    /// Changes that somebody dropped on purpose.
    dropped: Arc<Mutex<BTreeSet<ChangeId>>>,
}

impl World {
    pub fn new(sim: &Sim, units: u64, acts: Vec<Act>, mutation: Option<Mutation>) -> Self {
        let collects = acts.contains(&Act::Collect);
        let units = (0..units).map(|n| format!("model/{n}").parse().expect("unit")).collect();
        let judge = Arc::new(Mutex::new(Judge::new(sim)));
        let watching = judge.clone();
        let env = Env::seeded(Arc::new(SimClock::new(Duration::ZERO, 0)), 0, []);
        sim.watch(Box::new(move |store, wrote| lock(&watching).watch(store, wrote, &env)));
        let (units, acts, dropped) = (Arc::new(units), Arc::new(acts), Arc::default());
        Self { sim: sim.clone(), mutation, collects, units, acts, judge, dropped }
    }

    pub fn params(&self) -> Params {
        params(self.collects)
    }

    /// A10: every state that is kept is what it was.
    pub fn audit(&self) {
        let audited = self.judge().replay.audit(self.sim.store(), self.sim.server());
        self.hold(audited);
    }

    pub fn judge(&self) -> MutexGuard<'_, Judge> {
        lock(&self.judge)
    }

    pub fn unit(&self, process: &Process) -> Unit {
        self.units[usize::try_from(process.below(self.units.len() as u64)).expect("small")].clone()
    }

    /// One unit as a rule.
    pub fn units(&self, process: &Process) -> Vec<Unit> {
        let mut units = vec![self.unit(process)];
        if process.chance(0.15) {
            units.push(self.unit(process));
            units.sort();
            units.dedup();
        }
        units
    }

    pub fn hold(&self, verdict: Result<(), String>) {
        if let Err(what) = verdict {
            self.sim.violation(what);
        }
    }

    pub fn dropped(&self, change: ChangeId) {
        lock(&self.dropped).insert(change);
    }

    /// Trouble is fine, wrong answers are not.
    pub fn explain(&self, who: impl Display, error: &Error) {
        self.sim.event(format_args!("{who} was told {error:?}"));
        let expected = match error.kind() {
            Kind::Offline | Kind::Contended => true,
            Kind::Conflict => error.code() == "lease_lost",
            // Whoever slept for longer than states are kept.
            Kind::Damaged | Kind::NotFound if error.has_code(UNTOLD) || error.code() == "state_not_kept" => {
                self.judge().replay.head.as_ref().is_some_and(|head| head.root.keep > Seq(0))
            }
            _ => false,
        };
        if !expected {
            let name = if matches!(error.code(), "rollback" | "fork") { "A8" } else { "error" };
            self.sim.violation(format_args!("{name}: {who} was told {error:?}"));
        }
    }

    /// What must hold at the very end; `parked` are the rows that are left in journals.
    pub fn finish(&self, parked: &BTreeSet<ChangeId>) {
        self.hold(self.judge().finish(parked, &lock(&self.dropped)));
    }
}
