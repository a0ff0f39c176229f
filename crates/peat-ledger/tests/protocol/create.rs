//! Creation is idempotent, and nothing that exists is ever taken for new.

use std::sync::Arc;

use bytes::Bytes;
use peat_ledger::{Ledger, NewLedger, Params};
use peat_objects::{Fault, FaultStore, MemoryStore, Op, Range, Store};
use peat_types::{CloneId, Env, InstanceId, Kind, Result};

use super::bench::{Bench, env, new_ledger};

async fn create(store: Arc<dyn Store>, env: &Env, new: NewLedger) -> Result<Ledger> {
    Ledger::create(store, env, new, CloneId::random(env), InstanceId::random(env)).await
}

#[tokio::test(start_paused = true)]
async fn creating_again_opens() {
    let (memory, env) = (MemoryStore::new(), env(1));
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let first = create(store.clone(), &env, new_ledger("repo", Params::default())).await.expect("first");
    let keys = memory.keys();
    let again = create(store.clone(), &env, new_ledger("repo", Params::default())).await.expect("again");
    assert_eq!(first.info(), again.info());
    assert_eq!(memory.keys(), keys);
    let opened = Ledger::open(store, &env, CloneId::random(&env), InstanceId::random(&env)).await.expect("open");
    assert_eq!(opened.expect("there").info(), first.info());
}

#[tokio::test(start_paused = true)]
async fn another_owner_is_refused_and_the_owner_named() {
    let (store, env) = (Arc::new(MemoryStore::new()), env(1));
    create(store.clone(), &env, new_ledger("repo-one", Params::default())).await.expect("first");
    let error = create(store, &env, new_ledger("repo-two", Params::default())).await.expect_err("refused");
    assert_eq!((error.kind(), error.code()), (Kind::AlreadyExists, "namespace_taken"));
    assert!(error.to_string().contains("repo-one"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn there_is_nothing_to_open_in_an_empty_store() {
    let (store, env) = (Arc::new(MemoryStore::new()), env(1));
    let opened = Ledger::open(store, &env, CloneId::random(&env), InstanceId::random(&env)).await;
    assert!(opened.expect("no error").is_none());
}

#[tokio::test(start_paused = true)]
async fn whatever_is_lost_one_ledger_comes_out() {
    let faults = [
        Fault::LostRequest,
        Fault::LostReply,
        Fault::Doubled,
        Fault::Status(409),
        Fault::Status(429),
        Fault::AppliedStatus(500),
        Fault::Late(std::time::Duration::from_millis(30)),
        Fault::Late(std::time::Duration::from_secs(600)),
    ];
    for nth in 1..=2 {
        for fault in faults {
            let (memory, env) = (MemoryStore::new(), env(1));
            let store = FaultStore::new(Arc::new(memory.clone()), &env);
            store.script(Op::Create, |_| true, nth, fault);
            let ledger = create(Arc::new(store), &env, new_ledger("repo", Params::default())).await.expect("created");
            env.sleep(std::time::Duration::from_secs(3600)).await;
            let head = ledger.head().await.expect("head");
            assert_eq!(head.state.seq.0, 0, "{nth} {fault:?}");
            assert_eq!(memory.keys().len(), 2, "{nth} {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_creation_is_finished_by_the_same_bytes() {
    let (memory, env) = (MemoryStore::new(), env(1));
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    create(store.clone(), &env, new_ledger("repo", Params::default())).await.expect("first");
    let log = memory.keys().remove(0);
    let genesis = memory.get(&log, Range::All).await.expect("get").expect("there").bytes;
    memory.delete(&log).await.expect("delete");

    let opened = Ledger::open(store.clone(), &env, CloneId::random(&env), InstanceId::random(&env)).await;
    let error = opened.expect("open").expect("there").head().await.expect_err("no entry");
    assert_eq!(error.kind(), Kind::Damaged);

    create(store, &env, new_ledger("repo", Params::default())).await.expect("finished");
    assert_eq!(memory.get(&log, Range::All).await.expect("get").expect("there").bytes, genesis);
}

#[tokio::test(start_paused = true)]
async fn an_emptied_log_is_damaged_never_new() {
    let mut bench = Bench::with(Params { inline_file: 100, ..Params::default() }).await;
    bench.put("model/a", &[("data/1", &[7; 5000])]).await;
    let logs: Vec<String> = bench.memory.keys().into_iter().filter(|key| key.starts_with("log/")).collect();
    for key in &logs {
        bench.memory.delete(key).await.expect("delete");
    }
    let store: Arc<dyn Store> = Arc::new(bench.memory.clone());
    let error = create(store.clone(), &bench.env, new_ledger("repo", Params::default())).await.expect_err("damaged");
    assert_eq!(error.kind(), Kind::Damaged);
    assert!(bench.memory.keys().iter().all(|key| !key.starts_with("log/")), "nothing was written");
    // And whoever saw its head reports it, packs or not.
    let error = bench.ledger.follow(&bench.state, true).await.expect_err("damaged");
    assert_eq!(error.kind(), Kind::Damaged);

    bench.memory.delete("ns.json").await.expect("delete");
    let error = create(store, &bench.env, new_ledger("repo", Params::default())).await.expect_err("damaged");
    assert_eq!(error.kind(), Kind::Damaged);
}

#[tokio::test(start_paused = true)]
async fn a_newer_format_is_refused_whatever_else_it_says() {
    let (memory, env) = (MemoryStore::new(), env(1));
    memory.put("ns.json", Bytes::from_static(b"{\"format\": 999, \"shape\": \"unheard of\"}")).await.expect("put");
    let error = create(Arc::new(memory), &env, new_ledger("repo", Params::default())).await.expect_err("refused");
    assert_eq!((error.kind(), error.code()), (Kind::Unsupported, "unsupported_version"));
}

#[tokio::test(start_paused = true)]
async fn two_creators_at_once_agree() {
    let (memory, env) = (MemoryStore::new(), env(1));
    let one = create(Arc::new(memory.clone()), &env, new_ledger("repo", Params::default()));
    let two = create(Arc::new(memory.clone()), &env, new_ledger("repo", Params::default()));
    let (one, two) = tokio::join!(one, two);
    assert_eq!(one.expect("one").info().ledger, two.expect("two").info().ledger);
}
