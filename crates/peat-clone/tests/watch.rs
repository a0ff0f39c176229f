//! Following a namespace: every change once, in order, whatever happens in between.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::carried::{carried, log_key};
use common::{Machine, World, change_append, change_bytes, change_end, noise, unit};
use peat_clone::{Event, Reporter, Watch, WatchOptions, Watched};
use peat_ledger::{Checkpoint, Checkpointing, Collecting, Ledger, TxKind};
use peat_objects::{Fault, MemoryStore, Op, Range, Store};
use peat_types::{CloneId, InstanceId, Kind, Seq};

const INTERVAL: Duration = Duration::from_secs(2);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn options() -> WatchOptions {
    WatchOptions { interval: INTERVAL, ..WatchOptions::default() }
}

fn since(seq: u64) -> WatchOptions {
    WatchOptions { since: Some(Seq(seq)), ..options() }
}

/// Entry and change id of what is seen.
fn id(seen: &Watched) -> (u64, String) {
    match seen {
        Watched::Change(change) => (change.seq.0, change.head.change.to_string()),
        Watched::Jumped(jumped) => (jumped.to.0, "jumped".to_owned()),
    }
}

/// Everything that is new now.
async fn drain(watch: &mut Watch) -> Vec<(u64, String)> {
    let mut out = Vec::new();
    while let Some(seen) = watch.poll().await.unwrap() {
        out.push(id(&seen));
        watch.done().await.unwrap();
    }
    out
}

/// Every change after an entry, as the log has them.
async fn logged(machine: &Machine, after: u64) -> Vec<(u64, String)> {
    let all = common::changes_in_log(machine).await.into_iter();
    all.filter(|(seq, ..)| *seq > after).map(|(seq, change, _)| (seq, change)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_quiet_interval_is_one_request_below_1_kb() {
    let world = World::new(1);
    let (a, b) = (world.open("a").await, world.open("b").await);
    for at in 0..30 {
        a.put(&format!("model/m{at}"), "data/x", "1").await;
    }
    let mut watch = b.clone.watch(&options()).await.unwrap();
    assert!(drain(&mut watch).await.is_empty(), "it begins at the newest entry");
    // A quarter of an hour and more: with the LIST that is due now and then.
    let time = INTERVAL * 600;
    let (seen, requests) = b.counted(b.env.timeout(time, watch.next())).await;
    assert!(seen.is_none());
    assert!((600..=800).contains(&requests.total()), "one request an interval, and pauses of 75 to 100 %: {requests}");
    assert!(requests.count().bytes_in / requests.total() < 1000, "{requests}");
    assert_eq!(requests.of(Op::Get) + requests.of(Op::List), requests.total(), "{requests}");
    assert!((1..=3).contains(&requests.of(Op::List)), "{requests}");
    a.put("model/m1", "data/x", "2").await;
    let (seen, requests) = b.counted(async { (watch.next().await, watch.done().await, watch.poll().await) }).await;
    let (Watched::Change(change), Ok(()), Ok(None)) = (seen.0.unwrap(), seen.1, seen.2) else { panic!("one change") };
    assert_eq!((change.seq.0, change.head.author.as_str(), change.head.kind), (31, "a@box", TxKind::Change));
    assert_eq!(requests.total(), 2, "the entry and what is not after it: {requests}");
}

/// The main job, and what it costs: the three requests of a pull.
#[tokio::test(start_paused = true)]
async fn a_run_elsewhere_is_seen_once_and_is_here_afterwards() {
    let world = World::new(2);
    let (a, b) = (world.open("a").await, world.open("b").await);
    b.pull().await;
    let mut watch = b.clone.watch(&options()).await.unwrap();
    assert!(drain(&mut watch).await.is_empty());
    a.begin("model/x").await.unwrap().end(change_end("model/x")).await.unwrap();
    let (seen, requests) = b.counted(drain(&mut watch)).await;
    assert_eq!((seen.len(), requests.total()), (2, 3), "{requests}");
    assert_eq!(seen, logged(&a, 0).await);
    // What was read is in the clone: asking again costs what asking without news costs.
    assert_eq!(b.clone.position().unwrap(), Some(Seq(2)));
    assert_eq!(b.text("model/x", "outputs/model/x/latest").await.as_deref(), Some("done"));
    let (pulled, requests) = b.counted(b.pull()).await;
    assert_eq!((pulled.items, requests.total()), (0, 1), "{requests}");
    assert_eq!(b.facts(), a.facts());
}

#[tokio::test(start_paused = true)]
async fn changes_soon_after_a_change_do_not_wait_for_the_interval() {
    let world = World::new(3);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let options = WatchOptions { interval: Duration::from_secs(60), ..options() };
    let mut watch = b.clone.watch(&options).await.unwrap();
    let start = a.put("model/x", "data/1", "1").await;
    assert_eq!(id(&watch.next().await.unwrap()).0, start.seq.0);
    watch.done().await.unwrap();
    let (end, began) = (async { a.env.sleep(Duration::from_millis(300)).await }, b.env.monotonic());
    let later = async {
        end.await;
        a.put("model/x", "data/2", "1").await
    };
    let (seen, put) = tokio::join!(watch.next(), later);
    assert_eq!(id(&seen.unwrap()).0, put.seq.0);
    assert!(b.env.monotonic() - began < Duration::from_secs(2));
}

/// Killed wherever a process can be: what was not done is given again, what was done is not, and nothing is left out.
#[tokio::test(start_paused = true)]
async fn killed_at_each_step_it_goes_on_where_it_was() {
    let mut killed = 0;
    for step in ["watch.read", "apply", "pull.tree", "watch.done", "watch.saved"] {
        for nth in [1, 2, 5] {
            let world = World::new(nth.into());
            let (a, b) = (world.open("a").await, world.open("b").await);
            b.pull().await;
            drop(b.clone.watch(&options()).await.unwrap());
            for at in 0..3 {
                a.clone.commit(change_append("model/x", &at.to_string())).await.unwrap();
                a.begin("model/y").await.unwrap().end(change_end("model/y")).await.unwrap();
            }
            let mut seen: Vec<(u64, String)> = Vec::new();
            b.killer.arm(step, nth);
            let life = b
                .killer
                .run(async {
                    let mut watch = b.clone.watch(&options()).await.unwrap();
                    while let Some(found) = watch.poll().await.unwrap() {
                        seen.push(id(&found));
                        watch.done().await.unwrap();
                    }
                })
                .await;
            killed += u32::from(life.is_none());
            drop(b);
            let before = seen.len();
            let b = world.open("b").await;
            let mut watch = b.clone.watch(&options()).await.unwrap();
            seen.extend(drain(&mut watch).await);
            // Killed between having done the work and remembering that, the one change comes again.
            let again = life.is_none() && step == "watch.done";
            let mut expected = logged(&a, 0).await;
            if again {
                expected.insert(before, expected[before - 1].clone());
            }
            assert_eq!(seen, expected, "killed at {step} {nth}");
            b.pull().await;
            assert_eq!(b.facts(), a.facts());
        }
    }
    assert!(killed >= 10, "only {killed} of the steps were reached");
}

#[tokio::test(start_paused = true)]
async fn the_cursor_survives_a_rebuilt_state_db() {
    let world = World::new(5);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let mut watch = b.clone.watch(&since(0)).await.unwrap();
    a.put("model/x", "data/1", "1").await;
    assert_eq!(drain(&mut watch).await.len(), 1);
    a.put("model/x", "data/2", "1").await;
    drop((watch, b));
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(world.dir("b").join(name));
    }
    let b = world.open("b").await;
    let mut watch = b.clone.watch(&options()).await.unwrap();
    assert_eq!(drain(&mut watch).await, logged(&a, 1).await);
}

/// An entry may hold several changes: others' that a helper carried along.
#[tokio::test(start_paused = true)]
async fn of_an_entry_with_several_changes_the_rest_is_given_after_a_restart() {
    let world = World::new(6);
    let b = world.open("b").await;
    carried(&world.memory, &b, 3).await;
    let mut watch = b.clone.watch(&since(0)).await.unwrap();
    assert_eq!(id(&watch.poll().await.unwrap().unwrap()).0, 1);
    watch.done().await.unwrap();
    let second = id(&watch.poll().await.unwrap().unwrap());
    drop(watch);
    let mut watch = b.clone.watch(&options()).await.unwrap();
    let rest = drain(&mut watch).await;
    assert_eq!((rest.len(), &rest[0]), (2, &second));
    assert_eq!(rest, logged(&b, 0).await.split_off(1));
}

/// Far behind, in pages: all of it is given, and only a few entries are in memory at once.
#[tokio::test(start_paused = true)]
async fn a_long_gap_is_read_page_by_page_and_nothing_is_left_out() {
    let world = World::new(7);
    let (a, b) = (world.open("a").await, world.open("b").await);
    b.pull().await;
    let mut watch = b.clone.watch(&options()).await.unwrap();
    // Further than a pull reads forward.
    for at in 0..520 {
        a.put(&format!("model/m{}", at % 7), &format!("data/m{}/{at}", at % 7), "1").await;
    }
    b.env.sleep(Duration::from_secs(5 * 3600)).await;
    let (seen, requests) = b.counted(drain(&mut watch)).await;
    assert!(seen.iter().map(|(seq, _)| *seq).eq(1..=520), "{seen:?}");
    assert!(requests.total() < 520 + 5, "each entry once: {requests}");
    assert_eq!(b.facts(), a.facts());
    // A page of large entries ends early.
    for at in 0..4 {
        let mut change = change_bytes("model/x", &format!("data/{at}"), noise(at, 60_000));
        change.contents = (0..4).map(|n| noise(at * 10 + n, 60_000).into()).collect();
        a.clone.commit(change).await.unwrap();
    }
    let (first, requests) = b.counted(watch.poll()).await;
    assert!(first.unwrap().is_some() && requests.count().bytes_in < 9 << 20, "{requests}");
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Reporter for Heard {
    fn report(&self, event: Event<'_>) {
        let text = match event {
            Event::StoreAway { error } => format!("away: {}", error.code()),
            Event::StoreBack { away } => format!("back after {} h", away.as_secs() / 3600),
            _ => return,
        };
        self.0.lock().unwrap().push(text);
    }
}

#[tokio::test(start_paused = true)]
async fn hours_offline_are_said_once_and_missed_nothing() {
    let world = World::new(8);
    let a = world.open("a").await;
    let heard = Arc::new(Heard::default());
    let b = world.open_heard("b", heard.clone()).await;
    let mut watch = b.clone.watch(&options()).await.unwrap();
    assert!(drain(&mut watch).await.is_empty());
    for op in [Op::Get, Op::List] {
        b.faults.script_times(op, |_| true, 1, u32::MAX, Fault::LostRequest);
    }
    let hours = Duration::from_secs(5 * 3600);
    let (seen, requests) = b.counted(b.env.timeout(hours, watch.next())).await;
    assert!(seen.is_none(), "it never gives up");
    assert!((300..=700).contains(&requests.total()), "the pauses grow to a minute, not further: {requests}");
    for at in 0..20 {
        a.put("model/x", &format!("data/{at}"), "1").await;
    }
    assert!(watch.poll().await.is_err(), "who asks once is told");
    b.faults.heal();
    let first = b.env.timeout(Duration::from_secs(61), watch.next()).await.expect("back within a minute").unwrap();
    assert_eq!(id(&first).0, 1);
    assert_eq!(drain(&mut watch).await, logged(&a, 0).await);
    assert_eq!(*heard.0.lock().unwrap(), ["away: offline", "back after 5 h"]);
}

/// Behind the floor the changes are gone; what they led to is told, and then it goes on as usual.
#[tokio::test(start_paused = true)]
async fn behind_the_floor_it_says_what_changed() {
    for whole in [true, false] {
        let world = World::new(9);
        let (a, b) = (world.open("a").await, world.open("b").await);
        a.put("model/same", "data/same", "1").await;
        if whole {
            b.pull().await;
        }
        let mut watch = b.clone.watch(&options()).await.unwrap();
        for at in 0..6 {
            a.put("model/x", &format!("data/x{at}"), "1").await;
        }
        a.put("model/y", "data/y", "1").await;
        let ledger = keeper(&world, &a);
        checkpoint(&ledger).await;
        b.env.sleep(DAY * 40).await;
        a.put("model/z", "data/z", "1").await;
        let how = Collecting { author: "a@box".to_owned(), keep: DAY * 30, patience: Duration::from_secs(60) };
        let plan = ledger.plan_gc(&how).await.unwrap();
        ledger.gc(&plan, &how, &|_, _| {}).await.unwrap();
        assert_eq!(
            (plan.keep.1, world.memory.keys().iter().filter(|key| key.starts_with("log/")).count()),
            (Seq(9), 3)
        );
        let Some(Watched::Jumped(jumped)) = watch.poll().await.unwrap() else { panic!("a jump") };
        assert_eq!((jumped.from, jumped.to), (Seq(1), Seq(11)));
        assert_eq!(jumped.changed, [unit("model/x"), unit("model/y"), unit("model/z")]);
        assert!(jumped.removed.is_empty());
        // Not confirmed: it is told again.
        drop(watch);
        let mut watch = b.clone.watch(&options()).await.unwrap();
        assert_eq!(drain(&mut watch).await, [(11, "jumped".to_owned())]);
        assert_eq!(b.clone.position().unwrap(), whole.then_some(Seq(11)), "a clone that was whole stays whole");
        // Maintenance is no change of what the namespace holds.
        checkpoint(&ledger).await;
        assert_eq!((drain(&mut watch).await.len(), watch.seq()), (0, Seq(12)));
        a.put("model/z", "data/z", "2").await;
        assert_eq!(drain(&mut watch).await, logged(&a, 12).await);
        assert_eq!(b.clone.position().unwrap(), whole.then_some(Seq(13)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_set_back_or_replaced_stops_it() {
    let world = World::new(10);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.put("model/x", "data/1", "1").await;
    let backup = world.memory.fork();
    a.put("model/x", "data/2", "1").await;
    let mut watch = b.clone.watch(&since(0)).await.unwrap();
    assert_eq!(drain(&mut watch).await.len(), 2);
    for key in world.memory.keys().into_iter().filter(|key| !backup.keys().contains(key)) {
        world.memory.delete(&key).await.unwrap();
    }
    let error = b.env.timeout(Duration::from_secs(3600), watch.next()).await.expect("noticed").unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Damaged, "rollback"));
    drop(watch);
    // Neither does a new process, nor one whose state.db is new: the cursor knows.
    drop(b);
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(world.dir("b").join(name));
    }
    let b = world.open("b").await;
    let mut watch = b.clone.watch(&options()).await.unwrap();
    assert_eq!(watch.next().await.unwrap_err().code(), "rollback");
    // Others write on from the copy: another history.
    let c = world.open("c").await;
    for at in 0..3 {
        c.put("model/z", &format!("data/{at}"), "1").await;
    }
    assert_eq!(watch.next().await.unwrap_err().code(), "fork");
    assert_eq!(watch.seq(), Seq(2));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_entry_stops_it_where_it_is() {
    let world = World::new(11);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let mut watch = b.clone.watch(&options()).await.unwrap();
    a.put("model/x", "data/1", "1").await;
    let key = log_key(Seq(1));
    let good = world.memory.get(&key, Range::All).await.unwrap().unwrap().bytes;
    let mut bad = good.to_vec();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    world.memory.put(&key, bad.into()).await.unwrap();
    assert_eq!(watch.next().await.unwrap_err().kind(), Kind::Damaged);
    world.memory.put(&key, good).await.unwrap();
    assert_eq!(drain(&mut watch).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_process_follows_under_one_name() {
    let world = World::new(12);
    let a = world.open("a").await;
    let watch = a.clone.watch(&options()).await.unwrap();
    let again = world.open("a").await;
    let error = again.clone.watch(&options()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Contended, "watch_taken"));
    let other = WatchOptions { name: "other".to_owned(), ..options() };
    again.clone.watch(&other).await.unwrap();
    drop(watch);
    again.clone.watch(&options()).await.unwrap();
    for name in ["", "../x", "A", "a b", "-a", &"a".repeat(64)] {
        let options = WatchOptions { name: name.to_owned(), ..options() };
        assert_eq!(a.clone.watch(&options).await.unwrap_err().kind(), Kind::Invalid, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_name_begins_where_it_is_told_and_an_old_one_where_it_was() {
    let world = World::new(13);
    let a = world.open("a").await;
    for at in 0..3 {
        a.put("model/x", &format!("data/{at}"), "1").await;
    }
    let error = a.clone.watch(&since(4)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
    let mut watch = a.clone.watch(&since(1)).await.unwrap();
    assert_eq!(drain(&mut watch).await, logged(&a, 1).await);
    drop(watch);
    let mut watch = a.clone.watch(&since(0)).await.unwrap();
    assert_eq!((watch.seq(), drain(&mut watch).await.len()), (Seq(3), 0), "a restart does not begin anew");
    // What is passed over is remembered when all was seen.
    a.put("model/x", "data/4", "1").await;
    assert!(watch.poll().await.unwrap().is_some());
    watch.pass();
    assert!(watch.poll().await.unwrap().is_none());
    drop(watch);
    let mut watch = a.clone.watch(&options()).await.unwrap();
    assert_eq!((watch.seq(), drain(&mut watch).await.len()), (Seq(4), 0));
    drop(watch);
    std::fs::write(world.dir("a").join("watch/default.json"), "{").unwrap();
    assert_eq!(a.clone.watch(&options()).await.unwrap_err().kind(), Kind::Damaged);
}

/// Who maintains the ledger.
fn keeper(world: &World, of: &Machine) -> Ledger {
    let (clone, instance) = (CloneId::random(&world.env), InstanceId::random(&world.env));
    Ledger::with_info(Arc::new(world.memory.clone()), &world.env, of.clone.info().clone(), clone, instance)
}

async fn checkpoint(ledger: &Ledger) {
    let patience = Duration::from_secs(30);
    let how = Checkpointing { author: "a@box".to_owned(), force: true, full: false, patience };
    assert!(matches!(ledger.checkpoint(&how).await.unwrap(), Checkpoint::Done { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_moved_ends_it_when_all_was_seen() {
    let world = World::new(20);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let mut watch = b.clone.watch(&options()).await.unwrap();
    a.put("model/m1", "data/x", "1").await;
    let target: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let plan = a.clone.plan_copy(Some(&target)).await.unwrap();
    a.clone.copy(&target, &plan).await.unwrap();
    a.clone.move_to(&target, ("memory:there", None), &"ops".parse().unwrap(), &serde_json::Value::Null).await.unwrap();
    assert_eq!(id(&watch.next().await.unwrap()).0, 1);
    watch.done().await.unwrap();
    for _ in 0..2 {
        let error = watch.next().await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Conflict, "moved"), "{error:?}");
    }
    assert_eq!(watch.seq(), Seq(2));
}
