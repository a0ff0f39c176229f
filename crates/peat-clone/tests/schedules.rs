//! Random schedules of whole machines: runs with leases, nested runs, takeovers, starts that are given up, crashes and
//! stalls everywhere, wrong clocks, a bad network, several processes per folder. `PEAT_SEED=n` runs one seed verbosely;
//! three fifths of `PEAT_SCHEDULES=n` are run. See `docs/design/008-simulation.md`.
#![allow(clippy::expect_used, clippy::large_futures)] // a test

#[path = "schedules/acts.rs"]
mod acts;
#[path = "schedules/host.rs"]
mod host;
#[path = "schedules/judge.rs"]
mod judge;
#[path = "../../peat-ledger/tests/schedules/leases.rs"]
#[allow(dead_code)] // shared with the schedules of the ledger
mod leases;
#[path = "schedules/planner.rs"]
mod planner;
#[path = "../../peat-ledger/tests/schedules/replay.rs"]
#[allow(dead_code)] // shared with the schedules of the ledger
mod replay;
#[path = "../../peat-ledger/tests/schedules/view.rs"]
#[allow(dead_code)] // shared with the schedules of the ledger
mod view;
#[path = "schedules/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use peat_clone::Hydration;
use peat_testkit::explore::{self, Share};
use peat_testkit::sim::{Dice, Faults, Ran, Script, Sim};
use peat_types::Mutation;

use self::acts::Act;
use self::host::Host;
use self::world::World;

/// Where a schedule takes place.
struct Stage {
    faults: Faults,
    machines: u64,
    /// Processes of each machine at one time, at most.
    seats: u64,
    /// Processes of each seat, one after the other.
    lives: u64,
    units: u64,
    acts: Vec<Act>,
}

/// Every tenth seed, from these on, has a stage of its own; the others are of all sorts.
mod stage {
    /// One process at a time, and what a killed one sent lands while the next one tries.
    pub const ORPHANS: u64 = 2;
    /// Replies overtake one another.
    pub const OVERTAKING: u64 = 3;
    /// One model that everybody wants, and holders that stand still.
    pub const STALLS: u64 = 4;
    /// Many machines in a hurry.
    pub const CROWD: u64 = 5;
    /// States are kept for seconds, and machines sleep for longer. (What is listed is there: see `ages` of the ledger.)
    pub const AGES: u64 = 6;
}

impl Stage {
    fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed, "stage");
        let bad = Faults::bad_day();
        let usual = Self {
            faults: bad.clone(),
            machines: 2 + dice.below(2),
            seats: 1 + dice.below(2),
            lives: 3,
            units: 1 + dice.below(3),
            acts: Act::ALL.iter().flat_map(|(act, times)| vec![*act; *times]).collect(),
        };
        match seed % 10 {
            0 => Self { faults: Faults::none(), ..usual },
            1 => Self { faults: Faults { kill: 0.02, ..bad }, ..usual },
            stage::ORPHANS => {
                let (late, late_by, orphaned) = (0.4, Duration::from_secs(1), 0.9);
                let faults = Faults { latency_ms: 100, late, late_by, orphaned, lost_request: 0.05, ..Faults::none() };
                let acts = vec![Act::Append, Act::Run, Act::Leave, Act::Settle, Act::Settle];
                Self { faults, machines: 1, seats: 1, lives: 10, units: 1, acts }
            }
            stage::OVERTAKING => {
                let faults = Faults { latency_ms: 40, slow: 0.25, stall: 0.0, kill: 0.002, ..bad };
                Self { faults, ..usual }
            }
            stage::STALLS => {
                let faults = Faults { stall: 0.02, suspend: 0.01, jump: 0.02, ..Faults::none() };
                Self { faults, units: 1, acts: vec![Act::Run, Act::Run, Act::Append, Act::Settle], ..usual }
            }
            stage::CROWD => {
                let faults = Faults { lost_created: 0.2, ..Faults::none() };
                let acts = vec![Act::Append, Act::Append, Act::Run, Act::Pull];
                Self { faults, machines: 5 + dice.below(4), seats: 1, lives: 1, units: 6, acts }
            }
            stage::AGES => {
                let stall_by = Duration::from_secs(40);
                let calm =
                    Faults { kill: 0.003, stall: 0.003, suspend: 0.002, stall_by, jump: 0.002, ..Faults::none() };
                let faults = Faults { lost_created: 0.1, lost_reply: 0.005, late: 0.01, late_by: stall_by, ..calm };
                let often = [(Act::Checkpoint, 6), (Act::Collect, 8)];
                let acts = Act::ALL.iter().chain(&often).flat_map(|(act, times)| vec![*act; *times]).collect();
                Self { faults, lives: 5, acts, ..usual }
            }
            _ => {
                let acts: Vec<Act> = Act::ALL
                    .iter()
                    .flat_map(|(act, times)| vec![*act; if dice.chance(0.6) { *times } else { 0 }])
                    .collect();
                let acts = if acts.is_empty() { usual.acts } else { acts };
                let machines = 1 + dice.below(4);
                let faults = Faults::some_day(&mut dice);
                Self { faults, machines, seats: 1 + dice.below(3), lives: 1 + 4 / machines, acts, ..usual }
            }
        }
    }
}

fn schedule(script: &Script, verbose: bool, mutation: Option<Mutation>) -> Ran {
    // In memory where there is such a place: nothing here is to survive a power cut.
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder");
    let root = folder.path().to_owned();
    let Stage { faults, machines, seats, lives, units, acts } = Stage::of(script.seed);
    let seed = script.seed;
    Sim::run(script, verbose, faults, |sim| async move {
        let world = World::new(&sim, units, acts, mutation);
        let host = |n: u64| {
            let hydration = if (n + seed).is_multiple_of(2) { Hydration::Full } else { Hydration::Lazy };
            Host::new(&world, &format!("m{n}"), root.join(format!("m{n}")), hydration)
        };
        let hosts: Vec<Host> = (0..machines).map(host).collect();
        let mut actors = Vec::new();
        for host in &hosts {
            for seat in 0..seats {
                actors.push(tokio::task::spawn_local(host.clone().live(seat, lives)));
            }
        }
        for actor in actors {
            if let Err(error) = actor.await {
                sim.violation(format_args!("error: an actor panicked: {error}"));
            }
        }
        sim.heal();
        // What is still under way lands now, but for what takes hours.
        sim.sleep(Duration::from_secs(120)).await;
        let mut left = BTreeSet::new();
        for host in &hosts {
            left.extend(host.settle().await);
        }
        world.finish(&left);
        // That lands now, and must change nothing.
        let head = world.judge().replay.digests.len();
        sim.sleep(Duration::from_secs(3 * 3600)).await;
        if world.judge().replay.digests.len() != head {
            sim.violation("A3: an entry was made although everybody had settled");
        }
        if seed.is_multiple_of(3) {
            for host in &hosts {
                host.inspect().await;
            }
        }
    })
}

#[test]
fn every_schedule_keeps_the_invariants() {
    let counts = explore::all_hold(Share { default: 80, percent: 50 }, |script, loud| schedule(script, loud, None));
    explore::show(&counts);
    explore::all_happened(
        &counts,
        &[
            "abort",
            "checkpoint",
            "clock jump under a lease",
            "commit under a lease",
            "committed by somebody else",
            "end",
            "end parked",
            "garbage deleted",
            "helper",
            "interrupted run released",
            "kill under a lease",
            "lease seen lost",
            "lease taken away",
            "pack",
            "parked change adopted",
            "release",
            "several units",
            "stall under a lease",
            "start committed late",
            "start given up",
            "start left halfway",
            "stored entry adopted",
            "suspend under a lease",
            "takeover from a dead process",
            "takeover from a stopped process",
            "transaction staged",
        ],
    );
    explore::rare_happened(&counts, &["parked change dropped"]);
}

#[test]
fn a_seed_is_reproduced_exactly() {
    for seed in 0..6 {
        let script = Script::seed(seed);
        let (first, second) = (schedule(&script, false, None), schedule(&script, false, None));
        assert_eq!((first.trace, first.events), (second.trace, second.events), "seed {seed}");
    }
}

/// Switches a rule off and expects a violation that tells of one of `signs` within a bounded number of schedules.
fn noticed(mutation: Mutation, stage: impl Fn(u64) -> u64 + Sync, signs: &[&str]) {
    let failed = explore::one_fails(300, stage, |script, loud| schedule(script, loud, Some(mutation)));
    let what = failed.what();
    assert!(signs.iter().any(|sign| what.contains(sign)), "{what}");
}

#[test]
fn mutation_no_txid_is_noticed() {
    noticed(Mutation::NoTxid, |n| n, &["A3", "A9"]);
}

#[test]
fn mutation_adopt_own_is_noticed() {
    noticed(Mutation::AdoptOwn, |n| 10 * n + stage::ORPHANS, &["A8", "does not follow", "A3"]);
}

#[test]
fn mutation_no_precond_is_noticed() {
    noticed(Mutation::NoPrecond, |n| n, &["A2", "A1: the table"]);
}

#[test]
fn mutation_replan_no_change_id_is_noticed() {
    noticed(Mutation::ReplanNoChangeId, |n| n, &["A3"]);
}

#[test]
fn mutation_older_reply_is_rollback_is_noticed() {
    noticed(Mutation::OlderReplyIsRollback, |n| 10 * n + stage::OVERTAKING, &["rollback", "went back"]);
}

#[test]
fn mutation_lease_free_deletes_is_noticed() {
    noticed(Mutation::LeaseFreeDeletes, |n| n, &["A13"]);
}

#[test]
fn mutation_no_guard_is_noticed() {
    noticed(Mutation::NoGuard, |n| 10 * n + stage::STALLS, &["A13"]);
}

#[test]
fn mutation_resubmit_start_is_noticed() {
    noticed(Mutation::ResubmitStart, |n| 10 * n + stage::ORPHANS, &["A13"]);
}
