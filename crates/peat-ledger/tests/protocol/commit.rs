//! What each reply to a create proves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{Commit, Dead, Ledger, Params};
use peat_objects::{Created, Fault, FaultStore, MemoryStore, Op, Store};
use peat_types::{CloneId, Error, InstanceId, Kind, Seq};

use super::bench::{Bench, MapCache, log_key};

const HOUR: Duration = Duration::from_secs(3600);

fn logs(memory: &MemoryStore) -> usize {
    memory.keys().iter().filter(|key| key.starts_with("log/")).count()
}

/// The same client, its requests failing by script.
fn faulty(bench: &Bench) -> (FaultStore, Ledger) {
    let store = FaultStore::new(Arc::new(bench.memory.clone()), &bench.env);
    let (clone, instance) = (CloneId::random(&bench.env), InstanceId::random(&bench.env));
    let ledger = Ledger::with_info(Arc::new(store.clone()), &bench.env, bench.ledger.info().clone(), clone, instance);
    (store, ledger)
}

#[tokio::test(start_paused = true)]
async fn study_01_a3_whatever_reply_is_lost_there_is_one_entry_and_one_answer() {
    let faults = [
        Fault::LostRequest,
        Fault::LostReply,
        Fault::Doubled,
        Fault::Status(409),
        Fault::Status(429),
        Fault::AppliedStatus(500),
        Fault::AppliedStatus(503),
        Fault::Late(Duration::from_millis(1)),
        Fault::Late(Duration::from_secs(600)),
        Fault::Slow(Duration::from_secs(60)),
    ];
    for fault in faults {
        for reads_fail in [0, 1, 3] {
            let mut bench = Bench::new().await;
            bench.put("model/a", &[("data/1", b"a")]).await;
            let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
            let (store, ledger) = faulty(&bench);
            store.script(Op::Create, |_| true, 1, fault);
            if reads_fail > 0 {
                store.script_times(Op::Get, |_| true, 1, reads_fail, Fault::LostReply);
            }
            let sent = ledger.commit(&bench.state, bench.read_at, &draft, &bench.cache, 30_000).await.expect("sent");
            let Commit::Committed { passed, entry } = sent else { unreachable!("{fault:?}: {sent:?}") };
            assert!(passed.is_empty());
            assert_eq!((entry.state.seq, entry.txs[0].tx), (Seq(2), draft.tx), "{fault:?}");
            bench.env.sleep(HOUR).await;
            assert_eq!(logs(&bench.memory), 3, "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn study_03_a3_an_answer_that_nothing_explains_is_no_success_and_no_loss() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    // "Exists", with nothing there, twice; then it works.
    let count = AtomicU32::new(0);
    bench.hooks.on_create(move |_| (count.fetch_add(1, Ordering::Relaxed) < 2).then_some(Ok(Created::Exists)));
    assert!(matches!(bench.send(&draft).await, Commit::Committed { .. }));
}

#[tokio::test(start_paused = true)]
async fn study_04_a3_what_lands_after_its_client_gave_up_is_found_by_the_next_try() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    let (store, ledger) = faulty(&bench);
    store.script_times(Op::Create, |_| true, 1, 100, Fault::Late(Duration::from_secs(600)));
    let sent = ledger.commit(&bench.state, bench.read_at, &draft, &bench.cache, 2000).await.expect("sent");
    assert!(matches!(&sent, Commit::Unknown { passed, .. } if passed.is_empty()), "{sent:?}");
    bench.env.sleep(HOUR).await;
    assert_eq!(logs(&bench.memory), 3, "it landed");

    // The next process has only the journal: the same attempt, from the same state, in other bytes.
    let next = bench.peer(9).await;
    let again = next.ledger.commit(&bench.state, bench.read_at, &draft, &next.cache, 2000).await.expect("sent");
    let Commit::Committed { entry, .. } = again else { unreachable!("{again:?}") };
    assert_eq!(entry.state.seq, Seq(2));
    let stored = bench.ledger.head().await.expect("head");
    assert_eq!(entry.state, stored.state, "the stored entry is adopted, not one's own bytes");
    assert_eq!(logs(&bench.memory), 3);
}

#[tokio::test(start_paused = true)]
async fn a3_an_attempt_found_further_on_is_adopted() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    let before = bench.state.clone();
    let mut peer = bench.peer(2).await;
    for n in 0..3 {
        peer.put(&format!("model/x{n}"), &[("data/1", b"x")]).await;
    }
    assert!(matches!(bench.send(&draft).await, Commit::Committed { .. }));
    let again = bench.ledger.commit(&before, bench.read_at, &draft, &bench.cache, 2000).await.expect("sent");
    let Commit::Committed { passed, entry } = again else { unreachable!("{again:?}") };
    assert_eq!((passed.len(), entry.state.seq, logs(&bench.memory)), (3, Seq(5), 6));
}

#[tokio::test(start_paused = true)]
async fn a2_a_unit_that_moved_is_lost_with_what_was_read() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    let mut peer = bench.peer(2).await;
    peer.put("model/a", &[("data/2", b"peer")]).await;
    let Commit::Lost { passed, why } = bench.send(&draft).await else { unreachable!("lost") };
    assert_eq!(why, Dead::Moved("model/a".parse().expect("unit")));
    assert_eq!((passed.len(), passed[0].state.seq), (1, Seq(2)));
    assert_eq!(logs(&bench.memory), 3, "nothing was written");
    // The same is said at once when the state knows it.
    bench.pass(&passed);
    let mark = bench.mark();
    assert!(matches!(bench.send(&draft).await, Commit::Lost { why: Dead::Moved(_), .. }));
    assert_eq!(bench.used(&mark).0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_and_shows_an_empty_slot_applied_nothing() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    bench.hooks.on_create(|key| Some(Err(Error::new(Kind::Denied, format!("create {key}: status 403")))));
    let mark = bench.mark();
    assert!(matches!(bench.send(&draft).await, Commit::Refused { .. }));
    assert_eq!(bench.used(&mark).0, 2, "no second try");

    // After an answer that left it open, a refusal closes nothing.
    let count = AtomicU32::new(0);
    bench.hooks.on_create(move |_| {
        let kind = if count.fetch_add(1, Ordering::Relaxed) == 0 { Kind::Offline } else { Kind::Denied };
        Some(Err(Error::new(kind, "no")))
    });
    assert!(matches!(bench.send(&draft).await, Commit::Unknown { .. }));

    // Nor does one when the slot cannot be read.
    bench.hooks.on_create(|_| Some(Err(Error::new(Kind::Denied, "no"))));
    bench
        .hooks
        .on_get(|key, object| if key.starts_with("log/") { Err(Error::new(Kind::Denied, "no")) } else { Ok(object) });
    assert!(matches!(bench.send(&draft).await, Commit::Unknown { .. }));
}

#[tokio::test(start_paused = true)]
async fn patience_bounds_every_wait() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    for op in [Op::Create, Op::Get] {
        let (store, ledger) = faulty(&bench);
        store.script_times(Op::Create, |_| true, 1, 1000, Fault::LostRequest);
        if op == Op::Get {
            store.script_times(Op::Get, |_| true, 1, 1000, Fault::LostReply);
        }
        let start = bench.env.monotonic();
        let sent = ledger.commit(&bench.state, bench.read_at, &draft, &bench.cache, 5000).await.expect("sent");
        assert!(matches!(sent, Commit::Unknown { .. }), "{sent:?}");
        let waited = bench.env.monotonic() - start;
        assert!(waited < Duration::from_secs(16), "{waited:?}");
    }
    assert_eq!(logs(&bench.memory), 2);
}

#[tokio::test(start_paused = true)]
async fn a5_contents_are_durable_before_an_entry_names_them() {
    let mut bench = Bench::with(Params { inline_file: 100, ..Params::default() }).await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let draft = bench.draft("model/a", &[("data/2", &[5; 5000])]).await;
    let (store, ledger) = faulty(&bench);
    store.script_times(Op::Put, |_| true, 1, 1000, Fault::LostRequest);
    let sent = ledger.commit(&bench.state, bench.read_at, &draft, &bench.cache, 3000).await;
    assert_eq!(sent.expect_err("not sent").kind(), Kind::Offline);
    assert_eq!(bench.memory.keys().len(), 3, "no entry");
    // A retried upload is the same object.
    let (store, ledger) = faulty(&bench);
    store.script_times(Op::Put, |_| true, 1, 2, Fault::LostReply);
    let sent = ledger.commit(&bench.state, bench.read_at, &draft, &bench.cache, 30_000).await.expect("sent");
    assert!(matches!(sent, Commit::Committed { .. }));
    assert_eq!(bench.memory.keys().iter().filter(|key| key.starts_with("pack/")).count(), 1);
}

/// A client that slept: its state is entry 3, behind a floor at 6; the slots below are gone.
async fn sleeper() -> (Bench, Bench) {
    let mut bench = Bench::new().await;
    for n in 1..=3 {
        bench.put("model/a", &[("data/1", format!("{n}").as_bytes())]).await;
    }
    let mut peer = bench.peer(2).await;
    for n in 0..4 {
        peer.put(&format!("model/x{n}"), &[("data/1", b"x")]).await;
    }
    peer.collect(Seq(6)).await;
    (bench, peer)
}

#[tokio::test(start_paused = true)]
async fn study_05_r6_a_resurrected_slot_is_not_acknowledged() {
    let (mut bench, peer) = sleeper().await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    bench.env.sleep(3 * HOUR).await;
    let sent = bench.send(&draft).await;
    assert!(matches!(&sent, Commit::Lost { passed, why: Dead::Gone } if passed.is_empty()), "{sent:?}");
    assert!(bench.memory.keys().contains(&log_key(Seq(4))), "the slot was created, and is void");
    // The head is what it was; the change goes in on top of it.
    let peat_ledger::Follow::Jump(state) = bench.ledger.follow(&bench.state, true).await.expect("follow") else {
        unreachable!("behind the floor")
    };
    assert_eq!(*state, peer.state);
    bench.state = *state;
    bench.read_at = bench.env.monotonic();
    let found = bench
        .ledger
        .find_change(&bench.state, &draft.units[0].unit, Seq(3), draft.change, &MapCache::default())
        .await
        .expect("found out");
    assert_eq!(found, None);
    assert_eq!(bench.put("model/a", &[("data/2", b"b")]).await, Seq(9));
}

#[tokio::test(start_paused = true)]
async fn mutation_no_floor_check_acknowledges_a_resurrected_slot() {
    let (mut bench, _) = sleeper().await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    bench.env.sleep(3 * HOUR).await;
    let env = bench.env.with_mutation(Some(peat_types::Mutation::NoFloorCheck));
    let (clone, instance) = (CloneId::random(&env), InstanceId::random(&env));
    let store = Arc::new(bench.memory.clone());
    bench.ledger = Ledger::with_info(store, &env, bench.ledger.info().clone(), clone, instance);
    let sent = bench.send(&draft).await;
    assert!(matches!(&sent, Commit::Committed { .. }), "so the check is what prevents it: {sent:?}");
    let head = bench.ledger.head().await.expect("head").state;
    assert!(head.seq > Seq(4) && head.root.keep > Seq(4), "what was acknowledged is in no state");
}

#[tokio::test(start_paused = true)]
async fn r6_a_late_success_is_checked_like_an_early_one() {
    let (bench, _) = sleeper().await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    // The base was fresh when the create was sent; the reply takes three hours, the time-out allows it.
    let mut info = bench.ledger.info().clone();
    info.params.create_timeout_ms = 24 * 3600 * 1000;
    let store = FaultStore::new(Arc::new(bench.memory.clone()), &bench.env);
    store.script(Op::Create, |_| true, 1, Fault::Slow(3 * HOUR));
    let (clone, instance) = (CloneId::random(&bench.env), InstanceId::random(&bench.env));
    let ledger = Ledger::with_info(Arc::new(store), &bench.env, info, clone, instance);
    let sent = ledger.commit(&bench.state, bench.env.monotonic(), &draft, &bench.cache, 30_000).await.expect("sent");
    assert!(matches!(&sent, Commit::Lost { passed, why: Dead::Gone } if passed.is_empty()), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a12_a_foreign_entry_in_a_void_slot_is_not_built_upon() {
    let (bench, _) = sleeper().await;
    let other = bench.peer(5).await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    // Another sleeper resurrected the slot with bytes that follow entry 3 perfectly.
    let zombie = bench.draft("model/z", &[("data/1", b"z")]).await;
    let _ = other.ledger.commit(&bench.state, bench.env.monotonic(), &zombie, &bench.cache, 1000).await;
    assert!(bench.memory.keys().contains(&log_key(Seq(4))));
    bench.env.sleep(3 * HOUR).await;
    let sent = bench.send(&draft).await;
    assert!(matches!(&sent, Commit::Lost { passed, why: Dead::Gone } if passed.is_empty()), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a8_a_fork_is_reported_and_nothing_is_built_on_it() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let copy = bench.memory.fork();
    bench.put("model/a", &[("data/2", b"b")]).await;
    let mut other = Bench::on(copy.clone(), Params::default(), 3).await;
    other.put("model/b", &[("data/1", b"other history")]).await;
    other.put("model/b", &[("data/2", b"other history")]).await;
    // The bucket now holds the other history.
    let (clone, instance) = (CloneId::random(&bench.env), InstanceId::random(&bench.env));
    let ledger = Ledger::with_info(Arc::new(copy.clone()), &bench.env, bench.ledger.info().clone(), clone, instance);
    let draft = bench.draft("model/c", &[("data/1", b"c")]).await;
    let sent = ledger.commit(&bench.state, bench.read_at, &draft, &bench.cache, 3000).await;
    assert_eq!(sent.expect_err("fork").code(), "fork");
    assert_eq!(logs(&copy), 4, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn r7_a_change_is_found_by_walking_back_its_unit() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let since = bench.state.seq;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    let Commit::Committed { entry, .. } = bench.send(&draft).await else { unreachable!("committed") };
    bench.pass(&[*entry]);
    for n in 0..5 {
        bench.put("model/a", &[("data/3", format!("{n}").as_bytes())]).await;
        bench.put("model/b", &[("data/3", format!("{n}").as_bytes())]).await;
    }
    let unit = &draft.units[0].unit;
    let find = |change| bench.ledger.find_change(&bench.state, unit, since, change, &bench.cache);
    assert_eq!(find(draft.change).await.expect("found"), Some((Seq(2), draft.tx)));
    let mark = bench.mark();
    assert_eq!(find(peat_types::ChangeId::from_bytes([9; 16])).await.expect("looked"), None);
    assert_eq!(bench.used(&mark).0, 6, "one read for each entry that touched the unit");
}

#[tokio::test(start_paused = true)]
async fn a7_below_the_floor_nothing_can_be_told() {
    let (bench, peer) = sleeper().await;
    let unit = "model/a".parse().expect("unit");
    let change = peat_types::ChangeId::from_bytes([9; 16]);
    let looked = peer.ledger.find_change(&peer.state, &unit, Seq(1), change, &peer.cache).await;
    assert_eq!(looked.expect_err("cannot be told").code(), "history_gone");
    drop(bench);
}

#[tokio::test(start_paused = true)]
async fn beats_are_overwritten_and_a_missing_one_is_definite() {
    use peat_ledger::Beat;
    let bench = Bench::new().await;
    let nonce = peat_types::RunNonce::random(&bench.env);
    let instance = InstanceId::random(&bench.env);
    let info = bench.ledger.info().clone();
    let store: Arc<dyn Store> = Arc::new(bench.memory.clone());
    let ledger = Ledger::with_info(store, &bench.env, info, CloneId::random(&bench.env), instance);
    assert!(bench.ledger.beat_get(Seq(0), instance).await.expect("read").is_none());
    for count in 1..=2 {
        let beat = Beat { count, nonces: vec![nonce] };
        ledger.beat_put(Seq(0), &beat).await.expect("beat");
        let (_, read) = bench.ledger.beat_get(Seq(0), instance).await.expect("read").expect("there");
        assert_eq!(read, beat);
    }
    ledger.beat_end(Seq(0), &[nonce]).await;
    assert!(bench.ledger.beat_get(Seq(0), instance).await.expect("read").is_some(), "a run is alive");
    ledger.beat_end(Seq(0), &[]).await;
    assert!(bench.ledger.beat_get(Seq(0), instance).await.expect("read").is_none());
    bench.hooks.on_get(|_, _| Err(Error::new(Kind::Offline, "status 503")));
    let read: Result<Option<(Bytes, Beat)>, Error> = bench.ledger.beat_get(Seq(0), instance).await;
    assert_eq!(read.expect_err("proves nothing").kind(), Kind::Offline);
}
