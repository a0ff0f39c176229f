//! What a reply or its absence means, and what helps.

use peat_types::{Env, Error, Kind};

use super::client::Settings;
use super::dialect::{Dialect, Verdict};
use super::reply::Reply;
use super::wire::{Lost, causes, one_line};
use crate::Op;

const PROXY_WANTS: &str = "the proxy wants a name and password";
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

    /// An error that kept this request from being made.
    pub fn refused(&self, error: Error) -> Error {
        error.prefixed(self.name())
    }

    /// A successful status with contents that the service would not send.
    pub fn foreign(&self, reply: &Reply, why: &str) -> Error {
        let status = reply.status.as_u16();
        self.with_proxy_hint(
            self.error(Kind::Offline, &format!("status {status}, but {why}{}", id(reply)))
                .with_code(self.dialect.words().foreign)
                .with_hint(self.somebody_else(reply)),
        )
    }

    /// A remedy for an answer that the service would not give.
    fn somebody_else(&self, reply: &Reply) -> String {
        let (server, protocol) = (self.settings.server(), self.dialect.words().protocol);
        let page = reply.header("content-type").is_some_and(|kind| kind.trim_start().starts_with("text/html"));
        match reply.header("location") {
            Some(place) if reply.status.is_redirection() => format!(
                "it leads to {}: that is a sign-in page of the network, or {server} is not {protocol} server",
                one_line(place)
            ),
            _ if page => format!(
                "the answer is a web page: sign in to the network if it asks for that, else check whether {server} is {protocol} server"
            ),
            _ => format!("is {server} {protocol} server, and is nothing in between that answers in its place?"),
        }
    }

    fn with_proxy_hint(&self, error: Error) -> Error {
        match self.settings.proxy_name() {
            Some(proxy) => error.with_hint(format!(
                "requests go through the proxy {proxy}: correct {}, or name the server in NO_PROXY",
                self.settings.proxy_variable()
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
                let (kind, code, hint) = self.unreachable(&cause);
                (kind, code, Some(hint))
            }
            Lost::NoReply(_) | Lost::Stalled(_) | Lost::Broken(_) => (
                Kind::Offline,
                "offline",
                Some(format!("try again; when it stays so, look at {server} and the network")),
            ),
        };
        let why = if kind == Kind::Denied { PROXY_WANTS } else { &cause };
        let mut error = self.error(kind, why).with_code(code);
        if let Some(hint) = hint {
            error = error.with_hint(hint);
        }
        if matches!(kind, Kind::Offline | Kind::Denied) { self.with_proxy_hint(error) } else { error }
    }

    /// Why there is no connection. The libraries below tell it in words only.
    fn unreachable(&self, cause: &str) -> (Kind, &'static str, String) {
        let server = self.settings.server();
        let lower = cause.to_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        let (code, hint) = if has(&["proxy authorization required"]) {
            return (Kind::Denied, "proxy", self.proxy_login());
        } else if has(&["tunnel"]) {
            ("proxy", format!("the proxy does not lead to {server}: does it allow this server and port?"))
        } else if has(&["not valid for name", "notvalidforname"]) {
            ("tls", format!("{server} shows a certificate for another name: use the name that its certificate is for"))
        } else if has(&["expired", "not yet valid", "notvalidyet"]) {
            ("tls", format!("renew the certificate of {server}, unless this machine's clock is wrong"))
        } else if has(&["certificate", "unknownissuer"]) {
            ("tls", self.unknown_authority())
        } else if has(&["invalidcontenttype", "corrupt message"]) {
            ("tls", format!("{server} does not speak TLS there: is the endpoint http:// rather than https://?"))
        } else if has(&["tls", "handshake", "protocolversion"]) {
            ("tls", format!("{server} and this machine have no version of TLS in common; 1.2 or 1.3 is needed"))
        } else {
            let first = self.settings.first_hop();
            let in_host = self.settings.endpoint.is_some() && self.dialect.bucket_in_host(self.settings);
            let hint = if has(&["dns", "lookup", "resolve"]) && in_host && first == server {
                let bucket = self.dialect.bucket();
                format!("no host has the name of {server} with '{bucket}.' before it: set up again with --path-style")
            } else if has(&["dns", "lookup", "resolve"]) {
                format!("the name of {first} is unknown: check its spelling and the network")
            } else if has(&["refused"]) {
                format!("nothing listens at {first}: is it running, is the port right?")
            } else {
                format!("{first} cannot be reached: check its address and the network")
            };
            ("unreachable", hint)
        };
        (Kind::Offline, code, hint)
    }

    fn proxy_login(&self) -> String {
        let variable = self.settings.proxy_variable();
        format!("write {variable}=http://name:password@host:port, with %40 for an @ in the password")
    }

    fn unknown_authority(&self) -> String {
        match &self.settings.ca_bundle {
            Some((path, _)) => format!(
                "only the system's certificates and those of {} are trusted: add the server's authority there",
                path.display()
            ),
            None => {
                let variable = self.dialect.words().ca_variables[0];
                format!("for a private authority, name its PEM file in {variable}")
            }
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
        let says = match one_line(&says) {
            says if says.is_empty() => String::new(),
            says => format!(": {says}"),
        };
        let says = format!("status {status} {}{says}{}", error.code, self.not_before(reply));
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
        self.throttled(out, error.code == "SlowDown", reply)
    }

    /// The pause the server asks for, in words.
    fn not_before(&self, reply: &Reply) -> String {
        match reply.retry_after(self.env.now()) {
            Some(pause) => format!(", to be asked again after {} s", pause.as_secs()),
            None => String::new(),
        }
    }

    /// Notes that the server has too much to do, and for how long it wants to be left alone.
    fn throttled(&self, error: Error, says_so: bool, reply: &Reply) -> Error {
        if error.kind() != Kind::Offline || !(says_so || matches!(reply.status.as_u16(), 429 | 503)) {
            return error;
        }
        let error = error.with_code("store_busy");
        match reply.retry_after(self.env.now()) {
            Some(pause) => error.with_retry_after(pause),
            None => error,
        }
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
        let status = reply.status.as_u16();
        let words = self.dialect.words();
        let why =
            format!("status {status} without {} error document{}{}", words.protocol, self.not_before(reply), id(reply));
        if let Some((kind, code, hints)) = self.dialect.bare_verdict(reply) {
            return hints.into_iter().fold(self.error(kind, &why).with_code(code), Error::with_hint);
        }
        match status {
            407 => self.with_proxy_hint(
                self.error(Kind::Denied, PROXY_WANTS).with_code("proxy").with_hint(self.proxy_login()),
            ),
            401 | 403 => self.with_proxy_hint(
                self.dialect.rights(self.op).into_iter().fold(self.error(Kind::Denied, &why), Error::with_hint),
            ),
            408 | 409 | 412 | 429 | 500 | 502..=599 => self.with_proxy_hint(self.throttled(
                self.error(Kind::Offline, &why).with_hint("the server is busy or in trouble: try again later"),
                false,
                reply,
            )),
            501 => self.error(Kind::Unsupported, &why),
            _ => self.with_proxy_hint(
                self.error(Kind::Invalid, &why).with_code(words.foreign).with_hint(self.somebody_else(reply)),
            ),
        }
    }

    /// A remedy for a clock that the server does not accept.
    pub fn skew(&self, reply: &Reply) -> String {
        match reply.meta().date {
            Some(date) => format!(
                "this machine's clock is {} the server's; more than 15 minutes are refused: set it, for example by NTP",
                clock_in_words(self.env.now().millis_since(date))
            ),
            None => "this machine's clock is wrong: set it, for example by NTP".to_owned(),
        }
    }
}

/// A difference of clocks for people: `20 minutes ahead of`, `90 seconds behind`.
pub(super) fn clock_in_words(ahead: i64) -> String {
    let seconds = ahead.abs() / 1000;
    let amount = match seconds {
        s if s >= 48 * 3600 => format!("{} days", s / 86_400),
        s if s >= 120 * 60 => format!("{} hours", (s + 1800) / 3600),
        s if s >= 120 => format!("{} minutes", (s + 30) / 60),
        s => format!("{s} seconds"),
    };
    format!("{amount} {}", if ahead > 0 { "ahead of" } else { "behind" })
}

fn id(reply: &Reply) -> String {
    reply.request_id().map(|id| format!(" (request {id})")).unwrap_or_default()
}
