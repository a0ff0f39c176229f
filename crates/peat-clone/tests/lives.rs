//! Random lives of clones, full and lazy, seen from outside: processes commit, run, pull, settle and are killed; in the
//! end every change is in the log once or in a journal, everybody knows and has the same, and neither doctor nor
//! verification finds anything. (`schedules` looks at every single entry, and switches rules off.)
//! `PEAT_SEED=n` runs one seed verbosely, a fifth of `PEAT_SCHEDULES=n` are run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::large_futures)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{TestPlanner, change_append, change_end, new_run, noise, options, unit};
use peat_clone::{Durability, Hydration, LocalClone, NewNamespace, PendingStatus, Scope};
use peat_testkit::explore;
use peat_testkit::sim::{Faults, Machine, Process, Ran, Sim};
use peat_types::{Error, Kind, Mutation, Result};

struct World {
    sim: Sim,
    dirs: tempfile::TempDir,
    mutation: Option<Mutation>,
    /// Changes whose commit was acknowledged.
    acknowledged: Mutex<BTreeSet<String>>,
    hydration: Hydration,
}

impl World {
    fn dir(&self, name: &str) -> PathBuf {
        self.dirs.path().join(name)
    }

    async fn open(&self, machine: &Machine, process: &Process) -> Result<LocalClone> {
        let name = machine.name();
        let options = options(process.store(), &self.dir(name), name, self.hydration, Durability::Process);
        LocalClone::create(options, process.env().clone(), Arc::new(TestPlanner), NewNamespace::default()).await
    }

    fn acknowledge(&self, done: Result<peat_clone::Committed>) {
        match done {
            Ok(committed) => {
                self.acknowledged.lock().unwrap().insert(committed.change.to_string());
            }
            Err(error) => self.judge(&error),
        }
    }

    /// Trouble is fine, wrong answers are not.
    fn judge(&self, error: &Error) {
        let expected = match error.kind() {
            Kind::Offline | Kind::Contended => true,
            Kind::Conflict => error.code() == "lease_lost",
            _ => false,
        };
        self.sim.event(format_args!("error {error:?}"));
        if !expected {
            self.sim.violation(format_args!("an error that says the wrong thing: {error:?}"));
        }
    }
}

async fn work(world: &World, clone: &LocalClone, process: &Process) {
    let sim = &world.sim;
    for _ in 0..1 + sim.below(4) {
        let on = format!("model/m{}", sim.below(3));
        match sim.below(10) {
            0 => drop(clone.pull(&Scope::All).await.inspect_err(|e| world.judge(e))),
            1 | 2 => drop(clone.pull(&Scope::Units(vec![unit(&on)])).await.inspect_err(|e| world.judge(e))),
            3..=5 => {
                let mut change = change_append(&on, "text");
                if sim.chance(0.2) {
                    change.contents = vec![noise(sim.below(4), 70_000)];
                }
                change.patience = Duration::from_secs(1 + sim.below(30));
                world.acknowledge(clone.commit(change).await);
            }
            6 => {
                let settled = clone.settle().await;
                match settled {
                    Ok(settled) => settled.committed.into_iter().for_each(|done| world.acknowledge(Ok(done))),
                    Err(error) => world.judge(&error),
                }
            }
            _ => {
                let wait = Duration::from_secs(sim.below(60));
                let run = match clone.begin(new_run(&on, wait)).await {
                    Ok(run) => run,
                    Err(error) => {
                        world.judge(&error);
                        continue;
                    }
                };
                let length = Duration::from_secs(sim.below(40));
                tokio::select! {
                    biased;
                    () = process.env().sleep(length) => {}
                    () = run.beat() => {}
                    _ = run.lost() => {}
                }
                if sim.chance(0.8) {
                    world.acknowledge(run.end(change_end(&on)).await);
                }
            }
        }
    }
}

async fn machine(world: Arc<World>, machine: Machine, lives: u64) {
    for _ in 0..lives {
        let process = machine.process(world.mutation);
        let life = async {
            match world.open(&machine, &process).await {
                Ok(clone) => work(&world, &clone, &process).await,
                Err(error) => world.judge(&error),
            }
        };
        process.run(life).await;
        world.sim.sleep(Duration::from_millis(world.sim.below(3000))).await;
    }
}

/// Everybody settles in a quiet world until nothing is left to do.
async fn wind_up(world: &World, machines: &[Machine]) -> Vec<LocalClone> {
    let mut clones = Vec::new();
    for machine in machines {
        let process = machine.process(world.mutation);
        let clone = world.open(machine, &process).await.expect("opens in a quiet world");
        clones.push(clone);
    }
    for clone in clones.iter().chain(&clones) {
        match clone.settle().await {
            Ok(settled) => settled.committed.into_iter().for_each(|done| world.acknowledge(Ok(done))),
            Err(error) => world.sim.violation(format_args!("cannot settle: {error:?}")),
        }
    }
    for clone in &clones {
        if let Err(error) = clone.pull(&Scope::All).await {
            world.sim.violation(format_args!("cannot pull: {error:?}"));
        }
        for row in clone.pending().unwrap() {
            let lost = row.reason.as_ref().is_some_and(|(code, _)| code == "lease_lost");
            if row.status != PendingStatus::Parked || !lost {
                world.sim.violation(format_args!("A9: left in a journal: {row:?}"));
            }
        }
    }
    clones
}

fn facts(clone: &LocalClone) -> Vec<(String, String, String)> {
    let mut out = Vec::new();
    for known in clone.units().unwrap() {
        for item in clone.items(&known.unit, "").unwrap() {
            out.push((known.unit.to_string(), item.path.to_string(), item.hash().to_string()));
        }
    }
    out
}

async fn judge(world: &World, clones: &[LocalClone]) {
    let sim = &world.sim;
    let Some(first) = clones.first() else { return };
    let mut log = first.log(1000).await.expect("a quiet world");
    log.reverse();
    // Every change once, and every acknowledged one there.
    let mut seen = BTreeMap::new();
    let mut leases: BTreeMap<String, (u64, String, bool)> = BTreeMap::new();
    let mut versions: BTreeMap<String, usize> = BTreeMap::new();
    for (seq, tx) in log.iter().flat_map(|line| line.txs.iter().map(move |tx| (line.seq, tx))) {
        if let Some(before) = seen.insert(tx.change.to_string(), seq) {
            sim.violation(format_args!("A3: change {} is in entries {before} and {seq}", tx.change));
        }
        let kind = format!("{:?}", tx.kind);
        if let Some(guard) = &tx.guard {
            let (path, nonce) = (guard.path.to_string(), guard.nonce.to_string());
            let now = leases.get(&path).cloned().unwrap_or_default();
            if kind == "Start" {
                if guard.generation <= now.0 {
                    sim.violation(format_args!("entry {seq}: the generation of {path} went back"));
                }
                leases.insert(path, (guard.generation, nonce, true));
            } else {
                if now != (guard.generation, nonce.clone(), true) {
                    sim.violation(format_args!("A13: entry {seq} was made under a lease that was {now:?}"));
                }
                if kind == "End" {
                    leases.insert(path, (guard.generation, nonce, false));
                }
            }
        }
        if tx.message.is_empty() && (kind == "Change" || kind == "End") {
            for changed in &tx.units {
                *versions.entry(changed.unit.to_string()).or_default() += 1;
            }
        }
    }
    for change in world.acknowledged.lock().unwrap().iter() {
        if !seen.contains_key(change) {
            sim.violation(format_args!("A3: change {change} was acknowledged and is not in the log"));
        }
    }
    // Each change made one version of its own.
    for (on, expected) in versions {
        let items = first.items(&unit(&on), &format!("data/{on}/")).unwrap().len();
        if items != expected {
            sim.violation(format_args!("A2: {expected} changes of {on} made {items} versions"));
        }
    }
    // Everybody knows the same, and has it.
    for clone in clones {
        if facts(clone) != facts(first) {
            sim.violation("A1: two clones that saw everything differ");
        }
        for known in clone.units().unwrap() {
            for item in clone.items(&known.unit, "").unwrap() {
                if let Err(error) = clone.content(&item).await {
                    sim.violation(format_args!("A5: {} cannot be read: {error:?}", item.path));
                }
            }
        }
        for info in clone.leases().unwrap() {
            if info.lease.held {
                sim.violation(format_args!("{} is held by a process that is gone", info.unit));
            }
        }
        if let Some(failed) = clone.doctor().await.unwrap().into_iter().find(|f| !f.passed && f.check != "journal") {
            sim.violation(format_args!("the doctor finds {failed:?}"));
        }
    }
    let verified = first.verify(true).await.expect("a quiet world");
    if let Some(finding) = verified.findings.first() {
        sim.violation(format_args!("verify finds {finding:?}"));
    }
}

fn schedule(seed: u64, verbose: bool, mutation: Option<Mutation>) -> Ran {
    let mut faults = Faults::bad_day();
    match seed % 4 {
        0 => faults = Faults { latency_ms: 15, ..Faults::none() },
        1 => (faults.kill, faults.slow) = (0.03, 0.2),
        2 => {
            (faults.late, faults.late_by, faults.orphaned) = (0.3, Duration::from_secs(1), 0.8);
            faults.lost_request = 0.15;
        }
        _ => {}
    }
    Sim::run(seed, verbose, faults, |sim| async move {
        let hydration = if sim.chance(0.5) { Hydration::Full } else { Hydration::Lazy };
        let world = Arc::new(World {
            sim: sim.clone(),
            dirs: tempfile::tempdir().unwrap(),
            mutation,
            acknowledged: Mutex::default(),
            hydration,
        });
        let machines: Vec<Machine> = (0..2 + sim.below(2)).map(|n| sim.machine(&format!("m{n}"))).collect();
        let mut actors = Vec::new();
        for on in &machines {
            for _ in 0..1 + sim.below(2) {
                actors.push(tokio::spawn(machine(world.clone(), on.clone(), 3)));
            }
        }
        for actor in actors {
            if let Err(error) = actor.await {
                sim.violation(format_args!("an actor panicked: {error}"));
            }
        }
        sim.heal();
        let clones = wind_up(&world, &machines).await;
        // What is still under way lands now, and must change nothing.
        sim.sleep(Duration::from_secs(300)).await;
        for clone in &clones {
            clone.pull(&Scope::All).await.expect("a quiet world");
        }
        judge(&world, &clones).await;
    })
}

#[test]
fn every_schedule_keeps_the_invariants() {
    explore::all_hold(explore::schedules(24, 20), |seed, verbose| schedule(seed, verbose, None).ok());
}
