//! An S3 server in this process: signatures are checked, every request is logged, faults are scripted, lies are told.
//!
//! It runs on a thread and a runtime of its own, so the tests may pause their clock, block, or start other processes.

mod bucket;
pub(crate) mod script;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use peat_types::Env;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;

pub use script::{Canned, Fault};

use crate::background::Background;
use crate::iam::{Ask, Policy};
use crate::liars::Lie;
use crate::tls::ServerTls;
use bucket::Buckets;
use script::{Backend, Dropped, Script};

/// The access key that the server knows.
pub const ACCESS_KEY: &str = "testkit-access-key";
/// Its secret.
pub const SECRET_KEY: &str = "testkit-secret-key";
/// The bucket that is there from the start.
pub const BUCKET: &str = "bucket";

/// One request as it came over the wire.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Method.
    pub method: Method,
    /// Path as sent: `/bucket/key`.
    pub path: String,
    /// Query as sent, empty without one.
    pub query: String,
    /// All headers.
    pub headers: HeaderMap,
    /// Status of the reply; none when the connection was dropped instead.
    pub status: Option<StatusCode>,
}

impl Logged {
    /// The key, or the empty string for a request to the bucket.
    pub fn key(&self) -> &str {
        self.path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key)
    }

    /// What a policy says to it. Who may not list the bucket does not get to know that an object is missing; that
    /// question is asked without a prefix.
    fn allowed_by(&self, policy: &Policy, there: bool) -> bool {
        let bucket = format!("arn:aws:s3:::{BUCKET}");
        let prefix =
            self.query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).map(|text| text.replace("%2F", "/"));
        let list = |prefix| Ask { action: "s3:ListBucket", resource: bucket.clone(), prefix };
        let action = match (self.key(), &self.method) {
            ("", &Method::GET | &Method::HEAD) => return policy.allows(&list(prefix.as_deref())),
            (_, &Method::GET | &Method::HEAD) => "s3:GetObject",
            (_, &Method::PUT) => "s3:PutObject",
            (_, &Method::DELETE) => "s3:DeleteObject",
            _ => return false,
        };
        let resource = format!("{bucket}/{}", self.key());
        policy.allows(&Ask { action, resource, prefix: None })
            && (there || action != "s3:GetObject" || policy.allows(&list(None)))
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

#[derive(Default)]
struct Control {
    log: Vec<Logged>,
    script: Script,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Everything outside this prefix is denied.
    allowed: Option<String>,
    policy: Option<Policy>,
    old: bool,
}

impl Control {
    /// Why a request does not even get to the script. `there`: its object exists.
    fn refusal(&self, request: &Logged, there: bool) -> Option<Canned> {
        if self.policy.as_ref().is_some_and(|policy| !request.allowed_by(policy, there)) {
            return Some(Canned::error(403, "AccessDenied", "Access Denied"));
        }
        let listed = request.query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default();
        let subject = if request.key().is_empty() { listed.replace("%2F", "/") } else { request.key().to_owned() };
        if self.allowed.as_ref().is_some_and(|allowed| !subject.starts_with(allowed)) {
            return Some(Canned::error(403, "AccessDenied", "Access Denied"));
        }
        let newer = |name: &str| name.starts_with("x-amz-checksum") || name.starts_with("x-amz-sdk-checksum");
        let chunked = || {
            let streams = request.header("x-amz-content-sha256").is_some_and(|hash| hash.starts_with("STREAMING"));
            streams
                || ["content-encoding", "x-amz-trailer", "transfer-encoding"]
                    .iter()
                    .any(|n| request.header(n).is_some())
        };
        (self.old && (request.headers.keys().any(|name| newer(name.as_str())) || chunked()))
            .then(|| Canned::error(400, "InvalidRequest", "The header is not supported"))
    }
}

struct Shared {
    buckets: Buckets,
    control: Mutex<Control>,
    closing: Notify,
    /// Connections.
    open: AtomicUsize,
    env: Env,
}

impl Shared {
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running server. It stops when dropped.
pub struct S3Server {
    background: Background,
    secure: bool,
    shared: Arc<Shared>,
}

impl S3Server {
    /// Starts a server on a free port of the loopback interface, with the empty bucket [`BUCKET`].
    ///
    /// # Errors
    /// When there is no port or thread to be had.
    pub fn start() -> std::io::Result<Self> {
        Self::start_at(IpAddr::V4(Ipv4Addr::LOCALHOST), None)
    }

    /// Like [`Self::start`], on this address of the loopback interface and, if wanted, with TLS.
    ///
    /// # Errors
    /// When there is no such address, port or thread to be had.
    pub fn start_at(address: IpAddr, tls: Option<ServerTls>) -> std::io::Result<Self> {
        let env = Env::system([]);
        let shared = Arc::new(Shared {
            buckets: Buckets::new(&env),
            control: Mutex::default(),
            closing: Notify::new(),
            open: AtomicUsize::new(0),
            env,
        });
        let secure = tls.is_some();
        let of_thread = shared.clone();
        let background = Background::start("s3-server", address, move |listener| serve(listener, of_thread, tls))?;
        Ok(Self { background, secure, shared })
    }

    /// `http://127.0.0.1:port`, or `https:` with TLS.
    pub fn endpoint(&self) -> String {
        format!("{}://{}", if self.secure { "https" } else { "http" }, self.background.address())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.background.address()
    }

    /// Closes every connection, as load balancers do with idle ones, and waits until that is done.
    pub fn close_connections(&self) {
        while self.shared.open.load(Ordering::SeqCst) > 0 {
            self.shared.closing.notify_waiters();
            std::thread::yield_now();
        }
    }

    /// URL of a store in the bucket.
    pub fn url(&self) -> String {
        format!("s3://{BUCKET}/peat")
    }

    /// The environment variables that lead a client here.
    pub fn vars(&self) -> [(String, String); 4] {
        [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("AWS_ENDPOINT_URL_S3", self.endpoint()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// Everything that was asked so far, in the order it came.
    pub fn log(&self) -> Vec<Logged> {
        self.shared.control().log.clone()
    }

    /// Forgets what was asked so far.
    pub fn clear_log(&self) {
        self.shared.control().log.clear();
    }

    /// Lets the `nth` request (from now, counting from 1) with `method` to a key that contains `key` fail. Listings and
    /// other requests to the bucket have the empty key.
    pub fn script(&self, method: Method, key: &str, nth: u32, fault: Fault) {
        self.script_times(method, key, nth, 1, fault);
    }

    /// Like [`Self::script`], for `times` requests in a row.
    pub fn script_times(&self, method: Method, key: &str, nth: u32, times: u32, fault: Fault) {
        self.shared.control().script.add(method, key, nth, times, fault);
    }

    /// Sets a header of every reply from now on, such as `Date`.
    ///
    /// # Errors
    /// When it cannot stand in a header.
    pub fn set_header(&self, name: &'static str, value: &str) -> Result<(), http::Error> {
        let header = (HeaderName::from_static(name), HeaderValue::from_str(value)?);
        self.shared.control().headers.push(header);
        Ok(())
    }

    /// From now on denies everything but objects below `prefix` and listings of folders below it.
    pub fn allow_only(&self, prefix: &str) {
        self.shared.control().allowed = Some(prefix.to_owned());
    }

    /// From now on allows what the policy allows, or everything.
    pub fn enforce(&self, policy: Option<Policy>) {
        self.shared.control().policy = policy;
    }

    /// Lets everything that is stored have been written this much earlier.
    pub fn age(&self, by: Duration) {
        self.shared.buckets.age(by);
    }

    /// Tells a lie from now on, or the truth again.
    pub fn set_lie(&self, lie: Option<Lie>) {
        self.shared.control().old = lie == Some(Lie::OldS3);
        if let Some(Lie::BadDate(seconds)) = lie {
            let date = self.shared.env.now().as_millis() / 1000 + seconds;
            let text = jiff::Timestamp::from_second(date)
                .map(|date| date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
                .unwrap_or_default();
            let _ = self.set_header("date", &text);
        }
        self.shared.buckets.set_lie(lie);
    }

    /// Removes all that the bucket holds, past every request.
    pub fn empty(&self) {
        self.shared.buckets.empty(BUCKET);
    }

    /// The stored keys of the bucket.
    pub fn keys(&self) -> Vec<String> {
        self.shared.buckets.keys(BUCKET)
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, tls: Option<ServerTls>) {
    let service = {
        let mut builder = S3ServiceBuilder::new(shared.buckets.clone());
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        builder.build()
    };
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let (shared, service, tls) = (shared.clone(), service.clone(), tls.clone());
        tokio::spawn(async move {
            let closing = shared.clone();
            closing.open.fetch_add(1, Ordering::SeqCst);
            let connection = async {
                match tls {
                    None => talk(stream, shared, service).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.0.accept(stream).await {
                            talk(stream, shared, service).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = connection => {}
                () = closing.closing.notified() => {}
            }
            closing.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: Arc<Shared>, service: S3Service) {
    let answer = service_fn(move |request| answer(request, shared.clone(), service.clone()));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    // An error here is the dropped connection that was scripted, or a client that went away.
    let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    service: S3Service,
) -> Result<Response<Body>, Dropped> {
    let logged = Logged {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        headers: request.headers().clone(),
        status: None,
    };
    let (number, fault) = {
        let there = shared.buckets.holds(BUCKET, logged.key());
        let mut control = shared.control();
        let refusal = control.refusal(&logged, there).map(Fault::Reply);
        let fault = refusal.or_else(|| control.script.next(&logged.method, logged.key()));
        control.log.push(logged);
        (control.log.len() - 1, fault)
    };
    let request = request.map(Body::from);
    let mut reply = match fault {
        None => service.answer(request).await,
        Some(fault) => fault.play(request, &service, &shared.env).await?,
    };
    let headers = reply.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&format!("request-{number}")) {
        headers.entry("x-amz-request-id").or_insert(id);
    }
    let mut control = shared.control();
    for (name, value) in &control.headers {
        headers.insert(name, value.clone());
    }
    let status = reply.status();
    if let Some(logged) = control.log.get_mut(number) {
        logged.status = Some(status);
    }
    Ok(reply)
}

/// The framework's own failures are replies as well.
fn plain(reply: Result<Response<Body>, HttpError>) -> Response<Body> {
    reply.unwrap_or_else(|_| {
        let mut reply = Response::new(Body::empty());
        *reply.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        reply
    })
}
