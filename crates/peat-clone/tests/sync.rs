//! Reading: pulls, the tree, contents.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{Opening, World, change_bytes, change_put, noise, path, unit};
use peat_clone::{Hydration, LogQuery, NewChange, Scope};
use peat_objects::{Fault, Op, Store};
use peat_types::{Kind, Seq};
use serde_json::json;

fn lazy() -> Opening {
    Opening { hydration: Hydration::Lazy, ..Opening::default() }
}

#[tokio::test(start_paused = true)]
async fn a1_a_transaction_over_several_units_is_seen_whole() {
    let world = World::new(1);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let units = vec![unit("model/x"), unit("model/y")];
    for text in ["1", "2", "3"] {
        a.clone.commit(NewChange::new("each", units.clone(), json!({ "text": text }))).await.unwrap();
        // Wherever a scoped pull is stopped, both units are from the same entry.
        for step in ["pull.units", "pull.facts", "pull.tree"] {
            b.killer.arm(step, 1);
            b.killer.run(b.clone.pull(&Scope::Units(units.clone()))).await;
            let seqs: Vec<_> = b.clone.units().unwrap().into_iter().map(|known| (known.seq, known.as_of)).collect();
            assert!(seqs.windows(2).all(|pair| pair[0] == pair[1]), "{seqs:?}");
        }
        b.clone.pull(&Scope::Units(units.clone())).await.unwrap();
        for on in ["model/x", "model/y"] {
            assert_eq!(b.text(on, &format!("{on}/each")).await.as_deref(), Some(text));
            assert_eq!(b.file(&format!("{on}/each")).as_deref(), Some(text));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a1_a_killed_pull_is_made_up_for_by_the_next() {
    let world = World::new(2);
    let a = world.open("a").await;
    for at in 0..3 {
        a.clone.commit(change_bytes("model/x", &format!("data/{at}"), noise(at, 3000))).await.unwrap();
    }
    a.clone.commit(NewChange::new("delete", vec![unit("model/x")], json!({ "path": "data/1" }))).await.unwrap();
    for (n, step) in ["pull.batch", "apply", "pull.facts", "pull.tree"].into_iter().enumerate() {
        let name = format!("b{n}");
        let b = world.open(&name).await;
        b.killer.arm(step, 1);
        b.killer.run(b.clone.pull(&Scope::All)).await;
        drop(b);
        let b = world.open(&name).await;
        b.pull().await;
        assert_eq!(b.facts(), a.facts());
        assert!(b.file("data/1").is_none());
        assert_eq!(std::fs::read(b.clone.tree().join("data/2")).unwrap(), noise(2, 3000));
    }
}

/// Report 1: a pull for one model costs that model, and says nothing about the rest.
#[tokio::test(start_paused = true)]
async fn r1_a_scoped_pull_is_bounded_and_leaves_the_position() {
    let world = World::new(3);
    let (a, b, c) = (world.open("a").await, world.open("b").await, world.open("c").await);
    for at in 0..60 {
        let unit = format!("model/m{at}");
        a.clone.commit(change_bytes(&unit, &format!("data/m{at}/big"), noise(at, 2000))).await.unwrap();
    }
    // A clone that never saw anything.
    let scope = Scope::Units(vec![unit("model/m7")]);
    let (pulled, requests) = c.counted(c.clone.pull(&scope)).await;
    pulled.unwrap();
    assert!(requests.total() <= 7, "{requests}");
    assert_eq!(c.clone.position().unwrap(), None, "a partial clone is never taken for a complete one");
    assert_eq!(c.clone.units().unwrap().len(), 1);
    assert_eq!(std::fs::read(c.clone.tree().join("data/m7/big")).unwrap(), noise(7, 2000));
    // One that was up to date.
    b.pull().await;
    let position = b.clone.position().unwrap();
    for at in 0..200 {
        a.put(&format!("model/m{}", at % 50 + 8), &format!("data/{at}"), "1").await;
    }
    a.put("model/m7", "data/m7/new", "fresh").await;
    a.put("model/m8", "data/m8/new", "other").await;
    let (pulled, requests) = b.counted(b.clone.pull(&scope)).await;
    assert_eq!(pulled.unwrap().items, 1);
    // One slot, one LIST, the head, and the entry that changed the model.
    assert!(requests.total() <= 4 && requests.count().bytes_in < 64 << 10, "{requests}");
    for at in 0..20 {
        a.put(&format!("model/m{}", at + 8), &format!("data/again{at}"), "1").await;
    }
    let (pulled, requests) = b.counted(b.clone.pull(&scope)).await;
    assert_eq!(pulled.unwrap().items, 0);
    assert!(requests.total() <= 3 && requests.count().bytes_in < 64 << 10, "{requests}");
    assert_eq!(b.file("data/m7/new").as_deref(), Some("fresh"));
    assert_eq!(b.clone.position().unwrap(), position);
    assert!(b.file("data/m8/new").is_none());
    // What came with the scoped pull is not applied twice, what did not is not skipped.
    b.pull().await;
    a.pull().await;
    assert_eq!(b.facts(), a.facts());
    assert_eq!(b.clone.position().unwrap(), b.clone.head().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_clone_far_behind_compares_directories() {
    let world = World::new(4);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.put("model/gone", "data/gone", "1").await;
    a.put("model/same", "data/same", "1").await;
    b.pull().await;
    assert_eq!(b.file("data/gone").as_deref(), Some("1"));
    a.clone.commit(NewChange::new("delete", vec![unit("model/gone")], json!({ "path": "data/gone" }))).await.unwrap();
    for at in 0..520 {
        a.put(&format!("model/m{}", at % 7), &format!("data/m{}/{at}", at % 7), "1").await;
    }
    let (pulled, requests) = b.counted(b.pull()).await;
    assert!(pulled.entries > 512 && requests.total() < 60, "{requests}");
    assert_eq!(b.facts(), a.facts());
    assert!(b.file("data/gone").is_none());
    assert_eq!(b.file("data/m3/3").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a6_readers_write_nothing() {
    let world = World::new(5);
    let a = world.open("a").await;
    a.clone.commit(change_bytes("model/x", "data/big", noise(1, 200_000))).await.unwrap();
    let b = world.open_with("b", lazy()).await;
    let (_, requests) = b
        .counted(async {
            b.pull().await;
            b.clone.pull(&Scope::Units(vec![unit("model/x"), unit("model/none")])).await.unwrap();
            let item = b.clone.item(&unit("model/x"), &path("data/big")).unwrap().unwrap();
            b.clone.content(&item).await.unwrap();
            b.clone.settle().await.unwrap();
            b.clone.doctor().await.unwrap();
            b.clone.leases().unwrap();
            b.clone.log(&LogQuery::newest(20)).await.unwrap();
            b.clone.verify(true).await.unwrap();
        })
        .await;
    assert_eq!(requests.of(Op::Create) + requests.of(Op::Put) + requests.of(Op::Delete), 0, "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a7_a_failure_is_never_taken_for_absence() {
    let world = World::new(6);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.put("model/x", "data/1", "1").await;
    b.pull().await;
    let before = b.facts();
    a.put("model/x", "data/2", "2").await;
    let keys = world.memory.keys();
    for status in [403, 429, 500, 503] {
        b.faults.script_times(Op::Get, |_| true, 1, 100, Fault::Status(status));
        b.faults.script_times(Op::List, |_| true, 1, 100, Fault::Status(status));
        let error = b.clone.pull(&Scope::All).await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Offline | Kind::Denied), "{error:?}");
        let error = b.clone.commit(change_put("model/x", "data/3", "3")).await;
        // The head was read within the last second, so the create goes out; what it says proves nothing.
        b.faults.heal();
        drop(error);
        b.clone.settle().await.unwrap();
    }
    assert!(b.facts().len() > before.len());
    assert!(world.memory.keys().len() >= keys.len());
    assert_eq!(b.text("model/x", "data/1").await.as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a8_a_log_that_went_back_is_reported_and_nothing_is_touched() {
    let world = World::new(7);
    let a = world.open("a").await;
    a.put("model/x", "data/1", "1").await;
    let old = world.memory.fork();
    a.put("model/x", "data/2", "2").await;
    a.put("model/x", "data/3", "3").await;
    let (facts, position) = (a.facts(), a.clone.position().unwrap());
    // The bucket is set back.
    for key in world.memory.keys() {
        if !old.keys().contains(&key) {
            world.memory.delete(&key).await.unwrap();
        }
    }
    world.env.sleep(Duration::from_secs(3600)).await;
    let error = a.clone.pull(&Scope::All).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Damaged, "rollback"));
    assert_eq!((a.facts(), a.clone.position().unwrap()), (facts.clone(), position));
    assert_eq!(a.file("data/3").as_deref(), Some("3"));
    // Somebody goes on writing on the old state.
    let b = world.open("b").await;
    for at in 0..4 {
        b.put("model/y", &format!("data/y{at}"), "1").await;
    }
    world.env.sleep(Duration::from_secs(3600)).await;
    let error = a.clone.pull(&Scope::All).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Damaged, "fork"));
    assert_eq!(a.facts(), facts);
}

#[tokio::test(start_paused = true)]
async fn a8_an_older_reply_in_flight_is_discarded() {
    let world = World::new(8);
    let a = world.open("a").await;
    a.put("model/x", "data/1", "1").await;
    let (b, c) = (world.open("b").await, world.open("b").await);
    b.pull().await;
    a.put("model/x", "data/2", "2").await;
    // One process of the folder reads entry 2 and is held up; another reads 2 and 3 meanwhile.
    b.faults.script(Op::Get, |key| key.starts_with("log/"), 2, Fault::Slow(Duration::from_secs(5)));
    let slow = b.clone.pull(&Scope::All);
    let fast = async {
        world.env.sleep(Duration::from_secs(1)).await;
        a.put("model/x", "data/2", "changed").await;
        c.pull().await;
        assert_eq!(c.text("model/x", "data/2").await.as_deref(), Some("changed"));
    };
    let (slow, ()) = tokio::join!(slow, fast);
    slow.unwrap();
    assert_eq!(b.clone.position().unwrap(), Some(Seq(3)));
    assert_eq!(b.text("model/x", "data/2").await.as_deref(), Some("changed"));
    assert_eq!(b.file("data/2").as_deref(), Some("changed"));
}

#[tokio::test(start_paused = true)]
async fn a4_files_that_come_and_go_mean_nothing() {
    let world = World::new(9);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.clone.commit(change_bytes("model/x", "data/x/1", noise(1, 500))).await.unwrap();
    b.pull().await;
    std::fs::remove_dir_all(b.clone.tree().join("data")).unwrap();
    std::fs::create_dir_all(b.clone.tree().join("data/x")).unwrap();
    std::fs::write(b.clone.tree().join("data/x/foreign"), "mine").unwrap();
    b.put("model/x", "data/x/2", "2").await;
    b.pull().await;
    a.pull().await;
    assert_eq!(a.paths("model/x"), ["data/x/1", "data/x/2"]);
    assert_eq!(b.file("data/x/foreign").as_deref(), Some("mine"));
    // Read again, written again.
    let item = b.clone.item(&unit("model/x"), &path("data/x/1")).unwrap().unwrap();
    assert_eq!(b.clone.content(&item).await.unwrap(), noise(1, 500));
    assert!(b.file("data/x/1").is_none() && std::fs::read(b.clone.tree().join("data/x/1")).unwrap() == noise(1, 500));
    // Altered, even with the same size.
    std::fs::write(b.clone.tree().join("data/x/1"), noise(2, 500)).unwrap();
    assert_eq!(std::fs::read(b.clone.file(&item).await.unwrap()).unwrap(), noise(1, 500));
}

#[tokio::test(start_paused = true)]
async fn lazy_contents_come_on_demand_or_say_that_they_are_not_here() {
    let world = World::new(10);
    let a = world.open("a").await;
    a.clone.commit(change_bytes("model/x", "data/pack", noise(1, 300_000))).await.unwrap();
    a.put("model/x", "data/tiny", "tiny").await;
    a.clone.commit(change_bytes("model/x", "data/inline", noise(2, 5000))).await.unwrap();
    let b = world.open_with("b", lazy()).await;
    let (_, requests) = b.counted(b.pull()).await;
    assert!(requests.count().bytes_in < 100_000, "{requests}");
    assert_eq!(b.file("data/tiny").as_deref(), Some("tiny"));
    assert!(!b.clone.tree().join("data/pack").exists());
    let item = b.clone.item(&unit("model/x"), &path("data/pack")).unwrap().unwrap();
    b.faults.script_times(Op::Get, |_| true, 1, 100, Fault::Status(503));
    let error = b.clone.content(&item).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Offline, "not_local"));
    assert!(error.to_string().contains("data/pack") && !error.hints().is_empty(), "{error:?}");
    b.faults.heal();
    assert_eq!(b.clone.content(&item).await.unwrap(), noise(1, 300_000));
    let (again, requests) = b.counted(b.clone.content(&item)).await;
    assert_eq!((again.unwrap().len(), requests.total()), (300_000, 0));
    // Another content takes its place: the old file does not stay.
    a.clone.commit(change_bytes("model/x", "data/pack", noise(3, 300_000))).await.unwrap();
    b.pull().await;
    assert!(!b.clone.tree().join("data/pack").exists());
}

#[tokio::test(start_paused = true)]
async fn contents_that_cannot_be_fetched_now_are_fetched_by_the_next_pull() {
    let world = World::new(11);
    let (a, b) = (world.open("a").await, world.open("b").await);
    b.pull().await;
    a.clone.commit(change_bytes("model/x", "data/pack", noise(1, 300_000))).await.unwrap();
    b.faults.script_times(Op::Get, |key| key.starts_with("pack/"), 1, 100, Fault::Status(503));
    let error = b.clone.pull(&Scope::All).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Offline);
    b.faults.heal();
    assert_eq!(b.pull().await.bytes, 300_000);
    assert_eq!(std::fs::read(b.clone.tree().join("data/pack")).unwrap(), noise(1, 300_000));
}

#[tokio::test(start_paused = true)]
async fn leases_and_ranks_are_facts_not_files() {
    let world = World::new(12);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let run = a.begin("model/x").await.unwrap();
    a.put("model/x", "data/1", "1").await;
    a.clone.commit(NewChange::new("rank", vec![unit("model/x")], json!({ "path": "data/1" }))).await.unwrap();
    b.pull().await;
    assert!(!b.clone.tree().join("leases").exists());
    let leases = b.clone.leases().unwrap();
    assert!(leases[0].lease.held && leases[0].lease.nonce == run.nonce() && !leases[0].alive_here);
    assert!(a.clone.leases().unwrap()[0].alive_here);
    let item = b.clone.item(&unit("model/x"), &path("data/1")).unwrap().unwrap();
    assert_eq!(item.rank, peat_clone::Rank::History(7));
    assert_eq!(b.file("data/1").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a8_a_store_that_is_known_to_be_set_back_is_not_written_to_until_it_is_right_again() {
    let world = World::new(17);
    let a = world.open("a").await;
    a.put("model/x", "data/1", "1").await;
    let old = world.memory.fork();
    a.put("model/x", "data/2", "2").await;
    a.put("model/x", "data/3", "3").await;
    let whole = world.memory.fork();
    let set_back = async || {
        for key in world.memory.keys().into_iter().filter(|key| !old.keys().contains(key)) {
            world.memory.delete(&key).await.unwrap();
        }
    };
    set_back().await;
    // Another process of the clone, which looked lately: it knows from the index what there was.
    let b = world.open("a").await;
    let error = b.clone.checkpoint(true, true).await.unwrap_err();
    assert_eq!(error.code(), "rollback", "{error:?}");
    assert!(error.hints().iter().any(|hint| hint.contains("state.db")), "{error:?}");
    // From now on none of them writes, though its last look is no second old.
    let c = world.open("a").await;
    for machine in [&a, &b, &c] {
        let mut change = change_put("model/x", "data/4", "4");
        change.patience = Duration::from_secs(1);
        let error = machine.clone.commit(change).await.unwrap_err();
        assert!(error.has_code("rollback"), "{error:?}");
        assert!(machine.clone.pin("kept", None).await.unwrap_err().has_code("rollback"));
        assert!(machine.clone.mend(&peat_clone::MendPlan::default()).await.unwrap_err().has_code("rollback"));
        assert!(machine.clone.pull(&Scope::All).await.unwrap_err().has_code("rollback"));
        let findings = machine.clone.doctor().await.unwrap();
        let head = findings.iter().find(|found| found.check == "head").unwrap();
        assert!(!head.passed && head.hint.as_ref().unwrap().contains("state.db"), "{head:?}");
    }
    assert_eq!(world.memory.keys(), old.keys());
    // Somebody else goes on, up to the same entry.
    let d = world.open("d").await;
    d.put("model/y", "data/y2", "1").await;
    d.put("model/y", "data/y3", "1").await;
    let written = world.memory.keys();
    for machine in [&a, &b, &c] {
        let mut change = change_put("model/x", "data/4", "4");
        change.patience = Duration::from_secs(1);
        assert!(machine.clone.commit(change).await.unwrap_err().has_code("fork"));
    }
    assert_eq!(world.memory.keys(), written);
    // The store is put right: what waits is committed.
    for key in world.memory.keys() {
        world.memory.delete(&key).await.unwrap();
    }
    for key in whole.keys() {
        let object = whole.get(&key, peat_objects::Range::All).await.unwrap().unwrap();
        world.memory.create(&key, object.bytes).await.unwrap();
    }
    let settled = a.clone.settle().await.unwrap();
    assert_eq!((settled.committed.len(), settled.parked.len()), (6, 0), "{settled:?}");
    assert!(!b.clone.is_suspect().unwrap());
    b.put("model/x", "data/5", "5").await;
    // Or it is taken as it is.
    set_back().await;
    b.clone.checkpoint(true, true).await.unwrap_err();
    drop((a, b, c));
    std::fs::remove_file(world.dir("a").join("state.db")).unwrap();
    let a = world.open("a").await;
    a.pull().await;
    assert_eq!(a.paths("model/x"), ["data/1"]);
    assert!(a.file("data/3").is_none());
    assert_eq!(a.clone.take_aside().len(), 4);
    a.put("model/x", "data/2", "again").await;
}

/// What is written to a bucket that was just emptied stands in it, so the head alone shows nothing.
#[tokio::test(start_paused = true)]
async fn a8_a_bucket_that_was_emptied_is_noticed_although_it_was_written_to() {
    let world = World::new(41);
    let (a, b) = (world.open("a").await, world.open("b").await);
    for n in 0..3 {
        a.put("model/x", &format!("data/{n}"), "1").await;
    }
    b.pull().await;
    for key in world.memory.keys() {
        world.memory.delete(&key).await.unwrap();
    }
    // Within a second of its last look nobody asks before the create, and this one succeeds.
    b.put("model/x", "data/3", "1").await;
    b.put("model/x", "data/4", "1").await;
    let written = world.memory.keys();
    let (pulled, requests) = b.counted(b.clone.pull(&Scope::All)).await;
    assert!(pulled.unwrap_err().has_code("rollback"));
    assert!(requests.total() <= 4, "a listing, and what confirms it: {}", requests.total());
    for scope in [Scope::All, Scope::Units(vec![unit("model/x")])] {
        assert!(b.clone.pull(&scope).await.unwrap_err().has_code("rollback"));
    }
    assert!(b.clone.commit(change_put("model/x", "data/5", "1")).await.unwrap_err().has_code("rollback"));
    assert!(b.clone.is_suspect().unwrap());
    assert_eq!((world.memory.keys(), b.clone.pending().unwrap().len()), (written, 1), "nothing more was written");
    assert_eq!(b.text("model/x", "data/4").await.as_deref(), Some("1"), "what went there is here");
}

#[tokio::test(start_paused = true)]
async fn a8_who_writes_alone_notices_a_bucket_that_was_emptied() {
    let world = World::new(42);
    let a = world.open("a").await;
    for n in 0..3 {
        a.put("model/x", &format!("data/{n}"), "1").await;
    }
    let (_, requests) = a.counted(a.pull()).await;
    assert_eq!(requests.total(), 1);
    a.put("model/x", "data/3", "1").await;
    for key in world.memory.keys() {
        world.memory.delete(&key).await.unwrap();
    }
    assert!(a.clone.pull(&Scope::Units(vec![unit("model/x")])).await.unwrap_err().has_code("rollback"));
    assert!(a.clone.commit(change_put("model/x", "data/4", "1")).await.unwrap_err().has_code("rollback"));
    assert!(world.memory.keys().is_empty());

    let world = World::new(43);
    let a = world.open("a").await;
    a.put("model/x", "data/0", "1").await;
    a.pull().await;
    a.put("model/x", "data/1", "1").await;
    world.env.sleep(Duration::from_secs(16 * 60)).await;
    for key in world.memory.keys() {
        world.memory.delete(&key).await.unwrap();
    }
    assert!(a.clone.commit(change_put("model/x", "data/2", "1")).await.unwrap_err().has_code("rollback"));
    assert!(world.memory.keys().is_empty());
    assert_eq!(a.clone.pending().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lazy_clone_that_becomes_a_full_one_fetches_what_it_left_out() {
    let world = World::new(44);
    let a = world.open("a").await;
    let contents = [noise(1, 300_000), noise(2, 300_000)];
    for (n, content) in contents.iter().enumerate() {
        a.clone.commit(change_bytes("model/x", &format!("data/{n}"), content.clone())).await.unwrap();
    }
    let b = world.open_with("b", lazy()).await;
    b.pull().await;
    drop(b);
    let b = world.open_with("b", lazy()).await;
    assert!(!b.clone.tree().join("data/0").exists());
    drop(b);
    let b = world.open("b").await;
    b.pull().await;
    for (n, content) in contents.iter().enumerate() {
        assert_eq!(std::fs::read(b.clone.tree().join(format!("data/{n}"))).unwrap(), content.to_vec());
    }
    assert!(b.clone.doctor().await.unwrap().iter().all(|found| found.passed));
    let (_, requests) = b.counted(b.pull()).await;
    assert_eq!(requests.total(), 1, "once");
}
