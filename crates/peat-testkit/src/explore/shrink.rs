//! Cutting a failing schedule down: delta debugging over its parts and faults.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use crate::sim::{Cut, Happening, Ran, Script};

/// A failing schedule, cut down as far as the budget allowed.
#[derive(Clone, Debug)]
pub struct Story {
    /// Plays exactly this.
    pub script: Script,
    /// What happens in it, in order.
    pub told: Vec<Happening>,
    /// What it violates.
    pub violation: String,
    /// How much there was in the beginning.
    pub of: usize,
    /// Schedules run.
    pub replays: u32,
}

impl Story {
    /// Number of steps.
    pub fn len(&self) -> usize {
        self.told.len()
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.violation)?;
        writeln!(f, "It takes {} of {} steps ({} replays):", self.len(), self.of, self.replays)?;
        for (n, step) in self.told.iter().enumerate() {
            let at = step.at.as_secs_f64();
            match step.fault {
                None => writeln!(f, "{:>3}. {at:>10.3} s  {}: {}", n + 1, step.id, step.what)?,
                Some(fault) => writeln!(f, "{:>3}. {at:>10.3} s  {} {fault}: {}", n + 1, step.id, step.what)?,
            }
        }
        let test = std::thread::current().name().unwrap_or("every_schedule").to_owned();
        #[allow(clippy::disallowed_methods)] // set by cargo for the test that runs
        let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
        writeln!(f, "Again, with all that happens:")?;
        write!(f, "  PEAT_SEED='{}' cargo test -p {package} {test} -- --nocapture", self.script)
    }
}

fn script_of(seed: u64, told: &[Happening]) -> Script {
    let mut cut = Cut::default();
    for step in told {
        match step.fault {
            None => drop(cut.parts.insert(step.id.clone())),
            Some(fault) => drop(cut.faults.insert(step.id.clone(), fault)),
        }
    }
    Script { seed, only: Some(cut) }
}

/// The invariant that a violation is of.
fn name(violation: &str) -> &str {
    violation.split(':').next().unwrap_or_default()
}

struct Shrink<'a> {
    seed: u64,
    run: &'a dyn Fn(&Script, bool) -> Ran,
    until: Instant,
    replays: u32,
    most: u32,
    best: Vec<Happening>,
    violation: String,
}

impl Shrink<'_> {
    fn over(&self) -> bool {
        self.replays >= self.most || Instant::now() >= self.until
    }

    /// Whether the same invariant falls with nothing but `steps`; then they are the best.
    fn falls(&mut self, steps: &[Happening]) -> bool {
        self.replays += 1;
        let ran = (self.run)(&script_of(self.seed, steps), false);
        match ran.violations.first() {
            Some(what) if name(what) == name(&self.violation) && ran.told.len() <= self.best.len() => {
                // What is never reached any more falls away along with the rest.
                self.best = ran.told;
                self.violation.clone_from(what);
                true
            }
            _ => false,
        }
    }

    fn without(&mut self, gone: impl Fn(usize, &Happening) -> bool) -> bool {
        let kept: Vec<_> =
            self.best.iter().enumerate().filter(|(n, step)| !gone(*n, step)).map(|(_, step)| step.clone()).collect();
        kept.len() < self.best.len() && self.falls(&kept)
    }

    /// All that one machine, or one process, does and suffers.
    fn groups(&mut self, dots: usize) {
        let group = |id: &str| {
            let process = id.split('/').next().unwrap_or_default();
            process.split('.').take(dots).collect::<Vec<_>>().join(".")
        };
        let groups: BTreeSet<String> = self.best.iter().map(|step| group(&step.id)).collect();
        for name in groups.iter().rev() {
            if self.over() {
                return;
            }
            self.without(|_, step| group(&step.id) == *name);
        }
    }

    /// Ever smaller pieces, from the end: what comes late is needed least.
    fn pieces(&mut self) {
        let mut size = self.best.len().div_ceil(2);
        while size > 0 {
            let mut end = self.best.len();
            while end > 0 && !self.over() {
                let start = end.saturating_sub(size);
                self.without(|n, _| (start..end).contains(&n));
                end = start.min(self.best.len());
            }
            size /= 2;
        }
    }
}

/// Cuts a failing schedule down until nothing can be left out, or the time or the number of replays is used up.
///
/// `ran` is what came of `script`; `run` must be deterministic.
pub fn shrink(script: &Script, ran: &Ran, (time, most): (Duration, u32), run: &dyn Fn(&Script, bool) -> Ran) -> Story {
    let (best, of) = (ran.told.clone(), ran.told.len());
    let violation = ran.violations.first().cloned().unwrap_or_default();
    let until = Instant::now() + time;
    let mut shrink = Shrink { seed: script.seed, run, until, replays: 0, most, best, violation };
    loop {
        let before = shrink.best.len();
        for dots in 1..=3 {
            shrink.groups(dots);
        }
        shrink.pieces();
        if shrink.best.len() == before || shrink.over() {
            break;
        }
    }
    let script = script_of(script.seed, &shrink.best);
    Story { script, told: shrink.best, violation: shrink.violation, of, replays: shrink.replays }
}
