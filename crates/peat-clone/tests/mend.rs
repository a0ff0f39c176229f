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
