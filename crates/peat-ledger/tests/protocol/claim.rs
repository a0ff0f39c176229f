//! Whoever makes or moves a ledger to a place at once with others: one of them has it, the others leave nothing there and are
//! what they were.

use std::sync::Arc;
use std::time::Duration;

use peat_ledger::{Ledger, Moved, NsInfo, Params};
use peat_objects::{LatencyStore, MemoryStore, Range, Store};
use peat_types::{CloneId, Error, InstanceId, LedgerId, Namespace, Result, Seq};
use serde_json::Value;

use super::bench::{Bench, env, new_ledger};

/// Orders in which requests of two meet.
const ORDERS: u64 = 48;

fn place(ledger: u8) -> Moved {
    let ledger = LedgerId::from_bytes([ledger; 16]);
    Moved { url: "memory:b".to_owned(), endpoint: None, namespace: Namespace::default(), ledger, upto: Seq::ZERO }
}

/// The same store from somewhere, where each request takes a while.
fn from_afar(memory: &MemoryStore, seed: u64) -> Arc<dyn Store> {
    let (mean, spread) = (Duration::from_millis(30), Duration::from_millis(30));
    Arc::new(LatencyStore::new(Arc::new(memory.clone()), &env(seed), mean, spread))
}

/// All of a move, planned when nothing was there yet.
async fn carry(ledger: &Ledger, target: &Arc<dyn Store>, to: &Moved) -> Result<NsInfo> {
    let plan = ledger.plan_copy(None).await?;
    let (_, prints) = ledger.copy(target, &plan, &|_| {}).await?;
    ledger.check_copy(target, &plan, &prints).await?;
    ledger.move_to(target, to, "ann@home", &Value::Null).await
}

fn open(store: Arc<dyn Store>, info: &NsInfo, seed: u64) -> Ledger {
    let env = env(seed);
    Ledger::with_info(store, &env, info.clone(), CloneId::random(&env), InstanceId::random(&env))
}

/// It is told that the place is taken, and takes changes as before.
async fn lost(bench: &mut Bench, error: &Error) {
    assert_eq!(error.code(), "not_this_ledger", "{error:?}");
    assert!(bench.ledger.head().await.expect("head").state.root.moved.is_none(), "it was not closed");
    bench.put("model/x", &[("data/late", b"more")]).await;
}

#[tokio::test(start_paused = true)]
async fn of_one_who_makes_a_ledger_and_one_who_moves_one_there_exactly_one_does() {
    let (mut made, mut moved) = (0, 0);
    for order in 0..ORDERS {
        let mut bench = Bench::on(MemoryStore::new(), Params::default(), order).await;
        bench.put("model/x", &[("data/a", &vec![1; 400_000])]).await;
        let memory = MemoryStore::new();
        let (ours, theirs) = (from_afar(&memory, order), from_afar(&memory, order + 1000));
        let env = env(order + 2000);
        let create = async {
            // Now the one begins first, now the other.
            env.sleep(Duration::from_millis(order * 5 % 120)).await;
            let (clone, instance) = (CloneId::random(&env), InstanceId::random(&env));
            Ledger::create(theirs, &env, new_ledger("another repo", Params::default()), clone, instance).await
        };
        let carry = async {
            bench.env.sleep(Duration::from_millis(150)).await;
            carry(&bench.ledger, &ours, &place(7)).await
        };
        let (carried, created) = tokio::join!(carry, create);
        match (carried, created) {
            (Ok(info), Err(error)) => {
                assert!(["half_a_ledger", "namespace_taken"].contains(&error.code()), "{error:?}");
                assert!(!error.hints().is_empty(), "{error:?}");
                let copy = open(ours, &info, order);
                assert!(copy.verify(true).await.expect("verify").findings.is_empty());
                moved += 1;
            }
            (Err(error), Ok(ledger)) => {
                lost(&mut bench, &error).await;
                assert_eq!(memory.keys().len(), 2, "ns.json and the first entry: {:?}", memory.keys());
                assert!(ledger.verify(true).await.expect("verify").findings.is_empty());
                made += 1;
            }
            both => unreachable!("{order}: {both:?}"),
        }
    }
    assert!(made > 4 && moved > 4, "{made} made, {moved} moved");
}

/// A ledger that goes on from another one, in a store of its own.
async fn heir(of: &MemoryStore, ledger: u8, seed: u64) -> Bench {
    // As restored from a backup.
    let memory = MemoryStore::new();
    for key in of.keys() {
        let object = of.get(&key, Range::All).await.expect("get").expect("there");
        memory.put(&key, object.bytes).await.expect("put");
    }
    let from = Bench::on(memory, Params::default(), seed).await;
    let memory = MemoryStore::new();
    let target: Arc<dyn Store> = Arc::new(memory.clone());
    let info = carry(&from.ledger, &target, &place(ledger)).await.expect("moved");
    let mut heir = Bench { ledger: open(target, &info, seed), memory, ..Bench::new().await };
    heir.state = heir.ledger.head().await.expect("head").state;
    heir
}

#[tokio::test(start_paused = true)]
async fn of_two_ledgers_with_one_ancestor_one_has_the_place() {
    let mut bench = Bench::new().await;
    for n in 0..3u8 {
        bench.put("model/x", &[("data/a", &[n])]).await;
    }
    let mut firsts = 0;
    for order in 0..ORDERS / 2 {
        // As far as the older one goes, their entries are the same.
        let (mut one, mut two) = (heir(&bench.memory, 1, order).await, heir(&bench.memory, 2, order + 500).await);
        if order % 2 == 0 {
            two.put("model/x", &[("data/a", b"two")]).await;
        }
        let memory = MemoryStore::new();
        let (ours, theirs) = (from_afar(&memory, order), from_afar(&memory, order + 1000));
        let (to_one, to_two) = (place(11), place(12));
        let (first, second) = tokio::join!(carry(&one.ledger, &ours, &to_one), carry(&two.ledger, &theirs, &to_two));
        let info = match (first, second) {
            (Ok(info), Err(error)) => {
                lost(&mut two, &error).await;
                firsts += 1;
                info
            }
            (Err(error), Ok(info)) => {
                lost(&mut one, &error).await;
                info
            }
            both => unreachable!("{order}: {both:?}"),
        };
        assert!(open(ours, &info, order).verify(true).await.expect("verify").findings.is_empty());
        assert!(!info.comes_from(LedgerId::from_bytes([1; 16])) || !info.comes_from(LedgerId::from_bytes([2; 16])));
    }
    assert!(firsts > 2 && firsts < ORDERS / 2 - 2, "{firsts}");
}

#[tokio::test(start_paused = true)]
async fn a_move_that_two_machines_make_at_once_is_one_move() {
    for order in 0..ORDERS {
        let mut bench = Bench::on(MemoryStore::new(), Params::default(), order).await;
        bench.put("model/x", &[("data/a", &vec![1; 400_000])]).await;
        let other = bench.peer(order + 1).await;
        let memory = MemoryStore::new();
        let (ours, theirs) = (from_afar(&memory, order), from_afar(&memory, order + 1000));
        let late = async {
            other.env.sleep(Duration::from_millis(order * 30)).await;
            carry(&other.ledger, &theirs, &place(8)).await
        };
        let to = place(7);
        let (one, two) = tokio::join!(carry(&bench.ledger, &ours, &to), late);
        let (one, two) = (one.expect("moved"), two.expect("moved"));
        assert_eq!((one.ledger, &one.origin), (two.ledger, &two.origin));
        let there = memory.get("ns.json", Range::All).await.expect("get").expect("there");
        let there: NsInfo = serde_json::from_slice(&there.bytes).expect("no claim any more");
        assert_eq!(there.ledger, one.ledger);
        assert!(open(ours, &one, order).verify(true).await.expect("verify").findings.is_empty());
    }
}
