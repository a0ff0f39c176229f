//! Putting the client of one bucket together from options and variables.

use std::path::PathBuf;
use std::time::Duration;

use object_store::RetryConfig;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use peat_types::{Env, Error, Result};
use reqwest::{Certificate, NoProxy, Proxy, Url};

use super::s3::aws_chain;
use super::s3::credentials::{Credentials, Source};
use super::wire::{Wire, causes};
use crate::OpenOptions;

/// Load balancers drop idle connections after as little as 20 s; a request on a dropped one is lost.
const POOL_IDLE: Duration = Duration::from_secs(15);

/// Everything about the server that is known without loading anything.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub bucket: String,
    /// Address of one's own server; none for AWS.
    pub endpoint: Option<Url>,
    pub region: Option<String>,
    pub path_style: bool,
    pub ca_bundle: Option<PathBuf>,
    pub proxy: Option<Url>,
    no_proxy: Option<String>,
}

impl Settings {
    pub fn new(bucket: &str, options: &OpenOptions, env: &Env) -> Result<Self> {
        let first = |names: &[&str]| names.iter().find_map(|name| env.var(name)).map(str::to_owned);
        let endpoint = options.endpoint.clone().or_else(|| first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
        let endpoint = endpoint.as_deref().map(parse_endpoint).transpose()?;
        let region = options.region.clone().or_else(|| first(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let path_style = options.path_style.unwrap_or(endpoint.is_some() || bucket.contains('.'));
        let ca_bundle =
            options.ca_bundle.clone().or_else(|| first(&["AWS_CA_BUNDLE", "SSL_CERT_FILE"]).map(PathBuf::from));
        let plain = endpoint.as_ref().is_some_and(|url| url.scheme() == "http");
        let proxy = if plain {
            first(&["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"])
        } else {
            first(&["https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"])
        };
        let proxy = proxy.as_deref().map(parse_proxy).transpose()?;
        let no_proxy = first(&["no_proxy", "NO_PROXY"]);
        Ok(Self { bucket: bucket.to_owned(), endpoint, region, path_style, ca_bundle, proxy, no_proxy })
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
            None => "Amazon S3".to_owned(),
        }
    }

    fn plain(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|url| url.scheme() == "http")
    }

    fn certificates(&self) -> Result<Vec<Certificate>> {
        let Some(path) = &self.ca_bundle else { return Ok(Vec::new()) };
        let pem = std::fs::read(path).map_err(|e| {
            Error::io("read the CA bundle", path, e).with_hint("correct AWS_CA_BUNDLE, SSL_CERT_FILE or the setting")
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
                .with_hint("when the system has no certificates, name a file of them in AWS_CA_BUNDLE")
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

    /// The region: as set, of the profile, or where AWS begins.
    pub async fn region(&self, source: &Source) -> String {
        match (&self.region, &self.endpoint) {
            (Some(region), _) => region.clone(),
            (None, None) if source.renewable() => {
                Box::pin(aws_chain::region(source.profile())).await.unwrap_or_else(|| "us-east-1".to_owned())
            }
            _ => "us-east-1".to_owned(),
        }
    }

    /// The client of the bucket. It never repeats a request: that is decided where the reply is understood.
    pub fn bucket(&self, wire: Wire, credentials: std::sync::Arc<Credentials>, region: &str) -> Result<AmazonS3> {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(region)
            .with_credentials(credentials)
            .with_http_connector(wire)
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_allow_http(self.plain())
            .with_virtual_hosted_style_request(!self.path_style)
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(self.endpoint_of_bucket(endpoint));
        }
        builder.build().map_err(|e| Error::invalid("the S3 client cannot be set up").with_source(causes(&e)))
    }

    /// Without path style the library expects the bucket in the host name already.
    fn endpoint_of_bucket(&self, endpoint: &Url) -> String {
        let plain = endpoint.as_str().trim_end_matches('/');
        match plain.split_once("://") {
            Some((scheme, rest)) if !self.path_style => format!("{scheme}://{}.{rest}", self.bucket),
            _ => plain.to_owned(),
        }
    }
}

fn parse_endpoint(text: &str) -> Result<Url> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.filter(|url| url.username().is_empty() && url.password().is_none() && url.query().is_none());
    url.ok_or_else(|| {
        Error::invalid("the S3 endpoint is not an address of a server")
            .with_hint("write it as https://s3.example.com, or http://127.0.0.1:9000 for a server without TLS")
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
