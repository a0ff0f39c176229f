//! A clone and the maintenance of its ledger: what moved is found, what is gone is not missed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use common::{Machine, Opening, World, change_append, change_bytes, change_many, noise, path, unit};
use peat_clone::{Adopt, Checkpoint, Hydration, Rank, Scope};
use peat_ledger::{Checkpointing, Commit, Draft, DraftUnit, Ledger, NewContent, PageCache, Ref, TxKind};
use peat_objects::{Fault, Op};
use peat_types::{ChangeId, CloneId, Env, InstanceId, Seq, TxId};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A checkpoint, and a collection that keeps nothing but the last day.
async fn tidy(world: &World, machine: &Machine) {
    let made = machine.clone.checkpoint(true, true).await.unwrap();
    assert!(matches!(made, Checkpoint::Done { .. }), "{made:?}");
    world.env.sleep(DAY * 2).await;
    let plan = machine.clone.plan_gc(DAY).await.unwrap();
    let done = machine.clone.gc(&plan, DAY).await.unwrap();
    assert!(!done.deleted.is_empty() && done.left.is_empty(), "{done:?}");
}

fn entries(world: &World) -> usize {
    world.memory.keys().iter().filter(|key| key.starts_with("log/")).count()
}

#[tokio::test(start_paused = true)]
async fn a9_a_clone_behind_the_floor_resyncs_and_keeps_its_pending_work() {
    let world = World::new(1);
    let (a, b) = (world.open("a").await, world.open("b").await);
    for on in ["model/x", "model/y", "model/z"] {
        a.put(on, &format!("{on}/first"), "1").await;
    }
    // One change is in the log without b knowing, one may or may not be, one was never sent.
    for (on, fault) in [("model/y", Fault::LostRequest), ("model/x", Fault::LostReply)] {
        b.pull().await;
        b.faults.script(Op::Create, |_| true, 1, fault);
        b.faults.script_times(Op::Get, |_| true, 1, 1000, Fault::Status(503));
        let mut change = change_append(on, "mine");
        change.patience = Duration::from_secs(3);
        assert_eq!(b.clone.commit(change).await.unwrap_err().code(), "outcome_unknown");
        b.faults.heal();
    }
    b.denied.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(b.clone.commit(change_append("model/z", "mine")).await.unwrap_err().code(), "commit_pending");
    b.denied.store(false, std::sync::atomic::Ordering::Relaxed);
    drop(b);

    // Two months pass, in which the others go on, and the log b knows is cleared away.
    a.pull().await;
    for n in 0..6 {
        a.put("model/x", "model/x/later", &n.to_string()).await;
        a.put("model/w", "model/w/new", &n.to_string()).await;
    }
    world.env.sleep(DAY * 60).await;
    tidy(&world, &a).await;
    assert_eq!(entries(&world), 2, "the checkpoint and the collection");

    let b = world.open("b").await;
    let pulled = b.pull().await;
    assert!(pulled.entries > 12);
    assert_eq!(b.text("model/w", "model/w/new").await.as_deref(), Some("5"));
    let settled = b.clone.settle().await.unwrap();
    let on = |units: &[peat_types::Unit]| units[0].to_string();
    assert_eq!(settled.committed.len(), 2, "{settled:?}");
    assert_eq!(settled.parked.iter().map(|row| on(&row.units)).collect::<Vec<_>>(), ["model/x"], "nobody can tell");
    let (code, why) = settled.parked[0].reason.clone().unwrap();
    assert_eq!(code, "history_gone");
    assert!(why.contains("no longer kept"), "{why}");
    // Nothing was lost and nothing was done twice: a person decides, and the decision is carried out.
    assert_eq!(b.text("model/x", "data/model/x/000001").await.as_deref(), Some("mine"));
    assert!(b.text("model/x", "data/model/x/000002").await.is_none());
    b.clone.adopt(settled.parked[0].change, Adopt::Retry).await.unwrap();
    assert_eq!(b.text("model/x", "data/model/x/000002").await.as_deref(), Some("mine"));
    assert!(b.clone.pending().unwrap().is_empty());
    a.pull().await;
    assert_eq!(a.facts(), b.facts());
    for on in ["model/y", "model/z"] {
        assert_eq!(a.text(on, &format!("data/{on}/000001")).await.as_deref(), Some("mine"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_content_that_moved_since_it_was_heard_of_is_found() {
    let world = World::new(2);
    let a = world.open("a").await;
    let lazy = world.open_with("b", Opening { hydration: Hydration::Lazy, ..Opening::default() }).await;
    // In an entry, and in a pack.
    a.clone.commit(change_bytes("model/x", "small", noise(1, 900))).await.unwrap();
    a.clone.commit(change_bytes("model/x", "large", noise(2, 90_000))).await.unwrap();
    lazy.pull().await;
    let items: Vec<_> =
        ["small", "large"].map(|at| lazy.clone.item(&unit("model/x"), &path(at)).unwrap().unwrap()).into();
    // A full clone that heard of them and was killed before it had them.
    let c = world.open("c").await;
    c.killer.arm("pull.facts", 1);
    assert!(c.killer.run(c.clone.pull(&Scope::All)).await.is_none());
    drop(c);

    tidy(&world, &a).await;
    assert_eq!(lazy.clone.content(&items[0]).await.unwrap(), noise(1, 900));
    assert_eq!(lazy.clone.content(&items[1]).await.unwrap(), noise(2, 90_000));
    let c = world.open("c").await;
    c.pull().await;
    assert_eq!(std::fs::read(c.clone.tree().join("small")).unwrap(), noise(1, 900));
    assert_eq!(c.facts(), a.facts());

    // A content in a pack that was compacted away is sent again instead of referred to (A11).
    a.clone.commit(change_bytes("model/y", "same", noise(2, 90_000))).await.unwrap();
    lazy.clone.commit(change_bytes("model/y", "same", noise(2, 90_000))).await.unwrap();
    assert!(a.clone.verify(true).await.unwrap().findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_fresh_clone_starts_from_the_checkpoint_in_few_requests() {
    let world = World::new(3);
    let a = world.open("a").await;
    for n in 0..150_u64 {
        let on = format!("model/m{:02}", n % 50);
        a.clone.commit(change_bytes(&on, &format!("{on}/{n}"), noise(n, 600))).await.unwrap();
    }
    assert!(matches!(a.clone.checkpoint(false, false).await.unwrap(), Checkpoint::Done { .. }));
    let b = world.open("b").await;
    let (pulled, requests) = b.counted(b.clone.pull(&Scope::All)).await;
    assert_eq!(pulled.unwrap().items, 150);
    assert!(requests.total() <= 10, "a clone of 150 entries in {requests}");
    let lazy = world.open_with("c", Opening { hydration: Hydration::Lazy, ..Opening::default() }).await;
    let (_, requests) = lazy.counted(lazy.clone.pull(&Scope::All)).await;
    assert!(requests.total() <= 9, "{requests}");
    let scoped = world.open("d").await;
    let (_, requests) = scoped.counted(scoped.clone.pull(&Scope::Units(vec![unit("model/m07")]))).await;
    assert!(requests.total() <= 7, "{requests}");

    // A clone that was up to date pays for the entry and nothing else.
    a.pull().await;
    a.put("model/m07", "model/m07/last", "x").await;
    let (pulled, requests) = b.counted(b.clone.pull(&Scope::All)).await;
    assert_eq!((pulled.unwrap().to, requests.total()), (Seq(152), 2));
}

/// An entry holds pages of the directory and of the table that it changed; it is read once for both.
#[tokio::test(start_paused = true)]
async fn a_fresh_clone_reads_each_entry_since_the_checkpoint_once() {
    let world = World::new(7);
    let a = world.open("a").await;
    let units: Vec<_> = (0..600).map(|n| unit(&format!("model/{n:03}"))).collect();
    let files = (0..600).map(|n: u64| (format!("data/{n}"), noise(n, 20).into())).collect();
    a.clone.commit(change_many(&units, files)).await.unwrap();
    a.clone.checkpoint(true, false).await.unwrap();
    for n in 0..40_u64 {
        a.clone.commit(change_bytes(&format!("model/{:03}", n * 15), "data/more", noise(n, 600))).await.unwrap();
    }
    for hydration in [Hydration::Lazy, Hydration::Full] {
        let b = world.open_with(&format!("{hydration:?}"), Opening { hydration, ..Opening::default() }).await;
        let (pulled, requests) = b.counted(b.clone.pull(&Scope::All)).await;
        assert_eq!(pulled.unwrap().items, 640);
        // Besides: where the log ends, what ends it, and what the checkpoint holds.
        assert!(requests.total() <= 40 + 8, "{requests}");
        assert_eq!(b.facts(), a.facts());
    }
}

#[tokio::test(start_paused = true)]
async fn maintenance_by_itself_collects_once_a_day_and_never_two_at_once() {
    let world = World::new(4);
    let a = world.open("a").await;
    a.put("model/x", "model/x/a", "1").await;
    let due = |machine: &Machine| machine.clone.upkeep().unwrap().unwrap().collect_since.is_some();
    assert!(!due(&a), "the ledger is new");
    world.env.sleep(DAY * 40).await;
    a.put("model/x", "model/x/a", "2").await;
    assert!(due(&a));
    let done = a.clone.maintain(DAY * 30).await.unwrap().expect("nobody else is at it");
    assert!(done.collected.expect("it was time").entry.is_some());
    a.pull().await;
    assert!(!due(&a) && a.clone.upkeep().unwrap().unwrap().collected.is_some());
    // Whoever hears of it has nothing to do.
    let b = world.open("b").await;
    b.pull().await;
    assert!(!due(&b));
    world.env.sleep(DAY * 2).await;
    assert!(due(&a) && due(&b));
    // Another process of the clone is at it.
    let lock = std::fs::File::create(world.dir("a").join("maintain.lock")).unwrap();
    lock.lock().unwrap();
    assert!(a.clone.maintain(DAY * 30).await.unwrap().is_none() && a.clone.is_maintained_now().unwrap());
    drop(lock);
    assert!(a.clone.maintain(DAY * 30).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_may_not_delete_raises_no_floor_and_asks_again_in_a_week() {
    let world = World::new(5);
    let a = world.open("a").await;
    a.put("model/x", "model/x/a", "1").await;
    world.env.sleep(DAY * 40).await;
    a.put("model/x", "model/x/a", "2").await;
    a.denied.store(true, std::sync::atomic::Ordering::Relaxed);
    let done = a.clone.maintain(DAY * 30).await.unwrap().expect("nobody else is at it");
    assert!(done.collected.is_none());
    let upkeep = a.clone.upkeep().unwrap().unwrap();
    assert_eq!((upkeep.collect_since, upkeep.last_try.map(|tried| tried.may_delete)), (None, Some(false)));
    world.env.sleep(DAY * 6).await;
    assert!(a.clone.upkeep().unwrap().unwrap().collect_since.is_none());
    world.env.sleep(DAY).await;
    assert!(a.clone.upkeep().unwrap().unwrap().collect_since.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_told_of_maintenance_is_right_as_soon_as_it_is_done() {
    let world = World::new(61);
    let a = world.open("a").await;
    a.put("model/x", "data/1", "1").await;
    for full in [false, true] {
        let made = a.clone.checkpoint(true, full).await.unwrap();
        let Checkpoint::Done { seq, .. } = made else { panic!("{made:?}") };
        assert_eq!(a.clone.upkeep().unwrap().unwrap().checkpointed.unwrap().0, seq);
        assert_eq!(a.clone.head().unwrap(), Some(seq));
        a.put("model/x", "data/1", "2").await;
    }
}

/// A change of 40 units with `count` small files in each, straight to the ledger, and a checkpoint.
async fn generation(ledger: &Ledger, env: &Env, name: &str, count: u32) {
    let base = ledger.head().await.unwrap().state;
    let put = |n: u32| peat_ledger::Op::Put {
        path: format!("data/{name}/{n:05}").parse().unwrap(),
        rank: Rank::Current,
        old: None,
        executable: false,
        content: NewContent::Bytes(Bytes::from_static(b"same")),
    };
    let mut changed = Vec::new();
    for n in 0..40 {
        let unit = unit(&format!("model/{n:02}"));
        let row = ledger.unit(&base, &unit, &NoPages).await.unwrap();
        let ops = (0..count).map(put).collect();
        changed.push(DraftUnit { unit, expected: row.map(|row| row.last_seq), ops });
    }
    let draft = Draft {
        tx: TxId::random(env),
        change: ChangeId::random(env),
        kind: TxKind::Change,
        author: "a@b".to_owned(),
        message: name.to_owned(),
        time: env.now(),
        guard: None,
        units: changed,
    };
    let sent = ledger.commit(&base, env.monotonic(), &draft, &NoPages, 60_000).await.unwrap();
    assert!(matches!(sent, Commit::Committed { .. }), "{sent:?}");
    let patience = Duration::from_secs(30);
    let how = Checkpointing { author: "a@b".to_owned(), force: true, full: false, patience };
    assert!(matches!(ledger.checkpoint(&how).await.unwrap(), Checkpoint::Done { .. }));
}

/// Keeps nothing.
struct NoPages;

impl PageCache for NoPages {
    fn get(&self, _: &Ref) -> Option<Bytes> {
        None
    }

    fn put(&self, _: &Ref, _: &Bytes) {}
}

/// Each round of fetching asks every pack of pages, so there is one for 200,000 files, and not one for what is decoded at
/// once.
#[tokio::test(start_paused = true)]
async fn a_first_pull_asks_each_pack_of_pages_once_a_level() {
    let world = World::new(9);
    let a = world.open("a").await;
    let (clone, instance) = (CloneId::random(&world.env), InstanceId::random(&world.env));
    let ledger = Ledger::with_info(Arc::new(world.memory.clone()), &world.env, a.clone.info().clone(), clone, instance);
    // Each is less than half of the one before, so all packs of pages stay.
    for (name, count) in [("large", 330), ("small", 150), ("least", 60)] {
        generation(&ledger, &world.env, name, count).await;
    }
    let b = world.open_with("b", Opening { hydration: Hydration::Lazy, ..Opening::default() }).await;
    let (pulled, requests) = b.counted(b.clone.pull(&Scope::All)).await;
    assert_eq!(pulled.unwrap().items, 21_600);
    assert!(requests.total() <= 6, "{requests}");
}
