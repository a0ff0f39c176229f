//! Faults of the server, by script.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use peat_types::Env;
use s3s::Body;
use s3s::service::S3Service;

use super::plain;

/// What answers a request when nothing goes wrong.
pub(crate) trait Backend: Clone + Send + Sync + 'static {
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send;
}

impl Backend for S3Service {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        plain(self.call(request).await)
    }
}

/// An error that makes the connection drop.
#[derive(Debug)]
pub(crate) struct Dropped;

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("dropped by script")
    }
}

impl std::error::Error for Dropped {}

/// A reply that nobody computed.
#[derive(Clone, Debug)]
pub struct Canned {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Canned {
    /// An S3 error document. A status out of range counts as 500.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        Self::body(
            status,
            "application/xml",
            format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"
            ),
        )
    }

    /// A page as proxies and portals send it.
    pub fn html(status: u16) -> Self {
        Self::body(status, "text/html", "<html><body><h1>Welcome to the hotel</h1></body></html>".to_owned())
    }

    /// No body at all.
    pub fn empty(status: u16) -> Self {
        Self::body(status, "application/xml", String::new())
    }

    /// Any body.
    pub fn body(status: u16, content_type: &'static str, body: String) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static(content_type));
        Self { status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), headers, body }
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    fn reply(self) -> Response<Body> {
        let mut reply = Response::new(Body::from(self.body));
        *reply.status_mut() = self.status;
        *reply.headers_mut() = self.headers;
        reply
    }
}

/// What goes wrong with one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The connection is dropped and nothing applied.
    DropRequest,
    /// The request is applied and the connection dropped.
    DropReply,
    /// The request is applied this much later; the connection stays open without a reply for a minute.
    Late(Duration),
    /// The reply takes this much longer.
    Slow(Duration),
    /// The request is not applied and answered so.
    Reply(Canned),
    /// The request is applied and answered so.
    AppliedReply(Canned),
    /// The connection is dropped in the middle of the body of the reply.
    Truncated,
    /// Half of the body of the reply comes, then nothing more.
    Stalled,
    /// The body of the reply comes in so many pieces with this pause before each.
    Dripping(usize, Duration),
}

impl Fault {
    pub(crate) async fn play(
        self,
        request: Request<Body>,
        service: &impl Backend,
        env: &Env,
    ) -> Result<Response<Body>, Dropped> {
        match self {
            Self::DropRequest => Err(Dropped),
            Self::DropReply => {
                service.answer(request).await;
                Err(Dropped)
            }
            Self::Late(delay) => {
                // The whole request must be here before its sender goes away.
                let (head, body) = request.into_parts();
                let body = whole(body).await?;
                let (env, service) = (env.clone(), service.clone());
                let of_task = env.clone();
                tokio::spawn(async move {
                    of_task.sleep(delay).await;
                    service.answer(Request::from_parts(head, Body::from(body))).await;
                });
                env.sleep(Duration::from_secs(60)).await;
                Err(Dropped)
            }
            Self::Slow(delay) => {
                let reply = service.answer(request).await;
                env.sleep(delay).await;
                Ok(reply)
            }
            Self::Reply(canned) => {
                let _ = whole(request.into_body()).await;
                Ok(canned.reply())
            }
            Self::AppliedReply(canned) => {
                service.answer(request).await;
                Ok(canned.reply())
            }
            Self::Truncated => half(service.answer(request).await, Some(Dropped)).await,
            Self::Stalled => half(service.answer(request).await, None).await,
            Self::Dripping(pieces, pause) => drip(service.answer(request).await, pieces, pause, env).await,
        }
    }
}

pub(crate) async fn whole(body: Body) -> Result<Bytes, Dropped> {
    BodyExt::collect(body).await.map(http_body_util::Collected::to_bytes).map_err(|_| Dropped)
}

type Piece = Result<Frame<Bytes>, Dropped>;

/// The first half of the body, then an error, or nothing at all and no end either.
async fn half(reply: Response<Body>, end: Option<Dropped>) -> Result<Response<Body>, Dropped> {
    let (head, body) = reply.into_parts();
    let body = whole(body).await?;
    let first: Piece = Ok(Frame::data(body.slice(..body.len() / 2)));
    let rest = match end {
        Some(dropped) => stream::iter([Err(dropped)]).left_stream(),
        None => stream::pending::<Piece>().right_stream(),
    };
    let stream = stream::iter([first]).chain(rest);
    Ok(Response::from_parts(head, Body::http_body(StreamBody::new(stream))))
}

async fn drip(reply: Response<Body>, pieces: usize, pause: Duration, env: &Env) -> Result<Response<Body>, Dropped> {
    let (head, body) = reply.into_parts();
    let body = whole(body).await?;
    let size = body.len().div_ceil(pieces.max(1)).max(1);
    let chunks: Vec<Bytes> =
        (0..body.len()).step_by(size).map(|at| body.slice(at..(at + size).min(body.len()))).collect();
    let env = env.clone();
    let stream = stream::iter(chunks).then(move |chunk| {
        let env = env.clone();
        async move {
            env.sleep(pause).await;
            Piece::Ok(Frame::data(chunk))
        }
    });
    Ok(Response::from_parts(head, Body::http_body_unsync(StreamBody::new(stream))))
}

struct Rule {
    method: Method,
    key: String,
    skip: u32,
    times: u32,
    fault: Fault,
}

#[derive(Default)]
pub(crate) struct Script(Vec<Rule>);

impl Script {
    pub(crate) fn add(&mut self, method: Method, key: &str, nth: u32, times: u32, fault: Fault) {
        self.0.push(Rule { method, key: key.to_owned(), skip: nth.saturating_sub(1), times, fault });
    }

    pub(crate) fn next(&mut self, method: &Method, key: &str) -> Option<Fault> {
        let mut due = None;
        let fits = |rule: &&mut Rule| {
            rule.method == *method && key.contains(&rule.key) && (!key.is_empty() || rule.key.is_empty())
        };
        for rule in self.0.iter_mut().filter(fits) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 && due.is_none() {
                rule.times -= 1;
                due = Some(rule.fault.clone());
            }
        }
        self.0.retain(|rule| rule.times > 0);
        due
    }
}
