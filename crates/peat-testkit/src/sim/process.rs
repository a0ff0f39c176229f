use std::fmt::{self, Display};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use peat_objects::Store;
use peat_types::{Env, Mutation, Steps};
use tokio::sync::Notify;

use super::faults::Passing;
use super::{Dice, Fault, Sim, SimClock, SimNet, lock};

/// One machine: a pair of clocks, and processes that share its disk.
#[derive(Clone)]
pub struct Machine(Arc<Hardware>);

pub(super) struct Hardware {
    sim: Sim,
    name: Arc<str>,
    clock: SimClock,
    outage: Mutex<Outage>,
    lives: Mutex<Vec<Weak<Life>>>,
}

/// In virtual time.
#[derive(Default)]
struct Outage {
    suspended_until: Duration,
    cut_off_until: Duration,
}

impl Machine {
    pub(super) fn new(sim: &Sim, name: &str) -> Self {
        let mut dice = Dice::of(sim.seed(), name);
        // From years behind to years ahead: nothing may depend on it.
        let skew_ms = i64::try_from(dice.below(400_000_000_000)).unwrap_or(0) - 200_000_000_000;
        let clock = SimClock::new(Duration::from_millis(dice.below(1_000_000_000)), skew_ms);
        let (outage, lives) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Hardware { sim: sim.clone(), name: name.into(), clock, outage, lives }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A new process on this machine, which one mutation may have robbed of a rule. `name` must differ from those of all
    /// other processes of the machine, and should not depend on what others do: a part of a schedule is known by it.
    pub fn process(&self, name: impl Display, mutation: Option<Mutation>) -> Process {
        let sim = &self.0.sim;
        let name = format!("{}.{name}", self.0.name);
        let life = Arc::new(Life {
            sim: sim.clone(),
            machine: self.0.clone(),
            at: Mutex::new(At {
                part: 0,
                begun: false,
                extra: 0,
                place: 0,
                dice: Dice::of(sim.seed(), (&name, 0_u32)),
            }),
            stopped_until: Mutex::default(),
            dead: AtomicBool::new(false),
            killed: Notify::new(),
            reading: AtomicBool::new(false),
            holding: AtomicU32::new(0),
            name,
        });
        let mut lives = lock(&self.0.lives);
        lives.retain(|life| life.strong_count() > 0);
        lives.push(Arc::downgrade(&life));
        let mut dice = Dice::of(sim.seed(), ("env", &life.name));
        let env = Env::seeded(Arc::new(self.0.clock.clone()), dice.below(u64::MAX), []);
        let env = env.with_mutation(mutation).with_steps(life.clone());
        Process { life, env }
    }

    /// Cuts the machine off from the store: what it sends in the next `duration` is lost.
    pub fn cut_off(&self, duration: Duration) {
        self.0.cut_off(duration);
    }
}

impl Hardware {
    fn cut_off(&self, duration: Duration) {
        self.sim.event(format_args!("{} is cut off for {duration:?}", self.name));
        lock(&self.outage).cut_off_until = self.sim.elapsed() + duration;
    }

    fn lives(&self) -> Vec<Arc<Life>> {
        lock(&self.lives).iter().filter_map(Weak::upgrade).collect()
    }
}

/// One process: everything it does goes through its [`Env`] and its store, and ends when it is killed.
#[derive(Clone)]
pub struct Process {
    life: Arc<Life>,
    env: Env,
}

impl Process {
    /// Its name: that of its machine and its own.
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
        let life = &self.life;
        let mut what = pin!(what);
        let mut nap: Option<Pin<Box<tokio::time::Sleep>>> = None;
        // A stopped process is not polled; what its timers and requests have come to waits for it.
        let alive = poll_fn(|cx| {
            while let Some(left) = life.stopped() {
                let nap = nap.insert(Box::pin(tokio::time::sleep(left)));
                if nap.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
            what.as_mut().poll(cx)
        });
        tokio::select! {
            biased;
            () = life.killed.notified() => None,
            value = alive => (!life.is_dead()).then_some(value),
        }
    }

    /// The next thing that the process does, unless it is cut out of the schedule: then false. All that is random in it
    /// depends on the seed, the process and the number of the part.
    pub fn part(&self, what: impl Display) -> bool {
        self.next();
        self.plays(what)
    }

    /// Begins the next part, whose dice say what it will be: tell with [`plays`](Self::plays).
    pub fn next(&self) {
        let life = &self.life;
        let mut at = lock(&life.at);
        at.part += u32::from(at.begun);
        (at.begun, at.place, at.extra) = (true, 0, 0);
        at.dice = Dice::of(life.sim.seed(), (&life.name, at.part));
    }

    /// Whether the part that was begun is played: it may be cut out of the schedule.
    pub fn plays(&self, what: impl Display) -> bool {
        let part = lock(&self.life.at).part;
        self.life.sim.part(format!("{}/{part}", self.life.name), what)
    }

    /// Name of the part that is being played.
    pub fn playing(&self) -> String {
        let part = lock(&self.life.at).part;
        format!("{}/{part}", self.life.name)
    }

    /// Something that a part may do besides, with this probability; it can be cut out on its own.
    pub fn maybe(&self, probability: f64, what: impl Display) -> bool {
        let life = &self.life;
        let mut at = lock(&life.at);
        at.extra += 1;
        if !at.dice.chance(probability) {
            return false;
        }
        let id = format!("{}/{}+{}", life.name, at.part, at.extra);
        drop(at);
        life.sim.part(id, what)
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&self, limit: u64) -> u64 {
        lock(&self.life.at).dice.below(limit)
    }

    /// True with this probability.
    pub fn chance(&self, probability: f64) -> bool {
        lock(&self.life.at).dice.chance(probability)
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&self, choices: &[T]) -> T {
        lock(&self.life.at).dice.pick(choices)
    }

    /// From now on the process only reads (or not): A6 forbids it to write.
    pub fn reads(&self, only: bool) {
        self.life.reading.store(only, Ordering::Relaxed);
    }

    /// The process got a lease, or has one less: what befalls it under one is counted apart.
    pub fn holds(&self, more: bool) {
        let now = self.life.holding.load(Ordering::Relaxed);
        self.life.holding.store(if more { now + 1 } else { now.saturating_sub(1) }, Ordering::Relaxed);
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.life.die("on purpose");
    }

    /// Stops the process for so long.
    pub fn stall(&self, duration: Duration) {
        self.life.stall(duration);
    }

    /// Whether it was killed.
    pub fn is_dead(&self) -> bool {
        self.life.is_dead()
    }

    /// Whether it, or its machine, stands still.
    pub fn is_stopped(&self) -> bool {
        self.life.stopped().is_some()
    }

    /// Whether its machine is cut off.
    pub fn is_cut_off(&self) -> bool {
        self.life.is_cut_off()
    }
}

/// Where a process is in its schedule.
struct At {
    part: u32,
    begun: bool,
    /// Optional things of the part so far.
    extra: u32,
    /// Places of the part so far.
    place: u32,
    dice: Dice,
}

pub(super) struct Life {
    pub(super) sim: Sim,
    machine: Arc<Hardware>,
    pub(super) name: String,
    at: Mutex<At>,
    /// In virtual time.
    stopped_until: Mutex<Duration>,
    dead: AtomicBool,
    killed: Notify,
    pub(super) reading: AtomicBool,
    holding: AtomicU32,
}

impl Life {
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn is_cut_off(&self) -> bool {
        !self.sim.is_healed() && self.sim.elapsed() < lock(&self.machine.outage).cut_off_until
    }

    /// How long it will stand still from now on.
    fn stopped(&self) -> Option<Duration> {
        let until = lock(&self.machine.outage).suspended_until.max(*lock(&self.stopped_until));
        until.checked_sub(self.sim.elapsed()).filter(|left| !left.is_zero() && !self.sim.is_healed())
    }

    pub(super) fn die(&self, place: impl Display) {
        if !self.dead.swap(true, Ordering::Relaxed) {
            self.sim.event(format_args!("{} killed: {place}", self.name));
            self.sim.log().kills += 1;
            self.killed.notify_one();
        }
    }

    fn stall(&self, by: Duration) {
        self.sim.event(format_args!("{} stands still for {by:?}", self.name));
        *lock(&self.stopped_until) = self.sim.elapsed() + by;
    }

    /// Draws what goes wrong at the next place, if anything; with dice for everything else about the place.
    pub(super) fn strike(&self, passing: Passing, what: impl Display) -> (Option<Fault>, impl FnOnce() -> Dice) {
        let mut at = lock(&self.at);
        at.place += 1;
        let (part, place) = (at.part, at.place);
        drop(at);
        let mut dice = Dice::of(self.sim.seed(), (&self.name, part, place));
        let id = || format!("{}/{part}@{place}", self.name);
        let fault = if self.is_dead() { None } else { self.sim.strike(passing, &mut dice, id, what) };
        // Other dice: what is drawn from these depends on whether the fault is drawn or given.
        (fault, move || Dice::of(self.sim.seed(), (&self.name, part, place, "ways")))
    }

    /// What befalls the process or its machine; the fault of a request is left.
    pub(super) fn suffer(&self, fault: Option<Fault>) -> Option<Fault> {
        let holding = |life: &Self| life.holding.load(Ordering::Relaxed) > 0;
        let counts = |held: bool, what: &'static str| {
            if held {
                self.sim.count(what);
            }
        };
        let all = || self.machine.lives();
        match fault? {
            Fault::Kill => {
                counts(holding(self), "kill under a lease");
                self.die("by chance");
            }
            Fault::Stall(by) => {
                counts(holding(self), "stall under a lease");
                self.stall(by);
            }
            Fault::Suspend(by) => {
                counts(all().iter().any(|life| holding(life)), "suspend under a lease");
                self.sim.event(format_args!("{} is suspended for {by:?}", self.machine.name));
                lock(&self.machine.outage).suspended_until = self.sim.elapsed() + by;
            }
            Fault::Reboot => {
                counts(all().iter().any(|life| holding(life)), "reboot under a lease");
                self.machine.clock.boot();
                all().iter().for_each(|life| life.die("its machine boots"));
            }
            Fault::Cut(by) => self.machine.cut_off(by),
            Fault::Jump(by) => {
                counts(all().iter().any(|life| holding(life)), "clock jump under a lease");
                self.sim.event(format_args!("the clock of {} jumps by {by} ms", self.machine.name));
                self.machine.clock.jump(by);
            }
            other => return Some(other),
        }
        None
    }

    /// Stands still if it has to; never returns when it is dead.
    pub(super) async fn go_on(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        if self.stopped().is_some() {
            // Back to `Process::run`, which does not poll before it goes on.
            tokio::task::yield_now().await;
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
        let (fault, _) = self.strike(Passing::Step, name);
        self.suffer(fault);
        if self.is_dead() {
            Box::pin(std::future::pending())
        } else if self.stopped().is_some() {
            Box::pin(tokio::task::yield_now())
        } else {
            Box::pin(std::future::ready(()))
        }
    }
}
