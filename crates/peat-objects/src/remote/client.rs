//! How to get to the server: its address, proxy and certificates, from options and variables.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use object_store::RetryConfig;
use peat_types::{Env, Error, Result};
use reqwest::{Certificate, ClientBuilder, NoProxy, Proxy, Url};

use super::dialect::Words;
use super::wire::{causes, one_line};
use crate::OpenOptions;

/// Load balancers drop idle connections after as little as 20 s; a request on a dropped one is lost.
const POOL_IDLE: Duration = Duration::from_secs(15);

/// A metadata service answers at once; elsewhere nobody does, and the user should not wait for that.
pub(super) const METADATA_LIMIT: Duration = Duration::from_secs(1);

/// The library repeats nothing: that is decided where the reply is understood.
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Everything about the server that is known without loading anything.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub words: &'static Words,
    /// Address of one's own server; none for the service itself.
    pub endpoint: Option<Url>,
    /// A PEM file of certificates to trust, and what names it.
    pub ca_bundle: Option<(PathBuf, &'static str)>,
    proxies: Proxies,
}

/// The proxies that the variables name.
#[derive(Clone, Default)]
struct Proxies {
    /// For `http:` addresses, with the variable that names it.
    plain: Option<(Url, &'static str)>,
    /// For `https:` addresses.
    secure: Option<(Url, &'static str)>,
    exempt: Option<String>,
}

impl Proxies {
    fn new(env: &Env) -> Result<Self> {
        let named = |names: &[&'static str]| {
            let found = names.iter().find_map(|name| Some((*name, env.var(name)?)));
            found.map(|(name, text)| Ok((parse_proxy(name, text)?, name))).transpose()
        };
        Ok(Self {
            plain: named(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])?,
            secure: named(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])?,
            exempt: first_of(env, &["no_proxy", "NO_PROXY"]),
        })
    }

    /// This proxy, with exemptions in the form that the library knows, for servers at `port`. None: all are exempt.
    fn with_exemptions(&self, proxy: Proxy, port: u16) -> Option<Proxy> {
        let list = self.exempt.as_deref().unwrap_or_default();
        let entries: Vec<&str> = list.split([',', ' ']).filter_map(|entry| exempt_at(entry.trim(), port)).collect();
        (!entries.contains(&"*")).then(|| proxy.no_proxy(NoProxy::from_string(&entries.join(","))))
    }
}

/// What an entry of `NO_PROXY` exempts at `port`: `host`, `.suffix`, `*.suffix`, an address or a network, each perhaps
/// with a port of its own.
fn exempt_at(entry: &str, port: u16) -> Option<&str> {
    let host = match entry.rsplit_once(':') {
        // An address of IPv6 is full of colons itself.
        Some((host, digits)) if host.ends_with(']') || !host.contains(':') => {
            (digits.parse() == Ok(port)).then_some(host)?
        }
        _ => entry,
    };
    let host = host.trim_matches(['[', ']']);
    Some(host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host))
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = [&self.plain, &self.secure].map(|proxy| proxy.as_ref().and_then(|(url, _)| url.host_str()));
        f.debug_struct("Proxies").field("hosts", &hosts).field("exempt", &self.exempt).finish()
    }
}

impl Settings {
    /// `endpoint` is what the dialect found; none leads to the service itself.
    pub fn new(words: &'static Words, endpoint: Option<&str>, options: &OpenOptions, env: &Env) -> Result<Self> {
        let endpoint = endpoint.map(|text| parse_endpoint(text, words)).transpose()?;
        let of_options = options.ca_bundle.clone().map(|path| (path, "the setting of the CA bundle"));
        let named = || words.ca_variables.iter().find_map(|name| Some((PathBuf::from(env.var(name)?), *name)));
        let ca_bundle = of_options.or_else(named);
        Ok(Self { words, endpoint, ca_bundle, proxies: Proxies::new(env)? })
    }

    /// These settings with the address of a server and a file of certificates that were found later.
    pub fn with(&self, endpoint: Option<&str>, ca_bundle: Option<String>) -> Result<Self> {
        let mut settings = self.clone();
        if let Some(endpoint) = endpoint {
            settings.endpoint = Some(parse_endpoint(endpoint, self.words)?);
        }
        settings.ca_bundle =
            settings.ca_bundle.or(ca_bundle.map(|path| (PathBuf::from(path), "ca_bundle of the profile")));
        Ok(settings)
    }

    fn proxy_and_variable(&self) -> Option<&(Url, &'static str)> {
        if self.plain() { self.proxies.plain.as_ref() } else { self.proxies.secure.as_ref() }
    }

    fn proxy(&self) -> Option<&Url> {
        self.proxy_and_variable().map(|(url, _)| url)
    }

    /// The proxy without its password, for people.
    pub fn proxy_name(&self) -> Option<String> {
        let proxy = self.proxy()?;
        Some(format!("{}://{}:{}", proxy.scheme(), proxy.host_str()?, proxy.port_or_known_default()?))
    }

    /// The variable that names the proxy, for people.
    pub fn proxy_variable(&self) -> &'static str {
        self.proxy_and_variable().map_or(if self.plain() { "HTTP_PROXY" } else { "HTTPS_PROXY" }, |(_, name)| name)
    }

    /// Who is connected to, for people: the proxy, unless the server may be exempt from it.
    pub fn first_hop(&self) -> String {
        match self.proxy_name() {
            Some(proxy) if self.proxies.exempt.is_none() => format!("the proxy {proxy}"),
            _ => self.server(),
        }
    }

    /// The server, for people.
    pub fn server(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => endpoint.as_str().trim_end_matches('/').to_owned(),
            None => self.words.service.to_owned(),
        }
    }

    pub fn plain(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|url| url.scheme() == "http")
    }

    fn certificates(&self) -> Result<Vec<Certificate>> {
        let Some((path, named_by)) = &self.ca_bundle else { return Ok(Vec::new()) };
        let remedy = || format!("correct {named_by}: it names a PEM file of certificates to trust");
        let pem = std::fs::read(path).map_err(|e| Error::io("read the CA bundle", path, e).with_hint(remedy()))?;
        let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
        if certificates.is_empty() {
            return Err(Error::invalid(format!("the CA bundle {} holds no certificate in PEM form", path.display()))
                .with_hint(remedy()));
        }
        Ok(certificates)
    }

    /// The HTTP client: HTTP/1.1 without redirects, retries or a total limit.
    pub fn http(&self, options: &OpenOptions) -> Result<reqwest::Client> {
        let port = self.endpoint.as_ref().and_then(Url::port_or_known_default).unwrap_or(443);
        let proxied = |builder: ClientBuilder| {
            let proxy = self.proxy().map(|proxy| Proxy::all(proxy.clone())).transpose()?;
            Ok(proxy
                .and_then(|proxy| self.proxies.with_exemptions(proxy, port))
                .into_iter()
                .fold(builder, ClientBuilder::proxy))
        };
        let verified = !self.plain() || self.proxy().is_some_and(|proxy| proxy.scheme() == "https");
        self.client(options.timeouts.connect, verified, proxied)
    }

    /// The HTTP client for other services at the usual ports.
    pub fn http_outside(&self, options: &OpenOptions) -> Result<reqwest::Client> {
        self.client(options.timeouts.connect, true, |builder| {
            let plain = self.proxies.plain.as_ref().map(|(proxy, _)| Proxy::http(proxy.clone())).transpose()?;
            let secure = self.proxies.secure.as_ref().map(|(proxy, _)| Proxy::https(proxy.clone())).transpose()?;
            let proxies = [(plain, 80), (secure, 443)];
            let used = proxies.into_iter().filter_map(|(proxy, port)| self.proxies.with_exemptions(proxy?, port));
            Ok(used.fold(builder, ClientBuilder::proxy))
        })
    }

    fn client(
        &self,
        connect: Duration,
        verified: bool,
        proxied: impl Fn(ClientBuilder) -> reqwest::Result<ClientBuilder>,
    ) -> Result<reqwest::Client> {
        let builder = || {
            let builder = reqwest::Client::builder()
                .http1_only()
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .connect_timeout(connect)
                .pool_idle_timeout(POOL_IDLE)
                .user_agent(concat!("peat/", env!("CARGO_PKG_VERSION")))
                .no_proxy();
            proxied(builder)
        };
        let failed = |e: reqwest::Error| {
            Error::invalid("the HTTP client cannot be set up")
                .with_hint(format!(
                    "when the system has no certificates, name a file of them in {}",
                    self.words.ca_variables[0]
                ))
                .with_source(causes(&e))
        };
        if !verified {
            // Nothing to verify, so the system's certificates need not be read.
            return builder().and_then(|b| b.tls_certs_only([]).build()).map_err(failed);
        }
        let certificates = self.certificates()?;
        if certificates.is_empty() {
            return builder().and_then(ClientBuilder::build).map_err(failed);
        }
        // A machine without certificates of its own cannot merge.
        builder()
            .and_then(|b| b.tls_certs_merge(certificates.clone()).build())
            .or_else(|_| builder().and_then(|b| b.tls_certs_only(certificates).build()))
            .map_err(failed)
    }

    /// The HTTP client for the metadata service of this machine: close by, without TLS, never through a proxy.
    pub fn metadata(&self) -> Result<reqwest::Client> {
        reqwest::Client::builder()
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(METADATA_LIMIT)
            .no_proxy()
            .tls_certs_only([])
            .build()
            .map_err(|e| Error::invalid("the HTTP client cannot be set up").with_source(causes(&e)))
    }
}

/// The first of these variables that is set.
pub(super) fn first_of(env: &Env, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| env.var(name)).map(str::to_owned)
}

fn parse_endpoint(text: &str, words: &Words) -> Result<Url> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.filter(|url| url.username().is_empty() && url.password().is_none() && url.query().is_none());
    url.ok_or_else(|| {
        // What stands before an @ may be a password.
        let shown = if text.contains(['@', '?']) { String::new() } else { format!(" '{}'", one_line(text)) };
        Error::invalid(format!("the endpoint{shown} is not the address of a server"))
            .with_hint(format!("write it as {}, or http://127.0.0.1:9000 for a server without TLS", words.example))
    })
}

fn parse_proxy(variable: &str, text: &str) -> Result<Url> {
    // Many write the host and port alone.
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&with_scheme).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| {
        Error::invalid(format!("{variable} does not hold the address of an HTTP proxy"))
            .with_hint(format!("write {variable}=http://host:port, or unset it"))
    })
}
