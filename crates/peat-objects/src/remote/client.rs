//! How to get to the server: its address, proxy and certificates, from options and variables.

use std::path::PathBuf;
use std::time::Duration;

use object_store::RetryConfig;
use peat_types::{Env, Error, Result};
use reqwest::{Certificate, NoProxy, Proxy, Url};

use super::dialect::Words;
use super::wire::causes;
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
    pub ca_bundle: Option<PathBuf>,
    pub proxy: Option<Url>,
    no_proxy: Option<String>,
}

impl Settings {
    /// `endpoint` is what the dialect found; none leads to the service itself.
    pub fn new(words: &'static Words, endpoint: Option<&str>, options: &OpenOptions, env: &Env) -> Result<Self> {
        let first = |names: &[&str]| first_of(env, names);
        let endpoint = endpoint.map(|text| parse_endpoint(text, words)).transpose()?;
        let ca_bundle = options.ca_bundle.clone().or_else(|| first(words.ca_variables).map(PathBuf::from));
        let plain = endpoint.as_ref().is_some_and(|url| url.scheme() == "http");
        let proxy = if plain {
            first(&["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"])
        } else {
            first(&["https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"])
        };
        let proxy = proxy.as_deref().map(parse_proxy).transpose()?;
        let no_proxy = first(&["no_proxy", "NO_PROXY"]);
        Ok(Self { words, endpoint, ca_bundle, proxy, no_proxy })
    }

    /// The proxy without its password, for people.
    pub fn proxy_name(&self) -> Option<String> {
        let proxy = self.proxy.as_ref()?;
        Some(format!("{}://{}:{}", proxy.scheme(), proxy.host_str()?, proxy.port_or_known_default()?))
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
        let Some(path) = &self.ca_bundle else { return Ok(Vec::new()) };
        let pem = std::fs::read(path).map_err(|e| {
            let variables = self.words.ca_variables.join(", ");
            Error::io("read the CA bundle", path, e).with_hint(format!("correct {variables} or the setting"))
        })?;
        let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
        if certificates.is_empty() {
            return Err(Error::invalid(format!("{} holds no certificate in PEM form", path.display())));
        }
        Ok(certificates)
    }

    /// The HTTP client: HTTP/1.1 without redirects, retries or a total limit.
    pub fn http(&self, options: &OpenOptions) -> Result<reqwest::Client> {
        let builder = || {
            let mut builder = reqwest::Client::builder()
                .http1_only()
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .connect_timeout(options.timeouts.connect)
                .pool_idle_timeout(POOL_IDLE)
                .user_agent(concat!("peat/", env!("CARGO_PKG_VERSION")))
                .no_proxy();
            if let Some(proxy) = &self.proxy {
                let exempt = self.no_proxy.as_deref().and_then(NoProxy::from_string);
                builder = builder.proxy(Proxy::all(proxy.clone())?.no_proxy(exempt));
            }
            Ok::<_, reqwest::Error>(builder)
        };
        let failed = |e: reqwest::Error| {
            Error::invalid("the HTTP client cannot be set up")
                .with_hint(format!(
                    "when the system has no certificates, name a file of them in {}",
                    self.words.ca_variables[0]
                ))
                .with_source(causes(&e))
        };
        if self.plain() && self.proxy.as_ref().is_none_or(|proxy| proxy.scheme() == "http") {
            // Nothing to verify, so the system's certificates need not be read.
            return builder().and_then(|b| b.tls_certs_only([]).build()).map_err(failed);
        }
        let certificates = self.certificates()?;
        if certificates.is_empty() {
            return builder().and_then(reqwest::ClientBuilder::build).map_err(failed);
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
        Error::invalid("the endpoint is not an address of a server")
            .with_hint(format!("write it as {}, or http://127.0.0.1:9000 for a server without TLS", words.example))
    })
}

fn parse_proxy(text: &str) -> Result<Url> {
    // Many write the host and port alone.
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&with_scheme).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| {
        Error::invalid("the proxy variable does not hold the address of an HTTP proxy")
            .with_hint("write HTTPS_PROXY=http://host:port")
    })
}
