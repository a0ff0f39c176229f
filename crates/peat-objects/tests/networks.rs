//! What lies between a machine and its store: TLS, proxies, addresses, idle connections, wrong clocks.
#![allow(clippy::panic, clippy::unwrap_used)] // the lints know tests, but not their helpers

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use peat_objects::{Created, OpenOptions, Range, Store, Timeouts, Warn, open};
use peat_testkit::proxy::Proxy;
use peat_testkit::s3::{Canned, Fault, S3Server, SECRET_KEY};
use peat_testkit::tls::{Authority, Validity, Versions};
use peat_types::{Clock, Env, Error, Kind, Timestamp};

const KEY: &str = "default/ns.json";
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn short() -> OpenOptions {
    let limit = Duration::from_secs(3);
    let timeouts = Timeouts { connect: limit, first_byte: limit, idle: limit, create: limit };
    OpenOptions { timeouts, retries: 0, ..OpenOptions::default() }
}

fn vars(server: &S3Server, other: &[(&str, &str)]) -> Vec<(String, String)> {
    let other = other.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    server.vars().into_iter().chain(other).collect()
}

fn store_with(server: &S3Server, other: &[(&str, &str)]) -> Arc<dyn Store> {
    let env = Env::system(vars(server, other));
    open(&server.url().parse().unwrap(), &short(), &env).unwrap_or_else(|e| panic!("{e:?}"))
}

async fn error_with(server: &S3Server, other: &[(&str, &str)]) -> Error {
    store_with(server, other).get(KEY, Range::All).await.unwrap_err()
}

#[track_caller]
fn assert_says(error: &Error, kind: Kind, code: &str, message: &str, hint: &str) {
    assert_eq!((error.kind(), error.code()), (kind, code), "{error:?}");
    assert!(error.to_string().contains(message), "'{message}' is not in: {error:?}");
    assert!(error.hints().iter().any(|h| h.contains(hint)), "'{hint}' is not in: {error:?}");
}

#[tokio::test]
async fn tls_of_a_private_authority() {
    let (authority, other) = (Authority::new("Ours").unwrap(), Authority::new("Others").unwrap());
    let folder = tempfile::tempdir().unwrap();
    let bundle = |name: &str, pem: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    let (ours, others) = (bundle("ours.pem", &authority.pem()), bundle("others.pem", &other.pem()));
    let both = bundle("both.pem", &format!("{}{}", other.pem(), authority.pem()));
    for versions in [Versions::Old, Versions::New] {
        let tls = authority.server(&["127.0.0.1"], Validity::Now, versions).unwrap();
        let server = S3Server::start_at(LOCAL, Some(tls)).unwrap();
        for trusted in [("AWS_CA_BUNDLE", &ours), ("AWS_CA_BUNDLE", &both), ("SSL_CERT_FILE", &ours)] {
            let store = store_with(&server, &[(trusted.0, trusted.1)]);
            assert!(store.get(KEY, Range::All).await.unwrap().is_none(), "{versions:?} {trusted:?}");
        }
        server.clear_log();
        let error = error_with(&server, &[]).await;
        assert_says(&error, Kind::Offline, "tls", "UnknownIssuer", "name its PEM file in AWS_CA_BUNDLE");
        let error = error_with(&server, &[("AWS_CA_BUNDLE", &others)]).await;
        assert_says(&error, Kind::Offline, "tls", "UnknownIssuer", "others.pem");
        assert!(server.log().is_empty(), "nothing is sent to a server that is not trusted");
    }
    let tls = authority.server(&["s3.example.com"], Validity::Now, Versions::New).unwrap();
    let server = S3Server::start_at(LOCAL, Some(tls)).unwrap();
    let error = error_with(&server, &[("AWS_CA_BUNDLE", &ours)]).await;
    assert_says(&error, Kind::Offline, "tls", "not valid for name", "use the name that its certificate is for");
    let tls = authority.server(&["127.0.0.1"], Validity::Ended, Versions::New).unwrap();
    let server = S3Server::start_at(LOCAL, Some(tls)).unwrap();
    let error = error_with(&server, &[("AWS_CA_BUNDLE", &ours)]).await;
    assert_says(&error, Kind::Offline, "tls", "expired", "renew the certificate");
}

#[tokio::test]
async fn proxies_with_a_password() {
    let server = S3Server::start().unwrap();
    let proxy = Proxy::start(server.address(), Some("me:hunter2 %")).unwrap();
    let through = |login: &str| format!("http://{login}{}", proxy.address());
    // Whatever the host: the proxy knows the way.
    let elsewhere = ("AWS_ENDPOINT_URL_S3", "http://s3.example.com:9000");
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"] {
        let store = store_with(&server, &[elsewhere, (name, &through("me:hunter2%20%25@"))]);
        assert!(store.get(KEY, Range::All).await.unwrap().is_none(), "{name}");
    }
    let first = &proxy.log()[0];
    assert!(first.line.starts_with("GET http://s3.example.com:9000/bucket/peat/default/ns.json"), "{first:?}");
    for login in ["", "me:wrong@"] {
        let error = error_with(&server, &[elsewhere, ("HTTP_PROXY", &through(login))]).await;
        assert_says(&error, Kind::Denied, "proxy", "the proxy wants a name and password", "name:password@host:port");
        assert!(!format!("{error:?}").contains("wrong"), "{error:?}");
    }
}

#[tokio::test]
async fn tunnels_through_proxies() {
    let authority = Authority::new("Ours").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("ca.pem");
    std::fs::write(&bundle, authority.pem()).unwrap();
    let bundle = ("AWS_CA_BUNDLE", &*bundle.display().to_string());
    let tls = authority.server(&["s3.example.com"], Validity::Now, Versions::New).unwrap();
    let server = S3Server::start_at(LOCAL, Some(tls)).unwrap();
    let proxy = Proxy::start(server.address(), Some("me:hunter2")).unwrap();
    let elsewhere = ("AWS_ENDPOINT_URL_S3", "https://s3.example.com");
    for name in ["https_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
        let address = format!("http://me:hunter2@{}", proxy.address());
        let store = store_with(&server, &[elsewhere, bundle, (name, &address)]);
        assert!(store.get(KEY, Range::All).await.unwrap().is_none(), "{name}");
    }
    assert!(proxy.log().iter().all(|first| first.line == "CONNECT s3.example.com:443 HTTP/1.1"), "{:?}", proxy.log());
    let log = server.log();
    assert!(log.iter().all(|request| request.header("proxy-authorization").is_none()), "that is for the proxy only");
    let error = error_with(&server, &[elsewhere, bundle, ("HTTPS_PROXY", &proxy.address().to_string())]).await;
    assert_says(&error, Kind::Denied, "proxy", "the proxy wants a name and password", "name:password@host:port");
    // A proxy that does not tunnel: a server that knows nothing of it.
    let plain = S3Server::start().unwrap();
    let error = error_with(&server, &[elsewhere, bundle, ("HTTPS_PROXY", &plain.endpoint())]).await;
    assert_says(&error, Kind::Offline, "proxy", "cannot connect", "the proxy http://127.0.0.1:");
}

#[tokio::test]
async fn servers_that_need_no_proxy() {
    let server = S3Server::start().unwrap();
    let port = server.address().port();
    let dead = ("HTTP_PROXY", "http://127.0.0.1:1");
    let exempt = |list: &str| store_with(&server, &[dead, ("NO_PROXY", list)]);
    let with_port = format!("127.0.0.1:{port}");
    for list in ["127.0.0.1", "*", "127.0.0.0/8", "example.com, 127.0.0.1", &with_port, "a b 127.0.0.1"] {
        assert!(exempt(list).get(KEY, Range::All).await.unwrap().is_none(), "{list}");
    }
    for list in ["127.0.0.2", "10.0.0.0/8", "127.0.0.1:1", "example.com", ""] {
        let error = exempt(list).get(KEY, Range::All).await.unwrap_err();
        assert_says(&error, Kind::Offline, "unreachable", "cannot connect", "through the proxy http://127.0.0.1:1");
    }
    // Lower case goes first, as everywhere.
    let store = store_with(&server, &[dead, ("no_proxy", "127.0.0.1"), ("NO_PROXY", "nobody")]);
    assert!(store.get(KEY, Range::All).await.unwrap().is_none());
    let named = format!("http://localhost:{port}");
    for list in ["localhost", "LOCALHOST", &format!("localhost:{port}")] {
        let store = store_with(&server, &[dead, ("AWS_ENDPOINT_URL_S3", &named), ("NO_PROXY", list)]);
        assert!(store.get(KEY, Range::All).await.unwrap().is_none(), "{list}");
    }
}

#[tokio::test]
async fn an_address_of_ipv6() {
    let Ok(server) = S3Server::start_at(IpAddr::V6(Ipv6Addr::LOCALHOST), None) else {
        // A machine without it.
        return;
    };
    assert!(server.endpoint().starts_with("http://[::1]:"));
    let port = server.address().port();
    for list in ["", "::1", "[::1]", &format!("[::1]:{port}"), "::/64"] {
        let proxy = if list.is_empty() { "" } else { "http://127.0.0.1:1" };
        let store = store_with(&server, &[("HTTP_PROXY", proxy), ("NO_PROXY", list)]);
        assert!(store.get(KEY, Range::All).await.unwrap().is_none(), "{list}");
    }
}

#[tokio::test]
async fn a_create_on_a_connection_that_was_closed_while_idle() {
    let server = S3Server::start().unwrap();
    let store = store_with(&server, &[]);
    for round in 0..20 {
        store.get(KEY, Range::All).await.unwrap();
        server.close_connections();
        let created = store.create(&format!("default/log/{round:016x}.0"), Bytes::from("x")).await;
        assert!(matches!(created, Ok(Created::Created(_))), "{created:?}");
    }
    assert_eq!(server.log().len(), 40, "each was sent once");
}

/// A machine whose clock is wrong.
struct Wrong(i64);

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(Env::system([]).now().as_millis() + self.0 * 1000)
    }

    fn monotonic(&self) -> Duration {
        Env::system([]).monotonic()
    }

    #[allow(clippy::disallowed_methods)] // a clock of its own
    fn sleep(&self, duration: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[tokio::test]
async fn a_wrong_clock_is_put_right_once() {
    let server = S3Server::start().unwrap();
    for (seconds, words) in [
        (-20 * 60, "20 minutes behind"),
        (20 * 60, "20 minutes ahead of"),
        (-86_400 * 400 - 3600, "400 days behind"),
        (86_400 * 400 + 3600, "400 days ahead of"),
    ] {
        let env = Env::seeded(Arc::new(Wrong(seconds)), 1, vars(&server, &[]));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = heard.clone();
        let warn = Some(Warn::new(move |line| ear.lock().unwrap().push(line.to_owned())));
        let store = open(&server.url().parse().unwrap(), &OpenOptions { warn, ..short() }, &env).unwrap();
        server.clear_log();
        // A create is refused before anything was done, so it may be sent again.
        let key = format!("default/log/{:016x}.0", seconds.unsigned_abs() + u64::from(seconds > 0));
        let created = store.create(&key, Bytes::from("x")).await;
        assert!(matches!(created, Ok(Created::Created(_))), "{seconds}: {created:?}");
        for _ in 0..3 {
            store.get(KEY, Range::All).await.unwrap();
        }
        assert_eq!(server.log().len(), 5, "{seconds}: one refusal, then none");
        let line = format!("this machine's clock is {words} the store's: requests are signed with the store's time");
        assert_eq!(*heard.lock().unwrap(), [line], "said once");
    }
    // Some minutes are allowed, and are nobody's business.
    let env = Env::seeded(Arc::new(Wrong(10 * 60)), 1, vars(&server, &[]));
    let store = open(&server.url().parse().unwrap(), &short(), &env).unwrap();
    server.clear_log();
    store.get(KEY, Range::All).await.unwrap();
    assert_eq!(server.log().len(), 1);
}

#[tokio::test]
async fn a_server_that_refuses_every_time() {
    let server = S3Server::start().unwrap();
    let skewed = Canned::error(403, "RequestTimeTooSkewed", "The difference is too large");
    server.script_times(Method::GET, "ns.json", 1, 9, Fault::Reply(skewed.clone()));
    server.set_header("date", "Tue, 20 Jan 2026 09:15:02 GMT").unwrap();
    let error = error_with(&server, &[]).await;
    assert_eq!((error.kind(), error.code(), server.log().len()), (Kind::Denied, "clock_skew", 2), "{error:?}");
}

#[tokio::test]
async fn a_bucket_elsewhere_is_followed_once_when_no_region_was_set() {
    let elsewhere = || {
        let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>expecting 'eu-central-1'</Message><Region>eu-central-1</Region></Error>";
        Fault::Reply(Canned::body(400, "application/xml", body.to_owned()))
    };
    let server = S3Server::start().unwrap();
    server.script(Method::PUT, "", 1, elsewhere());
    let store = store_with(&server, &[("AWS_REGION", "")]);
    store.put(KEY, Bytes::from("x")).await.unwrap();
    store.get(KEY, Range::All).await.unwrap().unwrap();
    let regions: Vec<String> = server
        .log()
        .iter()
        .map(|request| request.header("authorization").unwrap().split('/').nth(2).unwrap().to_owned())
        .collect();
    assert_eq!(regions, ["us-east-1", "eu-central-1", "eu-central-1"]);
    // A region that was set is not overruled.
    server.script(Method::GET, "", 1, elsewhere());
    let error = error_with(&server, &[("AWS_REGION", "eu-west-1")]).await;
    assert_says(&error, Kind::Invalid, "wrong_region", "expecting 'eu-central-1'", "set AWS_REGION=eu-central-1");
    // What is no name of a region is not asked.
    let odd = Canned::empty(301).with_header("x-amz-bucket-region", "evil.example.com/");
    server.script(Method::GET, "", 1, Fault::Reply(odd));
    assert_eq!(error_with(&server, &[("AWS_REGION", "")]).await.kind(), Kind::Invalid);
}

#[tokio::test]
async fn secrets_are_in_no_debug_form() {
    let server = S3Server::start().unwrap();
    let secrets = [("AWS_SESSION_TOKEN", "token-of-session"), ("HTTP_PROXY", "http://me:hunter2@127.0.0.1:1")];
    let store = store_with(&server, &secrets);
    let error = store.get(KEY, Range::All).await.unwrap_err();
    for text in [format!("{store:?}"), format!("{store}"), format!("{error:?}"), error.chain().join(" ")] {
        for secret in [SECRET_KEY, "token-of-session", "hunter2"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}
