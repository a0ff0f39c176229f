//! Running many seeds.
//!
//! `PEAT_SEED=n` runs one seed and tells all that happens; `PEAT_SCHEDULES=n` sets how many are run over all
//! suites.
#![allow(clippy::disallowed_methods)] // read by whoever runs the tests, not by Peat
#![allow(clippy::panic)] // how a test fails

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which seed a test was told to run, verbosely.
pub fn one_seed() -> Option<u64> {
    std::env::var("PEAT_SEED").ok()?.parse().ok()
}

/// How many schedules to run: `percent` of the `PEAT_SCHEDULES` of all suites together, or `default`.
pub fn schedules(default: u64, percent: u64) -> u64 {
    let all: Option<u64> = std::env::var("PEAT_SCHEDULES").ok().and_then(|text| text.parse().ok());
    all.map_or(default, |all| (all * percent).div_ceil(100))
}

/// Runs seeds `0..count` on all cores and returns the lowest seed that violates something, with what it said.
/// `run` gets the seed and whether to be verbose. With `PEAT_SEED` only that seed is run.
pub fn search(count: u64, run: impl Fn(u64, bool) -> Result<(), String> + Sync) -> Option<(u64, String)> {
    if let Some(seed) = one_seed() {
        return run(seed, true).err().map(|what| (seed, what));
    }
    let (next, limit) = (AtomicU64::new(0), AtomicU64::new(count));
    let found: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // Lower seeds are still being run by others; so the answer does not depend on who is faster.
                    if seed >= limit.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Err(what) = run(seed, false) {
                        limit.fetch_min(seed, Ordering::Relaxed);
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        if found.as_ref().is_none_or(|(other, _)| seed < *other) {
                            *found = Some((seed, what));
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Panics, naming the seed, when one of `count` schedules violates something.
pub fn all_hold(count: u64, run: impl Fn(u64, bool) -> Result<(), String> + Sync) {
    if let Some((seed, what)) = search(count, run) {
        panic!("seed {seed}: {what}\n(run it again with PEAT_SEED={seed})");
    }
}

/// Panics unless one of `count` schedules violates something: for mutations, which must be noticed.
pub fn one_fails(count: u64, run: impl Fn(u64, bool) -> Result<(), String> + Sync) -> (u64, String) {
    match search(count, run) {
        Some(found) => found,
        None => panic!("none of {count} schedules noticed that a rule is switched off"),
    }
}
