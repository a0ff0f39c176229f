//! Slow lines, silent servers and replies that break off. Limits are short, so that real time is.
#![allow(clippy::panic, clippy::expect_used)] // the lints know tests, but not their helpers

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peat_objects::{Created, List, OpenOptions, Range, Store, Timeouts, open};
use peat_testkit::raw::{RawServer, Say};
use peat_types::{Env, Kind};

const ETAG: &str = "ETag: \"e\"\r\n";
const KEY: &str = "default/log/ffffffffffffffff.0";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn short(retries: u32) -> OpenOptions {
    let timeouts = Timeouts { connect: ms(1000), first_byte: ms(300), idle: ms(300), create: ms(300) };
    OpenOptions { timeouts, retries, ..OpenOptions::default() }
}

fn store_of(server: &RawServer, options: &OpenOptions) -> Arc<dyn Store> {
    let url = "s3://bucket/peat".parse().expect("url");
    open(&url, options, &Env::system(server.vars())).expect("open")
}

fn list() -> List {
    List { prefix: "default/log/".to_owned(), ..List::default() }
}

#[tokio::test]
async fn an_upload_at_a_crawl_is_not_cut_off() {
    // 16 KiB every 10 ms, which is a hundred times the slowest line, with limits a hundred times as short. All of it is
    // on its way at once: only the system's buffers know that it has not arrived.
    let server = RawServer::start_with(|_| vec![Say::ok(ETAG, "")], Some((16 << 10, ms(10)))).expect("server");
    let store = store_of(&server, &OpenOptions { slowest: 512 << 10, ..short(0) });
    let body = Bytes::from(vec![7; 1 << 20]);
    store.put("default/pack/0000000000000000-a", body.clone()).await.expect("put");
    assert!(matches!(store.create(KEY, body).await, Ok(Created::Created(_))));
    assert_eq!(server.log().iter().map(|request| request.body).collect::<Vec<_>>(), [1 << 20, 1 << 20]);
}

#[tokio::test]
async fn an_upload_that_nobody_takes_ends() {
    let server = RawServer::start_with(|_| vec![Say::ok(ETAG, "")], Some((1024, ms(60_000)))).expect("server");
    let store = store_of(&server, &OpenOptions { slowest: 64 << 20, ..short(0) });
    for body in [16 << 10, 64 << 20] {
        let error = store.put("default/pack/0000000000000000-a", vec![7; body].into()).await.expect_err("stalled");
        assert_eq!((error.kind(), error.code()), (Kind::Offline, "offline"), "{error:?}");
        assert!(error.to_string().contains("no reply within"), "{error}");
    }
}

#[tokio::test]
async fn a_download_at_a_crawl_is_not_cut_off() {
    let server = RawServer::start(|_| {
        let head = Say::Bytes(format!("HTTP/1.1 200 OK\r\n{ETAG}Content-Length: 16\r\n\r\n").into_bytes());
        let drops = (0..16).flat_map(|_| [Say::Pause(ms(50)), Say::Bytes(b"x".to_vec())]);
        std::iter::once(head).chain(drops).collect()
    });
    let server = server.expect("server");
    let object = store_of(&server, &short(0)).get(KEY, Range::All).await.expect("get").expect("there");
    assert_eq!((object.bytes.len(), server.log().len()), (16, 1));
}

#[tokio::test]
async fn silence_ends_with_a_clear_error() {
    let half = format!("HTTP/1.1 200 OK\r\n{ETAG}Content-Length: 1000\r\n\r\n<ListBucketResult>");
    for (says, why) in [(Vec::new(), "no reply within 0.3 s"), (half.into_bytes(), "the reply stopped for 0.3 s")] {
        let server = RawServer::start(move |_| vec![Say::Bytes(says.clone()), Say::Silence]).expect("server");
        let store = store_of(&server, &short(1));
        for (what, error) in [
            ("get", store.get(KEY, Range::All).await.expect_err("silent")),
            ("list", store.list(&list()).await.expect_err("silent")),
        ] {
            assert_eq!((error.kind(), error.code()), (Kind::Offline, "offline"), "{error:?}");
            assert!(error.to_string().starts_with(&format!("{what} s3://bucket/peat/")), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
        assert_eq!(server.log().len(), 4, "each was asked twice");
        assert_eq!(store.create(KEY, Bytes::new()).await.expect_err("silent").kind(), Kind::Offline);
        assert_eq!(server.log().len(), 5, "and the create once");
    }
}

#[tokio::test]
async fn a_connection_that_died_in_the_pool_is_replaced() {
    // As behind a router that forgot the connection: nothing comes back, not even an end.
    let server = RawServer::start(|request| match request.nth {
        0 => vec![Say::ok(ETAG, "x")],
        _ => vec![Say::Silence],
    });
    let server = server.expect("server");
    let store = store_of(&server, &short(1));
    for _ in 0..3 {
        assert!(store.get(KEY, Range::All).await.expect("get").is_some());
    }
    let connections: Vec<_> = server.log().iter().map(|request| (request.connection, request.nth)).collect();
    assert_eq!(connections, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced() {
    let server = RawServer::start(|_| vec![Say::ok(ETAG, "x"), Say::Close]).expect("server");
    let store = store_of(&server, &short(1));
    for _ in 0..5 {
        assert!(store.get(KEY, Range::All).await.expect("get").is_some());
    }
}

#[tokio::test]
async fn a_reply_that_breaks_off_is_never_a_short_object() {
    let whole = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    for (head, body, listing) in [
        ("Content-Length: 100\r\n", "short", false),
        ("Content-Length: 100\r\n", whole, false),
        ("Transfer-Encoding: chunked\r\n", "5\r\nshort\r\n", false),
        // Nobody can tell whether this is all, but for a document that is closed.
        ("", "short", false),
        ("Connection: close\r\n", whole, true),
    ] {
        let reply = format!("HTTP/1.1 200 OK\r\n{ETAG}{head}\r\n{body}").into_bytes();
        let server = RawServer::start(move |_| vec![Say::Bytes(reply.clone()), Say::Close]).expect("server");
        let store = store_of(&server, &short(1));
        let error = store.get(KEY, Range::All).await.expect_err(head);
        assert_eq!(error.kind(), Kind::Offline, "{error:?}");
        match store.list(&list()).await {
            Ok(page) => assert!(listing && page.keys.is_empty(), "{page:?}"),
            Err(error) => assert!(!listing && error.kind() == Kind::Offline, "{error:?}"),
        }
    }
}

#[tokio::test]
async fn etags_and_times_are_taken_as_they_come() {
    for etag in ["ETag: unquoted\r\n", "ETag: W/\"weak\"\r\n", "etag: \"\"\r\n", "ETAG: \"x-2\"\r\n"] {
        let server = RawServer::start(move |_| vec![Say::ok(etag, "x")]).expect("server");
        let store = store_of(&server, &short(0));
        let object = store.get(KEY, Range::All).await.expect("get").expect("there");
        assert_eq!((object.bytes, object.meta), (Bytes::from_static(b"x"), peat_objects::Meta::default()), "{etag}");
        assert!(matches!(store.create(KEY, Bytes::new()).await, Ok(Created::Created(_))), "{etag}");
    }
    let odd = "ETag: \"x\"\r\nDate: yesterday\r\nLast-Modified: 20 o'clock\r\n";
    let server = RawServer::start(move |_| vec![Say::ok(odd, "x")]).expect("server");
    let object = store_of(&server, &short(0)).get(KEY, Range::All).await.expect("get").expect("there");
    assert_eq!(object.meta, peat_objects::Meta::default());
}
