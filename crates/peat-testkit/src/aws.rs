//! The givers of AWS credentials in this process: STS, single sign-on, the services of containers and of instances.
//!
//! All of them are at one address. They give out the keys that [`S3Server`](crate::s3::S3Server) knows, with a session
//! token that says who gave them and how often it was asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use peat_types::Env;
use serde_json::json;
use tokio::net::TcpListener;

use crate::background::{Background, LOCAL};
use crate::s3::{ACCESS_KEY, SECRET_KEY};

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Giver {
    /// STS: `AssumeRole`.
    AssumeRole,
    /// STS: `AssumeRoleWithWebIdentity`.
    WebIdentity,
    /// Single sign-on: `GetRoleCredentials`.
    Sso,
    /// Single sign-on: a fresh token for a refresh token.
    SsoToken,
    /// The service of containers.
    Container,
    /// The metadata service of an instance: its session token.
    InstanceToken,
    /// The metadata service of an instance.
    Instance,
    /// None of them.
    Unknown,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Who was asked.
    pub giver: Giver,
    /// Method, path and query.
    pub line: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The body as text.
    pub body: String,
}

impl Asked {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// What is answered in place of credentials.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// This status with this body.
    Status(u16, String),
    /// Nothing, ever.
    Silence,
}

#[derive(Default)]
struct Control {
    log: Vec<Asked>,
    refusals: HashMap<Giver, Refusal>,
    /// Seconds that what is given out holds.
    life: i64,
    pause: Duration,
}

struct Shared {
    control: Mutex<Control>,
    env: Env,
}

impl Shared {
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running giver of credentials. It stops when dropped.
pub struct AwsServer {
    background: Background,
    shared: Arc<Shared>,
}

impl AwsServer {
    /// Starts it on a free port of the loopback interface. Credentials hold for an hour.
    ///
    /// # Errors
    /// When there is no port or thread to be had.
    pub fn start() -> std::io::Result<Self> {
        let control = Control { life: 3600, ..Control::default() };
        let shared = Arc::new(Shared { control: Mutex::new(control), env: Env::system([]) });
        let of_thread = shared.clone();
        let background = Background::start("aws-server", LOCAL, move |listener| serve(listener, of_thread))?;
        Ok(Self { background, shared })
    }

    /// `http://127.0.0.1:port`
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.background.address())
    }

    /// What was asked so far.
    pub fn log(&self) -> Vec<Asked> {
        self.shared.control().log.clone()
    }

    /// How often `giver` was asked.
    pub fn count(&self, giver: Giver) -> usize {
        self.shared.control().log.iter().filter(|asked| asked.giver == giver).count()
    }

    /// Credentials given from now on hold for so many seconds; fewer than none: they ended before.
    pub fn set_life(&self, seconds: i64) {
        self.shared.control().life = seconds;
    }

    /// Every answer takes this long from now on.
    pub fn set_pause(&self, pause: Duration) {
        self.shared.control().pause = pause;
    }

    /// From now on `giver` refuses, or gives again.
    pub fn refuse(&self, giver: Giver, refusal: Option<Refusal>) {
        let mut control = self.shared.control();
        match refusal {
            Some(refusal) => control.refusals.insert(giver, refusal),
            None => control.refusals.remove(&giver),
        };
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(request, shared.clone()));
            // An error here is a client that went away.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

fn giver(path: &str, body: &str) -> Giver {
    match path {
        "/latest/api/token" => Giver::InstanceToken,
        "/federation/credentials" => Giver::Sso,
        "/token" => Giver::SsoToken,
        path if path.starts_with("/latest/meta-data/") => Giver::Instance,
        path if path.starts_with("/container") => Giver::Container,
        _ if body.contains("Action=AssumeRoleWithWebIdentity") => Giver::WebIdentity,
        _ if body.contains("Action=AssumeRole") => Giver::AssumeRole,
        _ => Giver::Unknown,
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = String::from_utf8_lossy(&body.collect().await?.to_bytes()).into_owned();
    let giver = giver(head.uri.path(), &body);
    let line = format!("{} {}", head.method, head.uri.path_and_query().map_or("", |path| path.as_str()));
    let (refusal, life, pause, number) = {
        let mut control = shared.control();
        control.log.push(Asked { giver, line, headers: head.headers, body });
        let number = control.log.iter().filter(|asked| asked.giver == giver).count();
        (control.refusals.get(&giver).cloned(), control.life, control.pause, number)
    };
    shared.env.sleep(pause).await;
    match refusal {
        Some(Refusal::Silence) => std::future::pending().await,
        Some(Refusal::Status(status, text)) => return Ok(reply(status, text)),
        None => {}
    }
    let ends = shared.env.now().as_millis() / 1000 + life;
    let date = jiff::Timestamp::from_second(ends).unwrap_or_default().to_string();
    let token = format!("{giver:?}-{number}");
    let keys = json!({
        "Code": "Success", "AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY, "Token": token, "Expiration": date,
    });
    let text = match giver {
        Giver::InstanceToken => {
            let mut reply = reply(200, "metadata-session".to_owned());
            reply.headers_mut().insert("x-aws-ec2-metadata-token-ttl-seconds", 21_600.into());
            return Ok(reply);
        }
        Giver::Instance if head.uri.path().ends_with("/security-credentials/") => "role-of-instance".to_owned(),
        Giver::Instance | Giver::Container => keys.to_string(),
        Giver::Sso => json!({ "roleCredentials": {
            "accessKeyId": ACCESS_KEY, "secretAccessKey": SECRET_KEY, "sessionToken": token, "expiration": ends * 1000,
        }})
        .to_string(),
        Giver::SsoToken => json!({ "accessToken": token, "expiresIn": 3600, "tokenType": "Bearer" }).to_string(),
        Giver::AssumeRole | Giver::WebIdentity => format!(
            "<{0}Response><{0}Result><Credentials><AccessKeyId>{ACCESS_KEY}</AccessKeyId><SecretAccessKey>{SECRET_KEY}</SecretAccessKey><SessionToken>{token}</SessionToken><Expiration>{date}</Expiration></Credentials></{0}Result></{0}Response>",
            if giver == Giver::AssumeRole { "AssumeRole" } else { "AssumeRoleWithWebIdentity" }
        ),
        Giver::Unknown => return Ok(reply(404, String::new())),
    };
    Ok(reply(200, text))
}

fn reply(status: u16, text: String) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::from(text));
    *reply.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    reply
}
