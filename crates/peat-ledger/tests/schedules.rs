//! Random schedules of the protocol: writers, readers, crashes, stalls, wrong clocks, a bad network. After every write
//! the log is judged by a replay of its own. `PEAT_SEED=n` runs one seed verbosely; the shares of `PEAT_SCHEDULES` are
//! below. See `docs/design/008-simulation.md`.
#![allow(clippy::expect_used, clippy::large_futures)] // a test

#[path = "schedules/holder.rs"]
mod holder;
#[path = "schedules/keeper.rs"]
mod keeper;
#[path = "schedules/leases.rs"]
mod leases;
#[path = "schedules/reader.rs"]
mod reader;
#[path = "schedules/replay.rs"]
mod replay;
#[path = "schedules/view.rs"]
mod view;
#[path = "schedules/world.rs"]
mod world;
#[path = "schedules/writer.rs"]
mod writer;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peat_testkit::explore::{self, Share};
use peat_testkit::sim::{Dice, Faults, Machine, Ran, Script, Sim};
use peat_types::Mutation;

use self::world::World;
use self::writer::Disk;

/// An actor has a machine of its own and lives as long as it likes. What it must not leave behind, [`World::finish`]
/// and the watcher of the store see. Each thing that it does begins with [`Process::part`], so that it can be cut out of
/// a failing schedule, and draws its choices from its process; its ledger is [`World::ledger`].
///
/// To add one, write such a function beside `reader`, `writer` and `keeper` and name it in [`schedule`] or another stage;
/// what it changes about the log the replay must be told.
///
/// [`Process::part`]: peat_testkit::sim::Process::part
type Actor = fn(World, Machine) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a schedule takes place, apart from its actors.
struct Stage {
    faults: Faults,
    units: usize,
    writers: u64,
    lives: u64,
    actors: Vec<(&'static str, Actor)>,
    /// Garbage is collected, and states are kept for moments only.
    collects: bool,
}

fn follower(world: World, machine: Machine) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(reader::followers(world, machine, 10))
}

fn scoped(world: World, machine: Machine) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(reader::scoped(world, machine, 4))
}

fn keeper(world: World, machine: Machine) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(keeper::keeper(world, machine, 4))
}

fn holder(world: World, machine: Machine) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(holder::holder(world, machine, 4))
}

/// Every eighth seed, from this one on: what a killed process sent lands while the next one tries again.
const ORPHANS: u64 = 2;
/// Replies overtake one another.
const OVERTAKING: u64 = 3;
/// Among collectors, every fifth seed: an upload may have become too old when it is to be introduced.
const SLEEPERS: u64 = 3;

/// The stage differs from seed to seed: few units and many machines, or the other way round; good days and bad.
fn schedule(script: &Script, verbose: bool, mutation: Option<Mutation>) -> Ran {
    let mut dice = Dice::of(script.seed, "stage");
    let bad = Faults::bad_day();
    let (faults, writers) = match script.seed % 8 {
        0 => (Faults::none(), 2 + dice.below(3)),
        1 => (Faults { kill: 0.03, slow: 0.2, ..bad }, 2 + dice.below(2)),
        ORPHANS => {
            let (late, late_by, orphaned) = (0.4, Duration::from_secs(1), 0.9);
            (Faults { latency_ms: 100, late, late_by, orphaned, lost_request: 0.05, ..Faults::none() }, 1)
        }
        OVERTAKING => (Faults { latency_ms: 60, slow: 0.3, ..Faults::none() }, 2 + dice.below(2)),
        4 => (bad, 2 + dice.below(2)),
        _ => (Faults::some_day(&mut dice), 1 + dice.below(5)),
    };
    let lives = if writers == 1 { 9 } else { 2 + 4 / writers };
    let units = 1 + usize::try_from(dice.below(3)).expect("small");
    let actors: Vec<(_, Actor)> = vec![("f", follower), ("s", scoped)];
    play(script, verbose, mutation, Stage { faults, units, writers, lives, actors, collects: false })
}

/// Many machines on as many units, all in a hurry: they stage, wait and carry one another through a bad network.
fn crowd(script: &Script, verbose: bool, mutation: Option<Mutation>) -> Ran {
    let faults = match script.seed % 4 {
        0 => Faults::none(),
        1 => Faults { doubled: 0.1, lost_created: 0.5, kill: 0.005, ..Faults::none() },
        2 => Faults { kill: 0.002, slow: 0.0, lost_created: 0.5, ..Faults::bad_day() },
        _ => Faults::some_day(&mut Dice::of(script.seed, "stage")),
    };
    let actors: Vec<(_, Actor)> = vec![("f", follower)];
    play(script, verbose, mutation, Stage { faults, units: 8, writers: 8, lives: 2, actors, collects: false })
}

/// Writers and readers among those who make checkpoints and collect garbage. States are kept for moments, and no time is
/// relied upon: what holds here holds whatever the clocks say. (But what is listed is there: a store that forgets for a
/// while is trusted only because states are kept much longer than that.)
fn ages(script: &Script, verbose: bool, mutation: Option<Mutation>) -> Ran {
    let mut dice = Dice::of(script.seed, "stage");
    let faults = match script.seed % 5 {
        0 => Faults::none(),
        1 => Faults { kill: 0.01, slow: 0.05, ..Faults::none() },
        2 => Faults { kill: 0.005, slow: 0.1, ..Faults::bad_day() },
        SLEEPERS => {
            let (slow_by, stall_by) = (Duration::from_secs(10), Duration::from_secs(20));
            Faults { slow: 0.1, slow_by, stall: 0.01, stall_by, ..Faults::none() }
        }
        _ => Faults::some_day(&mut dice),
    };
    let faults = Faults { lag: 0.0, ..faults };
    let (writers, units) = (2 + dice.below(2), 2 + usize::try_from(dice.below(3)).expect("small"));
    let units = if script.seed % 5 == SLEEPERS { 8 } else { units };
    // Now and then everybody is at the same unit.
    let units = if dice.below(4) == 0 { 1 } else { units };
    let mut actors: Vec<(_, Actor)> =
        vec![("k0", keeper), ("k1", keeper), ("k2", keeper), ("f", follower), ("s", scoped)];
    let holders: [(_, Actor); 2] = [("h0", holder), ("h1", holder)];
    actors.extend(holders.into_iter().take(usize::try_from(dice.below(3)).expect("small")));
    play(script, verbose, mutation, Stage { faults, units, writers, lives: 5, actors, collects: true })
}

fn play(script: &Script, verbose: bool, mutation: Option<Mutation>, stage: Stage) -> Ran {
    Sim::run(script, verbose, stage.faults, |sim| async move {
        let world = World::new(&sim, stage.units, mutation, stage.collects);
        let mut writers = Vec::new();
        let mut actors = Vec::new();
        for n in 0..stage.writers {
            let machine = sim.machine(&format!("w{n}"));
            let disk = Arc::new(Mutex::new(Disk::default()));
            writers.push((machine.clone(), disk.clone()));
            actors.push(tokio::spawn(writer::machine(world.clone(), machine, disk, stage.lives)));
        }
        for (name, actor) in stage.actors {
            actors.push(tokio::spawn(actor(world.clone(), sim.machine(name))));
        }
        for actor in actors {
            if let Err(error) = actor.await {
                sim.violation(format_args!("error: an actor panicked: {error}"));
            }
        }
        sim.heal();
        for (machine, disk) in writers {
            writer::settle(world.clone(), machine, disk).await;
        }
        // What is still staged or under way lands now, and must change nothing.
        sim.sleep(Duration::from_secs(3 * 3600)).await;
        if stage.collects {
            world.audit();
        }
        world.finish();
    })
}

#[test]
fn every_schedule_keeps_the_invariants() {
    let counts = explore::all_hold(Share { default: 120, percent: 25 }, |script, loud| schedule(script, loud, None));
    explore::show(&counts);
    explore::all_happened(
        &counts,
        &[
            "kill",
            "stall",
            "suspend",
            "reboot",
            "cut",
            "jump",
            "late",
            "orphan",
            "slow-reply",
            "doubled",
            "status",
            "false-exists",
            "lag",
            "entry without a reply",
            "stored entry adopted",
        ],
    );
}

#[test]
fn every_schedule_of_crowds_keeps_the_invariants_and_helps() {
    let counts = explore::all_hold(Share { default: 40, percent: 15 }, |script, loud| crowd(script, loud, None));
    explore::show(&counts);
    explore::all_happened(
        &counts,
        &[
            "changes of one process in one entry",
            "helper",
            "helper without a reply",
            "stored entry adopted",
            "transaction staged",
        ],
    );
}

#[test]
fn every_schedule_of_ages_keeps_what_is_kept() {
    let counts = explore::all_hold(Share { default: 20, percent: 10 }, |script, loud| ages(script, loud, None));
    explore::show(&counts);
    explore::all_happened(
        &counts,
        &[
            "checkpoint",
            "packs dropped",
            "garbage deleted",
            "change that cannot be told",
            "pins changed",
            "purge",
            "lease taken",
            "lease taken over",
            "run ended",
            "end refused",
            "two processes of one journal",
        ],
    );
}

/// Schedules of ages that once found a fault, whatever they come to now: a slot that was collected and created again, void,
/// while a reader stood still was told as damaged; what a purge left of entry 0 was told as another ledger's.
const FOUND: [u64; 2] = [313, 538];

#[test]
fn schedules_that_found_a_fault_hold() {
    for seed in FOUND {
        let ran = ages(&Script::seed(seed), false, None);
        assert!(ran.ok().is_ok(), "seed {seed}: {:?}", ran.violations);
    }
}

#[test]
fn a_seed_is_reproduced_exactly() {
    for seed in 0..8 {
        let script = Script::seed(seed);
        let (first, second) = (schedule(&script, false, None), schedule(&script, false, None));
        assert_eq!((first.trace, first.events), (second.trace, second.events), "seed {seed}");
    }
}

fn noticed(mutation: Mutation, stage: impl Fn(u64) -> u64 + Sync, signs: &[&str]) {
    noticed_in(schedule, mutation, stage, signs);
}

type Schedule = fn(&Script, bool, Option<Mutation>) -> Ran;

fn noticed_in(run: Schedule, mutation: Mutation, stage: impl Fn(u64) -> u64 + Sync, signs: &[&str]) {
    let failed = explore::one_fails(300, stage, |script, loud| run(script, loud, Some(mutation)));
    let what = failed.what();
    assert!(signs.iter().any(|sign| what.contains(sign)), "{what}");
}

/// What is printed of a failing schedule can be read.
#[test]
fn a_failing_schedule_is_cut_down_to_a_few_steps() {
    let run = |script: &Script, loud| schedule(script, loud, Some(Mutation::NoPrecond));
    let failed = explore::one_fails(300, |n| n, run);
    let story = explore::shrink(&failed.script, &failed.ran, (Duration::from_secs(5), 300), &run);
    eprintln!("{story}");
    assert!(story.len() <= 8 && story.len() < story.of, "{story}");
    assert!(run(&story.script, false).ok().is_err(), "it fails again");
}

#[test]
fn mutation_no_txid_is_noticed() {
    noticed(Mutation::NoTxid, |n| n, &["R7", "A3"]);
}

#[test]
fn mutation_adopt_own_is_noticed() {
    noticed(Mutation::AdoptOwn, |n| 8 * n + ORPHANS, &["fork", "chain", "A3"]);
}

#[test]
fn mutation_adopt_own_is_noticed_among_helpers() {
    let failed = explore::one_fails(300, |n| n, |script, loud| crowd(script, loud, Some(Mutation::AdoptOwn)));
    let what = failed.what();
    assert!(what.contains("fork") || what.contains("chain") || what.contains("A3"), "{what}");
}

#[test]
fn mutation_no_precond_is_noticed() {
    noticed(Mutation::NoPrecond, |n| n, &["A2", "A1: the table"]);
}

#[test]
fn mutation_replan_no_change_id_is_noticed() {
    noticed(Mutation::ReplanNoChangeId, |n| n, &["A3: change"]);
}

#[test]
fn mutation_older_reply_is_rollback_is_noticed() {
    noticed(Mutation::OlderReplyIsRollback, |n| 8 * n + OVERTAKING, &["rollback"]);
}

fn noticed_in_time(mutation: Mutation, signs: &[&str]) {
    noticed_in(ages, mutation, |n| n, signs);
}

#[test]
fn mutation_no_table_is_noticed() {
    noticed_in_time(Mutation::NoTable, &["R3", "A10", "gone"]);
}

#[test]
fn mutation_no_horizon_is_noticed() {
    noticed_in(ages, Mutation::NoHorizon, |n| 5 * n + SLEEPERS, &["R2"]);
}

#[test]
fn mutation_no_minlog_is_noticed() {
    noticed_in_time(Mutation::NoMinlog, &["A10", "gone"]);
}

#[test]
fn mutation_stale_live_is_noticed() {
    noticed_in_time(Mutation::StaleLive, &["R4"]);
}

#[test]
fn mutation_no_rebase_is_noticed() {
    noticed_in_time(Mutation::NoRebase, &["A10", "gone"]);
}

#[test]
fn mutation_no_void_is_noticed() {
    noticed_in_time(Mutation::NoVoid, &["A10", "gone", "R4"]);
}

#[test]
fn mutation_no_reader_floor_is_noticed() {
    noticed_in_time(Mutation::NoReaderFloor, &["A1", "A8", "missing", "fork"]);
}

#[test]
fn mutation_no_floor_obj_is_noticed() {
    noticed_in_time(Mutation::NoFloorObj, &["R5", "A10"]);
}

#[test]
fn mutation_no_ext_is_noticed() {
    noticed_in_time(Mutation::NoExt, &["R3", "A10", "gone"]);
}
