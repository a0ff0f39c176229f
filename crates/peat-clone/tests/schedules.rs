//! Random schedules of whole machines: runs with leases, nested runs, takeovers, starts that are given up, crashes
//! everywhere, a bad network, two processes per folder. `PEAT_SEED=n` runs one seed verbosely, `PEAT_SCHEDULES=n` sets how
//! many are run.
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

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use peat_testkit::explore;
use peat_testkit::sim::{Faults, Ran, Sim};
use peat_types::Mutation;

use self::machine::{Host, World};

fn schedule(seed: u64, verbose: bool, mutation: Option<Mutation>) -> Ran {
    let mut faults = Faults::bad_day();
    match seed % 5 {
        0 => faults = Faults::none(),
        1 => faults.kill = 0.02,
        2 => {
            // What a killed process sent lands while the next one tries again.
            (faults.late, faults.late_by, faults.orphaned) = (0.2, Duration::from_secs(1), 0.8);
            faults.lost_request = 0.1;
        }
        3 => (faults.slow, faults.kill) = (0.15, 0.005),
        _ => {}
    }
    // In memory where there is such a place: nothing here is to survive a power cut.
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let root = folder.path().to_owned();
    Sim::run(seed, verbose, faults, |sim| async move {
        let world = World::new(&sim, 1 + seed % 3, mutation);
        let hosts: Vec<Host> =
            (0..2 + sim.below(2)).map(|n| Host::new(&world, &format!("m{n}"), root.join(format!("m{n}")))).collect();
        let mut actors = Vec::new();
        for host in &hosts {
            for _ in 0..1 + sim.below(2) {
                actors.push(tokio::spawn(host.clone().live(3)));
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
        sim.event(format_args!("{} entries", world.entries()));
    })
}

#[test]
fn every_schedule_keeps_the_invariants() {
    explore::all_hold(explore::schedules(60), |seed, verbose| schedule(seed, verbose, None).ok());
}

#[test]
fn a_seed_is_reproduced_exactly() {
    for seed in 0..4 {
        let (first, second) = (schedule(seed, false, None), schedule(seed, false, None));
        assert_eq!((first.trace, first.events), (second.trace, second.events), "seed {seed}");
    }
}
