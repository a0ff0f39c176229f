//! Who keeps the ledger in shape: checkpoints and collections by several at once, who may sleep for long in between.

use std::time::Duration;

use peat_ledger::{Checkpoint, Checkpointing, Collecting};
use peat_testkit::sim::{Machine, Process};
use peat_types::{Kind, Result};

use super::coverage::add;
use super::world::World;

/// Several processes of one machine, one after the other.
pub async fn keeper(world: World, machine: Machine, lives: u64) {
    for _ in 0..lives {
        let process = machine.process(world.mutation);
        process.env().sleep(process.env().jitter(Duration::from_millis(1500))).await;
        match process.run(keep(&world, &process)).await {
            Some(Err(error)) if error.kind() != Kind::Offline && !world.is_behind(&error) => {
                world.unexpected(process.name(), &error);
            }
            _ => {}
        }
        world.audit();
    }
}

async fn keep(world: &World, process: &Process) -> Result<()> {
    let env = process.env();
    let ledger = world.ledger(process).await?;
    let author = "keeper".to_owned();
    for _ in 0..1 + world.sim.below(3) {
        if world.sim.chance(0.5) {
            let full = world.sim.chance(0.3);
            let how = Checkpointing { author: author.clone(), force: true, full, patience: Duration::from_secs(10) };
            if let Checkpoint::Done { dropped, .. } = ledger.checkpoint(&how).await? {
                add(&world.coverage.checkpoints, 1);
                add(&world.coverage.dropped, usize::try_from(dropped).unwrap_or(0));
            }
        } else {
            let keep = Duration::from_millis(world.sim.below(1500));
            let how = Collecting { author: author.clone(), keep, patience: Duration::from_secs(10) };
            let plan = ledger.plan_gc(&how).await?;
            // Paused for a month, as months go here.
            if world.sim.chance(0.4) {
                env.sleep(env.jitter(Duration::from_secs(6))).await;
            }
            let done = ledger.gc(&plan, &how, &|_, _| {}).await?;
            add(&world.coverage.collected, done.deleted.len());
        }
        env.sleep(env.jitter(Duration::from_millis(700))).await;
    }
    Ok(())
}
