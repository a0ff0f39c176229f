//! Moving: the copy goes on where the ledger stopped, and neither is ever taken for the other.

use std::sync::Arc;

use peat_ledger::{Commit, Ledger, Moved, NsInfo, Params, Prints};
use peat_objects::{Created, MemoryStore, Metered, Op, Range, Store};
use peat_types::{CloneId, InstanceId, Kind, LedgerId, Namespace, Seq};

use super::bench::{Bench, env, log_key};
use super::checkpoint::{busy, checkpoint, forced, params, sync};
use super::gc::{DAY, collect, keep};

fn to(url: &str) -> Moved {
    Moved {
        url: url.to_owned(),
        namespace: Namespace::default(),
        ledger: LedgerId::from_bytes([7; 16]),
        upto: Seq::ZERO,
        endpoint: None,
    }
}

async fn moved(bench: &Bench, to: &Moved) -> (Arc<dyn Store>, MemoryStore, NsInfo) {
    let memory = MemoryStore::new();
    let target: Arc<dyn Store> = Arc::new(memory.clone());
    let plan = bench.ledger.plan_copy(Some(&*target)).await.expect("plan");
    let (_, prints) = bench.ledger.copy(&target, &plan, &|_| {}).await.expect("copy");
    bench.ledger.check_copy(&target, &plan, &prints).await.expect("whole");
    let info = bench.ledger.move_to(&target, to, "ann@home", &serde_json::Value::Null).await.expect("move");
    (target, memory, info)
}

fn open(bench: &Bench, store: Arc<dyn Store>, info: &NsInfo) -> Ledger {
    let (clone, instance) = (CloneId::random(&bench.env), InstanceId::random(&bench.env));
    Ledger::with_info(store, &bench.env, info.clone(), clone, instance)
}

#[tokio::test(start_paused = true)]
async fn the_copy_goes_on_where_the_ledger_stopped_and_moves_again() {
    let mut bench = Bench::new().await;
    for n in 0..5u8 {
        bench.put("model/x", &[("data/a", &[n]), ("data/big", &vec![n; 400_000])]).await;
    }
    let (store, memory, info) = moved(&bench, &to("memory:b")).await;
    assert_eq!((info.ledger_at(Seq(5)), info.ledger_at(Seq(6))), (bench.ledger.info().ledger, info.ledger));
    // The old one takes nothing any more, whatever its writers knew.
    let draft = bench.draft("model/x", &[("data/a", b"late")]).await;
    let error =
        bench.ledger.commit(&bench.state, bench.read_at, &draft, &bench.cache, 30_000).await.expect_err("refused");
    assert_eq!((error.kind(), error.code()), (Kind::Conflict, "moved"), "{error}");

    let mut next = Bench { ledger: open(&bench, store.clone(), &info), memory, ..Bench::new().await };
    next.state = next.ledger.head().await.expect("head").state;
    assert_eq!(next.state.seq, Seq(5));
    next.put("model/x", &[("data/a", b"new")]).await;
    assert!(next.ledger.verify(true).await.expect("verify").findings.is_empty());
    let body = next.memory.get(&log_key(Seq(6)), Range::All).await.expect("get").expect("there").bytes;
    let raw = peat_ledger::format::decode_entry(Seq(6), &body).expect("decode");
    assert_eq!(raw.state.ledger, info.ledger, "a new entry names the new ledger");

    let again = Moved { ledger: LedgerId::from_bytes([8; 16]), ..to("memory:c") };
    let (store, _, last) = moved(&next, &again).await;
    assert_eq!(last.origin.len(), 2);
    assert!(last.comes_from(bench.ledger.info().ledger) && last.comes_from(info.ledger));
    let third = open(&next, store, &last);
    assert_eq!(
        third.head().await.expect("head").state.root.setsum,
        next.ledger.verify(false).await.map(|_| next.state.root.setsum).expect("sum")
    );
    assert!(third.verify(true).await.expect("verify").findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a8_entries_of_the_old_ledger_beyond_the_move_are_a_fork_in_the_copy() {
    let mut bench = Bench::new().await;
    bench.put("model/x", &[("data/a", b"1")]).await;
    let (store, memory, info) = moved(&bench, &to("memory:b")).await;
    // What the old ledger holds after it: the entry that says so. Copied by hand, as a backup tool would.
    let stray = bench.memory.get(&log_key(Seq(2)), Range::All).await.expect("get").expect("there").bytes;
    assert!(matches!(memory.create(&log_key(Seq(2)), stray).await.expect("create"), Created::Created(_)));
    let error = open(&bench, store, &info).head().await.expect_err("fork");
    assert_eq!((error.kind(), error.code()), (Kind::Damaged, "fork"), "{error}");
    // And entries of the copy are one in the old ledger.
    let mut next = Bench::new().await;
    let (_, memory, info) = moved(&bench, &to("memory:b")).await;
    next.ledger = open(&bench, Arc::new(memory.clone()), &info);
    next.memory = memory;
    next.state = next.ledger.head().await.expect("head").state;
    next.put("model/x", &[("data/a", b"2")]).await;
    next.put("model/x", &[("data/a", b"3")]).await;
    let stray = next.memory.get(&log_key(Seq(3)), Range::All).await.expect("get").expect("there").bytes;
    bench.memory.create(&log_key(Seq(3)), stray).await.expect("create");
    assert_eq!(bench.ledger.head().await.expect_err("fork").code(), "fork");
}

#[tokio::test(start_paused = true)]
async fn of_two_moves_at_once_one_wins_and_the_other_is_told_where_it_went() {
    let mut bench = Bench::new().await;
    bench.put("model/x", &[("data/a", b"1")]).await;
    let (_, _, first) = moved(&bench, &to("memory:b")).await;
    // The same place again: the same ledger, whoever asks.
    let again = Moved { ledger: LedgerId::from_bytes([9; 16]), ..to("memory:b") };
    let (_, _, same) = moved(&bench, &again).await;
    assert_eq!((first.ledger, &first.origin), (same.ledger, &same.origin));
    let elsewhere: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let error = bench.ledger.move_to(&elsewhere, &to("memory:c"), "eve@home", &serde_json::Value::Null).await;
    assert_eq!(error.expect_err("moved").code(), "moved");
    assert!(elsewhere.get("ns.json", Range::All).await.expect("get").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_damaged_object_is_not_copied_and_a_copy_that_lacks_something_is_not_opened() {
    let mut bench = Bench::new().await;
    bench.put("model/x", &[("data/big", &vec![1; 400_000])]).await;
    let pack = bench.memory.keys().into_iter().find(|key| key.starts_with("pack/"));
    let entry = log_key(Seq(1));
    for key in pack.iter().chain([&entry]) {
        let whole = bench.memory.get(key, Range::All).await.expect("get").expect("there").bytes;
        let mut bad = whole.to_vec();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        bench.memory.put(key, bad.into()).await.expect("put");
        let target: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let plan = bench.ledger.plan_copy(None).await;
        // (The newest entry is read for the plan already.)
        let refused = match plan {
            Ok(plan) => bench.ledger.copy(&target, &plan, &|_| {}).await.map(drop),
            Err(error) => Err(error),
        };
        assert_eq!(refused.expect_err("damaged").kind(), Kind::Damaged, "{key}");
        bench.memory.put(key, whole).await.expect("put");
        // The same object missing in the copy.
        let plan = bench.ledger.plan_copy(None).await.expect("plan");
        bench.ledger.copy(&target, &plan, &|_| {}).await.expect("copy");
        target.delete(key).await.expect("delete");
        assert_eq!(
            bench.ledger.check_copy(&target, &plan, &Prints::default()).await.expect_err("not whole").kind(),
            Kind::Damaged,
            "{key}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn writers_that_meet_the_end_while_they_wait_are_not_committed() {
    let mut bench = Bench::new().await;
    bench.put("model/x", &[("data/a", b"1")]).await;
    let mut late = bench.peer(2).await;
    let draft = late.draft("model/y", &[("data/a", b"late")]).await;
    moved(&bench, &to("memory:b")).await;
    let sent = late.ledger.commit(&late.state, late.read_at, &draft, &late.cache, 30_000).await;
    assert!(!matches!(sent, Ok(Commit::Committed { .. })), "{sent:?}");
    assert_eq!(sent.expect_err("refused").code(), "moved");
    late.state = late.ledger.head().await.expect("head").state;
    assert_eq!(late.state.root.units, 1);
}

/// A ledger, and whether what came first was collected.
async fn some(seed: u64, cleared: bool) -> Bench {
    let mut bench = Bench::on(MemoryStore::with_clock(&env(seed)), params(), seed).await;
    for _ in 0..2 {
        busy(&mut bench, 3).await;
        checkpoint(&bench.ledger, &forced()).await;
        sync(&mut bench).await;
        bench.env.sleep(DAY * 3).await;
    }
    if cleared {
        collect(&bench.ledger, &keep(1)).await;
        sync(&mut bench).await;
        assert!(bench.state.root.keep > Seq::ZERO);
    }
    bench
}

#[tokio::test(start_paused = true)]
async fn of_two_ledgers_that_are_copied_to_one_place_the_second_leaves_nothing_there() {
    for (one, two) in [(false, false), (false, true), (true, false), (true, true)] {
        let (one, two) = (some(1, one).await, some(2, two).await);
        let memory = MemoryStore::new();
        let target: Arc<dyn Store> = Arc::new(memory.clone());
        let plan = one.ledger.plan_copy(Some(&*target)).await.expect("plan");
        let late = two.ledger.plan_copy(Some(&*target)).await.expect("nothing is there yet");
        let (first, second) =
            tokio::join!(one.ledger.copy(&target, &plan, &|_| {}), two.ledger.copy(&target, &late, &|_| {}));
        let (winner, loser, plan) = if first.is_ok() { (one.ledger, second, plan) } else { (two.ledger, first, late) };
        let error = loser.expect_err("one of them");
        assert_eq!((error.kind(), error.code()), (Kind::Conflict, "not_this_ledger"), "{error}");
        winner.check_copy(&target, &plan, &Prints::default()).await.expect("whole, and nothing else");
        // Its repeated copy finds the place its own.
        let again = winner.plan_copy(Some(&*target)).await.expect("plan");
        assert!(again.objects.is_empty(), "{again:?}");
        winner.copy(&target, &again, &|_| {}).await.expect("the same again");
        let mut keys: Vec<String> = plan.objects.iter().map(|object| object.key.clone()).collect();
        keys.push("ns.json".to_owned());
        assert!(memory.keys().iter().all(|key| keys.contains(key)), "{:?}", memory.keys());
    }
}

/// Commits of some models, contents in entries and in packs, pages in both.
async fn grown() -> Bench {
    let mut bench = Bench::with(Params { inline_file: 2000, ..Params::default() }).await;
    for n in 0..40_u8 {
        if n == 25 {
            checkpoint(&bench.ledger, &forced()).await;
            sync(&mut bench).await;
        }
        let (name, big) = (format!("model/{}", n % 7), bench.env.random_bytes::<4000>());
        bench.put(&name, &[(&format!("data/{n}"), &[n; 900]), (&format!("big/{n}"), &big)]).await;
    }
    bench
}

#[tokio::test(start_paused = true)]
async fn a_move_reads_and_writes_every_object_once_and_reads_it_once_where_it_is_then() {
    let bench = grown().await;
    let metered = Metered::new(Arc::new(MemoryStore::new()));
    let target: Arc<dyn Store> = Arc::new(metered.clone());
    let plan = bench.ledger.plan_copy(Some(&*target)).await.expect("plan");
    let (objects, bytes) = (plan.objects.len() as u64, plan.bytes());
    assert!(objects > 80, "42 entries and as many packs: {objects}");

    let (here, there) = (bench.mark(), metered.meter().snapshot());
    let (copied, prints) = bench.ledger.copy(&target, &plan, &|_| {}).await.expect("copy");
    assert_eq!((copied.objects, copied.bytes), (objects, bytes));
    assert_eq!(bench.used(&here), (objects, bytes));
    let written = metered.meter().since(&there).total();
    let claim = written.bytes_out - bytes;
    assert_eq!((written.requests, written.bytes_in), (objects + 1, 0), "all of it, and the claim");
    assert!(claim < 100, "{claim}");

    let (here, there) = (bench.mark(), metered.meter().snapshot());
    bench.ledger.check_copy(&target, &plan, &prints).await.expect("whole");
    assert_eq!(bench.used(&here), (0, 0), "the old ledger is not read again");
    let checked = metered.meter().since(&there);
    // And `ns.json`, which is still the claim; where the log ends, and each folder.
    assert_eq!((checked.of(Op::Get).requests, checked.of(Op::Get).bytes_in), (objects + 1, bytes + claim), "{checked}");
    assert_eq!((checked.of(Op::List).requests, checked.total().bytes_out), (6, 0), "{checked}");

    // Nothing came after it: closing, one look at what is there, opening.
    let (here, there) = (bench.mark(), metered.meter().snapshot());
    bench.ledger.move_to(&target, &to("memory:b"), "ann@home", &serde_json::Value::Null).await.expect("move");
    let (closed, opened) = (bench.used(&here).0, metered.meter().since(&there).total().requests);
    assert!(closed <= 12 && opened <= 5, "{closed} and {opened} requests");
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_reads_as_other_bytes_than_were_copied_is_not_opened() {
    let bench = grown().await;
    for key in bench.memory.keys().into_iter().filter(|key| key != "ns.json") {
        let memory = MemoryStore::new();
        let target: Arc<dyn Store> = Arc::new(memory.clone());
        let plan = bench.ledger.plan_copy(Some(&*target)).await.expect("plan");
        let (_, prints) = bench.ledger.copy(&target, &plan, &|_| {}).await.expect("copy");
        let whole = memory.get(&key, Range::All).await.expect("get").expect("there").bytes;
        let mut bad = whole.to_vec();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        memory.put(&key, bad.clone().into()).await.expect("put");
        let error = bench.ledger.check_copy(&target, &plan, &prints).await.expect_err("not what was copied");
        assert_eq!(error.kind(), Kind::Damaged, "{key}");
        assert!(error.to_string().contains(&key), "{error}");
        // So is one that somebody else left there, which is not copied again.
        let again = bench.ledger.plan_copy(Some(&*target)).await;
        let Ok(again) = again else { continue };
        assert!(again.objects.is_empty(), "its size is right");
        let error = bench.ledger.check_copy(&target, &again, &Prints::default()).await.expect_err("damaged");
        assert!(error.to_string().contains(&key), "{error}");
    }
}
