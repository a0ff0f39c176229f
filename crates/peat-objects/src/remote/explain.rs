//! What a reply or its absence means, and what helps.

use peat_types::{Env, Error, Kind};

use super::client::Settings;
use super::reply::{Reply, S3Error};
use super::s3::credentials::{Source, expired_hint};
use super::wire::{Lost, causes};
use crate::Op;

/// AWS and its likes refuse signatures older or newer than this.
const SKEW_LIMIT_MINUTES: i64 = 15;

/// Everything an error has to name.
pub(super) struct Subject<'a> {
    pub op: Op,
    /// URL of the store.
    pub store: &'a str,
    pub key: &'a str,
    pub settings: &'a Settings,
    pub source: &'a Source,
    pub env: &'a Env,
}

impl Subject<'_> {
    fn name(&self) -> String {
        match (self.op, self.key) {
            (op, "") => format!("{op} {}", self.store),
            (op, key) => format!("{op} {}/{key}", self.store),
        }
    }

    /// An error of this request with a cause in words.
    pub fn error(&self, kind: Kind, why: &str) -> Error {
        Error::new(kind, format!("{}: {why}", self.name()))
    }

    /// An error of this request whose cause is another one.
    pub fn refused(&self, cause: Error) -> Error {
        let message = format!("{}: {cause}", self.name());
        cause.context(message)
    }

    /// A successful status with contents that S3 would not send.
    pub fn not_s3(&self, reply: &Reply, why: &str) -> Error {
        let status = reply.status.as_u16();
        self.with_proxy_hint(
            self.error(Kind::Offline, &format!("status {status}, but {why}{}", id(reply)))
                .with_code("not_s3")
                .with_hint(format!(
                    "is {} an S3 server, and is nothing in between that answers in its place?",
                    self.settings.server()
                )),
        )
    }

    fn with_proxy_hint(&self, error: Error) -> Error {
        match self.settings.proxy_name() {
            Some(proxy) => error.with_hint(format!(
                "requests go through the proxy {proxy}: correct HTTPS_PROXY, or name the server in NO_PROXY"
            )),
            None => error,
        }
    }

    /// There is no reply.
    pub fn lost(&self, lost: &Lost) -> Error {
        let server = self.settings.server();
        let cause = causes(lost);
        let (kind, code, hint) = match lost {
            Lost::Unconditional => (Kind::Internal, "internal", None),
            Lost::Unbuilt(_) => (Kind::Invalid, "validation_failed", None),
            Lost::Connect(_) => {
                let (code, hint) = self.unreachable(&cause);
                (Kind::Offline, code, Some(hint))
            }
            Lost::NoReply(_) | Lost::Stalled(_) | Lost::Broken(_) => (
                Kind::Offline,
                "offline",
                Some(format!("try again; when it stays so, look at {server} and the network")),
            ),
        };
        let mut error = self.error(kind, &cause).with_code(code);
        if let Some(hint) = hint {
            error = error.with_hint(hint);
        }
        if kind == Kind::Offline { self.with_proxy_hint(error) } else { error }
    }

    fn unreachable(&self, cause: &str) -> (&'static str, String) {
        let server = self.settings.server();
        let lower = cause.to_lowercase();
        if lower.contains("certificate") || lower.contains("unknownissuer") {
            let bundle = match &self.settings.ca_bundle {
                Some(path) => format!(
                    "only the system's certificates and those of {} are trusted: add the server's authority there",
                    path.display()
                ),
                None => "for a private authority, name its PEM file in AWS_CA_BUNDLE".to_owned(),
            };
            ("tls", bundle)
        } else if lower.contains("invalidcontenttype") || lower.contains("corrupt message") {
            ("tls", format!("{server} does not speak TLS there: is the endpoint http:// rather than https://?"))
        } else if lower.contains("dns") || lower.contains("lookup") || lower.contains("resolve") {
            ("unreachable", format!("the name of {server} is unknown: check the endpoint and the network"))
        } else if lower.contains("refused") {
            ("unreachable", format!("nothing listens at {server}: is the server running, is the port right?"))
        } else {
            ("unreachable", format!("{server} cannot be reached: check the endpoint and the network"))
        }
    }

    /// A reply that is neither success nor absence.
    pub fn refusal(&self, reply: &Reply) -> Error {
        let status = reply.status.as_u16();
        let Some(error) = reply.error() else {
            return self.bare(reply);
        };
        let says = format!("status {status} {}: {}", error.code, one_line(&error.message));
        let (kind, code, hint) = self.verdict(status, &error, reply);
        let id = match (id(reply), &error.request_id) {
            (text, Some(other)) if text.is_empty() => format!(" (request {other})"),
            (text, _) => text,
        };
        let mut out = self.error(kind, &format!("{says}{id}")).with_code(code);
        for hint in hint {
            out = out.with_hint(hint);
        }
        out
    }

    fn verdict(&self, status: u16, error: &S3Error, reply: &Reply) -> (Kind, &'static str, Vec<String>) {
        let region = reply.header("x-amz-bucket-region").or(error.region.as_deref()).map(str::to_owned);
        match (error.code.as_str(), status) {
            ("NoSuchBucket", _) => (
                Kind::Invalid,
                "bucket_missing",
                vec![format!(
                    "there is no bucket '{}' on {}: check its name, or create it first",
                    self.settings.bucket,
                    self.settings.server()
                )],
            ),
            (
                "PermanentRedirect"
                | "TemporaryRedirect"
                | "AuthorizationHeaderMalformed"
                | "IllegalLocationConstraintException",
                _,
            )
            | (_, 301 | 307) => self.wrong_region(region, error.endpoint.as_deref()),
            ("ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "InvalidToken", _) => {
                (Kind::Denied, "credentials_expired", vec![expired_hint(self.source)])
            }
            ("InvalidAccessKeyId" | "InvalidClientTokenId" | "UnrecognizedClientException", _) => (
                Kind::Denied,
                "wrong_key",
                vec![format!(
                    "{} does not know this access key: check AWS_ACCESS_KEY_ID or the profile",
                    self.settings.server()
                )],
            ),
            ("SignatureDoesNotMatch", _) => (
                Kind::Denied,
                "wrong_key",
                vec![
                    "the secret does not fit the access key: check AWS_SECRET_ACCESS_KEY or the profile".to_owned(),
                    format!(
                        "or the server expects the bucket in the {}",
                        if self.settings.path_style {
                            "host name: switch path style off"
                        } else {
                            "path: switch path style on"
                        }
                    ),
                ],
            ),
            ("RequestTimeTooSkewed" | "RequestExpired", _) => (Kind::Denied, "clock_skew", vec![self.skew(reply)]),
            ("NotImplemented", _) | (_, 501) => (Kind::Unsupported, "unsupported", Vec::new()),
            (
                "RequestTimeout" | "IncompleteBody" | "BadDigest" | "SlowDown" | "ServiceUnavailable" | "InternalError",
                _,
            )
            | (_, 408 | 409 | 412 | 429 | 500..) => {
                (Kind::Offline, "offline", vec!["the server is busy or in trouble: try again later".to_owned()])
            }
            (_, 401 | 403) => (Kind::Denied, "denied", self.missing_right()),
            _ => (Kind::Invalid, "store_answer", Vec::new()),
        }
    }

    /// A status without an error document: proxies, portals and servers in trouble.
    fn bare(&self, reply: &Reply) -> Error {
        let status = reply.status;
        let why = format!("status {status} without an S3 error document{}", id(reply));
        let server = self.settings.server();
        match status.as_u16() {
            301 | 307 | 308 | 400 if reply.header("x-amz-bucket-region").is_some() => {
                let (kind, code, hints) =
                    self.wrong_region(reply.header("x-amz-bucket-region").map(str::to_owned), None);
                hints.into_iter().fold(self.error(kind, &why).with_code(code), Error::with_hint)
            }
            407 => self.with_proxy_hint(
                self.error(Kind::Denied, "the proxy wants a name and password")
                    .with_code("proxy")
                    .with_hint("write HTTPS_PROXY=http://name:password@host:port"),
            ),
            401 | 403 => self.with_proxy_hint(
                self.missing_right().into_iter().fold(self.error(Kind::Denied, &why), Error::with_hint),
            ),
            408 | 409 | 412 | 429 | 500 | 502..=599 => self.with_proxy_hint(
                self.error(Kind::Offline, &why).with_hint("the server is busy or in trouble: try again later"),
            ),
            501 => self.error(Kind::Unsupported, &why),
            _ => {
                self.with_proxy_hint(self.error(Kind::Invalid, &why).with_code("not_s3").with_hint(format!(
                    "is {server} an S3 server, and is nothing in between that answers in its place?"
                )))
            }
        }
    }

    fn wrong_region(&self, region: Option<String>, endpoint: Option<&str>) -> (Kind, &'static str, Vec<String>) {
        let hint = match (region, endpoint) {
            (Some(region), _) => {
                format!("the bucket '{}' is in the region {region}: set AWS_REGION={region}", self.settings.bucket)
            }
            (None, Some(endpoint)) => format!("the bucket '{}' is to be reached at {endpoint}", self.settings.bucket),
            (None, None) => format!("the bucket '{}' is in another region: set AWS_REGION to it", self.settings.bucket),
        };
        (Kind::Invalid, "wrong_region", vec![hint])
    }

    fn skew(&self, reply: &Reply) -> String {
        let Some(server) = reply.meta().date else {
            return "this machine's clock is wrong: set it, for example by NTP".to_owned();
        };
        let seconds = self.env.now().millis_since(server) / 1000;
        let amount = match seconds.abs() {
            s if s >= 120 => format!("{} minutes", s / 60),
            s => format!("{s} seconds"),
        };
        let direction = if seconds > 0 { "ahead of" } else { "behind" };
        format!(
            "this machine's clock is {amount} {direction} the server's; more than {SKEW_LIMIT_MINUTES} minutes are refused: set it, for example by NTP"
        )
    }

    fn missing_right(&self) -> Vec<String> {
        let bucket = &self.settings.bucket;
        let action = match self.op {
            Op::Get => "s3:GetObject",
            Op::Create | Op::Put => "s3:PutObject",
            Op::Delete => "s3:DeleteObject",
            Op::List => "s3:ListBucket",
        };
        let mut hints = vec![match self.op {
            Op::List => format!("the right {action} on the bucket '{bucket}' (for this prefix) is needed"),
            _ => format!("the right {action} on '{bucket}/…' (for this prefix) is needed"),
        }];
        if self.op == Op::Get {
            hints.push(format!(
                "without the right s3:ListBucket on '{bucket}' a missing object is refused like this too"
            ));
        }
        hints
    }
}

fn id(reply: &Reply) -> String {
    reply.request_id().map(|id| format!(" (request {id})")).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect()
}
