//! Writing: exactly once, on the newest state, with nothing lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{Machine, Opening, World, change_append, change_bytes, change_put, changes_in_log, noise, path, unit};
use peat_clone::{Adopt, NewChange, OnRefusal, PendingStatus, Scope};
use peat_objects::{Fault, Op};
use peat_types::{Kind, Mutation};
use serde_json::json;

async fn count_of(machine: &Machine, change: &str) -> usize {
    changes_in_log(machine).await.iter().filter(|(_, id, _)| id == change).count()
}

#[tokio::test(start_paused = true)]
async fn a2_versions_are_assigned_at_every_planning() {
    let world = World::new(1);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let work = |machine: Machine| async move {
        let mut versions = Vec::new();
        for at in 0..10 {
            let done = machine.clone.commit(change_append("model/x", &format!("{at}"))).await.unwrap();
            versions.push(done.answer["version"].as_u64().unwrap());
        }
        (machine, versions)
    };
    let ((a, of_a), (b, of_b)) = tokio::join!(work(a), work(b));
    let mut all = [of_a, of_b].concat();
    all.sort_unstable();
    assert_eq!(all, (1..=20).collect::<Vec<_>>());
    a.pull().await;
    b.pull().await;
    assert_eq!(a.facts(), b.facts());
    assert_eq!(a.paths("model/x").len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a2_two_creations_of_one_thing_do_not_both_succeed() {
    let world = World::new(2);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.pull().await;
    b.pull().await;
    let create = || {
        let mut change = NewChange::new("create", vec![unit("model/x")], json!({ "path": "definition" }));
        change.on_refusal = OnRefusal::Drop;
        change
    };
    let (one, two) = tokio::join!(a.clone.commit(create()), b.clone.commit(create()));
    assert!(one.is_ok() != two.is_ok());
    let error = one.err().or(two.err()).unwrap();
    assert_eq!(error.kind(), Kind::AlreadyExists);
    assert!(a.clone.pending().unwrap().is_empty() && b.clone.pending().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a3_replies_that_are_lost_late_or_wrong_change_nothing() {
    let world = World::new(3);
    let faults = [
        Fault::LostReply,
        Fault::LostRequest,
        Fault::Doubled,
        Fault::Status(503),
        Fault::Status(429),
        Fault::Status(409),
        Fault::AppliedStatus(500),
        Fault::AppliedStatus(412),
        Fault::Late(Duration::from_secs(1)),
        Fault::Late(Duration::from_secs(60)),
        Fault::Slow(Duration::from_secs(30)),
    ];
    let (a, b) = (world.open("a").await, world.open("b").await);
    for (at, fault) in faults.into_iter().enumerate() {
        a.faults.script(Op::Create, |key| key.starts_with("log/"), 1, fault);
        let done = a.clone.commit(change_append("model/x", "text")).await.unwrap();
        assert_eq!(done.answer["version"].as_u64(), Some(at as u64 + 1), "{fault:?}");
        assert_eq!(count_of(&a, &done.change.to_string()).await, 1, "{fault:?}");
        world.env.sleep(Duration::from_secs(100)).await;
        b.pull().await;
        assert_eq!(b.paths("model/x").len(), at + 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a3_an_unknown_outcome_is_kept_and_resolved() {
    for applied in [true, false] {
        let world = World::new(4);
        let (a, b) = (world.open("a").await, world.open("b").await);
        a.pull().await;
        let fault = if applied { Fault::LostReply } else { Fault::LostRequest };
        a.faults.script(Op::Create, |_| true, 1, fault);
        a.faults.script_times(Op::Get, |_| true, 1, 1000, Fault::Status(503));
        let mut change = change_append("model/x", "text");
        change.patience = Duration::from_secs(3);
        let error = a.clone.commit(change).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Offline, "outcome_unknown"));
        let pending = a.clone.pending().unwrap();
        assert_eq!(pending[0].status, PendingStatus::Unknown);
        a.faults.heal();
        // Others go on; the change must not come twice, and nothing is forgotten.
        b.clone.commit(change_append("model/x", "other")).await.unwrap();
        let settled = a.clone.settle().await.unwrap();
        assert_eq!(settled.committed.len(), 1);
        assert_eq!(settled.committed[0].answer["version"], if applied { 1 } else { 2 });
        assert_eq!(count_of(&a, &pending[0].change.to_string()).await, 1);
        assert!(a.clone.pending().unwrap().is_empty());
        a.pull().await;
        assert_eq!(a.paths("model/x").len(), 2);
    }
}

/// Scenario 4 of the study: the request lands long after its sender has gone.
#[tokio::test(start_paused = true)]
async fn a3_a_late_landing_is_found_by_the_next_process() {
    let world = World::new(5);
    let a = world.open("a").await;
    a.pull().await;
    a.faults.script(Op::Create, |_| true, 1, Fault::Late(Duration::from_secs(600)));
    a.killer.arm("commit.unknown", 1);
    assert!(a.killer.run(a.clone.commit(change_append("model/x", "text"))).await.is_none());
    drop(a);
    world.env.sleep(Duration::from_secs(601)).await;
    let a = world.open("a").await;
    let settled = a.clone.settle().await.unwrap();
    assert_eq!(settled.committed.len(), 1);
    assert_eq!(settled.committed[0].answer["version"], 1);
    a.pull().await;
    assert_eq!(a.paths("model/x").len(), 1);
    assert_eq!(changes_in_log(&a).await.len(), 2);
}

/// It lands while the next process is at work: the same transaction again, never another one beside it.
#[tokio::test(start_paused = true)]
async fn a3_a_landing_during_the_resolution_is_adopted() {
    for (landing, seed) in [(1_000, 6), (1_020, 7), (1_100, 8), (1_500, 9), (3_000, 10)] {
        let world = World::new(seed);
        let a = world.open("a").await;
        a.pull().await;
        a.faults.script(Op::Create, |_| true, 1, Fault::Late(Duration::from_millis(landing)));
        a.killer.arm("commit.unknown", 1);
        assert!(a.killer.run(a.clone.commit(change_append("model/x", "text"))).await.is_none());
        drop(a);
        world.env.sleep(Duration::from_millis(990)).await;
        let a = world.open("a").await;
        a.faults.script_times(Op::Create, |_| true, 1, 1, Fault::Slow(Duration::from_millis(60)));
        let settled = a.clone.settle().await.unwrap();
        assert_eq!(settled.committed.len(), 1);
        world.env.sleep(Duration::from_secs(10)).await;
        a.pull().await;
        assert_eq!(a.paths("model/x").len(), 1);
        assert_eq!(changes_in_log(&a).await.len(), 2);
    }
}

/// Killed at every step there is, twice in a row, with somebody else writing in between: committed exactly once.
#[tokio::test(start_paused = true)]
async fn a9_a3_killed_at_every_step_and_settled_once() {
    let steps = {
        let world = World::new(20);
        let a = world.open("a").await;
        a.pull().await;
        a.killer.seen();
        a.clone.commit(change_bytes("model/x", "data/big", noise(1, 70_000))).await.unwrap();
        let mut steps = a.killer.seen();
        steps.sort_unstable();
        steps.dedup();
        steps
    };
    assert!(steps.len() >= 7, "{steps:?}");
    for (n, first) in steps.iter().enumerate() {
        for second in ["settle.claimed", "commit.planned", "commit.create", "commit.sent", "commit.applied", "none"] {
            let world = World::new(21 + n as u64);
            let other = world.open("other").await;
            let a = world.open("a").await;
            a.pull().await;
            a.killer.arm(first, 1);
            let mut change = change_append("model/x", "");
            change.contents = vec![noise(1, 70_000).into()];
            let killed = a.killer.run(a.clone.commit(change)).await.is_none();
            assert!(killed, "{first}");
            drop(a);
            other.put("model/x", "elsewhere", "1").await;
            let a = world.open("a").await;
            a.killer.arm(second, 1);
            a.killer.run(a.clone.settle()).await;
            drop(a);
            let a = world.open("a").await;
            a.clone.settle().await.unwrap();
            a.pull().await;
            assert!(a.clone.pending().unwrap().is_empty(), "{first}, {second}");
            let data = a.paths("model/x").into_iter().filter(|path| path.starts_with("data/")).count();
            assert_eq!(data, 1, "{first}, {second}");
            assert_eq!(changes_in_log(&a).await.len(), 3, "{first}, {second}");
            other.pull().await;
            assert_eq!(other.facts(), a.facts(), "{first}, {second}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a9_offline_work_is_kept_and_pulls_leave_it_alone() {
    let world = World::new(40);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.pull().await;
    a.faults.script_times(Op::Create, |_| true, 1, 10_000, Fault::Status(503));
    a.faults.script_times(Op::Get, |_| true, 1, 10_000, Fault::Status(503));
    a.faults.script_times(Op::List, |_| true, 1, 10_000, Fault::Status(503));
    world.env.sleep(Duration::from_secs(10)).await;
    let error = a.clone.commit(change_append("model/x", "mine")).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Offline, "commit_pending"));
    let settled = a.clone.settle().await.unwrap();
    assert_eq!((settled.committed.len(), settled.unknown.len()), (0, 1));
    a.faults.heal();
    b.clone.commit(change_append("model/x", "theirs")).await.unwrap();
    a.pull().await;
    assert_eq!(a.clone.pending().unwrap().len(), 1);
    let (shown, change) = a.clone.pending_show(a.clone.pending().unwrap()[0].change).unwrap();
    assert_eq!((shown.kind.as_str(), change.payload["text"].as_str()), ("append", Some("mine")));
    let settled = a.clone.settle().await.unwrap();
    assert_eq!(settled.committed[0].answer["version"], 2);
}

#[tokio::test(start_paused = true)]
async fn a9_a_refused_change_is_parked_and_blocks_nothing() {
    let world = World::new(41);
    let a = world.open("a").await;
    let error = a.clone.commit(NewChange::new("refuse", vec![unit("model/x")], json!({}))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let parked = a.clone.pending().unwrap();
    assert_eq!(parked[0].status, PendingStatus::Parked);
    a.put("model/x", "data/1", "1").await;
    a.clone.settle().await.unwrap();
    assert_eq!(a.clone.pending().unwrap().len(), 1);
    a.clone.adopt(parked[0].change, Adopt::Retry).await.unwrap_err();
    assert_eq!(a.clone.pending().unwrap()[0].status, PendingStatus::Parked);
    a.clone.drop_change(parked[0].change).await.unwrap();
    assert!(a.clone.pending().unwrap().is_empty());
    assert_eq!(a.clone.drop_change(parked[0].change).await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_may_still_land_is_killed_before_it_is_dropped() {
    for landed in [true, false] {
        let world = World::new(42);
        let a = world.open("a").await;
        a.pull().await;
        let late = Duration::from_secs(if landed { 20 } else { 600 });
        a.faults.script(Op::Create, |_| true, 1, Fault::Late(late));
        a.killer.arm("commit.unknown", 1);
        assert!(a.killer.run(a.clone.commit(change_append("model/x", "text"))).await.is_none());
        drop(a);
        world.env.sleep(Duration::from_secs(30)).await;
        let a = world.open("a").await;
        let change = a.clone.pending().unwrap()[0].change;
        let dropped = a.clone.drop_change(change).await;
        assert_eq!(dropped.is_ok(), !landed);
        world.env.sleep(Duration::from_secs(1000)).await;
        a.pull().await;
        assert_eq!(a.paths("model/x").len(), usize::from(landed));
    }
}

#[tokio::test(start_paused = true)]
async fn a5_contents_are_durable_before_an_entry_names_them() {
    let world = World::new(43);
    let a = world.open("a").await;
    a.pull().await;
    let before = world.memory.keys();
    for step in ["commit.pack", "commit.create"] {
        a.killer.arm(step, 1);
        a.killer.run(a.clone.commit(change_bytes("model/x", "data/big", noise(1, 300_000)))).await;
        let new: Vec<_> = world.memory.keys().into_iter().filter(|key| !before.contains(key)).collect();
        assert!(new.iter().all(|key| key.starts_with("pack/")), "{new:?}");
    }
    a.clone.settle().await.unwrap();
    assert!(a.clone.verify(true).await.unwrap().findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a11_equal_bytes_are_a_new_fact_and_not_sent_again() {
    let world = World::new(44);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let big = noise(1, 300_000);
    a.clone.commit(change_bytes("model/x", "data/1", big.clone())).await.unwrap();
    let (done, requests) = a.counted(a.clone.commit(change_bytes("model/y", "data/2", big.clone()))).await;
    assert_eq!(done.unwrap().items.len(), 1);
    assert!(requests.of(Op::Put) == 0 && requests.count().bytes_out < 10_000, "{requests}");
    // The same path with the same bytes is recorded too.
    let (done, requests) = a.counted(a.clone.commit(change_bytes("model/y", "data/2", big.clone()))).await;
    assert_eq!(done.unwrap().items.len(), 1);
    assert_eq!(requests.of(Op::Put), 0);
    // Small ones travel along.
    a.clone.commit(change_bytes("model/y", "data/small", noise(2, 900))).await.unwrap();
    a.clone.commit(change_bytes("model/y", "data/small2", noise(2, 900))).await.unwrap();
    b.pull().await;
    assert_eq!(std::fs::read(b.clone.tree().join("data/2")).unwrap(), big);
    assert_eq!(changes_in_log(&a).await.len(), 6);
    assert!(b.clone.verify(true).await.unwrap().findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn p_names_that_collide_are_refused() {
    let world = World::new(45);
    let a = world.open("a").await;
    a.put("model/x", "data/Äpfel/Readme", "1").await;
    for name in
        ["data/Äpfel/README", "data/A\u{308}pfel/readme", "data/äpfel/readme", "data/Äpfel", "data/Äpfel/Readme/x"]
    {
        let error = a.clone.commit(change_put("model/x", name, "2")).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Conflict, "path_collision"), "{name}");
    }
    assert_eq!(a.clone.pending().unwrap().len(), 5);
    // Another unit is another matter, and the name itself may be written again.
    a.put("model/y", "data/Äpfel/README", "3").await;
    a.put("model/x", "data/Äpfel/Readme", "4").await;
    // Within one change, a name that is deleted is free.
    assert_eq!(a.text("model/x", "data/Äpfel/Readme").await.as_deref(), Some("4"));
}

#[tokio::test(start_paused = true)]
async fn two_processes_on_one_folder_work_on_different_rows() {
    let world = World::new(46);
    let (a, b) = (world.open("one").await, world.open("one").await);
    assert_eq!(a.clone.id(), b.clone.id());
    assert_ne!(a.clone.instance(), b.clone.instance());
    let work = |machine: &Machine| {
        let clone = machine.clone.clone();
        async move {
            for at in 0..8 {
                clone.commit(change_append("model/x", &format!("{at}"))).await.unwrap();
            }
        }
    };
    tokio::join!(work(&a), work(&b));
    a.pull().await;
    assert_eq!(a.paths("model/x").len(), 16);
    assert_eq!(a.facts(), b.facts());
    // A row one process works on is not touched by the other.
    a.faults.script(Op::Create, |_| true, 1, Fault::Slow(Duration::from_secs(3)));
    let (done, settled) = tokio::join!(a.clone.commit(change_append("model/x", "slow")), async {
        world.env.sleep(Duration::from_secs(1)).await;
        b.clone.settle().await.unwrap()
    });
    done.unwrap();
    assert_eq!((settled.committed.len(), settled.busy.len()), (0, 1));
    assert!(b.clone.pending().unwrap().is_empty());
    b.pull().await;
    assert_eq!(b.paths("model/x").len(), 17);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_is_said_so_and_the_change_stays() {
    let world = World::new(47);
    let a = world.open("a").await;
    a.pull().await;
    a.denied.store(true, std::sync::atomic::Ordering::Relaxed);
    let error = a.clone.commit(change_append("model/x", "1")).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Denied, "commit_pending"));
    a.denied.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(a.clone.settle().await.unwrap().committed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_scoped_clone_can_commit_to_units_it_never_saw() {
    let world = World::new(48);
    let (a, b) = (world.open("a").await, world.open("b").await);
    for at in 0..30 {
        a.put(&format!("model/m{}", at % 5), &format!("data/m{}/{at}", at % 5), "1").await;
    }
    b.clone.pull(&Scope::Units(vec![unit("model/m1")])).await.unwrap();
    b.clone.commit(change_append("model/m2", "new")).await.unwrap();
    b.clone
        .commit(NewChange::new("each", vec![unit("model/m3"), unit("model/new")], json!({ "text": "1" })))
        .await
        .unwrap();
    assert_eq!(b.clone.position().unwrap(), None);
    a.pull().await;
    b.pull().await;
    assert_eq!(a.facts(), b.facts());
    assert_eq!(a.paths("model/m2").len(), 7);
}

/// What the rules are for: without them, the tests above would not hold.
#[tokio::test(start_paused = true)]
async fn mutation_without_looking_for_the_change_it_comes_twice() {
    let run = async |mutation: Option<Mutation>| {
        let world = World::new(50);
        let other = world.open("other").await;
        let a = world.open("a").await;
        a.pull().await;
        a.killer.arm("commit.sent", 1);
        a.killer.run(a.clone.commit(change_append("model/x", "1"))).await;
        drop(a);
        let a = world.open_with("a", Opening { mutation, ..Opening::default() }).await;
        a.clone.settle().await.unwrap();
        other.pull().await;
        other.paths("model/x").len()
    };
    assert_eq!(run(None).await, 1);
    assert_eq!(run(Some(Mutation::ReplanNoChangeId)).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_no_path_never_gets_in() {
    let world = World::new(51);
    let a = world.open("a").await;
    for name in ["../x", "a/../b", "/abs", "con/x", "a\\b", "x/"] {
        let mut change = change_put("model/x", name, "1");
        change.on_refusal = OnRefusal::Drop;
        let error = a.clone.commit(change).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error:?}");
    }
    let _ = path("fine/name");
}
