//! Every backend passes the same cases.

use std::sync::Arc;

use peat_objects::{Durability, FileStore, LatencyStore, MemoryStore, Metered, PrefixStore, Store};
use peat_testkit::clock::tokio_env;
use peat_testkit::conformance;

#[track_caller]
fn assert_none(failures: &[String]) {
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
async fn memory() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    assert_none(&conformance::run(&store, &tokio_env(1)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn file() {
    let folder = tempfile::tempdir().unwrap();
    let env = tokio_env(2);
    let store: Arc<dyn Store> = Arc::new(FileStore::new(folder.path(), Durability::Process, &env));
    assert_none(&conformance::run(&store, &env).await);
}

#[tokio::test(start_paused = true)]
async fn decorated() {
    let env = tokio_env(3);
    let ms = std::time::Duration::from_millis;
    let store = LatencyStore::new(Arc::new(MemoryStore::with_clock(&env)), &env, ms(30), ms(15));
    let store = Metered::new(Arc::new(PrefixStore::new(Arc::new(store), "team/peat").unwrap()));
    let meter = store.meter().clone();
    let store: Arc<dyn Store> = Arc::new(store);
    assert_none(&conformance::run(&store, &env).await);
    assert!(meter.snapshot().total().requests > 200);
}
