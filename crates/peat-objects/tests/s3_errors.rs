//! Every way of being set up wrongly has an error of its own that says what helps.
#![allow(clippy::panic, clippy::expect_used)] // the lints know tests, but not their helpers

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use peat_objects::{List, OpenOptions, Range, Timeouts, open};
use peat_testkit::s3::{Canned, Fault, S3Server};
use peat_types::{Env, Error, Kind};

fn short() -> OpenOptions {
    let ms = Duration::from_millis;
    let timeouts = Timeouts { connect: ms(1000), first_byte: ms(1000), idle: ms(300), create: ms(1000) };
    OpenOptions { timeouts, retries: 0, ..OpenOptions::default() }
}

/// The variables of the server, some of them replaced; an empty value counts as not set.
fn env(server: &S3Server, other: &[(&str, &str)]) -> Env {
    let other = other.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Env::system(server.vars().into_iter().chain(other))
}

async fn get(url: &str, env: &Env) -> Error {
    let store = match url.parse().and_then(|url| open(&url, &short(), env)) {
        Ok(store) => store,
        Err(error) => return error,
    };
    match store.get("default/ns.json", Range::All).await {
        Err(error) => error,
        Ok(object) => panic!("no error but {object:?}"),
    }
}

async fn refusal(canned: Canned) -> Error {
    let server = S3Server::start().unwrap_or_else(|e| panic!("{e}"));
    server.script(Method::GET, "ns.json", 1, Fault::Reply(canned));
    get(&server.url(), &env(&server, &[])).await
}

#[track_caller]
fn assert_says(error: &Error, kind: Kind, code: &str, message: &[&str], hint: &str) {
    assert_eq!((error.kind(), error.code()), (kind, code), "{error:?}");
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    for part in message {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    assert!(error.hints().iter().any(|h| h.contains(hint)), "'{hint}' is not in: {error:?}");
}

#[tokio::test]
async fn an_error_names_operation_store_key_status_request_and_cause() {
    let error = refusal(Canned::error(403, "AccessDenied", "Access Denied")).await;
    let text = error.to_string();
    assert_eq!(
        text,
        "get s3://bucket/peat/default/ns.json: status 403 AccessDenied: Access Denied (request request-0)"
    );
}

#[tokio::test]
async fn missing_bucket() {
    let server = S3Server::start().unwrap();
    let error = get("s3://no-such-bucket/peat", &env(&server, &[])).await;
    assert_says(&error, Kind::Invalid, "bucket_missing", &["404 NoSuchBucket"], "there is no bucket 'no-such-bucket'");
}

#[tokio::test]
async fn unknown_key() {
    let server = S3Server::start().unwrap();
    let error = get(&server.url(), &env(&server, &[("AWS_ACCESS_KEY_ID", "unknown")])).await;
    assert_eq!(error.kind(), Kind::Denied, "{error:?}");
    let error = refusal(Canned::error(403, "InvalidAccessKeyId", "It does not exist")).await;
    assert_says(&error, Kind::Denied, "wrong_key", &["InvalidAccessKeyId"], "correct AWS_ACCESS_KEY_ID");
}

#[tokio::test]
async fn wrong_secret() {
    let server = S3Server::start().unwrap();
    let error = get(&server.url(), &env(&server, &[("AWS_SECRET_ACCESS_KEY", "wrong")])).await;
    assert_says(&error, Kind::Denied, "wrong_key", &["403 SignatureDoesNotMatch"], "correct AWS_SECRET_ACCESS_KEY");
    assert!(!format!("{error:?}").contains("wrong\""), "{error:?}");
}

#[tokio::test]
async fn expired_token() {
    let error = refusal(Canned::error(400, "ExpiredToken", "The provided token has expired.")).await;
    assert_says(&error, Kind::Denied, "credentials_expired", &["400 ExpiredToken"], "AWS_SESSION_TOKEN");
}

#[tokio::test]
async fn missing_rights_are_named() {
    let server = S3Server::start().unwrap();
    let url = server.url().parse().unwrap();
    let store = open(&url, &short(), &env(&server, &[])).unwrap();
    let denied = || Fault::Reply(Canned::error(403, "AccessDenied", "Access Denied"));
    for method in [Method::GET, Method::GET, Method::PUT, Method::DELETE] {
        server.script(method, "", 1, denied());
    }
    let list = List { prefix: "default/log/".to_owned(), ..List::default() };
    for (error, right) in [
        (store.get("default/ns.json", Range::All).await.unwrap_err(), "s3:GetObject"),
        (store.list(&list).await.unwrap_err(), "s3:ListBucket"),
        (store.create("default/ns.json", Bytes::new()).await.unwrap_err(), "s3:PutObject"),
        (store.delete("default/ns.json").await.unwrap_err(), "s3:DeleteObject"),
    ] {
        assert_says(&error, Kind::Denied, "denied", &["403 AccessDenied"], right);
    }
}

#[tokio::test]
async fn clock_skew_says_how_much() {
    let server = S3Server::start().unwrap();
    server.set_lie(Some(peat_testkit::liars::Lie::BadDate(3600)));
    let skewed = Canned::error(403, "RequestTimeTooSkewed", "The difference is too large");
    // Also the second time, when it was signed with the server's own time.
    server.script_times(Method::GET, "ns.json", 1, 2, Fault::Reply(skewed));
    let error = get(&server.url(), &env(&server, &[])).await;
    assert_says(&error, Kind::Denied, "clock_skew", &["RequestTimeTooSkewed"], "minutes behind the server's");
    let hint = &error.hints()[0];
    assert!(hint.contains("59 minutes") || hint.contains("60 minutes"), "{hint}");
}

#[tokio::test]
async fn wrong_region_names_the_right_one() {
    let moved = |status| {
        Canned::error(status, "PermanentRedirect", "Use another endpoint")
            .with_header("x-amz-bucket-region", "eu-central-1")
            .with_header("location", "http://127.0.0.1:1/elsewhere")
    };
    let malformed = Canned::body(
        400,
        "application/xml",
        "<Error><Code>AuthorizationHeaderMalformed</Code><Message>expecting eu-central-1</Message><Region>eu-central-1</Region></Error>".to_owned(),
    );
    let bare = Canned::empty(301).with_header("x-amz-bucket-region", "eu-central-1");
    for canned in [moved(301), moved(307), malformed, bare] {
        let error = refusal(canned).await;
        assert_says(&error, Kind::Invalid, "wrong_region", &["status"], "set AWS_REGION=eu-central-1");
    }
}

#[tokio::test]
async fn unreachable() {
    let server = S3Server::start().unwrap();
    let with = |endpoint: &str| env(&server, &[("AWS_ENDPOINT_URL_S3", endpoint)]);
    let refused = get("s3://bucket/peat", &with("http://127.0.0.1:1")).await;
    assert_says(&refused, Kind::Offline, "unreachable", &["cannot connect", "refused"], "nothing listens at");
    let unknown = get("s3://bucket/peat", &with("http://no-such-host.invalid")).await;
    assert_says(&unknown, Kind::Offline, "unreachable", &["cannot connect"], "no-such-host.invalid");
    let plain = get("s3://bucket/peat", &with(&server.endpoint().replace("http://", "https://"))).await;
    assert_says(&plain, Kind::Offline, "tls", &["cannot connect"], "http:// rather than https://");
}

#[tokio::test]
async fn endpoints_that_cannot_be_right() {
    let server = S3Server::start().unwrap();
    for endpoint in ["localhost:9000", "ftp://host", "https://", "https://user:secret@host"] {
        let error = get("s3://bucket/peat", &env(&server, &[("AWS_ENDPOINT_URL_S3", endpoint)])).await;
        assert_says(&error, Kind::Invalid, "validation_failed", &["open s3://bucket/peat"], "https://s3.example.com");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}

#[tokio::test]
async fn half_of_the_keys() {
    let server = S3Server::start().unwrap();
    let error = get("s3://bucket/peat", &env(&server, &[("AWS_SECRET_ACCESS_KEY", "")])).await;
    assert_says(&error, Kind::Invalid, "validation_failed", &["AWS_SECRET_ACCESS_KEY is not"], "AWS_SECRET_ACCESS_KEY");
}

#[tokio::test]
async fn no_credentials() {
    let server = S3Server::start().unwrap();
    let none = env(
        &server,
        &[("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", ""), ("AWS_PROFILE", "peat-no-such-profile")],
    );
    let error = get("s3://bucket/peat", &none).await;
    assert_eq!((error.kind(), error.code()), (Kind::Denied, "no_credentials"), "{error:?}");
    assert!(error.to_string().starts_with("get s3://bucket/peat/default/ns.json: "), "{error:?}");
    assert!(server.log().is_empty());
}

#[tokio::test]
async fn proxies_are_used_named_and_exempted() {
    // The proxy is a server that does not know the host it is asked for, so its answers show that it was asked.
    let (server, proxy) = (S3Server::start().unwrap(), S3Server::start().unwrap());
    let refused = Fault::Reply(Canned::html(407));
    proxy.script(Method::GET, "", 1, refused);
    let address = proxy.endpoint().replace("http://", "http://me:hunter2@");
    let through = env(&server, &[("HTTP_PROXY", &address)]);
    let error = get("s3://bucket/peat", &through).await;
    assert_says(
        &error,
        Kind::Denied,
        "proxy",
        &["the proxy wants a name"],
        "HTTP_PROXY=http://name:password@host:port",
    );
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    assert_eq!((server.log().len(), proxy.log().len()), (0, 1));
    assert!(proxy.log()[0].header("proxy-authorization").is_some());

    let dead = env(&server, &[("HTTP_PROXY", "http://127.0.0.1:1")]);
    let error = get("s3://bucket/peat", &dead).await;
    assert_says(&error, Kind::Offline, "unreachable", &["cannot connect"], "through the proxy http://127.0.0.1:1");

    let exempt = env(&server, &[("HTTP_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "127.0.0.1")]);
    let store = open(&server.url().parse().unwrap(), &short(), &exempt).unwrap();
    assert!(store.get("default/ns.json", Range::All).await.unwrap().is_none());
}

#[tokio::test]
async fn ca_bundles_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    let server = S3Server::start().unwrap();
    let with = |path: &std::path::Path| {
        env(&server, &[("AWS_ENDPOINT_URL_S3", "https://127.0.0.1:1"), ("AWS_CA_BUNDLE", &path.display().to_string())])
    };
    let missing = get("s3://bucket/peat", &with(&folder.path().join("missing.pem"))).await;
    assert_says(&missing, Kind::NotFound, "not_found", &["CA bundle", "missing.pem"], "AWS_CA_BUNDLE");
    let error = get("s3://bucket/peat", &with(&empty)).await;
    assert_says(&error, Kind::Invalid, "validation_failed", &["CA bundle", "empty.pem"], "correct AWS_CA_BUNDLE");
}

/// A hint leads to what was set, not to what goes after it.
#[tokio::test]
async fn hints_name_what_was_set() {
    let server = S3Server::start().unwrap();
    let dead = env(&server, &[("ALL_PROXY", "http://127.0.0.1:1")]);
    let error = get("s3://bucket/peat", &dead).await;
    assert_says(&error, Kind::Offline, "unreachable", &["cannot connect"], "correct ALL_PROXY");

    let url = "s3://bucket/peat".parse().unwrap();
    let odd = env(&server, &[("https_proxy", "socks5://127.0.0.1:1")]);
    let error = open(&url, &short(), &odd).unwrap_err();
    assert_says(&error, Kind::Invalid, "validation_failed", &["https_proxy does not hold"], "write https_proxy=");

    for (endpoint, shown) in
        [("127.0.0.1:9000", "'127.0.0.1:9000'"), ("http://me:hunter2@127.0.0.1:1", "the endpoint is")]
    {
        let options = OpenOptions { endpoint: Some(endpoint.to_owned()), ..short() };
        let error = open(&url, &options, &env(&server, &[])).unwrap_err();
        assert_says(&error, Kind::Invalid, "validation_failed", &["is not the address of a server", shown], "https://");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }

    let moved =
        Canned::error(301, "PermanentRedirect", "Elsewhere.").with_header("x-amz-bucket-region", "eu-central-1");
    server.script_times(Method::GET, "", 1, 2, Fault::Reply(moved));
    let options = OpenOptions { region: Some("us-east-1".to_owned()), ..short() };
    let store = open(&server.url().parse().unwrap(), &options, &env(&server, &[])).unwrap();
    let error = store.get("default/ns.json", Range::All).await.unwrap_err();
    assert_says(&error, Kind::Invalid, "wrong_region", &["status 301"], "set up again with --region eu-central-1");
}

/// A bucket cannot stand before an address: that is said, and nobody is sent there.
#[tokio::test]
async fn a_bucket_in_the_host_name_of_a_server_without_one() {
    let server = S3Server::start().unwrap();
    let options = OpenOptions { path_style: Some(false), ..short() };
    let store = open(&server.url().parse().unwrap(), &options, &env(&server, &[])).unwrap();
    let error = store.get("default/ns.json", Range::All).await.unwrap_err();
    assert_says(&error, Kind::Invalid, "validation_failed", &["is an address"], "leave out --path-style=false");
    assert!(server.log().is_empty());
}

/// With the bucket in the host name it is another name that is unknown.
#[tokio::test]
async fn a_bucket_in_an_unknown_host_name() {
    let server = S3Server::start().unwrap();
    let options = OpenOptions { endpoint: Some("http://host.invalid".to_owned()), path_style: Some(false), ..short() };
    let store = open(&server.url().parse().unwrap(), &options, &env(&server, &[])).unwrap();
    let error = store.get("default/ns.json", Range::All).await.unwrap_err();
    assert_says(&error, Kind::Offline, "unreachable", &["cannot connect"], "set up again with --path-style");
}
