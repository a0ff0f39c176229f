//! Stores that fail in ways somebody met elsewhere, by their numbers in `docs/design/007-peers.md`: here on the wire.
#![allow(clippy::panic, clippy::expect_used)] // the lints know tests, but not their helpers

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use peat_objects::{Created, List, MemoryStore, OpenOptions, Range, Store, Verdict, open, probe};
use peat_testkit::clock::tokio_env;
use peat_testkit::conformance;
use peat_testkit::liars::{LiarStore, Lie};
use peat_testkit::s3::{Canned, Fault, S3Server};
use peat_types::{Env, Kind, Result};

fn start() -> (S3Server, Env, Arc<dyn Store>) {
    let server = S3Server::start().expect("server");
    let env = Env::system(server.vars());
    let store = open(&server.url().parse().expect("url"), &OpenOptions::default(), &env).expect("open");
    (server, env, store)
}

/// The verdict on the wire and, without it, at the seam.
async fn verdicts(lie: Lie) -> [Result<Verdict>; 2] {
    let (server, env, store) = start();
    server.set_lie(Some(lie));
    let virtual_env = tokio_env(1);
    let liar = LiarStore::new(Arc::new(MemoryStore::with_clock(&virtual_env)), &virtual_env, lie);
    [probe(store.as_ref(), &env).await, probe(&liar, &virtual_env).await]
}

#[track_caller]
fn assert_refused(verdicts: [Result<Verdict>; 2], why: &str) {
    for verdict in verdicts {
        let error = verdict.expect_err("refused");
        assert_eq!((error.kind(), error.code()), (Kind::Unsupported, "store_refused"), "{error:?}");
        assert!(error.to_string().contains(why), "{error:?}");
    }
}

#[tokio::test]
async fn f01_ignores_every_condition() {
    assert_refused(verdicts(Lie::IgnoresCondition).await, "a second create of the same key succeeded");
}

#[tokio::test]
async fn f02_says_that_it_cannot() {
    for lie in [Lie::Refuses501, Lie::Refuses400] {
        assert_refused(verdicts(lie).await, "create-if-absent: the store says that it cannot");
    }
    // The header is named; another 400 is no such answer.
    let (server, env, store) = start();
    server.script_times(Method::PUT, "", 1, 99, Fault::Reply(Canned::error(400, "InvalidRequest", "Bad header")));
    assert_eq!(probe(store.as_ref(), &env).await.expect_err("refused").kind(), Kind::Invalid);
    let (server, env, store) = start();
    server.script_times(Method::PUT, "", 1, 99, Fault::Reply(Canned::error(403, "AccessDenied", "Access Denied")));
    assert_eq!(probe(store.as_ref(), &env).await.expect_err("refused").kind(), Kind::Denied);
}

/// It would be refused if anything needed `If-Match`. Nothing does, as no request shows.
#[tokio::test]
async fn f03_honours_create_and_ignores_if_match() {
    let (server, env, store) = start();
    probe(store.as_ref(), &env).await.expect("fit");
    let failures = conformance::run(&store, &env).await;
    assert!(failures.is_empty(), "{failures:?}");
    let log = server.log();
    assert!(log.len() > 300 && log.iter().all(|request| request.header("if-match").is_none()));
    let conditions: Vec<_> = log.iter().filter_map(|request| request.header("if-none-match")).collect();
    assert!(conditions.len() > 300 && conditions.iter().all(|value| *value == "*"));
}

/// The ledger never creates a key that was deleted, so it would do no harm; yet a store that forgets to forget is refused
/// while there are others.
#[tokio::test]
async fn f04_says_412_after_a_delete_marker() {
    assert_refused(verdicts(Lie::RemembersDeleted).await, "create after delete: the create was refused");
}

#[tokio::test]
async fn f08_says_200_with_an_error_inside() {
    let inside = || Fault::Reply(Canned::error(200, "InternalError", "We encountered an internal error"));
    let (server, _, store) = start();
    let key = "default/log/ffffffffffffffff.0";
    server.script(Method::PUT, key, 1, inside());
    assert_eq!(store.create(key, Bytes::from_static(b"x")).await.expect_err("unknown").kind(), Kind::Offline);
    // It is no success, and was none: the key is free.
    assert!(matches!(store.create(key, Bytes::from_static(b"y")).await, Ok(Created::Created(_))));
    for (method, key) in [(Method::PUT, "pack"), (Method::GET, ""), (Method::DELETE, "")] {
        server.script(method, key, 1, inside());
    }
    server.clear_log();
    store.put("default/pack/0000000000000000-a", Bytes::from_static(b"x")).await.expect("asked again");
    store.list(&List { prefix: "default/log/".to_owned(), ..List::default() }).await.expect("asked again");
    store.delete(key).await.expect("asked again");
    assert_eq!((server.log().len(), server.keys().len()), (6, 1));
}

#[tokio::test]
async fn f11_rejects_checksums_chunks_and_trailers() {
    let (server, env, store) = start();
    server.set_lie(Some(Lie::OldS3));
    let failures = conformance::run(&store, &env).await;
    assert!(failures.is_empty(), "{failures:?}");
    let big = Bytes::from(vec![7; 300_000]);
    store.put("default/pack/0000000000000000-a", big.clone()).await.expect("put");
    let read = store.get("default/pack/0000000000000000-a", Range::All).await.expect("get").expect("there");
    assert_eq!(read.bytes, big);
}

/// The server knows no `DeleteObjects`, and would not miss it.
#[tokio::test]
async fn f12_lacks_delete_objects() {
    let (server, env, store) = start();
    for n in 0..5 {
        store.put(&format!("default/tx/{n}"), Bytes::new()).await.expect("put");
        store.delete(&format!("default/tx/{n}")).await.expect("delete");
    }
    probe(store.as_ref(), &env).await.expect("fit");
    let log = server.log();
    assert!(log.iter().all(|request| request.method != Method::POST && request.header("content-md5").is_none()));
    assert!(log.iter().filter(|request| request.method == Method::DELETE).count() > 20);
    assert!(server.keys().is_empty());
}
