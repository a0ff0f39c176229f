//! Random schedules of whole machines: runs with leases, nested runs, takeovers, starts that are given up, crashes
//! everywhere, a bad network, two processes per folder. `PEAT_SEED=n` runs one seed verbosely, three fifths of
//! `PEAT_SCHEDULES=n` are run.
#![allow(clippy::expect_used, clippy::large_futures)] // a test

#[path = "schedules/judge.rs"]
mod judge;
#[path = "schedules/machine.rs"]
mod machine;
#[path = "schedules/planner.rs"]
mod planner;
#[path = "../../peat-ledger/tests/schedules/replay.rs"]
#[allow(dead_code)] // shared with the schedules of the ledger
mod replay;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use peat_testkit::explore;
use peat_testkit::sim::{Faults, Ran, Sim};
use peat_types::Mutation;

use self::machine::{Host, World};

/// Every tenth seed, from this one on: one process at a time, and what a killed one sent lands while the next one tries.
const ORPHANS: u64 = 2;

fn faults(seed: u64) -> Faults {
    let bad = Faults::bad_day();
    match seed % 10 {
        ORPHANS => Faults { late: 0.3, late_by: Duration::from_secs(1), orphaned: 0.8, lost_request: 0.15, ..bad },
        0 | 5 => Faults::none(),
        1 | 6 => Faults { kill: 0.02, ..bad },
        3 | 8 => Faults { slow: 0.15, kill: 0.005, ..bad },
        _ => bad,
    }
}

fn schedule(seed: u64, verbose: bool, mutation: Option<Mutation>) -> Ran {
    counted(seed, verbose, mutation, &RefCell::default())
}

/// A schedule that adds what happened to `told`.
fn counted(seed: u64, verbose: bool, mutation: Option<Mutation>, told: &RefCell<BTreeMap<&'static str, u64>>) -> Ran {
    // In memory where there is such a place: nothing here is to survive a power cut.
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let root = folder.path().to_owned();
    Sim::run(seed, verbose, faults(seed), |sim| async move {
        let world = World::new(&sim, 1 + seed % 3, mutation);
        let alone = seed % 10 == ORPHANS;
        let machines = if alone { 1 } else { 2 + sim.below(2) };
        let hosts: Vec<Host> =
            (0..machines).map(|n| Host::new(&world, &format!("m{n}"), root.join(format!("m{n}")))).collect();
        let mut actors = Vec::new();
        for host in &hosts {
            for _ in 0..if alone { 1 } else { 1 + sim.below(2) } {
                actors.push(tokio::spawn(host.clone().live(if alone { 10 } else { 3 })));
            }
        }
        for actor in actors {
            if let Err(error) = actor.await {
                sim.violation(format_args!("an actor panicked: {error}"));
            }
        }
        sim.heal();
        // What is still under way lands now.
        sim.sleep(Duration::from_secs(120)).await;
        let mut left = BTreeSet::new();
        for host in &hosts {
            left.extend(host.settle().await);
        }
        if !sim.violated() {
            world.finish(&left);
        }
        sim.event(format_args!("{:?}", world.seen()));
        for (what, times) in world.seen() {
            *told.borrow_mut().entry(what).or_default() += times;
        }
    })
}

#[test]
fn every_schedule_keeps_the_invariants() {
    explore::all_hold(explore::schedules(80, 60), |seed, verbose| schedule(seed, verbose, None).ok());
}

#[test]
fn the_schedules_bring_about_what_they_are_for() {
    let told = RefCell::default();
    for seed in 0..60 {
        counted(seed, false, None, &told);
    }
    let told = told.into_inner();
    for what in [
        "abort",
        "commit",
        "commit under a lease",
        "end",
        "lease seen lost",
        "pack",
        "parked to the end",
        "release",
        "several units",
        "start",
        "takeover",
    ] {
        assert!(told.get(what).is_some_and(|times| *times > 0), "no {what} in {told:?}");
    }
}

#[test]
fn a_seed_is_reproduced_exactly() {
    for seed in 0..4 {
        let (first, second) = (schedule(seed, false, None), schedule(seed, false, None));
        assert_eq!((first.trace, first.events), (second.trace, second.events), "seed {seed}");
    }
}

/// Switches a rule off and expects a violation that tells of one of `signs` within a bounded number of schedules.
fn noticed(mutation: Mutation, stage: impl Fn(u64) -> u64 + Sync, signs: &[&str]) {
    let (_, what) = explore::one_fails(1500, |n, verbose| schedule(stage(n), verbose, Some(mutation)).ok());
    assert!(signs.iter().any(|sign| what.contains(sign)), "{what}");
}

#[test]
fn mutation_no_txid_is_noticed() {
    noticed(Mutation::NoTxid, |n| n, &["A3", "A9"]);
}

#[test]
fn mutation_adopt_own_is_noticed() {
    noticed(Mutation::AdoptOwn, |n| 10 * n + ORPHANS, &["A8", "fork", "A3"]);
}

#[test]
fn mutation_no_precond_is_noticed() {
    noticed(Mutation::NoPrecond, |n| n, &["A2", "table"]);
}

#[test]
fn mutation_replan_no_change_id_is_noticed() {
    noticed(Mutation::ReplanNoChangeId, |n| n, &["A3"]);
}

#[test]
fn mutation_older_reply_is_rollback_is_noticed() {
    noticed(Mutation::OlderReplyIsRollback, |n| 10 * n + 3, &["rollback", "went back"]);
}

#[test]
fn mutation_lease_free_deletes_is_noticed() {
    noticed(Mutation::LeaseFreeDeletes, |n| n, &["A13"]);
}

#[test]
fn mutation_no_guard_is_noticed() {
    noticed(Mutation::NoGuard, |n| n, &["A13"]);
}

#[test]
fn mutation_resubmit_start_is_noticed() {
    noticed(Mutation::ResubmitStart, |n| n, &["A13"]);
}
