//! A span for every request that is counted, in the words of OpenTelemetry's conventions for HTTP clients.
//!
//! Requests to a bucket get theirs where they go over the wire ([`Exchanged`]); stores without a network are decorated
//! ([`TracedStore`]). No span holds a query, a header or a body: that is where signatures and contents are.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Uri};
use peat_types::{ERROR_TYPE, Result, failed, number};
use tracing::field::Empty;
use tracing::{Instrument, Span, debug_span};

use crate::{Created, List, Meta, Object, Op, Page, Range, Store, StoreUrl};

const fn name(op: Op) -> &'static str {
    match op {
        Op::Get => "GET",
        Op::Create => "CREATE",
        Op::Put => "PUT",
        Op::List => "LIST",
        Op::Delete => "DELETE",
    }
}

tokio::task_local! {
    static RESENT: u32;
}

/// Makes a request that was made `tries` times before.
pub(crate) async fn resent<T>(tries: u32, request: impl Future<Output = T>) -> T {
    RESENT.scope(tries, request).await
}

/// How often the request that is being made was made before.
pub(crate) fn tries_before() -> u32 {
    RESENT.try_with(|tries| *tries).unwrap_or(0)
}

/// The span of one exchange with a server.
#[derive(Clone)]
pub(crate) struct Exchanged {
    op: Op,
    span: Span,
}

impl Exchanged {
    /// A request that is about to be sent. `key` is a key or the prefix of a listing, relative to the store.
    pub fn begin(store: &StoreUrl, op: Op, key: &str, method: &Method, uri: &Uri, sent: usize, resent: u32) -> Self {
        let span = debug_span!(
            "request",
            otel.name = name(op),
            otel.kind = "client",
            http.request.method = method.as_str(),
            http.response.status_code = Empty,
            server.address = uri.host(),
            server.port = port(uri).map(number),
            url.path = uri.path(),
            aws.s3.bucket = Empty,
            aws.s3.key = Empty,
            peat.store.kind = store.scheme(),
            peat.object.key = key,
            http.request.body.size = number(sent),
            http.response.body.size = Empty,
            http.request.resend_count = (resent > 0).then_some(number(resent)),
            "error.type" = Empty,
        );
        if let (StoreUrl::S3 { bucket, prefix }, false) = (store, span.is_disabled()) {
            span.record("aws.s3.bucket", bucket);
            if op != Op::List {
                let whole = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}/{key}") };
                span.record("aws.s3.key", whole);
            }
        }
        Self { op, span }
    }

    /// Where the exchange belongs.
    pub fn span(&self) -> Span {
        self.span.clone()
    }

    /// The reply came. One that tells what was asked for is no error, whatever its status is called.
    pub fn replied(&self, status: u16, received: usize) {
        self.span.record("http.response.status_code", number(status));
        self.span.record("http.response.body.size", number(received));
        let answer = match self.op {
            Op::Get => matches!(status, 404 | 416),
            Op::Create => matches!(status, 304 | 409 | 412),
            Op::Delete => status == 404,
            Op::Put | Op::List => false,
        };
        if status >= 300 && !answer {
            self.span.record(ERROR_TYPE, status.to_string());
        }
    }

    /// No reply came.
    pub fn lost(&self, why: &'static str) {
        self.span.record(ERROR_TYPE, why);
    }
}

fn port(uri: &Uri) -> Option<u16> {
    uri.port_u16().or_else(|| match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    })
}

/// A store whose requests are spans.
pub(crate) struct TracedStore {
    inner: Arc<dyn Store>,
    kind: &'static str,
}

impl TracedStore {
    /// Traces the requests to `inner`, a store at `url` that has no network.
    pub fn new(inner: Arc<dyn Store>, url: &StoreUrl) -> Self {
        Self { inner, kind: url.scheme() }
    }

    async fn trace<T>(
        &self,
        op: Op,
        key: &str,
        request: impl Future<Output = Result<T>>,
        outcome: impl Fn(&T) -> (&'static str, u64),
    ) -> Result<T> {
        let span = debug_span!(
            "request",
            otel.name = name(op),
            peat.store.kind = self.kind,
            peat.object.key = key,
            peat.outcome = Empty,
            peat.bytes = Empty,
            "error.type" = Empty,
        );
        let reply = request.instrument(span.clone()).await;
        match &reply {
            Ok(reply) if !span.is_disabled() => {
                let (outcome, bytes) = outcome(reply);
                span.record("peat.outcome", outcome);
                span.record("peat.bytes", number(bytes));
            }
            Ok(_) => {}
            Err(error) => failed(&span, error),
        }
        reply
    }
}

#[async_trait]
impl Store for TracedStore {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        let outcome = |object: &Option<Object>| match object {
            Some(object) => ("found", object.bytes.len() as u64),
            None => ("absent", 0),
        };
        self.trace(Op::Get, key, self.inner.get(key, range), outcome).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        let size = body.len() as u64;
        let outcome = |created: &Created| match created {
            Created::Created(_) => ("created", size),
            Created::Exists => ("exists", size),
        };
        self.trace(Op::Create, key, self.inner.create(key, body), outcome).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        let size = body.len() as u64;
        self.trace(Op::Put, key, self.inner.put(key, body), |_| ("written", size)).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        let bytes = |page: &Page| {
            page.keys.iter().map(|k| k.key.len()).chain(page.prefixes.iter().map(String::len)).sum::<usize>()
        };
        self.trace(Op::List, &list.prefix, self.inner.list(list), |page| ("listed", bytes(page) as u64)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.trace(Op::Delete, key, self.inner.delete(key), |()| ("deleted", 0)).await
    }
}

impl fmt::Display for TracedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for TracedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
