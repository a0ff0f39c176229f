//! Who keeps the ledger in shape: checkpoints and collections by several at once, who may sleep for long in between.

use std::time::Duration;

use peat_ledger::{Checkpoint, Checkpointing, Collecting, Ledger};
use peat_testkit::sim::{Machine, Process};
use peat_types::{Kind, Result};

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
        env.sleep(env.jitter(Duration::from_millis(700))).await;
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
