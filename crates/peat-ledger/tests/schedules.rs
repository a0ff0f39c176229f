//! Random schedules of the protocol: writers, readers, crashes, a bad network. After every write the log is judged by a
//! replay of its own. `PEAT_SEED=n` runs one seed verbosely, a fifth of `PEAT_SCHEDULES=n` are run.
#![allow(clippy::expect_used, clippy::large_futures)] // a test

#[path = "schedules/coverage.rs"]
mod coverage;
#[path = "schedules/keeper.rs"]
mod keeper;
#[path = "schedules/reader.rs"]
mod reader;
#[path = "schedules/replay.rs"]
mod replay;
#[path = "schedules/world.rs"]
mod world;
#[path = "schedules/writer.rs"]
mod writer;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peat_testkit::explore;
use peat_testkit::sim::{Faults, Ran, Sim};
use peat_types::Mutation;

use self::coverage::Coverage;
use self::world::World;
use self::writer::Disk;

fn schedule(seed: u64, verbose: bool, mutation: Option<Mutation>) -> Ran {
    // The stage differs from seed to seed: few units and many machines, or the other way round; good days and bad.
    let mut faults = Faults::bad_day();
    match seed % 4 {
        0 => faults = Faults { latency_ms: 15, ..Faults::none() },
        1 => (faults.kill, faults.slow) = (0.03, 0.2),
        2 => {
            // What a killed process sent lands while the next one tries again.
            (faults.late, faults.late_by, faults.orphaned) = (0.3, Duration::from_secs(1), 0.8);
            faults.lost_request = 0.15;
        }
        _ => {}
    }
    Sim::run(seed, verbose, faults, |sim| async move {
        let units = 1 + usize::try_from(sim.below(3)).expect("small");
        let world = World::new(&sim, units, mutation);
        let mut writers = Vec::new();
        let mut actors = Vec::new();
        let machines = if seed % 8 == 2 { 1 } else { 2 + sim.below(2) };
        for n in 0..machines {
            let machine = sim.machine(&format!("w{n}"));
            let disk = Arc::new(Mutex::new(Disk::default()));
            writers.push((machine.clone(), disk.clone()));
            actors.push(tokio::spawn(writer::machine(world.clone(), machine, disk, if machines == 1 { 9 } else { 3 })));
        }
        actors.push(tokio::spawn(reader::followers(world.clone(), sim.machine("f"), 10)));
        actors.push(tokio::spawn(reader::scoped(world.clone(), sim.machine("s"), 4)));
        for actor in actors {
            if let Err(error) = actor.await {
                sim.violation(format_args!("an actor panicked: {error}"));
            }
        }
        sim.heal();
        for (machine, disk) in writers {
            writer::settle(world.clone(), machine, disk).await;
        }
        // What is still under way lands now, and must change nothing.
        let (head, entries) = (world.head().map(|state| state.seq), world.entries());
        sim.sleep(Duration::from_secs(300)).await;
        world.finish();
        sim.event(format_args!("{entries} entries, head {head:?}"));
    })
}

/// Many machines on as many units, all in a hurry: they stage, wait and carry one another through a bad network.
fn crowd(seed: u64, verbose: bool, mutation: Option<Mutation>, coverage: &Arc<Coverage>) -> Ran {
    let faults = match seed % 3 {
        0 => Faults::none(),
        1 => Faults { doubled: 0.1, kill: 0.005, ..Faults::none() },
        _ => Faults { kill: 0.002, slow: 0.0, ..Faults::bad_day() },
    };
    Sim::run(seed, verbose, faults, |sim| async move {
        let mut world = World::new(&sim, 8, mutation);
        world.coverage = coverage.clone();
        world.lose_helpers = if seed.is_multiple_of(3) { 0.0 } else { 0.4 };
        let mut writers = Vec::new();
        let mut actors = Vec::new();
        for n in 0..8 {
            let machine = sim.machine(&format!("w{n}"));
            let disk = Arc::new(Mutex::new(Disk::default()));
            writers.push((machine.clone(), disk.clone()));
            actors.push(tokio::spawn(writer::machine(world.clone(), machine, disk, 2)));
        }
        actors.push(tokio::spawn(reader::followers(world.clone(), sim.machine("f"), 5)));
        for actor in actors {
            if let Err(error) = actor.await {
                sim.violation(format_args!("an actor panicked: {error}"));
            }
        }
        sim.heal();
        for (machine, disk) in writers {
            writer::settle(world.clone(), machine, disk).await;
        }
        // Whatever is still staged or under way must change nothing.
        sim.sleep(Duration::from_secs(300)).await;
        world.finish();
    })
}

/// Writers and readers among those who make checkpoints and collect garbage. States are kept for moments, and no time is
/// relied upon: what holds here holds whatever the clocks say.
fn ages(seed: u64, verbose: bool, mutation: Option<Mutation>, coverage: &Arc<Coverage>) -> Ran {
    let faults = match seed % 3 {
        0 => Faults { latency_ms: 15, ..Faults::none() },
        1 => Faults { kill: 0.01, slow: 0.05, ..Faults::none() },
        _ => Faults { kill: 0.005, slow: 0.1, ..Faults::bad_day() },
    };
    Sim::run(seed, verbose, faults, |sim| async move {
        let mut world = World::new(&sim, 2 + usize::try_from(sim.below(3)).expect("small"), mutation);
        world.coverage = coverage.clone();
        world.collects = true;
        let mut writers = Vec::new();
        let mut actors = Vec::new();
        for n in 0..2 + sim.below(2) {
            let machine = sim.machine(&format!("w{n}"));
            let disk = Arc::new(Mutex::new(Disk::default()));
            writers.push((machine.clone(), disk.clone()));
            actors.push(tokio::spawn(writer::machine(world.clone(), machine, disk, 5)));
        }
        for n in 0..3 {
            actors.push(tokio::spawn(keeper::keeper(world.clone(), sim.machine(&format!("k{n}")), 4)));
        }
        actors.push(tokio::spawn(reader::followers(world.clone(), sim.machine("f"), 8)));
        actors.push(tokio::spawn(reader::scoped(world.clone(), sim.machine("s"), 3)));
        for actor in actors {
            if let Err(error) = actor.await {
                sim.violation(format_args!("an actor panicked: {error}"));
            }
        }
        sim.heal();
        for (machine, disk) in writers {
            writer::settle(world.clone(), machine, disk).await;
        }
        sim.sleep(Duration::from_secs(300)).await;
        world.audit();
        world.finish();
    })
}

#[test]
fn a10_every_age_keeps_what_is_kept() {
    let coverage = Arc::<Coverage>::default();
    explore::all_hold(explore::schedules(20, 10), |seed, verbose| ages(seed, verbose, None, &coverage).ok());
    eprintln!("{coverage:?}");
    if explore::one_seed().is_none() {
        for (count, what) in [
            (&coverage.checkpoints, "a checkpoint"),
            (&coverage.dropped, "packs dropped"),
            (&coverage.collected, "garbage"),
        ] {
            assert!(count.load(Ordering::Relaxed) > 0, "there was never {what}: these schedules prove nothing");
        }
    }
}

fn noticed_in_time(mutation: Mutation, count: u64) -> String {
    let coverage = Arc::<Coverage>::default();
    explore::one_fails(count, |seed, verbose| ages(seed, verbose, Some(mutation), &coverage).ok()).1
}

#[test]
fn mutation_no_table_is_noticed() {
    let what = noticed_in_time(Mutation::NoTable, 300);
    assert!(what.contains("A10") || what.contains("table") || what.contains("gone"), "{what}");
}

#[test]
fn mutation_no_horizon_is_noticed() {
    // An upload that is overtaken by a collection is rare; seed 64 brings one about.
    let coverage = Arc::<Coverage>::default();
    let run = |seed, verbose| ages(64 + seed, verbose, Some(Mutation::NoHorizon), &coverage).ok();
    let what = explore::one_fails(600, run).1;
    assert!(what.contains("A10") || what.contains("gone"), "{what}");
}

#[test]
fn mutation_no_minlog_is_noticed() {
    let what = noticed_in_time(Mutation::NoMinlog, 300);
    assert!(what.contains("A10") || what.contains("gone"), "{what}");
}

#[test]
fn mutation_stale_live_is_noticed() {
    let what = noticed_in_time(Mutation::StaleLive, 300);
    assert!(what.contains("A10") || what.contains("gone"), "{what}");
}

#[test]
fn mutation_no_rebase_is_noticed() {
    let what = noticed_in_time(Mutation::NoRebase, 300);
    assert!(what.contains("A10") || what.contains("gone"), "{what}");
}

#[test]
fn mutation_no_void_is_noticed() {
    let what = noticed_in_time(Mutation::NoVoid, 600);
    assert!(what.contains("A10") || what.contains("gone") || what.contains("went back"), "{what}");
}

#[test]
fn every_crowd_keeps_the_invariants_and_helps() {
    let coverage = Arc::<Coverage>::default();
    explore::all_hold(explore::schedules(60, 10), |seed, verbose| crowd(seed, verbose, None, &coverage).ok());
    eprintln!("{coverage:?}");
    if explore::one_seed().is_none() {
        for (count, what) in [
            (&coverage.staged, "staged"),
            (&coverage.helped, "was helped"),
            (&coverage.helpers_unanswered, "helped without getting an answer"),
            (&coverage.batched, "was taken along within its process"),
        ] {
            assert!(count.load(Ordering::Relaxed) > 0, "nobody {what}: these schedules prove nothing");
        }
    }
}

#[test]
fn mutation_adopt_own_is_noticed_among_helpers() {
    let coverage = Arc::<Coverage>::default();
    let run = |seed, verbose| crowd(seed, verbose, Some(Mutation::AdoptOwn), &coverage).ok();
    let what = explore::one_fails(600, run).1;
    assert!(what.contains("fork") || what.contains("chain") || what.contains("A3"), "{what}");
}

fn count() -> u64 {
    explore::schedules(200, 20)
}

#[test]
fn every_schedule_keeps_the_invariants() {
    explore::all_hold(count(), |seed, verbose| schedule(seed, verbose, None).ok());
}

#[test]
fn a_seed_is_reproduced_exactly() {
    for seed in 0..4 {
        let (first, second) = (schedule(seed, false, None), schedule(seed, false, None));
        assert_eq!((first.trace, first.events), (second.trace, second.events), "seed {seed}");
    }
}

fn noticed(mutation: Mutation) -> String {
    explore::one_fails(600, |seed, verbose| schedule(seed, verbose, Some(mutation)).ok()).1
}

#[test]
fn mutation_no_txid_is_noticed() {
    let what = noticed(Mutation::NoTxid);
    assert!(what.contains("R7") || what.contains("A3"), "{what}");
}

#[test]
fn mutation_adopt_own_is_noticed() {
    // A killed process and the one after it send the same attempt in different bytes: the stage of every eighth seed.
    let run = |seed, verbose| schedule(8 * seed + 2, verbose, Some(Mutation::AdoptOwn)).ok();
    let what = explore::one_fails(600, run).1;
    assert!(what.contains("fork") || what.contains("chain") || what.contains("A3"), "{what}");
}

#[test]
fn mutation_no_precond_is_noticed() {
    let what = noticed(Mutation::NoPrecond);
    assert!(what.contains("A2") || what.contains("table"), "{what}");
}

#[test]
fn mutation_replan_no_change_id_is_noticed() {
    let what = noticed(Mutation::ReplanNoChangeId);
    assert!(what.contains("A3: change"), "{what}");
}

#[test]
fn mutation_older_reply_is_rollback_is_noticed() {
    // Replies must overtake one another just when an entry is made: only a bad day brings that about.
    let run = |seed, verbose| schedule(4 * seed + 3, verbose, Some(Mutation::OlderReplyIsRollback)).ok();
    let what = explore::one_fails(1200, run).1;
    assert!(what.contains("rollback"), "{what}");
}
