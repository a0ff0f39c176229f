//! A simulated world: machines with clocks of their own, processes that may be killed at any point, one store behind a
//! network that loses, delays and repeats. Everything happens on one thread in virtual time, so that a seed reproduces a
//! schedule exactly.
#![allow(clippy::disallowed_methods)] // virtual time is made from tokio's paused clock here

mod clock;
mod net;
mod process;

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peat_objects::MemoryStore;
use peat_types::Env;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

pub use clock::SimClock;
pub use net::{Faults, SimNet};
pub use process::{Machine, Process};

/// Longest a schedule may take in virtual time before it counts as stuck.
const STUCK: Duration = Duration::from_secs(30 * 24 * 3600);

/// Called after every write that reached the store, with its key.
pub type Watcher = Box<dyn FnMut(&MemoryStore, &str) -> Result<(), String> + Send>;

/// Handle of one simulated world.
#[derive(Clone)]
pub struct Sim(Arc<World>);

struct World {
    seed: u64,
    verbose: bool,
    start: tokio::time::Instant,
    store: MemoryStore,
    rng: Mutex<ChaCha12Rng>,
    faults: Mutex<Faults>,
    log: Mutex<Log>,
    watcher: Mutex<Option<Watcher>>,
}

#[derive(Default)]
struct Log {
    hasher: DefaultHasher,
    events: u64,
    requests: u64,
    kills: u64,
    violations: Vec<String>,
}

/// What a schedule came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Hash over everything that happened, in order: equal for two runs of one seed.
    pub trace: u64,
    /// Number of things that happened.
    pub events: u64,
    /// Number of requests sent.
    pub requests: u64,
    /// Number of processes killed.
    pub kills: u64,
    /// What should not have happened.
    pub violations: Vec<String>,
}

impl Ran {
    /// The first violation, if any.
    ///
    /// # Errors
    /// The violation.
    pub fn ok(&self) -> Result<(), String> {
        self.violations.first().map_or(Ok(()), |first| Err(first.clone()))
    }
}

impl Sim {
    /// Runs one schedule to its end.
    pub fn run<F, B>(seed: u64, verbose: bool, faults: Faults, body: B) -> Ran
    where
        B: FnOnce(Self) -> F,
        F: Future<Output = ()>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        #[allow(clippy::panic)] // nothing can be simulated
        let runtime = runtime.unwrap_or_else(|error| panic!("cannot start a runtime: {error}"));
        runtime.block_on(async {
            let clock = Arc::new(SimClock::new(Duration::ZERO, 0));
            let server = Env::seeded(clock, seed, []);
            let sim = Self(Arc::new(World {
                seed,
                verbose,
                start: tokio::time::Instant::now(),
                store: MemoryStore::with_clock(&server),
                rng: Mutex::new(ChaCha12Rng::seed_from_u64(seed)),
                faults: Mutex::new(faults),
                log: Mutex::default(),
                watcher: Mutex::default(),
            }));
            if tokio::time::timeout(STUCK, body(sim.clone())).await.is_err() {
                sim.violation("the schedule is stuck: nobody made progress any more");
            }
            let log = sim.log();
            Ran {
                trace: log.hasher.finish(),
                events: log.events,
                requests: log.requests,
                kills: log.kills,
                violations: log.violations.clone(),
            }
        })
    }

    /// The seed of this schedule.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The store itself, behind the network: the truth.
    pub fn store(&self) -> &MemoryStore {
        &self.0.store
    }

    /// Calls `watcher` after every write that reached the store; what it returns as an error is a violation.
    pub fn watch(&self, watcher: Watcher) {
        *lock(&self.0.watcher) = Some(watcher);
    }

    /// From now on nothing fails and nobody is killed.
    pub fn heal(&self) {
        let mut faults = lock(&self.0.faults);
        *faults = Faults { latency_ms: faults.latency_ms, ..Faults::none() };
    }

    /// The faults as they are set.
    pub fn faults(&self) -> Faults {
        lock(&self.0.faults).clone()
    }

    /// Changes the faults.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.0.faults) = faults;
    }

    /// A new machine, its clocks set somewhere else than everybody's.
    pub fn machine(&self, name: &str) -> Machine {
        Machine::new(self, name)
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&self, limit: u64) -> u64 {
        lock(&self.0.rng).random_range(0..limit)
    }

    /// True with this probability.
    pub fn chance(&self, probability: f64) -> bool {
        probability > 0.0 && lock(&self.0.rng).random::<f64>() < probability
    }

    /// A seed for somebody's own randomness.
    pub fn split(&self) -> u64 {
        lock(&self.0.rng).next_u64()
    }

    /// Lets virtual time pass.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Something happened.
    pub fn event(&self, what: impl Display) {
        let at = self.elapsed();
        let text = what.to_string();
        if self.0.verbose {
            #[allow(clippy::print_stderr)]
            {
                eprintln!("{:>10.3} {text}", at.as_secs_f64());
            }
        }
        let mut log = self.log();
        log.events += 1;
        (at, text).hash(&mut log.hasher);
    }

    /// Something happened that never should.
    pub fn violation(&self, what: impl Display) {
        self.event(format_args!("VIOLATION {what}"));
        self.log().violations.push(what.to_string());
    }

    /// Whether something happened that never should: nothing after it is worth looking at.
    pub fn violated(&self) -> bool {
        !self.log().violations.is_empty()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.0.log)
    }

    fn wrote(&self, key: &str) {
        let mut watcher = lock(&self.0.watcher);
        let verdict = watcher.as_mut().map_or(Ok(()), |watcher| watcher(&self.0.store, key));
        drop(watcher);
        if let Err(what) = verdict {
            self.violation(what);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
