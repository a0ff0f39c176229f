//! What goes over the wire, and what the replies of a difficult server become.
#![allow(clippy::panic, clippy::expect_used)] // the lints know tests, but not their helpers

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use peat_objects::{Created, List, Meter, Op, OpenOptions, Range, Store, Timeouts, open};
use peat_testkit::s3::{Canned, Fault, S3Server};
use peat_types::{Env, Kind};

fn short() -> OpenOptions {
    let ms = Duration::from_millis;
    let timeouts = Timeouts { connect: ms(1000), first_byte: ms(300), idle: ms(300), create: ms(300) };
    OpenOptions { timeouts, ..OpenOptions::default() }
}

fn store_of(server: &S3Server, options: &OpenOptions) -> Arc<dyn Store> {
    let Ok(url) = server.url().parse() else { panic!("{}", server.url()) };
    open(&url, options, &Env::system(server.vars())).unwrap_or_else(|e| panic!("{e:?}"))
}

fn start(options: &OpenOptions) -> (S3Server, Arc<dyn Store>) {
    let server = S3Server::start().unwrap_or_else(|e| panic!("{e}"));
    let store = store_of(&server, options);
    (server, store)
}

const KEY: &str = "default/log/ffffffffffffffff.0";

fn body(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[tokio::test]
async fn a_create_is_one_request_with_its_condition() {
    let (server, store) = start(&OpenOptions::default());
    assert!(matches!(store.create(KEY, body("x")).await.unwrap(), Created::Created(_)));
    assert_eq!(store.create(KEY, body("y")).await.unwrap(), Created::Exists);
    let log = server.log();
    assert_eq!(log.len(), 2);
    for request in &log {
        assert_eq!((request.method.clone(), request.key()), (Method::PUT, &*format!("peat/{KEY}")));
        assert_eq!(request.header("if-none-match"), Some("*"));
        assert_eq!(request.header("content-length"), Some("1"));
        assert!(request.header("authorization").unwrap().contains("if-none-match"), "the condition is signed");
        assert_eq!(request.header("x-amz-content-sha256").unwrap().len(), 64, "the payload is signed");
        for absent in ["x-amz-trailer", "content-encoding", "x-amz-sdk-checksum-algorithm", "transfer-encoding"] {
            assert_eq!(request.header(absent), None, "{absent}");
        }
        assert!(!request.headers.keys().any(|name| name.as_str().starts_with("x-amz-checksum")));
    }
}

#[tokio::test]
async fn a_put_has_no_condition_and_a_large_one_says_its_length() {
    let (server, store) = start(&OpenOptions::default());
    store.put("default/pack/0000000000000000-a", Bytes::from(vec![7; 300_000])).await.unwrap();
    let log = server.log();
    assert_eq!(log[0].header("if-none-match"), None);
    assert_eq!(log[0].header("content-length"), Some("300000"));
    assert_eq!(log[0].header("transfer-encoding"), None);
}

#[tokio::test]
async fn listing_asks_for_no_more_than_wanted() {
    let (server, store) = start(&OpenOptions::default());
    store.put(KEY, body("x")).await.unwrap();
    let list = List { prefix: "default/log/".to_owned(), max_keys: Some(3), ..List::default() };
    store.list(&list).await.unwrap();
    let query = &server.log()[1].query;
    assert!(query.contains("list-type=2") && query.contains("max-keys=3"), "{query}");
    assert!(query.contains("prefix=peat%2Fdefault%2Flog%2F") && !query.contains("start-after"), "{query}");
}

#[tokio::test]
async fn no_reply_to_a_create_is_repeated() {
    let replies = [
        Fault::DropRequest,
        Fault::DropReply,
        Fault::Slow(Duration::from_millis(600)),
        Fault::Late(Duration::from_millis(100)),
        Fault::Reply(Canned::error(503, "SlowDown", "Please reduce your request rate")),
        Fault::AppliedReply(Canned::error(500, "InternalError", "We encountered an internal error")),
        Fault::Reply(Canned::error(409, "ConditionalRequestConflict", "Try again")),
        Fault::Reply(Canned::error(429, "TooManyRequests", "Too many")),
        Fault::Reply(Canned::error(200, "InternalError", "an error within success")),
        Fault::Reply(Canned::html(200)),
        Fault::Reply(Canned::empty(200)),
        Fault::Reply(Canned::html(502)),
    ];
    let (server, store) = start(&short());
    for (slot, fault) in replies.into_iter().enumerate() {
        let key = format!("default/log/{:016x}.{slot}", u64::MAX - slot as u64);
        server.clear_log();
        server.script(Method::PUT, &key, 1, fault.clone());
        let error = store.create(&key, body("x")).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Offline, "{fault:?}: {error:?}");
        assert_eq!(server.log().len(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_late_landing_is_seen_later() {
    let (server, store) = start(&short());
    server.script(Method::PUT, "", 1, Fault::Late(Duration::from_millis(500)));
    assert_eq!(store.create(KEY, body("x")).await.unwrap_err().kind(), Kind::Offline);
    assert!(store.get(KEY, Range::All).await.unwrap().is_none());
    let env = Env::system([]);
    env.sleep(Duration::from_millis(400)).await;
    assert_eq!(store.get(KEY, Range::All).await.unwrap().unwrap().bytes, body("x"));
}

#[tokio::test]
async fn other_requests_are_repeated_while_the_server_is_busy() {
    let (server, store) = start(&short());
    store.put(KEY, body("x")).await.unwrap();
    for fault in [
        Fault::DropRequest,
        Fault::DropReply,
        Fault::Truncated,
        Fault::Stalled,
        Fault::Reply(Canned::error(503, "SlowDown", "slow")),
        Fault::Reply(Canned::error(429, "TooManyRequests", "slow")),
        Fault::Reply(Canned::error(400, "RequestTimeout", "idle")),
        Fault::Reply(Canned::html(502)),
    ] {
        server.clear_log();
        server.script(Method::GET, KEY, 1, fault.clone());
        assert_eq!(store.get(KEY, Range::All).await.unwrap().unwrap().bytes, body("x"), "{fault:?}");
        assert_eq!(server.log().len(), 2, "{fault:?}");
    }
    server.clear_log();
    server.script(Method::PUT, "", 1, Fault::DropReply);
    store.put(KEY, body("y")).await.unwrap();
    server.script(Method::DELETE, "", 1, Fault::Reply(Canned::error(500, "InternalError", "")));
    store.delete(KEY).await.unwrap();
    assert_eq!(server.log().len(), 4);
}

#[tokio::test]
async fn repetitions_are_bounded_and_wait_as_asked() {
    let (server, store) = start(&OpenOptions { retries: 2, ..short() });
    let busy = Canned::error(503, "SlowDown", "slow");
    server.script_times(Method::GET, KEY, 1, 99, Fault::Reply(busy.clone()));
    let error = store.get(KEY, Range::All).await.unwrap_err();
    assert_eq!((error.kind(), server.log().len()), (Kind::Offline, 3), "{error:?}");
    let (server, store) = start(&short());
    server.script(Method::GET, KEY, 1, Fault::Reply(busy.with_header("retry-after", "1")));
    let env = Env::system([]);
    let before = env.monotonic();
    assert!(store.get(KEY, Range::All).await.unwrap().is_none());
    assert!(env.monotonic() - before >= Duration::from_secs(1));
}

#[tokio::test]
async fn only_no_such_key_means_absent() {
    let (server, store) = start(&short());
    assert!(store.get(KEY, Range::All).await.unwrap().is_none());
    for (canned, kind, code) in [
        (Canned::error(404, "NoSuchBucket", "The specified bucket does not exist"), Kind::Invalid, "bucket_missing"),
        (Canned::error(404, "NoSuchUpload", "?"), Kind::Invalid, "store_answer"),
        (Canned::html(404), Kind::Invalid, "not_s3"),
        (Canned::empty(404), Kind::Invalid, "not_s3"),
        (Canned::html(200), Kind::Offline, "not_s3"),
        (Canned::empty(204), Kind::Invalid, "not_s3"),
        (Canned::error(403, "AccessDenied", "Access Denied"), Kind::Denied, "denied"),
    ] {
        server.script(Method::GET, KEY, 1, Fault::Reply(canned.clone()));
        let error = store.get(KEY, Range::All).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (kind, code), "{canned:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_listing_of_something_else_is_not_empty() {
    let (server, store) = start(&short());
    let list = List { prefix: "default/log/".to_owned(), ..List::default() };
    let truncated = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>".to_owned();
    let outside = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>other/x</Key><Size>1</Size></Contents></ListBucketResult>".to_owned();
    for canned in [
        Canned::html(200),
        Canned::empty(200),
        Canned::error(200, "AccessDenied", "within success"),
        Canned::error(404, "NoSuchBucket", "?"),
        Canned::error(404, "NoSuchKey", "?"),
        Canned::html(404),
        Canned::body(200, "application/xml", truncated),
        Canned::body(200, "application/xml", outside),
    ] {
        server.script(Method::GET, "", 1, Fault::Reply(canned.clone()));
        assert!(store.list(&list).await.is_err(), "{canned:?}");
    }
    assert!(store.list(&list).await.unwrap().keys.is_empty());
}

fn xml(inside: &str) -> Fault {
    let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{inside}");
    Fault::Reply(Canned::body(200, "application/xml", text))
}

#[tokio::test]
async fn listings_in_all_their_spellings() {
    let (server, store) = start(&short());
    let list = List { prefix: "default/log/".to_owned(), ..List::default() };
    let one = "<Contents><Key>peat/default/log/a</Key><Size>1</Size></Contents>";
    let two = "<Contents><Key>peat/default/log/b</Key><LastModified>soon</LastModified><ETag>x</ETag><Size>2</Size></Contents>";
    let end = "<IsTruncated>false</IsTruncated>";
    let aws = "http://s3.amazonaws.com/doc/2006-03-01/";
    for inside in [
        format!("<ListBucketResult xmlns=\"{aws}\">{end}{one}{two}</ListBucketResult>"),
        format!("<ListBucketResult>{one}{two}{end}</ListBucketResult>"),
        format!(
            "<ListBucketResult xmlns=\"urn:another\"><Unknown><Key>x</Key></Unknown>{one}{two}{end}</ListBucketResult>"
        ),
        // Encoded although nobody asked for it.
        format!("<ListBucketResult><EncodingType>url</EncodingType>{end}{one}{two}</ListBucketResult>")
            .replace("peat/default/log/", "peat%2Fdefault/log%2f"),
        // A folder marker in between, and a token that means nothing at the end.
        format!(
            "<ListBucketResult>{one}<Contents><Key>peat/default/log/</Key><Size>0</Size></Contents>{two}{end}<NextContinuationToken>x</NextContinuationToken></ListBucketResult>"
        ),
    ] {
        server.script(Method::GET, "", 1, xml(&inside));
        let page = store.list(&list).await.unwrap_or_else(|e| panic!("{inside}: {e:?}"));
        let keys: Vec<_> = page.keys.iter().map(|listed| (listed.key.as_str(), listed.size)).collect();
        assert_eq!((keys, page.token), (vec![("default/log/a", 1), ("default/log/b", 2)], None), "{inside}");
    }
    for inside in [
        // Cut off, contradictory, mixed up, or something else.
        format!(
            "<ListBucketResult>{one}<CommonPrefixes><Prefix>peat/default/log/c/</Prefix></CommonPrefixes>{two}{end}</ListBucketResult>"
        ),
        format!("<ListBucketResult>{end}{one}"),
        format!("<ListBucketResult>{end}<Contents><Key>peat/default/log/a</Key></Contents></ListBucketResult>"),
        format!("<ListBucketResult>{one}</ListBucketResult>"),
        "<ListBucketResult/>".to_owned(),
        format!("<ListBucketResult><IsTruncated>perhaps</IsTruncated>{one}</ListBucketResult>"),
        format!("<ListBucketResult><IsTruncated>true</IsTruncated>{one}<NextContinuationToken/></ListBucketResult>"),
        format!("<s3:ListBucketResult xmlns:s3=\"{aws}\">{end}{one}</s3:ListBucketResult>"),
        format!("<ListAllMyBucketsResult>{end}</ListAllMyBucketsResult>"),
        format!(
            "<ListBucketResult>{end}<Contents><Key>peat/default/pack/a</Key><Size>1</Size></Contents></ListBucketResult>"
        ),
        format!(
            "<ListBucketResult>{end}<Contents><Key>peat%2Fdefault%2Flog%2Fa</Key><Size>1</Size></Contents></ListBucketResult>"
        ),
        format!(
            "<ListBucketResult><EncodingType>url</EncodingType>{end}<Contents><Key>peat%2Fdefault%2Flog%2F%FF</Key><Size>1</Size></Contents></ListBucketResult>"
        ),
    ] {
        server.script(Method::GET, "", 1, xml(&inside));
        let error = store.list(&list).await.expect_err(&inside);
        assert!(matches!(error.kind(), Kind::Offline | Kind::Damaged), "{inside}: {error:?}");
    }
}

#[tokio::test]
async fn an_object_may_say_anything() {
    let (server, store) = start(&short());
    let text = body("<Error><Code>SlowDown</Code><Message>I am data</Message></Error>");
    store.put(KEY, text.clone()).await.unwrap();
    assert_eq!(store.get(KEY, Range::All).await.unwrap().unwrap().bytes, text);
    assert_eq!(server.log().len(), 2);
}

#[tokio::test]
async fn folder_markers_are_not_objects() {
    let (server, store) = start(&short());
    let marker = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>peat/default/log/</Key><Size>0</Size></Contents><Contents><Key>peat/default/log/x</Key><Size>1</Size></Contents></ListBucketResult>";
    server.script(Method::GET, "", 1, Fault::Reply(Canned::body(200, "application/xml", marker.to_owned())));
    let page = store.list(&List { prefix: "default/log/".to_owned(), ..List::default() }).await.unwrap();
    assert_eq!(page.keys.iter().map(|k| k.key.as_str()).collect::<Vec<_>>(), ["default/log/x"]);
}

#[tokio::test]
async fn a_range_is_the_one_asked_for() {
    let (server, store) = start(&short());
    store.put(KEY, body("0123456789")).await.unwrap();
    let wrong = Canned::body(206, "text/plain", "0123".to_owned())
        .with_header("etag", "\"x\"")
        .with_header("content-range", "bytes 0-3/10");
    server.script(Method::GET, KEY, 1, Fault::Reply(wrong));
    let error = store.get(KEY, Range::Part { offset: 4, len: 4 }).await.unwrap_err();
    assert_eq!(error.code(), "not_s3", "{error:?}");
    // Nothing, of an object that has these bytes, and of one that is empty.
    let nothing = Canned::empty(206).with_header("etag", "\"x\"");
    server.script(Method::GET, KEY, 1, Fault::Reply(nothing.clone()));
    let error = store.get(KEY, Range::Part { offset: 4, len: 4 }).await.unwrap_err();
    assert_eq!(error.code(), "not_s3", "{error:?}");
    store.put("default/empty", Bytes::new()).await.unwrap();
    server.script(Method::GET, "default/empty", 1, Fault::Reply(nothing));
    assert_eq!(store.get("default/empty", Range::Last { len: 4 }).await.unwrap().unwrap().size, 0);
    server.set_lie(Some(peat_testkit::liars::Lie::IgnoresRange));
    let part = store.get(KEY, Range::Part { offset: 4, len: 4 }).await.unwrap().unwrap();
    assert_eq!((part.bytes, part.size), (body("4567"), 10));
}

#[tokio::test]
async fn a_body_that_keeps_moving_has_no_limit() {
    let (server, store) = start(&short());
    store.put(KEY, Bytes::from(vec![1; 10_000])).await.unwrap();
    // A second in all, with a limit of 300 ms for every silence.
    server.script(Method::GET, KEY, 1, Fault::Dripping(10, Duration::from_millis(100)));
    server.clear_log();
    assert_eq!(store.get(KEY, Range::All).await.unwrap().unwrap().bytes.len(), 10_000);
    assert_eq!(server.log().len(), 1);
}

#[tokio::test]
async fn the_meter_counts_what_was_sent() {
    let meter = Meter::default();
    let (server, store) = start(&OpenOptions { meter: Some(meter.clone()), ..short() });
    server.script(Method::GET, KEY, 1, Fault::Reply(Canned::error(503, "SlowDown", "slow")));
    store.create(KEY, body("12345")).await.unwrap();
    store.get(KEY, Range::All).await.unwrap();
    let counts = meter.snapshot();
    assert_eq!((counts.of(Op::Create).requests, counts.of(Op::Create).bytes_out), (1, 5));
    assert_eq!(counts.of(Op::Get).requests, 2);
    assert_eq!(counts.total().requests, server.log().len() as u64);
}

#[tokio::test]
async fn times_of_the_server_are_reported() {
    let (server, store) = start(&short());
    server.set_header("date", "Tue, 20 Jan 2026 09:15:02 GMT").unwrap();
    store.put(KEY, body("x")).await.unwrap();
    let meta = store.get(KEY, Range::All).await.unwrap().unwrap().meta;
    assert_eq!(meta.date.unwrap().to_string(), "2026-01-20T09:15:02.000Z");
    assert!(meta.last_modified.is_some());
}

#[tokio::test]
async fn opening_contacts_nobody() {
    let (server, _store) = start(&OpenOptions::default());
    assert!(server.log().is_empty());
}
