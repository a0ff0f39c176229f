//! Readers: what they see must be what the log says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peat_ledger::{Follow, Ledger, State};
use peat_testkit::sim::{Machine, Process};
use peat_types::{Result, Seq, Unit};

use super::replay::MapCache;
use super::view::{File, View, files_digest};
use super::world::{World, lock};

/// Several tasks of one process follow the whole log, with one position between them.
pub async fn followers(world: World, machine: Machine, rounds: u64) {
    let process = machine.process("follows", world.mutation);
    if !process.part("follows the log") {
        return;
    }
    let work = async {
        let ledger = world.ledger(&process).await?;
        process.reads(true);
        let head = ledger.head().await?;
        let mut view = View::default();
        let cache = MapCache::default();
        rebuild(&ledger, &head.state, &mut view, &cache).await?;
        let shared = Arc::new(Mutex::new((head.state, view)));
        let (one, two) = tokio::join!(
            follow(&world, &process, &ledger, &shared, rounds),
            follow(&world, &process, &ledger, &shared, rounds)
        );
        one.and(two)
    };
    report(&world, &process, process.run(work).await);
}

async fn follow(
    world: &World,
    process: &Process,
    ledger: &Ledger,
    shared: &Mutex<(State, View)>,
    rounds: u64,
) -> Result<()> {
    let env = process.env();
    for _ in 0..rounds {
        env.sleep(env.jitter(Duration::from_millis(500))).await;
        let before = lock(shared).0.clone();
        let followed = match ledger.follow(&before, world.collects || process.chance(0.5)).await {
            Err(error) if world.is_expected(&error) => continue,
            followed => followed?,
        };
        let mut jumped = None;
        if let Follow::Jump(state) = &followed {
            let mut view = View::default();
            match rebuild(ledger, state, &mut view, &MapCache::default()).await {
                Err(error) if world.is_behind(&error) => continue,
                rebuilt => rebuilt?,
            }
            jumped = Some(((**state).clone(), view));
        }
        let mut now = lock(shared);
        // One conditional update: an answer to a request issued before a newer position was stored is discarded (A8).
        if now.0.seq != before.seq {
            continue;
        }
        match followed {
            Follow::Unchanged => {}
            Follow::Entries(entries) => {
                for entry in &entries {
                    if let Err(why) = now.1.apply(entry) {
                        world.sim.violation(format_args!("A1: {}: {why}", process.name()));
                    }
                    now.0 = entry.state.clone();
                }
            }
            Follow::Jump(_) => {
                if let Some(jumped) = jumped {
                    *now = jumped;
                }
            }
        }
        if world.digest_at(now.0.seq) != Some(now.1.digest()) {
            world.sim.violation(format_args!("A1: {} sees something else at entry {}", process.name(), now.0.seq));
        }
    }
    Ok(())
}

async fn rebuild(ledger: &Ledger, state: &State, view: &mut View, cache: &MapCache) -> Result<()> {
    let rows = ledger.directory(state, cache).await?;
    let tables = ledger.tables(&rows.iter().map(|(_, row)| row).collect::<Vec<_>>(), cache).await?;
    for ((unit, _), table) in rows.iter().zip(tables) {
        let files = table.into_iter().map(|(rank, path, row)| (path, File::of(rank, &row))).collect();
        view.units.insert(unit.clone(), files);
    }
    Ok(())
}

/// Looks at some units only, now and then, and reads their contents.
pub async fn scoped(world: World, machine: Machine, rounds: u64) {
    let process = machine.process("looks", world.mutation);
    if !process.part("looks at some units") {
        return;
    }
    report(&world, &process, process.run(look(&world, &process, rounds)).await);
}

async fn look(world: &World, process: &Process, rounds: u64) -> Result<()> {
    let env = process.env();
    let ledger = world.ledger(process).await?;
    process.reads(true);
    let cache = MapCache::default();
    let mut state = ledger.head().await?.state;
    let mut seen: BTreeMap<Unit, Seq> = BTreeMap::new();
    for _ in 0..rounds {
        env.sleep(env.jitter(Duration::from_secs(4))).await;
        let mut wanted = vec![world.any_unit(process), world.any_unit(process)];
        wanted.sort();
        wanted.dedup();
        let asked: Vec<_> = wanted.iter().map(|unit| (unit.clone(), seen.get(unit).copied())).collect();
        let list = world.collects || process.chance(0.3);
        let answer = match ledger.scoped(&state, list, &asked, &cache).await {
            Err(error) if world.is_expected(&error) => continue,
            answer => answer?,
        };
        let at = answer.state.seq;
        for (unit, have) in &asked {
            let truth = world.unit_at(unit, at);
            let told = answer.units.iter().find(|(told, _)| told == unit);
            match told {
                None => {
                    if truth.map(|(seq, _)| seq) != *have {
                        world.sim.violation(format_args!("A1: {}: {unit} changed unnoticed by {at}", process.name()));
                    }
                }
                Some((_, None)) => {
                    if truth.is_some() {
                        world
                            .sim
                            .violation(format_args!("A7: {}: {unit} is said not to exist at {at}", process.name()));
                    }
                }
                Some((_, Some(row))) => {
                    let table = match ledger.tables(&[row], &cache).await {
                        Err(error) if world.is_expected(&error) => continue,
                        table => table?.remove(0),
                    };
                    let rows: Vec<_> = table.iter().map(|(_, _, row)| row).collect();
                    match ledger.contents(&rows, &answer.entries).await {
                        Err(error) if world.is_expected(&error) => {}
                        contents => drop(contents?),
                    }
                    let files = table.iter().map(|(rank, path, row)| (path.clone(), File::of(*rank, row))).collect();
                    if truth != Some((row.last_seq, files_digest(&files))) {
                        world
                            .sim
                            .violation(format_args!("A1: {} sees something else of {unit} at {at}", process.name()));
                    }
                    seen.insert(unit.clone(), row.last_seq);
                }
            }
        }
        state = answer.state;
    }
    Ok(())
}

fn report(world: &World, process: &Process, done: Option<Result<()>>) {
    if let Some(Err(error)) = done.filter(|done| done.as_ref().is_err_and(|error| !world.is_expected(error))) {
        world.unexpected(process.name(), &error);
    }
}
