//! The decorator around the HTTP client: it sees every request and reply as they are on the wire, bounds the waiting,
//! counts, and refuses to send a create that lost its condition on the way.

use std::error::Error as StdError;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use http::HeaderName;
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use peat_types::{Env, Error};
use tokio::sync::Notify;
use tracing::Instrument;

use super::reply::Reply;
use crate::traced::Exchanged;
use crate::{Count, Op, OpenOptions, StoreUrl};

/// Bodies up to this size are sent in one piece.
const PIECE: usize = 64 * 1024;
/// Of what was handed over, the system may hold back so much until the line takes it.
const BUFFERED: usize = 1 << 20;

/// Longest wait for credentials, a refresh of a login included.
pub(super) const LOAD_LIMIT: Duration = Duration::from_secs(30);

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// No connection: nothing was sent.
    #[error("cannot connect")]
    Connect(#[source] reqwest::Error),
    /// The reply did not come.
    #[error("no reply within {} s", .0.as_secs_f32())]
    NoReply(Duration),
    /// The reply stopped coming.
    #[error("the reply stopped for {} s", .0.as_secs_f32())]
    Stalled(Duration),
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] reqwest::Error),
    /// A create without its condition.
    #[error("the request lost its condition and was not sent")]
    Unconditional,
    /// A request that could not be put together.
    #[error("the request could not be built")]
    Unbuilt(#[source] reqwest::Error),
}

impl Lost {
    /// In one word, for traces.
    const fn word(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::NoReply(_) | Self::Stalled(_) => "timeout",
            Self::Broken(_) => "connection_broken",
            Self::Unconditional | Self::Unbuilt(_) => "not_sent",
        }
    }
}

/// What one request of the seam became.
#[derive(Default)]
pub(super) struct Exchange {
    pub reply: Option<Reply>,
    pub lost: Option<Lost>,
    /// What kept the request from being signed.
    pub refused: Option<Error>,
    /// Which load of the credentials signed it.
    pub signed_by: Option<u64>,
    /// What is told of it in a trace, once it is sent.
    traced: Option<Exchanged>,
}

impl Exchange {
    /// Nobody waits for the reply any more.
    pub fn given_up(&self, why: &Lost) {
        if let Some(traced) = &self.traced {
            traced.lost(why.word());
        }
    }
}

/// The request of the seam that is being made, for those who are called by the library in between.
#[derive(Clone)]
pub(super) struct Context {
    pub op: Op,
    /// As the seam knows it: relative to the store.
    pub key: Arc<str>,
    store: Arc<StoreUrl>,
    /// How often it was sent before.
    resent: u32,
    exchange: Arc<Mutex<Exchange>>,
}

tokio::task_local! {
    static CONTEXT: Context;
}

impl Context {
    pub fn new(store: &Arc<StoreUrl>, op: Op, key: &str, resent: u32) -> Self {
        Self { op, key: key.into(), store: store.clone(), resent, exchange: Arc::default() }
    }

    /// Runs `request` so that the connector and the credentials find this context.
    pub async fn run<T>(&self, request: impl Future<Output = T>) -> T {
        CONTEXT.scope(self.clone(), request).await
    }

    /// The context of the request that is being made.
    pub fn current() -> Option<Self> {
        CONTEXT.try_with(Clone::clone).ok()
    }

    pub fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the request that is being made why there are no credentials for it, past the library, which would make a text of
/// the error.
pub(super) fn refuse(store: &'static str, error: Error) -> object_store::Error {
    let text = error.to_string();
    if let Some(context) = Context::current() {
        context.exchange().refused = Some(error);
    }
    object_store::Error::Generic { store, source: text.into() }
}

/// Gives out the one client that was built for the store.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub client: reqwest::Client,
    /// The header that every create must carry.
    pub condition: (HeaderName, &'static str),
    pub options: OpenOptions,
    pub env: Env,
}

impl HttpConnector for Wire {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let context = Context::current().unwrap_or_else(|| Context::new(&Arc::new(StoreUrl::Memory), Op::Get, "", 0));
        match self.exchange(&context, request).await {
            Ok(reply) => {
                let mut response = http::Response::new(HttpResponseBody::from(reply.body.clone()));
                *response.status_mut() = reply.status;
                *response.headers_mut() = reply.headers.clone();
                context.exchange().reply = Some(reply);
                Ok(response)
            }
            Err(lost) => {
                let error = HttpError::new(HttpErrorKind::Unknown, std::io::Error::other(lost.to_string()));
                context.exchange().lost = Some(lost);
                Err(error)
            }
        }
    }
}

impl Wire {
    async fn exchange(&self, context: &Context, request: HttpRequest) -> Result<Reply, Lost> {
        let (name, value) = &self.condition;
        if context.op == Op::Create && request.headers().get(name).is_none_or(|sent| sent != value) {
            return Err(Lost::Unconditional);
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        self.count(context, Count { requests: 1, bytes_in: 0, bytes_out: body.len() as u64 });
        let Context { store, op, key, resent, .. } = context;
        let traced = Exchanged::begin(store, *op, key, &head.method, &head.uri, body.len(), *resent);
        context.exchange().traced = Some(traced.clone());
        let outcome = self.send(context, http::Request::from_parts(head, body)).instrument(traced.span()).await;
        match &outcome {
            Ok(reply) => traced.replied(reply.status.as_u16(), reply.body.len()),
            Err(lost) => traced.lost(lost.word()),
        }
        outcome
    }

    /// Sends a request that was counted, and takes in the reply.
    async fn send(&self, context: &Context, request: http::Request<Bytes>) -> Result<Reply, Lost> {
        let sent = Arc::new(Sent::default());
        let request = request.map(|body| in_pieces(body, &sent));
        let request = reqwest::Request::try_from(request).map_err(Lost::Unbuilt)?;

        // What came in while this process did other things is looked at first: a connection that was closed meanwhile
        // must not be taken for this request.
        tokio::task::yield_now().await;
        let mut response = pin!(self.client.execute(request));
        let mut response = loop {
            let silence = self.silence(context.op, sent.bytes.load(Ordering::Relaxed));
            tokio::select! {
                biased;
                response = &mut response => break response.map_err(classify)?,
                () = sent.more.notified() => {}
                () = self.env.sleep(silence) => return Err(Lost::NoReply(silence)),
            }
        };
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = BytesMut::new();
        loop {
            let idle = self.options.timeouts.idle;
            let piece = self.env.timeout(idle, response.chunk()).await;
            match piece.ok_or(Lost::Stalled(idle))?.map_err(classify)? {
                Some(piece) => {
                    self.count(context, Count { requests: 0, bytes_in: piece.len() as u64, bytes_out: 0 });
                    body.extend_from_slice(&piece);
                }
                None => return Ok(Reply { status, headers, body: body.freeze() }),
            }
        }
    }

    fn count(&self, context: &Context, count: Count) {
        if let Some(meter) = &self.options.meter {
            meter.add(context.op, &context.key, count);
        }
    }

    /// How long the server may say nothing after `sent` bytes of the body were handed to the system: their last may still
    /// be on their way.
    fn silence(&self, op: Op, sent: usize) -> Duration {
        let timeouts = &self.options.timeouts;
        let answer = if op == Op::Create { timeouts.create } else { timeouts.first_byte };
        answer + self.options.time_to_send(sent.min(BUFFERED))
    }
}

/// How much of a body was handed over.
#[derive(Default)]
struct Sent {
    bytes: AtomicUsize,
    more: Notify,
}

/// Requests for tokens, which the library makes for itself: not those of the store, so not judged and not counted.
#[derive(Clone, Debug)]
pub(super) struct Tokens(pub reqwest::Client);

impl HttpConnector for Tokens {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Tokens {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let failed = |e: reqwest::Error| HttpError::new(HttpErrorKind::Unknown, e.without_url());
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let request = reqwest::Request::try_from(http::Request::from_parts(head, body)).map_err(failed)?;
        let reply = self.0.execute(request).await.map_err(failed)?;
        let mut response = http::Response::new(());
        *response.status_mut() = reply.status();
        *response.headers_mut() = reply.headers().clone();
        let body = reply.bytes().await.map_err(failed)?;
        Ok(response.map(|()| HttpResponseBody::from(body)))
    }
}

/// A body that tells when a piece of it was taken, so that a slow upload is not mistaken for a silent server. Its length
/// is in the headers already.
fn in_pieces(body: Bytes, sent: &Arc<Sent>) -> reqwest::Body {
    if body.len() <= PIECE {
        sent.bytes.store(body.len(), Ordering::Relaxed);
        return body.into();
    }
    let sent = sent.clone();
    let pieces = (0..body.len()).step_by(PIECE).map(move |at| body.slice(at..(at + PIECE).min(body.len())));
    reqwest::Body::wrap_stream(stream::iter(pieces).map(move |piece| {
        sent.bytes.fetch_add(piece.len(), Ordering::Relaxed);
        sent.more.notify_one();
        Ok::<_, std::io::Error>(piece)
    }))
}

fn classify(error: reqwest::Error) -> Lost {
    let error = error.without_url();
    if error.is_connect() { Lost::Connect(error) } else { Lost::Broken(error) }
}

/// The causes of an error in one line, without repeating those that repeat their own cause.
pub(super) fn causes(error: &dyn StdError) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        next = error.source();
    }
    one_line(&line)
}

/// Foreign text in one line of bounded length.
pub(super) fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    /// Whatever options, versions or a library do to a create on its way here.
    #[tokio::test]
    async fn a_create_without_its_condition_is_not_sent() {
        let meter = crate::Meter::default();
        let wire = Wire {
            client: reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap(),
            condition: (http::header::IF_NONE_MATCH, "*"),
            options: OpenOptions { meter: Some(meter.clone()), ..OpenOptions::default() },
            env: Env::system([]),
        };
        let context = Context::new(&Arc::new(StoreUrl::Memory), Op::Create, "log/0", 0);
        for sent in [None, Some("\"etag\""), Some("")] {
            let mut request = http::Request::put("http://127.0.0.1:1/bucket/log/0");
            if let Some(value) = sent {
                request = request.header(http::header::IF_NONE_MATCH, value);
            }
            let request = request.body(HttpRequestBody::empty()).unwrap();
            assert!(matches!(wire.exchange(&context, request).await, Err(Lost::Unconditional)), "{sent:?}");
        }
        assert_eq!(meter.snapshot().total().requests, 0);
        // With it, the request gets as far as finding nobody.
        let request = http::Request::put("http://127.0.0.1:1/bucket/log/0").header(http::header::IF_NONE_MATCH, "*");
        let request = request.body(HttpRequestBody::empty()).unwrap();
        assert!(matches!(wire.exchange(&context, request).await, Err(Lost::Connect(_))));
    }
}
