//! Google Cloud Storage and Azure: what goes over the wire, and what the replies become.
#![allow(clippy::panic, clippy::expect_used)] // the lints know tests, but not their helpers

#[path = "clouds/logins.rs"]
mod logins;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use peat_objects::{Created, List, OpenOptions, Range, Store, Timeouts, open};
use peat_testkit::cloud::{CloudServer, Service};
use peat_testkit::s3::{Canned, Fault};
use peat_types::{Env, Error, Kind};

const BOTH: [Service; 2] = [Service::Gcs, Service::Azure];
const KEY: &str = "default/log/ffffffffffffffff.0";

fn short() -> OpenOptions {
    let ms = Duration::from_millis;
    let timeouts = Timeouts { connect: ms(1000), first_byte: ms(300), idle: ms(300), create: ms(300) };
    OpenOptions { timeouts, ..OpenOptions::default() }
}

fn body(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn start(service: Service) -> (CloudServer, Arc<dyn Store>) {
    let server = CloudServer::start(service).unwrap_or_else(|e| panic!("{e}"));
    let store = store(&server.url(), &short(), server.vars()).unwrap_or_else(|e| panic!("{e:?}"));
    (server, store)
}

fn store(url: &str, options: &OpenOptions, vars: Vec<(String, String)>) -> Result<Arc<dyn Store>, Error> {
    open(&url.parse()?, options, &Env::system(vars))
}

/// An error document as the service sends it.
fn says(service: Service, status: u16, code: &'static str, message: &str) -> Canned {
    let canned = Canned::error(status, code, message);
    match service {
        Service::Gcs => canned,
        Service::Azure => canned.with_header("x-ms-error-code", code),
    }
}

#[track_caller]
fn assert_says(error: &Error, kind: Kind, code: &str, message: &str, hint: &str) {
    assert_eq!((error.kind(), error.code()), (kind, code), "{error:?}");
    let text = error.to_string();
    assert!(!text.contains('\n') && text.contains(message), "'{message}' is not in: {text}");
    assert!(error.hints().iter().any(|h| h.contains(hint)), "'{hint}' is not in: {error:?}");
}

#[tokio::test]
async fn a_create_is_one_request_with_its_condition() {
    for service in BOTH {
        let (server, store) = start(service);
        assert!(matches!(store.create(KEY, body("x")).await.unwrap(), Created::Created(_)), "{service:?}");
        assert_eq!(store.create(KEY, body("y")).await.unwrap(), Created::Exists, "{service:?}");
        store.put(KEY, body("z")).await.unwrap();
        let (name, value) = match service {
            Service::Gcs => ("x-goog-if-generation-match", "0"),
            Service::Azure => ("if-none-match", "*"),
        };
        let log = server.log();
        assert_eq!(log.len(), 3);
        for request in &log {
            assert_eq!((request.method.clone(), request.key()), (Method::PUT, &*format!("peat/{KEY}")));
            assert_eq!(request.header("content-length"), Some("1"));
        }
        assert_eq!([0, 1, 2].map(|n: usize| log[n].header(name)), [Some(value), Some(value), None], "{service:?}");
    }
}

#[tokio::test]
async fn no_reply_to_a_create_is_repeated() {
    for service in BOTH {
        let (server, store) = start(service);
        let replies = [
            Fault::DropRequest,
            Fault::DropReply,
            Fault::Slow(Duration::from_millis(600)),
            Fault::Reply(says(service, 503, "ServerBusy", "busy").with_header("retry-after", "1")),
            Fault::AppliedReply(says(service, 500, "InternalError", "We encountered an internal error")),
            Fault::Reply(says(service, 429, "SlowDown", "exceeded the rate limit for object mutation operations")),
            Fault::Reply(says(service, 409, "ContainerBeingDeleted", "being deleted")),
            Fault::Reply(Canned::html(200)),
            Fault::Reply(Canned::empty(201)),
            Fault::Reply(Canned::html(502)),
        ];
        for (slot, fault) in replies.into_iter().enumerate() {
            let key = format!("default/log/{:016x}.{slot}", u64::MAX - slot as u64);
            server.clear_log();
            server.script(Method::PUT, &key, 1, fault.clone());
            let error = store.create(&key, body("x")).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Offline, "{service:?} {fault:?}: {error:?}");
            assert_eq!(server.log().len(), 1, "{service:?} {fault:?}");
            let landed = matches!(fault, Fault::DropReply | Fault::AppliedReply(_) | Fault::Slow(_));
            assert_eq!(store.get(&key, Range::All).await.unwrap().is_some(), landed, "{service:?} {fault:?}");
        }
    }
}

#[tokio::test]
async fn every_way_of_losing_is_told_from_trouble() {
    for (service, status, code) in [
        (Service::Gcs, 412, "PreconditionFailed"),
        (Service::Azure, 409, "BlobAlreadyExists"),
        (Service::Azure, 412, "ConditionNotMet"),
        (Service::Azure, 412, "LeaseIdMissing"),
    ] {
        let (server, store) = start(service);
        server.script(Method::PUT, "", 1, Fault::Reply(says(service, status, code, "no")));
        assert_eq!(store.create(KEY, body("x")).await.unwrap(), Created::Exists, "{code}");
    }
}

#[tokio::test]
async fn other_requests_are_repeated_while_the_service_is_busy() {
    for service in BOTH {
        let (server, store) = start(service);
        store.put(KEY, body("x")).await.unwrap();
        for fault in [
            Fault::DropReply,
            Fault::Truncated,
            Fault::Reply(says(service, 429, "SlowDown", "slow")),
            Fault::Reply(says(service, 503, "ServerBusy", "slow")),
            Fault::Reply(Canned::body(
                429,
                "application/json",
                r#"{"error":{"code":429,"message":"rate","errors":[{"reason":"rateLimitExceeded"}]}}"#.to_owned(),
            )),
        ] {
            server.clear_log();
            server.script(Method::GET, KEY, 1, fault.clone());
            assert_eq!(store.get(KEY, Range::All).await.unwrap().unwrap().bytes, body("x"), "{service:?} {fault:?}");
            assert_eq!(server.log().len(), 2, "{service:?} {fault:?}");
        }
        let waits = says(service, 503, "ServerBusy", "slow").with_header("retry-after", "1");
        server.script(Method::GET, KEY, 1, Fault::Reply(waits));
        let env = Env::system([]);
        let before = env.monotonic();
        store.get(KEY, Range::All).await.unwrap();
        assert!(env.monotonic() - before >= Duration::from_secs(1), "{service:?}");
    }
}

#[tokio::test]
async fn only_a_missing_object_is_absent() {
    for service in BOTH {
        let (server, store) = start(service);
        assert!(store.get(KEY, Range::All).await.unwrap().is_none());
        assert!(store.get(KEY, Range::Last { len: 3 }).await.unwrap().is_none());
        store.delete(KEY).await.unwrap();
        let (bucket, foreign) = match service {
            Service::Gcs => ("NoSuchBucket", "not_gcs"),
            Service::Azure => ("ContainerNotFound", "not_azure"),
        };
        let json = r#"{"error":{"code":404,"message":"Not Found","errors":[{"reason":"notFound"}]}}"#;
        for (canned, code) in [
            (says(service, 404, bucket, "it does not exist"), "bucket_missing"),
            (says(service, 404, "ResourceNotFound", "The specified resource does not exist."), "store_answer"),
            (Canned::body(404, "application/json", json.to_owned()), "store_answer"),
            (Canned::html(404), foreign),
            (Canned::empty(404), foreign),
        ] {
            server.script(Method::GET, KEY, 1, Fault::Reply(canned.clone()));
            let error = store.get(KEY, Range::All).await.unwrap_err();
            assert_eq!((error.kind(), error.code()), (Kind::Invalid, code), "{service:?} {canned:?}: {error:?}");
            server.script(Method::DELETE, KEY, 1, Fault::Reply(canned.clone()));
            assert_eq!(store.delete(KEY).await.unwrap_err().code(), code, "{service:?} {canned:?}");
        }
        // Without a body the code is in a header, and without that nothing is known.
        server.script(Method::HEAD, KEY, 1, Fault::Reply(Canned::empty(404)));
        if service == Service::Azure {
            let error = store.get(KEY, Range::Last { len: 3 }).await.unwrap_err();
            assert_eq!(error.code(), foreign, "{error:?}");
        }
        let other = server.url().replace("bucket", "other");
        let other = self::store(&other, &short(), server.vars()).unwrap();
        let error = other.list(&List::default()).await.unwrap_err();
        let word = if service == Service::Gcs { "there is no bucket 'other'" } else { "there is no container 'other'" };
        assert_says(&error, Kind::Invalid, "bucket_missing", "status 404", word);
    }
}

#[tokio::test]
async fn nothing_is_believed_without_an_etag() {
    for (service, status, code) in [(Service::Gcs, 200, "not_gcs"), (Service::Azure, 201, "not_azure")] {
        let (server, store) = start(service);
        server.script(Method::PUT, "", 1, Fault::Reply(Canned::empty(status)));
        let error = store.put(KEY, body("x")).await.unwrap_err();
        assert_says(&error, Kind::Offline, code, "no ETag confirms the object", "answers in its place");
        server.script(Method::GET, "", 1, Fault::Reply(Canned::body(200, "text/plain", "hello".to_owned())));
        assert_eq!(store.get(KEY, Range::All).await.unwrap_err().code(), code);
        server.script(Method::GET, "", 1, Fault::Reply(Canned::html(200)));
        assert_eq!(store.list(&List::default()).await.unwrap_err().code(), code);
    }
}

#[tokio::test]
async fn pages_may_be_short_empty_and_mixed() {
    for service in BOTH {
        let (server, store) = start(service);
        for key in ["default/a", "default/b/1", "default/b/2", "default/c", "default/d/1", "default/e"] {
            store.put(key, body("x")).await.unwrap();
        }
        for lie in [None, Some(peat_testkit::liars::Lie::ShortPages), Some(peat_testkit::liars::Lie::EmptyPages)] {
            server.set_lie(lie);
            let (mut keys, mut prefixes, mut list) = (Vec::new(), Vec::new(), List::default());
            (list.prefix, list.delimiter) = ("default/".to_owned(), true);
            list.max_keys = Some(4);
            loop {
                let page = store.list(&list).await.unwrap();
                keys.extend(page.keys.into_iter().map(|listed| (listed.key, listed.size)));
                prefixes.extend(page.prefixes);
                match page.token {
                    Some(token) => list.token = Some(token),
                    None => break,
                }
            }
            assert_eq!(
                keys,
                ["default/a", "default/c", "default/e"].map(|key| (key.to_owned(), 1)),
                "{service:?} {lie:?}"
            );
            assert_eq!(prefixes, ["default/b/", "default/d/"], "{service:?} {lie:?}");
        }
        let truncated = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
        let canned = match service {
            Service::Gcs => Canned::body(200, "application/xml", truncated.to_owned()),
            // A page of the other service.
            Service::Azure => Canned::body(200, "application/xml", truncated.replace("true", "false")),
        };
        server.script(Method::GET, "", 1, Fault::Reply(canned));
        assert!(store.list(&List::default()).await.is_err(), "{service:?}");
    }
}

#[tokio::test]
async fn folders_of_azure_are_not_objects() {
    let (server, store) = start(Service::Azure);
    let page = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>\
        <Blob><Name>peat/default/log</Name><Properties><Content-Length>0</Content-Length><ResourceType>directory</ResourceType></Properties></Blob>\
        <BlobPrefix><Name>peat/default/log/</Name></BlobPrefix>\
        <Blob><Name>peat/default/x</Name><Properties><Last-Modified>Mon, 30 Nov 2026 16:31:36 GMT</Last-Modified><Content-Length>7</Content-Length><ResourceType>file</ResourceType></Properties></Blob>\
        </Blobs><NextMarker /></EnumerationResults>";
    server.script(Method::GET, "", 1, Fault::Reply(Canned::body(200, "application/xml", page.to_owned())));
    let page = store.list(&List { prefix: "default/".to_owned(), delimiter: true, ..List::default() }).await.unwrap();
    assert_eq!(page.prefixes, ["default/log/"]);
    let [listed] = page.keys.as_slice() else { panic!("{page:?}") };
    assert_eq!((listed.key.as_str(), listed.size), ("default/x", 7));
    assert_eq!(listed.last_modified.unwrap().to_string(), "2026-11-30T16:31:36.000Z");
    assert_eq!(page.token, None);
}

#[tokio::test]
async fn the_end_of_an_object_on_azure() {
    let (server, store) = start(Service::Azure);
    store.put(KEY, body("0123456789")).await.unwrap();
    store.put("default/empty", Bytes::new()).await.unwrap();
    server.clear_log();
    for (len, bytes) in [(3, "789"), (99, "0123456789")] {
        let object = store.get(KEY, Range::Last { len }).await.unwrap().unwrap();
        assert_eq!((object.bytes, object.size), (body(bytes), 10));
    }
    let methods: Vec<Method> = server.log().into_iter().map(|request| request.method).collect();
    assert_eq!(methods, [Method::HEAD, Method::GET, Method::HEAD, Method::GET]);
    assert_eq!(store.get("default/empty", Range::Last { len: 3 }).await.unwrap().unwrap().size, 0);
}

#[tokio::test]
async fn causes_have_hints_of_their_own() {
    for (service, status, code, message, expected) in [
        (Service::Gcs, 403, "AccessDenied", "no", (Kind::Denied, "denied", "storage.objects.get")),
        (
            Service::Gcs,
            401,
            "AuthenticationRequired",
            "no",
            (Kind::Denied, "credentials_expired", "STORAGE_EMULATOR_HOST"),
        ),
        (Service::Gcs, 403, "RequestTimeTooSkewed", "no", (Kind::Denied, "clock_skew", "NTP")),
        (Service::Gcs, 400, "UserProjectMissing", "no", (Kind::Invalid, "store_answer", "bills")),
        (Service::Gcs, 403, "AccountProblem", "no", (Kind::Denied, "denied", "billing")),
        (Service::Gcs, 429, "SlowDown", "no", (Kind::Offline, "store_busy", "one write a second")),
        (
            Service::Azure,
            403,
            "AuthorizationPermissionMismatch",
            "no",
            (Kind::Denied, "denied", "Storage Blob Data Contributor"),
        ),
        (Service::Azure, 403, "AuthorizationFailure", "no", (Kind::Denied, "denied", "firewall")),
        (
            Service::Azure,
            403,
            "AuthenticationFailed",
            "The MAC signature is wrong",
            (Kind::Denied, "wrong_key", "AZURE_STORAGE_CONNECTION_STRING"),
        ),
        (
            Service::Azure,
            403,
            "AuthenticationFailed",
            "Request date header too old",
            (Kind::Denied, "clock_skew", "NTP"),
        ),
        (Service::Azure, 403, "KeyBasedAuthenticationNotPermitted", "no", (Kind::Denied, "denied", "az login")),
        (Service::Azure, 409, "BlobArchived", "no", (Kind::Invalid, "store_answer", "archive tier")),
        (Service::Azure, 503, "ServerBusy", "no", (Kind::Offline, "store_busy", "try again later")),
    ] {
        let (server, _) = start(service);
        let options = OpenOptions { retries: 0, ..short() };
        let store = store(&server.url(), &options, server.vars()).unwrap();
        let canned = says(service, status, code, &format!("{message}\nRequestId:1\nTime:2"));
        server.script(Method::GET, KEY, 1, Fault::Reply(canned));
        let error = store.get(KEY, Range::All).await.unwrap_err();
        let (kind, slug, hint) = expected;
        assert_says(&error, kind, slug, &format!("status {status} {code}: {message} (request request-0)"), hint);
    }
}

#[tokio::test]
async fn rights_are_named_by_operation() {
    for (service, [get, put, delete, list]) in [
        (
            Service::Gcs,
            ["storage.objects.get", "storage.objects.create", "storage.objects.delete", "storage.objects.list"],
        ),
        (Service::Azure, ["read (r)", "create and write (cw)", "delete (d)", "list (l)"]),
    ] {
        let (server, store) = start(service);
        let code = if service == Service::Gcs { "AccessDenied" } else { "AuthorizationPermissionMismatch" };
        for method in [Method::GET, Method::PUT, Method::DELETE, Method::GET] {
            server.script(method, "", 1, Fault::Reply(says(service, 403, code, "denied")));
        }
        assert_says(&store.get(KEY, Range::All).await.unwrap_err(), Kind::Denied, "denied", code, get);
        assert_says(&store.create(KEY, Bytes::new()).await.unwrap_err(), Kind::Denied, "denied", code, put);
        assert_says(&store.delete(KEY).await.unwrap_err(), Kind::Denied, "denied", code, delete);
        assert_says(&store.list(&List::default()).await.unwrap_err(), Kind::Denied, "denied", code, list);
    }
}

#[test]
fn settings_that_cannot_be_right() {
    let vars =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
    let base = OpenOptions::default;
    for (url, options, pairs, message, hint) in [
        (
            "gs://bucket",
            OpenOptions { region: Some("x".into()), ..base() },
            &[][..],
            "have no region",
            "leave out --region",
        ),
        (
            "az://bucket",
            OpenOptions { path_style: Some(true), ..base() },
            &[],
            "have no path style",
            "leave out --path-style",
        ),
        ("file:///x", OpenOptions { endpoint: Some("http://x".into()), ..base() }, &[], "have no endpoint", "endpoint"),
        ("az://bucket", base(), &[], "the storage account is not known", "AZURE_STORAGE_ACCOUNT"),
        (
            "az://bucket",
            base(),
            &[("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=x")],
            "AZURE_STORAGE_CONNECTION_STRING names no storage account",
            "unset it",
        ),
        (
            "az://bucket",
            base(),
            &[("AZURE_STORAGE_ACCOUNT", "No_Such")],
            "not the name of a storage account",
            "lowercase",
        ),
        (
            "az://bucket",
            base(),
            &[("AZURE_STORAGE_ACCOUNT", "a1"), ("AZURE_STORAGE_KEY", "%")],
            "AZURE_STORAGE_KEY does not hold",
            "base64",
        ),
        (
            "az://bucket",
            base(),
            &[("AZURE_STORAGE_ACCOUNT", "a1"), ("AZURE_STORAGE_SAS_TOKEN", "x")],
            "AZURE_STORAGE_SAS_TOKEN does not hold",
            "sig=",
        ),
        (
            "az://bucket",
            base(),
            &[("AZURE_STORAGE_ACCOUNT", "a1"), ("AZURE_CLIENT_SECRET", "x")],
            "AZURE_CLIENT_ID is not",
            "unset AZURE_CLIENT_SECRET",
        ),
        (
            "gs://bucket",
            OpenOptions { endpoint: Some("bucket".into()), ..base() },
            &[],
            "the endpoint 'bucket' is not the address of a server",
            "https://storage.googleapis.com",
        ),
    ] {
        let error = store(url, &options, vars(pairs)).unwrap_err();
        assert_says(&error, Kind::Invalid, "validation_failed", message, hint);
        assert!(error.to_string().starts_with(&format!("open {url}: ")), "{error:?}");
    }
}
