//! Stores that fail in ways somebody met elsewhere, by their numbers in `docs/design/007-peers.md`: here as a clone meets
//! them, in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Machine, Opening, TestPlanner, World, change_append, change_bytes, changes_in_log, noise, options, unit};
use peat_clone::{Durability, Hydration, LocalClone, NewNamespace, PendingStatus, Scope};
use peat_objects::{Fault, Op, Store};
use peat_testkit::liars::{LiarStore, Lie};
use peat_types::Kind;
use serde_json::json;

fn log(key: &str) -> bool {
    key.starts_with("log/")
}

/// Changes that are not the creation.
async fn changes(machine: &Machine) -> usize {
    changes_in_log(machine).await.len() - 1
}

async fn assert_sound(clone: &LocalClone) {
    let findings = clone.verify(true).await.unwrap().findings;
    assert!(findings.is_empty(), "{findings:?}");
}

#[tokio::test(start_paused = true)]
async fn f05_answers_409_once() {
    let world = World::new(5);
    let a = world.open("a").await;
    a.pull().await;
    a.faults.script(Op::Create, log, 1, Fault::Status(409));
    a.put("model/x", "data/1", "1").await;
    assert_eq!((changes(&a).await, a.faults.fired().len()), (1, 1));
    assert!(a.clone.pending().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn f06_applies_the_put_and_drops_the_response() {
    let world = World::new(6);
    let (a, b) = (world.open("a").await, world.open("b").await);
    for (op, folder) in [(Op::Create, "log/"), (Op::Put, "pack/")] {
        a.faults.script(op, move |key| key.starts_with(folder), 1, Fault::LostReply);
    }
    // Its own entry is no conflict, whoever looks at it.
    let big = noise(6, 3 << 20);
    a.clone.commit(change_bytes("model/x", "data/big", big.clone())).await.unwrap();
    assert_eq!((changes(&a).await, a.faults.fired().len()), (1, 2));
    b.pull().await;
    let item = b.clone.item(&unit("model/x"), &common::path("data/big")).unwrap().unwrap();
    assert_eq!(b.clone.content(&item).await.unwrap(), big);
    assert_sound(&b.clone).await;
}

#[tokio::test(start_paused = true)]
async fn f07_applies_the_put_forty_seconds_late() {
    let world = World::new(7);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.pull().await;
    let late = Fault::Late(Duration::from_secs(40));
    a.faults.script(Op::Create, log, 1, late);
    a.faults.script_times(Op::Create, log, 2, 1000, Fault::LostRequest);
    let big = noise(7, 3 << 20);
    let mut change = change_bytes("model/x", "data/big", big.clone());
    change.patience = Duration::from_secs(10);
    let error = a.clone.commit(change).await.unwrap_err();
    assert_eq!(error.code(), "outcome_unknown", "{error:?}");
    // Unknown is not failed: the row stays, and so do the contents it names.
    assert_eq!(a.clone.pending().unwrap()[0].status, PendingStatus::Unknown);
    assert!(world.memory.keys().iter().any(|key| key.starts_with("pack/")));
    assert_eq!(changes(&b).await, 0);
    world.env.sleep(Duration::from_secs(40)).await;
    a.faults.heal();
    let settled = a.clone.settle().await.unwrap();
    assert_eq!((settled.committed.len(), changes(&b).await), (1, 1));
    b.pull().await;
    let item = b.clone.item(&unit("model/x"), &common::path("data/big")).unwrap().unwrap();
    assert_eq!(b.clone.content(&item).await.unwrap(), big);
    assert_sound(&b.clone).await;
}

/// A slot that somebody else took while the late one was on its way: the late one lands nowhere.
#[tokio::test(start_paused = true)]
async fn f07_a_late_landing_does_not_replace_anything() {
    let world = World::new(8);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.pull().await;
    a.faults.script(Op::Create, log, 1, Fault::Late(Duration::from_secs(40)));
    a.killer.arm("commit.unknown", 1);
    assert!(a.killer.run(a.clone.commit(change_append("model/x", "late"))).await.is_none());
    drop(a);
    b.clone.commit(change_append("model/x", "in time")).await.unwrap();
    world.env.sleep(Duration::from_secs(60)).await;
    assert_eq!(changes(&b).await, 1);
    let a = world.open("a").await;
    assert_eq!(a.clone.settle().await.unwrap().committed.len(), 1);
    b.pull().await;
    assert_eq!((changes(&b).await, b.paths("model/x").len()), (2, 2));
    assert_sound(&b.clone).await;
}

/// A clone over a store that lies.
async fn open(world: &World, store: &Arc<dyn Store>, name: &str) -> LocalClone {
    let options = options(store.clone(), &world.dir(name), name, Hydration::Full, Durability::Process);
    LocalClone::open(options, world.env.clone(), Arc::new(TestPlanner)).await.unwrap()
}

fn liar(world: &World, lie: Lie) -> Arc<dyn Store> {
    Arc::new(LiarStore::new(Arc::new(world.memory.clone()), &world.env, lie))
}

fn append(clone: &LocalClone, on: &str) -> impl Future<Output = ()> {
    let (clone, change) = (clone.clone(), change_append(on, "text"));
    async move {
        clone.commit(change).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn f09_reads_are_stale_for_half_a_minute() {
    let world = World::new(9);
    let honest = world.open("honest").await;
    honest.put("model/x", "data/0", "0").await;
    world.env.sleep(Duration::from_secs(60)).await;
    let store = liar(&world, Lie::StaleReads(30));
    let (a, b) = (open(&world, &store, "a").await, open(&world, &store, "b").await);
    a.pull(&Scope::All).await.unwrap();
    b.pull(&Scope::All).await.unwrap();
    append(&a, "model/x").await;
    let keys = world.memory.keys();
    // What was written a moment ago seems to be missing. That is never "there is nothing", and no reason to write.
    for _ in 0..5 {
        let _ = b.pull(&Scope::All).await;
        assert!(b.items(&unit("model/x"), "data/0").unwrap().len() == 1 && world.memory.keys() == keys);
        world.env.sleep(Duration::from_secs(1)).await;
    }
    // Nobody can take a slot that is taken, whatever a read says: the second waits until it can see who did.
    let begin = world.env.monotonic();
    append(&b, "model/x").await;
    assert!(world.env.monotonic() - begin > Duration::from_secs(20));
    world.env.sleep(Duration::from_secs(60)).await;
    honest.pull().await;
    assert_eq!((changes(&honest).await, honest.paths("model/x").len()), (3, 3));
    assert_sound(&honest.clone).await;
}

#[tokio::test(start_paused = true)]
async fn f10_listings_lack_what_is_fresh() {
    let world = World::new(10);
    let honest = world.open("honest").await;
    honest.put("model/x", "data/0", "0").await;
    world.env.sleep(Duration::from_secs(60)).await;
    let store = liar(&world, Lie::StaleLists(30));
    let a = open(&world, &store, "a").await;
    for at in 0..5 {
        append(&a, &format!("model/{at}")).await;
        // Every pull that lists meets a head below what was just written.
        world.env.sleep(Duration::from_secs(1)).await;
        a.pull(&Scope::All).await.unwrap();
    }
    // A newcomer is shown an old head, builds on it, and finds the slots taken.
    let b = open(&world, &store, "b").await;
    append(&b, "model/b").await;
    tokio::join!(append(&a, "model/x"), append(&b, "model/x"));
    honest.pull().await;
    assert_eq!(changes(&honest).await, 9);
    assert_sound(&honest.clone).await;
    b.pull(&Scope::All).await.unwrap();
    let of = |clone: &LocalClone| clone.units().unwrap().len();
    assert_eq!(of(&b), of(&honest.clone));
}

#[tokio::test(start_paused = true)]
async fn f10_a_log_that_seems_empty_is_not_begun_again() {
    let world = World::new(11);
    let store = liar(&world, Lie::StaleLists(30));
    let create = |name: &'static str| {
        let options = options(store.clone(), &world.dir(name), name, Hydration::Full, Durability::Process);
        let new = NewNamespace { params: world.params.clone(), probe: json!({}) };
        LocalClone::create(options, world.env.clone(), Arc::new(TestPlanner), new)
    };
    let a = create("a").await.unwrap();
    // A log without entries is damaged, so nothing is written to it; the change waits.
    let error = a.commit(change_append("model/x", "text")).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Damaged, "commit_pending"), "{error:?}");
    // The creation is found, and finished with the same bytes at most.
    let b = create("b").await.unwrap();
    assert_eq!(b.info().ledger, a.info().ledger);
    let _ = b.pull(&Scope::All).await;
    world.env.sleep(Duration::from_secs(31)).await;
    append(&b, "model/x").await;
    assert_eq!(a.settle().await.unwrap().committed.len(), 1);
    assert_sound(&b).await;
    a.pull(&Scope::All).await.unwrap();
    assert_eq!(a.items(&unit("model/x"), "data/").unwrap().len(), 2);
}

/// Beats, `ns.json` and everything else on a store that takes one write a second to one key: a beat that is refused is
/// skipped, nothing else is written twice.
#[tokio::test(start_paused = true)]
async fn one_write_per_second_and_key_is_enough_for_runs() {
    let world = World::new(12);
    let creator = world.open("creator").await;
    let store = liar(&world, Lie::OneWritePerSecond);
    let (a, b) = (open(&world, &store, "a").await, open(&world, &store, "b").await);
    let run = a.begin(common::new_run("model/x", Duration::from_secs(60))).await.unwrap();
    let waiting = tokio::spawn(async move {
        let run = b.begin(common::new_run("model/x", Duration::from_secs(600))).await.unwrap();
        run.end(common::change_end("model/x")).await.unwrap();
    });
    assert!(world.env.timeout(Duration::from_secs(120), run.beat()).await.is_none());
    run.end(common::change_end("model/x")).await.unwrap();
    waiting.await.unwrap();
    // Two starts and two ends: nobody was taken over.
    assert_eq!(changes(&creator).await, 4);
    assert_sound(&creator.clone).await;
}

/// A beat that the store refuses once is skipped; the run goes on.
#[tokio::test(start_paused = true)]
async fn a_beat_that_is_answered_429_skips_a_tick() {
    let world = World::new(13);
    let a = world.open_with("a", Opening::default()).await;
    let run = a.begin("model/x").await.unwrap();
    a.faults.script(Op::Put, |key| key.starts_with("beat/"), 2, Fault::Status(429));
    let (beats, requests) = a.counted(world.env.timeout(Duration::from_secs(26), run.beat())).await;
    assert!(beats.is_none());
    // At 5, 15 and 25 s, the second refused.
    assert_eq!(requests.of(Op::Put), 3, "{requests}");
    run.end(common::change_end("model/x")).await.unwrap();
}
