//! Who keeps the ledger in shape: checkpoints and collections by several at once, who may sleep for long in between.

use std::time::Duration;

use peat_ledger::{Checkpoint, Checkpointing, Collecting, Ledger, Purging};
use peat_testkit::sim::{Machine, Process};
use peat_types::{Kind, Result, Seq};

use super::world::World;

const PATIENCE: Duration = Duration::from_secs(10);

/// Several processes of one machine, one after the other.
pub async fn keeper(world: World, machine: Machine, lives: u64) {
    for life in 0..lives {
        let process = machine.process(life, world.mutation);
        if !process.part("starts") {
            continue;
        }
        world.sim.sleep(Duration::from_millis(process.below(1500))).await;
        let times = 1 + process.below(3);
        match process.run(keep(&world, &process, times)).await {
            Some(Err(error)) if error.kind() != Kind::Contended && !world.is_expected(&error) => {
                world.unexpected(process.name(), &error);
            }
            _ => world.audit(),
        }
    }
}

async fn keep(world: &World, process: &Process, times: u64) -> Result<()> {
    let env = process.env();
    let ledger = world.ledger(process).await?;
    for _ in 0..times {
        process.next();
        if process.chance(0.5) {
            if process.plays("makes a checkpoint") {
                checkpoint(world, process, &ledger).await?;
            }
        } else if process.plays("collects garbage") {
            collect(world, process, &ledger).await?;
        }
        if process.maybe(0.06, "changes the pins") {
            pin(world, process, &ledger).await?;
        }
        if process.maybe(0.03, "purges an item") {
            purge(world, process, &ledger).await?;
        }
        env.sleep(env.jitter(Duration::from_millis(700))).await;
    }
    Ok(())
}

/// Purges the first version of something, wherever that is by now.
async fn purge(world: &World, process: &Process, ledger: &Ledger) -> Result<()> {
    let what = Purging {
        unit: world.any_unit(process),
        paths: vec!["data/000001".parse()?],
        author: process.name().to_owned(),
        patience: PATIENCE,
    };
    match ledger.purge(&what, &|_, _| {}).await {
        Ok(_) => world.sim.count("purge"),
        // A pin forbids it, or others were faster.
        Err(error) if matches!(error.kind(), Kind::Conflict | Kind::Contended) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Pins a state, of late or of long ago, or removes what it pinned before.
async fn pin(world: &World, process: &Process, ledger: &Ledger) -> Result<()> {
    let author = process.name();
    let pins = ledger.pins().await?;
    let done = match pins.first().filter(|_| process.chance(0.9)) {
        Some(pin) => ledger.unpin(&pin.name, author, PATIENCE).await,
        None => {
            let at = process.chance(0.5).then(|| Seq(process.below(12)));
            ledger.pin(&format!("p{}", process.below(4)), at, author, PATIENCE).await
        }
    };
    match done {
        Ok(_) => world.sim.count("pins changed"),
        // Others were faster, or the state is gone or not there yet.
        Err(error) if matches!(error.kind(), Kind::AlreadyExists | Kind::NotFound | Kind::Invalid) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn checkpoint(world: &World, process: &Process, ledger: &Ledger) -> Result<()> {
    let full = process.maybe(0.3, "of everything");
    let how = Checkpointing { author: process.name().to_owned(), force: true, full, patience: PATIENCE };
    if let Checkpoint::Done { dropped, .. } = ledger.checkpoint(&how).await? {
        world.sim.count("checkpoint");
        if dropped > 0 {
            world.sim.count("packs dropped");
        }
    }
    Ok(())
}

async fn collect(world: &World, process: &Process, ledger: &Ledger) -> Result<()> {
    let (env, keep) = (process.env(), Duration::from_millis(process.below(1500)));
    let how = Collecting { author: process.name().to_owned(), keep, patience: PATIENCE };
    let plan = ledger.plan_gc(&how).await?;
    // Paused for a month, as months go here.
    if process.maybe(0.4, "sleeps before it does as planned") {
        env.sleep(env.jitter(Duration::from_secs(6))).await;
    }
    if !ledger.gc(&plan, &how, &|_, _| {}).await?.deleted.is_empty() {
        world.sim.count("garbage deleted");
    }
    Ok(())
}
