//! Every backend passes the same cases.

use std::sync::Arc;

use peat_objects::{Durability, FileStore, LatencyStore, MemoryStore, Metered, OpenOptions, PrefixStore, Store, open};
use peat_testkit::clock::tokio_env;
use peat_testkit::cloud::{CloudServer, Service};
use peat_testkit::conformance;
use peat_testkit::s3::S3Server;
use peat_types::Env;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s3() {
    let server = S3Server::start().unwrap();
    let env = Env::system(server.vars());
    let store = open(&server.url().parse().unwrap(), &OpenOptions::default(), &env).unwrap();
    assert_none(&conformance::run(&store, &env).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clouds() {
    for service in [Service::Gcs, Service::Azure] {
        let server = CloudServer::start(service).unwrap();
        let env = Env::system(server.vars());
        let store = open(&server.url().parse().unwrap(), &OpenOptions::default(), &env).unwrap();
        let failures = conformance::run(&store, &env).await;
        assert!(failures.is_empty(), "{service:?}: {}", failures.join("\n"));
    }
}

/// A server that somebody started: `PEAT_TEST_STORE` is its URL, the rest is in the variables of the service's tools.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[allow(clippy::disallowed_methods)] // the variables of this process are the way to say which server
async fn real_server() {
    let env = Env::system(std::env::vars());
    let Some(url) = env.var("PEAT_TEST_STORE") else {
        eprintln!("SKIPPED: real_server, because PEAT_TEST_STORE is not set");
        return;
    };
    // A liar is there to be refused by the probe.
    if env.var("PEAT_TEST_REFUSED").is_some() {
        return;
    }
    let store = open(&url.parse().unwrap(), &OpenOptions::default(), &env).unwrap();
    let before = env.monotonic();
    assert_none(&conformance::run(&store, &env).await);
    println!("CONFORMANCE {url}: {} cases in {:.1?}", conformance::CASES.len(), env.monotonic() - before);
}
