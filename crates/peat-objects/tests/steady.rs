//! Asking again, and not too often at once. Virtual time; what counts is the number of requests.
#![allow(clippy::panic, clippy::expect_used)] // the lints know tests, but not their helpers

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use peat_objects::{
    Created, Fault, FaultStore, List, MemoryStore, Meta, Metered, Object, Op, Page, Patience, Range, SteadyStore, Store,
};
use peat_testkit::clock::tokio_env;
use peat_testkit::liars::{LiarStore, Lie};
use peat_types::{Env, Error, Kind, Result};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A store that answers each request after 30 ms, and refuses those beyond what it can take at once.
#[derive(Clone)]
struct Server(Arc<Inner>);

struct Inner {
    memory: MemoryStore,
    env: Env,
    capacity: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    requests: AtomicUsize,
}

impl Server {
    fn new(env: &Env, capacity: usize) -> Self {
        Self(Arc::new(Inner {
            memory: MemoryStore::with_clock(env),
            env: env.clone(),
            capacity: capacity.into(),
            running: 0.into(),
            most: 0.into(),
            requests: 0.into(),
        }))
    }

    async fn serve<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let inner = &self.0;
        inner.requests.fetch_add(1, Ordering::Relaxed);
        let running = inner.running.fetch_add(1, Ordering::Relaxed) + 1;
        inner.most.fetch_max(running, Ordering::Relaxed);
        inner.env.sleep(Duration::from_millis(30)).await;
        inner.running.fetch_sub(1, Ordering::Relaxed);
        if running > inner.capacity.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Offline, "status 503 SlowDown").with_code("store_busy"));
        }
        request.await
    }
}

#[async_trait]
impl Store for Server {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        if key.starts_with("stuck") {
            std::future::pending::<()>().await;
        }
        self.serve(self.0.memory.get(key, range)).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.serve(self.0.memory.create(key, body)).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.serve(self.0.memory.put(key, body)).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        self.serve(self.0.memory.list(list)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.serve(self.0.memory.delete(key)).await
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("server:")
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

async fn bulk(store: &SteadyStore, count: usize, at_once: usize) {
    let reads = stream::iter(0..count).map(|_| store.get("pack/x", Range::All));
    let read: Vec<_> = reads.buffer_unordered(at_once).collect().await;
    assert!(read.iter().all(|read| matches!(read, Ok(None))), "every read gets through in the end");
}

#[tokio::test(start_paused = true)]
async fn requests_at_once_adapt_to_what_the_store_can_take() {
    let env = tokio_env(1);
    let server = Server::new(&env, 4);
    let store = SteadyStore::new(Arc::new(server.clone()), &env, Patience { retries: 20, total: secs(600) });
    let begin = env.monotonic();
    bulk(&store, 400, 200).await;
    let (requests, took) = (server.0.requests.load(Ordering::Relaxed), env.monotonic() - begin);
    // Without a limit 200 come at once and most of them again and again; one by one it would take 12 s.
    assert!((400..=520).contains(&requests), "{requests}");
    assert!(took < secs(7), "{took:?}");
    // Room is found again.
    server.0.capacity.store(1000, Ordering::Relaxed);
    server.0.most.store(0, Ordering::Relaxed);
    bulk(&store, 4000, 200).await;
    assert_eq!(server.0.most.load(Ordering::Relaxed), 64, "never more than that");
    assert_eq!(server.0.requests.load(Ordering::Relaxed), requests + 4000);
}

#[tokio::test(start_paused = true)]
async fn a_single_request_waits_no_longer_than_those_before_it() {
    let env = tokio_env(2);
    let server = Server::new(&env, 16);
    let store = SteadyStore::new(Arc::new(server.clone()), &env, Patience::default());
    let requests = || server.0.requests.load(Ordering::Relaxed);
    let single = async {
        for _ in 0..5 {
            let before = requests();
            store.get("log/1", Range::All).await.expect("read");
            let passed = requests() - before;
            // Those who waited before, those who run beside it, and those who follow them at the same moment.
            assert!(passed <= 3 * 50, "{passed} requests of somebody else came first");
        }
    };
    futures::join!(single, bulk(&store, 1000, 50));
}

#[tokio::test(start_paused = true)]
async fn a_commit_and_a_beat_do_not_stand_behind_bulk_transfers() {
    let env = tokio_env(3);
    let store = SteadyStore::new(Arc::new(Server::new(&env, 1000)), &env, Patience::default());
    let stuck: Vec<_> = (0..100).map(|_| store.get("stuck", Range::All)).collect();
    let mut stuck = Box::pin(futures::future::join_all(stuck));
    assert!(futures::poll!(&mut stuck).is_pending());
    let begin = env.monotonic();
    assert!(matches!(store.create("log/1", Bytes::from_static(b"x")).await, Ok(Created::Created(_))));
    store.put("beat/1", Bytes::from_static(b"x")).await.expect("put");
    assert!(env.monotonic() - begin < Duration::from_millis(100));
    // Whoever gives up makes room.
    drop(stuck);
    assert!(store.get("log/1", Range::All).await.expect("get").is_some());
}

fn faulty(seed: u64, patience: Patience) -> (Env, FaultStore, Metered, SteadyStore) {
    let env = tokio_env(seed);
    let faults = FaultStore::new(Arc::new(MemoryStore::with_clock(&env)), &env);
    let metered = Metered::new(Arc::new(faults.clone()));
    let store = SteadyStore::new(Arc::new(metered.clone()), &env, patience);
    (env, faults, metered, store)
}

#[tokio::test(start_paused = true)]
async fn f14_bursts_of_slow_down_are_waited_out_as_asked() {
    let (env, faults, metered, store) = faulty(4, Patience::default());
    for op in [Op::Get, Op::Put, Op::List, Op::Delete] {
        faults.script_times(op, |_| true, 1, 3, Fault::Busy(secs(7)));
        let (begin, before) = (env.monotonic(), metered.meter().snapshot());
        match op {
            Op::Get => drop(store.get("log/1", Range::All).await.expect("get")),
            Op::Put => drop(store.put("beat/1", Bytes::new()).await.expect("put")),
            Op::List => drop(store.list(&List::default()).await.expect("list")),
            _ => store.delete("beat/1").await.expect("delete"),
        }
        let took = env.monotonic() - begin;
        assert!((secs(21)..secs(23)).contains(&took), "{op}: {took:?}");
        assert_eq!(metered.meter().since(&before).total().requests, 4, "{op}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_an_hour_is_told_at_once() {
    let (env, faults, metered, store) = faulty(5, Patience::default());
    faults.script_times(Op::Get, |_| true, 1, 99, Fault::Busy(secs(3600)));
    let begin = env.monotonic();
    let error = store.get("log/1", Range::All).await.expect_err("busy");
    assert_eq!((error.kind(), error.code(), error.retry_after()), (Kind::Offline, "store_busy", Some(secs(3600))));
    assert_eq!((env.monotonic() - begin, metered.meter().snapshot().total().requests), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn repetitions_end_by_number_and_by_time() {
    for (fault, retries, requests, most) in [
        (Fault::Status(503), 5, 6, secs(4)),
        (Fault::LostReply, 5, 6, secs(4)),
        (Fault::Busy(secs(20)), 5, 3, secs(60)),
        (Fault::Status(500), 1000, 20, secs(60)),
    ] {
        let (env, faults, metered, store) = faulty(6, Patience { retries, total: secs(60) });
        faults.script_times(Op::List, |_| true, 1, 9999, fault);
        let begin = env.monotonic();
        let error = store.list(&List::default()).await.expect_err("busy");
        assert_eq!(error.kind(), Kind::Offline);
        let made = metered.meter().snapshot().total().requests;
        assert!(made <= requests && made > 1, "{fault:?}: {made}");
        assert!(env.monotonic() - begin <= most, "{fault:?}: {:?}", env.monotonic() - begin);
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_is_never_repeated() {
    for fault in [Fault::LostRequest, Fault::LostReply, Fault::Status(429), Fault::Busy(secs(1)), Fault::Status(409)] {
        let (_, faults, metered, store) = faulty(7, Patience::default());
        faults.script(Op::Create, |_| true, 1, fault);
        assert_eq!(store.create("log/1", Bytes::new()).await.expect_err("unknown").kind(), Kind::Offline);
        assert_eq!(metered.meter().snapshot().total().requests, 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_ends_the_repetitions() {
    let (env, faults, metered, store) = faulty(8, Patience::default());
    faults.script_times(Op::Get, |_| true, 1, 99, Fault::Busy(secs(30)));
    assert!(env.timeout(secs(5), store.get("log/1", Range::All)).await.is_none());
    env.sleep(secs(600)).await;
    assert_eq!(metered.meter().snapshot().total().requests, 1);
}

#[tokio::test(start_paused = true)]
async fn one_write_per_second_and_key_is_enough() {
    let env = tokio_env(9);
    let liar = LiarStore::new(Arc::new(MemoryStore::with_clock(&env)), &env, Lie::OneWritePerSecond);
    let metered = Metered::new(Arc::new(liar));
    let store = SteadyStore::new(Arc::new(metered.clone()), &env, Patience::default());
    for _ in 0..10 {
        store.put("beat/1", Bytes::from_static(b"x")).await.expect("put");
    }
    store.delete("beat/1").await.expect("delete");
    let requests = metered.meter().snapshot().total().requests;
    assert!(requests <= 2 * 11, "one refusal each at most: {requests}");
    let verdict = peat_objects::probe(&store, &env).await.expect("it is fit for a ledger");
    assert!(verdict.may_delete, "{verdict:?}");
}
