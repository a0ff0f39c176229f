//! Running many seeds, and cutting those that fail down to what matters.
//!
//! | variable | |
//! | --- | --- |
//! | `PEAT_SEED=n` | runs one seed and tells all that happens; also a [`Script`], as a failure prints it |
//! | `PEAT_SCHEDULES=n` | how many schedules all suites run together |
//! | `PEAT_FROM=n` | how many were run before: seeds go on from there |
//! | `PEAT_JOBS=n` | threads of each suite; all cores when unset |
#![allow(clippy::disallowed_methods)] // read by whoever runs the tests, not by Peat
#![allow(clippy::panic)] // how a test fails

mod shrink;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sim::{Ran, Script};

pub use shrink::{Story, shrink};

/// How long a failing schedule is cut down, and by how many replays.
const SHRINK: (Duration, u32) = (Duration::from_secs(30), 1000);

/// How often things happened, over many schedules.
pub type Counts = BTreeMap<&'static str, u64>;

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// What a test was told to run, verbosely.
pub fn one_script() -> Option<Script> {
    let text = std::env::var("PEAT_SEED").ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("PEAT_SEED: {error}")))
}

/// The seeds of one suite.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// How many are run when nobody says how many.
    pub default: u64,
    /// Percent of the `PEAT_SCHEDULES` of all suites.
    pub percent: u64,
}

impl Share {
    fn seeds(self) -> std::ops::Range<u64> {
        let share = |all: u64| all.saturating_mul(self.percent).div_ceil(100);
        let from = number("PEAT_FROM").map_or(0, share);
        from..from + number("PEAT_SCHEDULES").map_or(self.default, share)
    }
}

/// A schedule that violates something.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What was run.
    pub script: Script,
    /// What it came to.
    pub ran: Ran,
}

impl Failed {
    /// The violation.
    pub fn what(&self) -> &str {
        self.ran.violations.first().map_or("", String::as_str)
    }
}

/// Runs `seeds` on all cores and returns the lowest one that violates something, with what happened in all of them.
pub fn search(seeds: std::ops::Range<u64>, run: impl Fn(&Script, bool) -> Ran + Sync) -> (Option<Failed>, Counts) {
    let (next, limit) = (AtomicU64::new(seeds.start), AtomicU64::new(seeds.end));
    let found: Mutex<(Option<Failed>, Counts)> = Mutex::default();
    let threads = number("PEAT_JOBS").or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // Lower seeds are still being run by others; so the answer does not depend on who is faster.
                    if seed >= limit.load(Ordering::Relaxed) {
                        break;
                    }
                    let script = Script::seed(seed);
                    let ran = run(&script, false);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    for (what, times) in &ran.counts {
                        *found.1.entry(*what).or_default() += times;
                    }
                    if ran.ok().is_err() {
                        limit.fetch_min(seed, Ordering::Relaxed);
                        if found.0.as_ref().is_none_or(|other| seed < other.script.seed) {
                            found.0 = Some(Failed { script, ran });
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Panics when one of the schedules of a suite violates something: with a short story, and how to see it again. Gives
/// what happened in them; nothing when fewer were run than usual.
pub fn all_hold(share: Share, run: impl Fn(&Script, bool) -> Ran + Sync) -> Counts {
    if let Some(script) = one_script() {
        let ran = run(&script, true);
        if let Err(what) = ran.ok() {
            // One that was cut down is short enough to be read.
            let story = script.only.is_none().then(|| shrink(&script, &ran, SHRINK, &run).to_string());
            panic!("{script}: {what}\n{}", story.unwrap_or_default());
        }
        return Counts::new();
    }
    let seeds = share.seeds();
    let few = seeds.end - seeds.start < share.default;
    let (failed, counts) = search(seeds, &run);
    if let Some(Failed { script, ran }) = failed {
        panic!("seed {}: {}", script.seed, shrink(&script, &ran, SHRINK, &run));
    }
    if few { Counts::new() } else { counts }
}

/// Panics unless all of `wanted` happened: schedules in which they did not prove nothing about them.
pub fn all_happened(counts: &Counts, wanted: &[&str]) {
    if counts.is_empty() {
        return;
    }
    let missing: Vec<_> = wanted.iter().filter(|what| !counts.contains_key(**what)).collect();
    assert!(missing.is_empty(), "never happened: {missing:?}; what did:\n{}", table(counts));
}

/// The same of what is too rare to be asked of the few schedules that everybody runs: only of a thousand and more.
pub fn rare_happened(counts: &Counts, wanted: &[&str]) {
    if number::<u64>("PEAT_SCHEDULES").is_some_and(|many| many >= 1000) {
        all_happened(counts, wanted);
    }
}

fn table(counts: &Counts) -> String {
    let mut out = String::new();
    for (what, times) in counts {
        let _ = writeln!(out, "{times:>8} {what}");
    }
    out
}

/// Prints what happened, for whoever looks.
#[allow(clippy::print_stderr)]
pub fn show(counts: &Counts) {
    eprint!("{}", table(counts));
}

/// For mutations, which must be noticed: the first schedule that violates something, of the `most` seeds that `stage`
/// makes of 0, 1, 2 …: those on whose stage it shows often, so that this is quick whatever the code comes to.
pub fn one_fails(most: u64, stage: impl Fn(u64) -> u64 + Sync, run: impl Fn(&Script, bool) -> Ran + Sync) -> Failed {
    let staged = |script: &Script| Script::seed(stage(script.seed));
    match search(0..most, |script, loud| run(&staged(script), loud)).0 {
        Some(Failed { script, ran }) => Failed { script: staged(&script), ran },
        None => panic!("none of {most} schedules noticed that a rule is switched off"),
    }
}

#[cfg(test)]
mod tests;
