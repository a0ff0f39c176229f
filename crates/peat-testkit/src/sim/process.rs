use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peat_objects::Store;
use peat_types::{Env, Mutation, Steps};
use tokio::sync::Notify;

use super::{Sim, SimClock, SimNet, lock};

/// One machine: a pair of clocks, and processes that share its disk.
#[derive(Clone)]
pub struct Machine {
    sim: Sim,
    name: Arc<str>,
    clock: Arc<SimClock>,
    processes: Arc<AtomicU64>,
}

impl Machine {
    pub(super) fn new(sim: &Sim, name: &str) -> Self {
        // From years behind to years ahead: nothing may depend on it.
        let skew_ms = i64::try_from(sim.below(400_000_000_000)).unwrap_or(0) - 200_000_000_000;
        let clock = SimClock::new(Duration::from_millis(sim.below(1_000_000_000)), skew_ms);
        Self { sim: sim.clone(), name: name.into(), clock: Arc::new(clock), processes: Arc::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A new process on this machine, which one mutation may have robbed of a rule.
    pub fn process(&self, mutation: Option<Mutation>) -> Process {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let life = Arc::new(Life {
            sim: self.sim.clone(),
            name: format!("{}#{number}", self.name),
            dead: AtomicBool::new(false),
            cut_until: Mutex::new(Duration::ZERO),
            killed: Notify::new(),
        });
        let env = Env::seeded(self.clock.clone(), self.sim.split(), []);
        let env = env.with_mutation(mutation).with_steps(life.clone());
        Process { life, env }
    }
}

/// One process: everything it does goes through its [`Env`] and its store, and ends when it is killed.
#[derive(Clone)]
pub struct Process {
    life: Arc<Life>,
    env: Env,
}

impl Process {
    /// Its name: machine and number.
    pub fn name(&self) -> &str {
        &self.life.name
    }

    /// Its clocks, randomness and crash points.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The store as seen from here.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(SimNet::new(self.life.sim.clone(), self.life.clone()))
    }

    /// Runs what the process does; `None` when it was killed meanwhile: then `what` was dropped where it stood, and the
    /// writes it had sent may still land.
    pub async fn run<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.life.killed.notified() => None,
            value = what => (!self.life.is_dead()).then_some(value),
        }
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.life.die("on purpose");
    }

    /// Cuts the process off from the store: what it sends in the next `duration` is lost.
    pub fn cut_off(&self, duration: Duration) {
        self.life.sim.event(format_args!("{} is cut off for {duration:?}", self.life.name));
        *lock(&self.life.cut_until) = self.life.sim.elapsed() + duration;
    }

    /// Whether it was killed.
    pub fn is_dead(&self) -> bool {
        self.life.is_dead()
    }
}

pub(super) struct Life {
    sim: Sim,
    pub(super) name: String,
    dead: AtomicBool,
    /// Virtual time until which nothing gets through.
    cut_until: Mutex<Duration>,
    killed: Notify,
}

impl Life {
    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.sim.elapsed() < *lock(&self.cut_until)
    }

    pub(super) fn die(&self, place: &str) {
        if !self.dead.swap(true, Ordering::Relaxed) {
            self.sim.event(format_args!("{} killed: {place}", self.name));
            self.sim.log().kills += 1;
            self.killed.notify_one();
        }
    }

    /// A place where the process may be killed. Never returns when it is dead.
    pub(super) async fn pass(&self, place: &str) {
        if !self.is_dead() && self.sim.chance(self.sim.faults().kill) {
            self.die(place);
        }
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Steps for Life {
    fn reach(&self, name: &'static str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        if !self.is_dead() && self.sim.chance(self.sim.faults().kill) {
            self.die(name);
        }
        if self.is_dead() { Box::pin(std::future::pending()) } else { Box::pin(std::future::ready(())) }
    }
}
