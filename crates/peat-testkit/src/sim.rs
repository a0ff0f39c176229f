//! A simulated world: machines with clocks of their own, processes that may be stopped and killed at any point, one
//! store behind a network that loses, delays and repeats. Everything happens on one thread in virtual time.
//!
//! Whatever is random is drawn from dice of its own place (process, part of its work, point in that part), so that a
//! seed reproduces a schedule exactly, and leaving out a part or a fault changes nothing about the others. A schedule
//! notes the parts that were played and the faults that struck; a [`Script`] plays some of them only, which is how
//! [`crate::explore`] cuts a failing schedule down to a short story.
#![allow(clippy::disallowed_methods)] // virtual time is made from tokio's paused clock here

mod clock;
mod dice;
mod faults;
mod net;
mod process;
mod script;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peat_objects::MemoryStore;
use peat_types::Env;
use tokio::sync::Notify;

use self::faults::Passing;
pub use clock::SimClock;
pub use dice::Dice;
pub use faults::{Fault, Faults};
pub use net::SimNet;
pub use process::{Machine, Process};
pub use script::{Cut, Script};

/// Longest a schedule may take in virtual time before it counts as stuck.
const STUCK: Duration = Duration::from_secs(90 * 24 * 3600);

/// What every violation is of; its text begins with one of these names and a colon.
pub const INVARIANTS: [&str; 22] = [
    "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10", "A11", "A12", "A13", "P", "R1", "R2", "R3", "R4",
    "R5", "R6", "R7", "error",
];

/// A write that reached the store.
#[derive(Clone, Copy, Debug)]
pub struct Wrote<'a> {
    /// `create`, `put` or `delete`.
    pub verb: &'static str,
    /// What was written.
    pub key: &'a str,
    /// The process that sent it.
    pub by: &'a str,
    /// Whether that process lives and will hear of it.
    pub answered: bool,
}

/// Called after every write that reached the store.
pub type Watcher = Box<dyn FnMut(&MemoryStore, &Wrote<'_>) -> Result<(), String> + Send>;

/// Handle of one simulated world.
#[derive(Clone)]
pub struct Sim(Arc<World>);

struct World {
    script: Script,
    verbose: bool,
    start: tokio::time::Instant,
    store: MemoryStore,
    server: Env,
    faults: Faults,
    healed: AtomicBool,
    log: Mutex<Log>,
    violated: Notify,
    watcher: Mutex<Option<Watcher>>,
}

#[derive(Default)]
struct Log {
    hasher: DefaultHasher,
    events: u64,
    requests: u64,
    kills: u64,
    counts: BTreeMap<&'static str, u64>,
    told: Vec<Happening>,
    violations: Vec<String>,
}

/// A part that was played or a fault that struck.
#[derive(Clone, Debug)]
pub struct Happening {
    /// When, in virtual time.
    pub at: Duration,
    /// Its name in a [`Script`].
    pub id: String,
    /// The fault, if it is one.
    pub fault: Option<Fault>,
    /// What the process was doing, for people.
    pub what: String,
}

/// What a schedule came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Hash over everything that happened, in order: equal for two runs of one script.
    pub trace: u64,
    /// Number of things that happened.
    pub events: u64,
    /// Number of requests sent.
    pub requests: u64,
    /// Number of processes killed.
    pub kills: u64,
    /// How often something happened that is counted; faults by their names.
    pub counts: BTreeMap<&'static str, u64>,
    /// Parts and faults, in order.
    pub told: Vec<Happening>,
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
    /// Runs one schedule to its end, or to the first violation. Actors may be spawned with `tokio::task::spawn_local`.
    pub fn run<F, B>(script: &Script, verbose: bool, faults: Faults, body: B) -> Ran
    where
        B: FnOnce(Self) -> F,
        F: Future<Output = ()>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        #[allow(clippy::panic)] // nothing can be simulated
        let runtime = runtime.unwrap_or_else(|error| panic!("cannot start a runtime: {error}"));
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let server = Env::seeded(Arc::new(SimClock::new(Duration::ZERO, 0)), script.seed, []);
            let sim = Self(Arc::new(World {
                script: script.clone(),
                verbose,
                start: tokio::time::Instant::now(),
                store: MemoryStore::with_clock(&server),
                server,
                faults,
                healed: AtomicBool::new(false),
                log: Mutex::default(),
                violated: Notify::new(),
                watcher: Mutex::default(),
            }));
            let body = body(sim.clone());
            tokio::select! {
                biased;
                () = sim.0.violated.notified() => {}
                () = body => {}
                () = tokio::time::sleep(STUCK) => {
                    sim.violation("error: the schedule is stuck: nobody made progress any more");
                }
            }
            // It may hold this handle.
            *lock(&sim.0.watcher) = None;
            let log = sim.log();
            Ran {
                trace: log.hasher.finish(),
                events: log.events,
                requests: log.requests,
                kills: log.kills,
                counts: log.counts.clone(),
                told: log.told.clone(),
                violations: log.violations.clone(),
            }
        })
    }

    /// The seed of this schedule.
    pub fn seed(&self) -> u64 {
        self.0.script.seed
    }

    /// The store itself, behind the network: the truth.
    pub fn store(&self) -> &MemoryStore {
        &self.0.store
    }

    /// The clock of the server.
    pub fn server(&self) -> &Env {
        &self.0.server
    }

    /// Calls `watcher` after every write that reached the store; what it returns as an error is a violation.
    pub fn watch(&self, watcher: Watcher) {
        *lock(&self.0.watcher) = Some(watcher);
    }

    /// From now on nothing fails, nobody is killed, and no machine is cut off or stands still any more.
    pub fn heal(&self) {
        self.0.healed.store(true, Ordering::Relaxed);
    }

    fn is_healed(&self) -> bool {
        self.0.healed.load(Ordering::Relaxed)
    }

    /// A new machine, its clocks set somewhere else than everybody's. Names must differ.
    pub fn machine(&self, name: &str) -> Machine {
        Machine::new(self, name)
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

    /// Something happened that the schedules are meant to bring about.
    pub fn count(&self, what: &'static str) {
        *self.log().counts.entry(what).or_default() += 1;
    }

    /// Something happened that never should: `what` begins with the name of an [invariant](INVARIANTS) and a colon. The
    /// schedule ends here.
    pub fn violation(&self, what: impl Display) {
        let mut text = what.to_string();
        if !text.split_once(':').is_some_and(|(name, _)| INVARIANTS.contains(&name)) {
            text = format!("error: {text}");
        }
        self.event(format_args!("VIOLATION {text}"));
        self.log().violations.push(text);
        self.0.violated.notify_one();
    }

    /// Whether something happened that never should: nothing after it is worth looking at.
    pub fn violated(&self) -> bool {
        !self.log().violations.is_empty()
    }

    fn latency_ms(&self) -> u64 {
        self.0.faults.latency_ms
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.0.log)
    }

    fn tell(&self, id: String, fault: Option<Fault>, what: &impl Display) {
        let what = what.to_string();
        match fault {
            None => self.event(format_args!("{id}: {what}")),
            Some(fault) => {
                self.event(format_args!("{id} {fault}: {what}"));
                self.count(fault.name());
            }
        }
        let at = self.elapsed();
        self.log().told.push(Happening { at, id, fault, what });
    }

    /// Whether a part is played.
    fn part(&self, id: String, what: impl Display) -> bool {
        if self.0.script.only.as_ref().is_some_and(|cut| !cut.parts.contains(&id)) {
            return false;
        }
        self.tell(id, None, &what);
        true
    }

    /// What goes wrong at a place.
    fn strike(&self, passing: Passing, dice: &mut Dice, id: impl Fn() -> String, what: impl Display) -> Option<Fault> {
        if self.is_healed() {
            return None;
        }
        let fault = match &self.0.script.only {
            None => self.0.faults.draw(passing, dice)?,
            Some(cut) if cut.faults.is_empty() => return None,
            Some(cut) => *cut.faults.get(&id())?,
        };
        self.tell(id(), Some(fault), &what);
        Some(fault)
    }

    fn wrote(&self, wrote: &Wrote<'_>) {
        let mut watcher = lock(&self.0.watcher);
        let verdict = watcher.as_mut().map_or(Ok(()), |watcher| watcher(&self.0.store, wrote));
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
