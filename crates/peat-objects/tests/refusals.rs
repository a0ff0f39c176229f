//! The whole line of every error that a store behind S3 can cause, as somebody reads it in the middle of the night.
#![allow(clippy::panic)] // the lints know tests, but not their helpers

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use peat_objects::{List, OpenOptions, Range, Timeouts, open};
use peat_testkit::s3::{Canned, Fault, S3Server};
use peat_types::{Env, Error};

const KEY: &str = "default/ns.json";

fn options() -> OpenOptions {
    let limit = Duration::from_millis(500);
    let timeouts = Timeouts { connect: limit, first_byte: limit, idle: limit, create: limit };
    OpenOptions { timeouts, retries: 0, ..OpenOptions::default() }
}

#[derive(Clone, Copy)]
enum Do {
    Get,
    List,
    Create,
    Delete,
}

async fn error(server: &S3Server, what: Do, vars: &[(&str, &str)]) -> Error {
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let env = Env::system(server.vars().into_iter().chain(vars));
    let opened = server.url().parse().and_then(|url| open(&url, &options(), &env));
    let store = opened.unwrap_or_else(|e| panic!("{e:?}"));
    let list = List { prefix: "default/log/".to_owned(), ..List::default() };
    let failed = match what {
        Do::Get => store.get(KEY, Range::All).await.err(),
        Do::List => store.list(&list).await.err(),
        Do::Create => store.create(KEY, Bytes::from_static(b"x")).await.err(),
        Do::Delete => store.delete(KEY).await.err(),
    };
    failed.unwrap_or_else(|| panic!("no error"))
}

/// Kind, code, message, causes and hints in one line, with the port of the server left out.
async fn line(what: Do, reply: Canned, vars: &[(&str, &str)]) -> String {
    let server = S3Server::start().unwrap_or_else(|e| panic!("{e}"));
    let method = match what {
        Do::Get | Do::List => Method::GET,
        Do::Create => Method::PUT,
        Do::Delete => Method::DELETE,
    };
    server.script_times(method, "", 1, 2, Fault::Reply(reply));
    let error = error(&server, what, vars).await;
    assert!(!error.to_string().contains('\n'), "{error:?}");
    format!("{error:?}").replace(&server.address().to_string(), "HOST")
}

#[tokio::test]
async fn each_cause_has_its_line() {
    let denied = || Canned::error(403, "AccessDenied", "Access Denied");
    let moved = Canned::error(301, "PermanentRedirect", "Use another endpoint.")
        .with_header("x-amz-bucket-region", "eu-central-1");
    let portal = Canned::html(302).with_header("location", "http://portal.hotel.example/login");
    for (what, reply, expected) in [
        (
            Do::Get,
            denied(),
            "Denied[denied] get s3://bucket/peat/default/ns.json: status 403 AccessDenied: Access Denied (request request-0) (hint: the right s3:GetObject on 'bucket/…' (for this prefix) is needed) (hint: without the right s3:ListBucket on 'bucket' a missing object is refused like this too) (hint: 'peat datastore policy --role reader' prints a policy that is enough)",
        ),
        (
            Do::List,
            denied(),
            "Denied[denied] list s3://bucket/peat/default/log/: status 403 AccessDenied: Access Denied (request request-0) (hint: the right s3:ListBucket on the bucket 'bucket' (for this prefix) is needed) (hint: 'peat datastore policy --role reader' prints a policy that is enough)",
        ),
        (
            Do::Create,
            denied(),
            "Denied[denied] create s3://bucket/peat/default/ns.json: status 403 AccessDenied: Access Denied (request request-0) (hint: the right s3:PutObject on 'bucket/…' (for this prefix) is needed) (hint: 'peat datastore policy --role writer' prints a policy that is enough)",
        ),
        (
            Do::Delete,
            denied(),
            "Denied[denied] delete s3://bucket/peat/default/ns.json: status 403 AccessDenied: Access Denied (request request-0) (hint: the right s3:DeleteObject on 'bucket/…' (for this prefix) is needed) (hint: 'peat datastore policy --role gc' prints a policy that is enough)",
        ),
        (
            Do::Get,
            Canned::error(404, "NoSuchBucket", "The specified bucket does not exist"),
            "Invalid[bucket_missing] get s3://bucket/peat/default/ns.json: status 404 NoSuchBucket: The specified bucket does not exist (request request-0) (hint: there is no bucket 'bucket' on http://HOST: check its name, or create it first)",
        ),
        (
            Do::Get,
            Canned::error(403, "InvalidAccessKeyId", "The key does not exist in our records."),
            "Denied[wrong_key] get s3://bucket/peat/default/ns.json: status 403 InvalidAccessKeyId: The key does not exist in our records. (request request-0) (hint: http://HOST does not know this access key: correct AWS_ACCESS_KEY_ID; it goes before any profile)",
        ),
        (
            Do::Get,
            Canned::error(403, "SignatureDoesNotMatch", "The signature does not match."),
            "Denied[wrong_key] get s3://bucket/peat/default/ns.json: status 403 SignatureDoesNotMatch: The signature does not match. (request request-0) (hint: the secret does not fit the access key: correct AWS_SECRET_ACCESS_KEY)",
        ),
        (
            Do::Create,
            Canned::error(400, "ExpiredToken", "The provided token has expired."),
            "Denied[credentials_expired] create s3://bucket/peat/default/ns.json: status 400 ExpiredToken: The provided token has expired. (request request-0) (hint: AWS_SESSION_TOKEN has ended: get fresh AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or unset them to use a profile)",
        ),
        (
            Do::Get,
            moved,
            "Invalid[wrong_region] get s3://bucket/peat/default/ns.json: status 301 PermanentRedirect: Use another endpoint. (request request-0) (hint: the bucket 'bucket' is in the region eu-central-1: set AWS_REGION=eu-central-1)",
        ),
        (
            Do::Get,
            Canned::error(403, "RequestTimeTooSkewed", "Too far.").with_header("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
            "Denied[clock_skew] get s3://bucket/peat/default/ns.json: status 403 RequestTimeTooSkewed: Too far. (request request-1) (hint: this machine's clock is AMOUNT ahead of the server's, and signing with the server's time was refused too: set it, for example by NTP)",
        ),
        (
            Do::Create,
            Canned::error(503, "SlowDown", "Please reduce your request rate."),
            "Offline[store_busy] create s3://bucket/peat/default/ns.json: status 503 SlowDown: Please reduce your request rate. (request request-0) (hint: the server is busy or in trouble: try again later)",
        ),
        (
            Do::Create,
            Canned::error(
                501,
                "NotImplemented",
                "A header you provided implies functionality that is not implemented.",
            ),
            "Unsupported[unsupported] create s3://bucket/peat/default/ns.json: status 501 NotImplemented: A header you provided implies functionality that is not implemented. (request request-0)",
        ),
        (
            Do::Get,
            Canned::html(200),
            "Offline[not_s3] get s3://bucket/peat/default/ns.json: status 200, but no ETag confirms the object (request request-0) (hint: the answer is a web page: sign in to the network if it asks for that, else check whether http://HOST is an S3 server)",
        ),
        (
            Do::Get,
            portal,
            "Invalid[not_s3] get s3://bucket/peat/default/ns.json: status 302 without an S3 error document (request request-0) (hint: it leads to http://portal.hotel.example/login: that is a sign-in page of the network, or http://HOST is not an S3 server)",
        ),
        (
            Do::List,
            Canned::html(404),
            "Invalid[not_s3] list s3://bucket/peat/default/log/: status 404 without an S3 error document (request request-0) (hint: the answer is a web page: sign in to the network if it asks for that, else check whether http://HOST is an S3 server)",
        ),
        (
            Do::List,
            Canned::html(502),
            "Offline[offline] list s3://bucket/peat/default/log/: status 502 without an S3 error document (request request-0) (hint: the server is busy or in trouble: try again later)",
        ),
    ] {
        let mut line = line(what, reply, &[]).await;
        if let (Some(from), Some(to)) = (line.find("clock is "), line.find(" ahead of")) {
            line.replace_range(from + "clock is ".len()..to, "AMOUNT");
        }
        assert_eq!(line, expected);
    }
}

#[tokio::test]
async fn each_missing_server_has_its_line() {
    let server = S3Server::start().unwrap_or_else(|e| panic!("{e}"));
    for (vars, expected) in [
        (
            &[("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")][..],
            "Offline[unreachable] get s3://bucket/peat/default/ns.json: cannot connect: error sending request: client error (Connect): tcp connect error: Connection refused (os error 111) (hint: nothing listens at http://127.0.0.1:1: is it running, is the port right?)",
        ),
        (
            &[("HTTP_PROXY", "http://me:hunter2@127.0.0.1:1")][..],
            "Offline[unreachable] get s3://bucket/peat/default/ns.json: cannot connect: error sending request: client error (Connect): tcp connect error: Connection refused (os error 111) (hint: nothing listens at the proxy http://127.0.0.1:1: is it running, is the port right?) (hint: requests go through the proxy http://127.0.0.1:1: correct HTTP_PROXY, or name the server in NO_PROXY)",
        ),
    ] {
        let error = error(&server, Do::Get, vars).await;
        assert_eq!(format!("{error:?}"), expected);
    }
}
