//! Pins: what they keep, and who may set them.

use std::sync::Arc;
use std::time::Duration;

use peat_ledger::{Checkpoint, Checkpointing, Collecting, Follow};
use peat_objects::{LatencyStore, MemoryStore, Store};
use peat_types::{Kind, Seq};

use super::bench::{Bench, env};
use super::checkpoint::{busy, checkpoint, forced, params, sync};
use super::gc::{DAY, collect, keep, timed};
use super::history::{Dying, History, handle};

const PATIENCE: Duration = Duration::from_secs(60);
const WHO: &str = "ann@here";

#[tokio::test(start_paused = true)]
async fn a10_a_pinned_state_and_all_later_ones_stay_readable() {
    let mut bench = timed().await;
    let mut history = History::default();
    busy(&mut bench, 8).await;
    checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    busy(&mut bench, 4).await;
    let (entry, at) = bench.ledger.pin("release-1", None, WHO, PATIENCE).await.expect("pinned");
    assert_eq!((entry, at), (Seq(14), Seq(13)));
    for _ in 0..2 {
        bench.env.sleep(DAY * 40).await;
        sync(&mut bench).await;
        busy(&mut bench, 6).await;
        checkpoint(&bench.ledger, &forced()).await;
        history.note(&bench).await;
        let (plan, _) = collect(&bench.ledger, &keep(30)).await;
        assert_eq!((plan.floor.1, plan.held_by.as_deref()), (at, Some("release-1")));
        history.holds(&bench.memory).await;
    }
    let pins = bench.ledger.pins().await.expect("pins");
    assert_eq!(pins.iter().map(|pin| (pin.name.as_str(), pin.seq)).collect::<Vec<_>>(), [("release-1", at)]);

    let (_, was) = bench.ledger.unpin("release-1", WHO, PATIENCE).await.expect("removed");
    assert_eq!(was, at);
    bench.env.sleep(DAY * 40).await;
    let (plan, done) = collect(&bench.ledger, &keep(30)).await;
    assert!(plan.floor.1 > at && plan.held_by.is_none() && !done.deleted.is_empty(), "{plan:?}");
    history.holds(&bench.memory).await;
    assert!(bench.ledger.pins().await.expect("pins").is_empty());
}

#[tokio::test(start_paused = true)]
async fn pins_that_cannot_be_are_refused_and_change_nothing() {
    let mut bench = timed().await;
    busy(&mut bench, 8).await;
    checkpoint(&bench.ledger, &forced()).await;
    bench.env.sleep(DAY * 60).await;
    sync(&mut bench).await;
    busy(&mut bench, 3).await;
    collect(&bench.ledger, &keep(1)).await;
    let floor = bench.ledger.head().await.expect("head").state.root.floor;
    assert!(floor > Seq(3));
    bench.ledger.pin("one", None, WHO, PATIENCE).await.expect("pinned");
    let before = bench.memory.keys();
    let pin = |name: &'static str, at| bench.ledger.pin(name, at, WHO, PATIENCE);
    let twin = pin("one", None).await.expect_err("twin");
    assert_eq!((twin.kind(), twin.code()), (Kind::AlreadyExists, "pin_exists"));
    assert_eq!(pin("old", Some(Seq(3))).await.expect_err("below the floor").code(), "state_not_kept");
    assert_eq!(pin("soon", Some(Seq(999))).await.expect_err("not there yet").kind(), Kind::Invalid);
    for name in ["", "Ann", ".hidden", "a b", "ü", "a/b", &"x".repeat(65)] {
        let error = bench.ledger.pin(name, None, WHO, PATIENCE).await.expect_err(name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}");
    }
    let missing = bench.ledger.unpin("two", WHO, PATIENCE).await.expect_err("no such");
    assert_eq!((missing.kind(), missing.code()), (Kind::NotFound, "pin_not_found"));
    assert_eq!(bench.memory.keys(), before);
    bench.ledger.pin("oldest", Some(floor), WHO, PATIENCE).await.expect("the oldest is kept");
}

/// Two clients a network away from the store: one pins an old state, one collects.
async fn race(seed: u64) -> bool {
    let mut bench = timed().await;
    busy(&mut bench, 8).await;
    checkpoint(&bench.ledger, &forced()).await;
    bench.env.sleep(DAY * 60).await;
    sync(&mut bench).await;
    busy(&mut bench, 3).await;
    let mut history = History::default();
    history.note(&bench).await;
    let far = |seed| {
        let store: Arc<dyn Store> = Arc::new(bench.memory.clone());
        let (near, jitter) = (Duration::from_millis(20), Duration::from_millis(60));
        handle(&bench, Arc::new(LatencyStore::new(store, &env(seed), near, jitter)))
    };
    let (pinner, collector) = (far(seed), far(seed + 1000));
    let how = keep(1);
    let gc = async {
        let plan = collector.plan_gc(&how).await.expect("planned");
        collector.gc(&plan, &how, &|_, _| {}).await.expect("collected")
    };
    let late = async {
        bench.env.sleep(bench.env.jitter(Duration::from_millis(900)).mul_f64((seed % 7) as f64 / 3.0)).await;
        pinner.pin("old", Some(Seq(4)), WHO, PATIENCE).await
    };
    let (pinned, _) = tokio::join!(late, gc);
    let root = bench.ledger.head().await.expect("head").state.root;
    history.holds(&bench.memory).await;
    match pinned {
        Ok(_) => assert!(root.floor <= Seq(4) && root.pins.len() == 1, "seed {seed}: F is {}", root.floor),
        Err(error) => {
            assert_eq!(error.code(), "state_not_kept", "seed {seed}: {error:?}");
            assert!(root.floor > Seq(4) && root.pins.is_empty(), "seed {seed}");
        }
    }
    !root.pins.is_empty()
}

#[tokio::test(start_paused = true)]
async fn a10_a_pin_and_a_collection_at_once_one_of_them_knows_of_the_other() {
    let mut won = 0;
    for seed in 0..28 {
        won += u32::from(race(seed).await);
    }
    assert!((1..28).contains(&won), "each was faster sometimes: the pin {won} of 28 times");
}

#[tokio::test(start_paused = true)]
async fn a3_a_pin_killed_at_any_request_is_there_or_not_and_can_be_set_again() {
    let mut bench = timed().await;
    busy(&mut bench, 5).await;
    let mut seen = [false; 2];
    'all: for n in 1.. {
        for applied in [false, true] {
            let memory = bench.memory.fork();
            let dying = Dying::at(Arc::new(memory.clone()), n, applied);
            let killed = handle(&bench, dying.clone()).pin("p", None, WHO, Duration::ZERO).await;
            if dying.lives() {
                killed.expect("it lived");
                break 'all;
            }
            let again = handle(&bench, Arc::new(memory.clone()));
            let there = again.pins().await.expect("pins").len();
            seen[there] = true;
            match again.pin("p", None, WHO, PATIENCE).await {
                Ok(_) => assert_eq!(there, 0),
                Err(error) => assert_eq!((error.code(), there), ("pin_exists", 1)),
            }
        }
    }
    assert_eq!(seen, [true, true]);
}

#[tokio::test(start_paused = true)]
async fn pins_do_not_void_a_checkpoint_and_others_read_over_them() {
    let mut bench = Bench::on(MemoryStore::with_clock(&env(1)), params(), 1).await;
    busy(&mut bench, 12).await;
    let behind = bench.state.clone();
    // While the checkpoint is being made, somebody pins.
    let store: Arc<dyn Store> = Arc::new(bench.memory.clone());
    let slow = handle(&bench, Arc::new(LatencyStore::new(store, &env(5), Duration::from_millis(40), Duration::ZERO)));
    let how = Checkpointing { patience: PATIENCE, ..forced() };
    let pinner = handle(&bench, Arc::new(bench.memory.clone()));
    let pin = async {
        bench.env.sleep(Duration::from_millis(60)).await;
        pinner.pin("during", None, WHO, PATIENCE).await.expect("pinned")
    };
    let (made, (entry, _)) = tokio::join!(slow.checkpoint(&how), pin);
    let Checkpoint::Done { seq, cut, .. } = made.expect("made") else { unreachable!("not made") };
    assert_eq!((cut, entry, seq), (Seq(13), Seq(13), Seq(14)), "built upon the pin, from the same plan");
    let Follow::Entries(entries) = bench.ledger.follow(&behind, true).await.expect("followed") else {
        unreachable!("not far")
    };
    let root = &entries.last().expect("entries").state.root;
    assert_eq!(root.pins, [("during".to_owned(), Seq(12))]);
    assert_eq!(root.checkpointed.map(|(seq, _)| seq), Some(Seq(14)));
    let mut history = History::default();
    history.note(&bench).await;
    bench.env.sleep(DAY * 2).await;
    let how = Collecting { keep: DAY, ..keep(1) };
    collect(&bench.ledger, &how).await;
    history.holds(&bench.memory).await;
    let root = bench.ledger.head().await.expect("head").state.root;
    assert_eq!((root.floor, root.collected.map(|(seq, _)| seq)), (Seq(12), Some(Seq(15))));
}
