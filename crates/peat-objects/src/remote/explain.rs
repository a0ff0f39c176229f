//! What a reply or its absence means, and what helps.

use peat_types::{Env, Error, Kind};

use super::client::Settings;
use super::dialect::{Dialect, Verdict};
use super::reply::Reply;
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
    pub dialect: &'a dyn Dialect,
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

    /// A successful status with contents that the service would not send.
    pub fn foreign(&self, reply: &Reply, why: &str) -> Error {
        let status = reply.status.as_u16();
        self.with_proxy_hint(
            self.error(Kind::Offline, &format!("status {status}, but {why}{}", id(reply)))
                .with_code(self.dialect.words().foreign)
                .with_hint(self.somebody_else()),
        )
    }

    fn somebody_else(&self) -> String {
        format!(
            "is {} {} server, and is nothing in between that answers in its place?",
            self.settings.server(),
            self.dialect.words().protocol
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
                None => {
                    let variable = self.dialect.words().ca_variables[0];
                    format!("for a private authority, name its PEM file in {variable}")
                }
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
        let says = match &error.details {
            Some(details) => format!("{} {details}", error.message),
            None => error.message.clone(),
        };
        let says = format!("status {status} {}: {}", error.code, one_line(&says));
        let verdict = self.dialect.verdict(self, &error, reply);
        let (kind, code, hint) = verdict.unwrap_or_else(|| self.verdict_of_status(status));
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

    /// What a status means when its code says nothing more.
    fn verdict_of_status(&self, status: u16) -> Verdict {
        match status {
            501 => self.unsupported(),
            408 | 409 | 412 | 429 | 500.. => self.busy(),
            401 | 403 => (Kind::Denied, "denied", self.dialect.rights(self.op)),
            _ => (Kind::Invalid, "store_answer", Vec::new()),
        }
    }

    pub fn busy(&self) -> Verdict {
        (Kind::Offline, "offline", vec!["the server is busy or in trouble: try again later".to_owned()])
    }

    pub fn unsupported(&self) -> Verdict {
        (Kind::Unsupported, "unsupported", Vec::new())
    }

    pub fn missing_bucket(&self) -> Verdict {
        let hint = format!(
            "there is no {} '{}' on {}: check its name, or create it first",
            self.dialect.words().bucket,
            self.dialect.bucket(),
            self.settings.server()
        );
        (Kind::Invalid, "bucket_missing", vec![hint])
    }

    /// A status without an error document: proxies, portals and servers in trouble.
    fn bare(&self, reply: &Reply) -> Error {
        let status = reply.status;
        let words = self.dialect.words();
        let why = format!("status {status} without {} error document{}", words.protocol, id(reply));
        if let Some((kind, code, hints)) = self.dialect.bare_verdict(reply) {
            return hints.into_iter().fold(self.error(kind, &why).with_code(code), Error::with_hint);
        }
        match status.as_u16() {
            407 => self.with_proxy_hint(
                self.error(Kind::Denied, "the proxy wants a name and password")
                    .with_code("proxy")
                    .with_hint("write HTTPS_PROXY=http://name:password@host:port"),
            ),
            401 | 403 => self.with_proxy_hint(
                self.dialect.rights(self.op).into_iter().fold(self.error(Kind::Denied, &why), Error::with_hint),
            ),
            408 | 409 | 412 | 429 | 500 | 502..=599 => self.with_proxy_hint(
                self.error(Kind::Offline, &why).with_hint("the server is busy or in trouble: try again later"),
            ),
            501 => self.error(Kind::Unsupported, &why),
            _ => self.with_proxy_hint(
                self.error(Kind::Invalid, &why).with_code(words.foreign).with_hint(self.somebody_else()),
            ),
        }
    }

    pub fn skew(&self, reply: &Reply) -> String {
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
}

fn id(reply: &Reply) -> String {
    reply.request_id().map(|id| format!(" (request {id})")).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(300).collect()
}
