//! What the store lost and a machine has: a repair puts it back, and others read it. What nobody has holds up nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Machine, Opening, World, change_bytes, noise, path, unit};
use peat_clone::{Hydration, Mended, Scope};

/// Removes all packs; gives how many there were.
async fn destroy(world: &World) -> usize {
    use peat_objects::Store;
    let packs: Vec<String> = world.memory.keys().into_iter().filter(|key| key.starts_with("pack/")).collect();
    for key in &packs {
        world.memory.delete(key).await.unwrap();
    }
    packs.len()
}

async fn mend(machine: &Machine) -> Mended {
    let found = machine.clone.verify(false).await.unwrap();
    let plan = machine.clone.plan_mend(&found).await.unwrap();
    machine.clone.mend(&plan).await.unwrap()
}

async fn large(machine: &Machine, on: &str, at: &str, seed: u64, len: usize) {
    machine.clone.commit(change_bytes(on, at, noise(seed, len))).await.unwrap();
}

/// Parts of 100,000 bytes, so that contents of several are small enough for a test.
fn world(seed: u64) -> World {
    let mut world = World::new(seed);
    world.params.part = 100_000;
    world
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_has_the_files_heals_the_store_for_all_others() {
    let world = world(1);
    let (a, stale) = (
        world.open("a").await,
        world.open_with("stale", Opening { hydration: Hydration::Lazy, ..Opening::default() }).await,
    );
    large(&a, "model/x", "model/x/one", 1, 90_000).await;
    large(&a, "model/x", "model/x/parts", 2, 350_000).await;
    large(&a, "model/y", "model/y/one", 3, 80_000).await;
    // It knows of everything and has nothing.
    stale.pull().await;
    assert_eq!(destroy(&world).await, 3);
    let b = world.open("b").await;
    let error = b.clone.pull(&Scope::All).await.unwrap_err();
    assert_eq!(error.code(), "content_lost", "{error:?}");
    assert!(error.hints()[0].contains("'peat doctor --repair'"), "{error:?}");
    let item = stale.clone.item(&unit("model/x"), &path("model/x/one")).unwrap().unwrap();
    assert_eq!(stale.clone.content(&item).await.unwrap_err().code(), "content_lost");

    let done = mend(&a).await;
    assert_eq!((done.contents, done.stored, done.dropped), (1 + 4 + 1, 520_000, 3), "{done:?}");
    b.pull().await;
    for reader in [&b, &stale, &world.open("c").await] {
        reader.clone.pull(&Scope::All).await.unwrap();
        for (on, at, len) in [
            ("model/x", "model/x/one", 90_000),
            ("model/x", "model/x/parts", 350_000),
            ("model/y", "model/y/one", 80_000),
        ] {
            let item = reader.clone.item(&unit(on), &path(at)).unwrap().unwrap();
            let mut got = 0;
            reader
                .clone
                .stream(&item, &mut |bytes| {
                    got += bytes.len();
                    Ok(())
                })
                .await
                .unwrap();
            assert_eq!(got, len, "{at}");
        }
    }
    let again = mend(&b).await;
    assert_eq!(again, Mended::default(), "nothing is left to be done");
    // Nobody's units moved: what others had planned and pending commits as ever.
    assert_eq!(stale.put("model/x", "model/x/more", "text").await.seq, a.clone.standing().await.unwrap().seq);
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_holds_up_nothing_else_and_comes_back_with_whoever_has_it() {
    let world = world(2);
    let (a, other) = (world.open("a").await, world.open("other").await);
    large(&a, "model/x", "model/x/lost", 1, 90_000).await;
    let held = destroy(&world).await;
    assert_eq!(held, 1);
    large(&a, "model/x", "model/x/kept", 2, 90_000).await;
    large(&a, "model/y", "model/y/kept", 3, 90_000).await;
    let error = other.clone.pull(&Scope::All).await.unwrap_err();
    assert_eq!(error.code(), "content_lost", "{error:?}");
    assert!(error.chain().join(" ").contains("model/x/lost"), "{error:?}");
    let here = |at: &str| other.clone.tree().join(at).exists();
    assert!(here("model/x/kept") && here("model/y/kept") && !here("model/x/lost"));
    let done = mend(&other).await;
    assert_eq!(done, Mended::default(), "it has nothing to give");
    assert_eq!(other.paths("model/x"), ["model/x/kept", "model/x/lost"], "it stays listed");
    assert_eq!(mend(&a).await.contents, 1);
    other.pull().await;
    assert!(here("model/x/lost"));
}

/// Where the store lost the lists of what there is, and the log does not reach back: a machine that was in step knows, one
/// that is behind does not.
#[tokio::test(start_paused = true)]
async fn a_machine_that_was_in_step_tells_what_lost_tables_held() {
    use peat_objects::Store;
    let world = world(3);
    let lazy = Opening { hydration: Hydration::Lazy, ..Opening::default() };
    let (a, in_step, behind) = (world.open("a").await, world.open_with("b", lazy).await, world.open("c").await);
    large(&a, "model/x", "model/x/one", 1, 90_000).await;
    large(&a, "model/x", "model/x/parts", 2, 350_000).await;
    behind.pull().await;
    a.put("model/y", "model/y/small", "text").await;
    a.clone.checkpoint(true, true).await.unwrap();
    in_step.pull().await;
    let head = a.clone.standing().await.unwrap().seq;
    for key in world.memory.keys().into_iter().filter(|key| key.starts_with("pack/")) {
        let body = world.memory.get(&key, peat_objects::Range::All).await.unwrap().unwrap().bytes;
        if !peat_ledger::format::decode_pack(&body).unwrap().pages.is_empty() {
            world.memory.delete(&key).await.unwrap();
        }
    }
    for seq in 0..head.0 {
        let slot = peat_types::Seq(seq);
        world.memory.delete(&format!("log/{}.{slot}", slot.inverted())).await.unwrap();
    }
    assert_eq!(mend(&behind).await, Mended::default(), "nothing is changed by who does not know");
    let done = mend(&in_step).await;
    assert!(done.built.directory && done.built.tables == 2 && done.built.left.is_none(), "{done:?}");
    assert_eq!(mend(&in_step).await.built, peat_clone::Built::default());
    let fresh = world.open("d").await;
    fresh.pull().await;
    assert_eq!(fresh.paths("model/x"), ["model/x/one", "model/x/parts"]);
    assert_eq!(fresh.paths("model/y"), ["model/y/small"]);
    // Others go on where they were.
    a.put("model/x", "model/x/more", "text").await;
    in_step.pull().await;
    assert_eq!(in_step.paths("model/x").len(), 3);
}
