//! S3, as AWS and many others speak it.

mod aws_http;
mod clock;
mod credentials;
mod sign;
mod sources;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use http::HeaderName;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use peat_types::{Env, Error, Kind, Result};
use reqwest::Url;
use serde::Deserialize;

use super::client::{Settings, first_of, no_retries};
use super::dialect::{Amendment, Bucket, Dialect, Library, Verdict, Words};
use super::explain::{Subject, clock_in_words};
use super::reply::{ErrorDocument, Listing, Reply};
use super::wire::{Wire, causes};
use crate::{Listed, Op, OpenOptions, Warn};
use clock::ServerClock;
use credentials::{Credentials, Source};
use sign::Signing;
use sources::Sources;

const WORDS: Words = Words {
    protocol: "an S3",
    service: "Amazon S3",
    bucket: "bucket",
    foreign: "not_s3",
    example: "https://s3.example.com",
    ca_variables: &["AWS_CA_BUNDLE", "SSL_CERT_FILE"],
};

/// Where AWS begins, and what servers of one's own go by.
const DEFAULT_REGION: &str = "us-east-1";

/// A bucket of S3.
#[derive(Debug)]
pub(super) struct S3 {
    bucket: String,
    /// As set in options or variables.
    region: Option<String>,
    /// The region comes from the options, which go before variables.
    region_of_options: bool,
    /// As the profile or the bucket itself said.
    found: Mutex<Option<String>>,
    /// As set in options.
    path_style: Option<bool>,
    credentials: Arc<Credentials>,
    clock: ServerClock,
    warn: Option<Warn>,
}

impl S3 {
    pub fn new(bucket: &str, options: &OpenOptions, env: &Env) -> Result<(Self, Settings)> {
        let endpoint = options.endpoint.clone().or_else(|| first_of(env, &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
        let settings = Settings::new(&WORDS, endpoint.as_deref(), options, env)?;
        let region = options.region.clone().or_else(|| first_of(env, &["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let clock = ServerClock::new(env);
        let sources = Sources::new(settings.clone(), options.clone(), clock.clone(), env);
        let source = Source::choose(options.profile.as_deref(), env)?;
        let s3 = Self {
            bucket: bucket.to_owned(),
            region,
            region_of_options: options.region.is_some(),
            found: Mutex::default(),
            path_style: options.path_style,
            credentials: Arc::new(Credentials::new(source, sources, clock.clone(), env)),
            clock,
            warn: options.warn.clone(),
        };
        Ok((s3, settings))
    }

    fn region(&self) -> String {
        let found = || self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.region.clone().or_else(found).unwrap_or_else(|| DEFAULT_REGION.to_owned())
    }

    fn found(&self, region: &str) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(region.to_owned());
    }

    fn path_style(&self, settings: &Settings) -> bool {
        self.path_style.unwrap_or(settings.endpoint.is_some() || self.bucket.contains('.'))
    }

    /// Whether the server has no name, only an address: no bucket can stand before that.
    fn has_no_name(settings: &Settings) -> bool {
        let host = settings.endpoint.as_ref().and_then(Url::host_str);
        host.is_some_and(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok())
    }

    /// Without path style the library expects the bucket in the host name already.
    fn endpoint_of_bucket(&self, endpoint: &Url, path_style: bool) -> String {
        let plain = endpoint.as_str().trim_end_matches('/');
        match plain.split_once("://") {
            Some((scheme, rest)) if !path_style => format!("{scheme}://{}.{rest}", self.bucket),
            _ => plain.to_owned(),
        }
    }

    fn wrong_region(&self, region: Option<String>, endpoint: Option<&str>) -> Verdict {
        let hint = match (region, endpoint) {
            (Some(region), _) if self.region_of_options => {
                format!("the bucket '{}' is in the region {region}: set up again with --region {region}", self.bucket)
            }
            (Some(region), _) => {
                format!("the bucket '{}' is in the region {region}: set AWS_REGION={region}", self.bucket)
            }
            (None, Some(endpoint)) => format!("the bucket '{}' is to be reached at {endpoint}", self.bucket),
            (None, None) => format!("the bucket '{}' is in another region: set AWS_REGION to it", self.bucket),
        };
        (Kind::Invalid, "wrong_region", vec![hint])
    }
}

impl Bucket for AmazonS3 {
    fn library(&self) -> &dyn Library {
        self
    }
}

#[async_trait]
impl Dialect for S3 {
    fn words(&self) -> &'static Words {
        &WORDS
    }

    fn bucket(&self) -> &str {
        &self.bucket
    }

    fn bucket_in_host(&self, settings: &Settings) -> bool {
        !self.path_style(settings)
    }

    fn condition(&self) -> (HeaderName, &'static str) {
        (http::header::IF_NONE_MATCH, "*")
    }

    /// Reads the profile when it may say something that options and variables do not.
    async fn complete(&self, settings: &Settings) -> Result<Settings> {
        let source = self.credentials.source();
        let unknown = self.region.is_none() && matches!(source, Source::Chain { .. });
        if settings.endpoint.is_some() && !unknown {
            return Ok(settings.clone());
        }
        let profile = Box::pin(self.credentials.profile()).await?;
        if let Some(region) = &profile.region {
            self.found.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| region.clone());
        }
        let endpoint = profile.endpoint.as_deref().filter(|_| settings.endpoint.is_none());
        settings.with(endpoint, profile.ca_bundle)
    }

    async fn connect(&self, settings: &Settings, wire: Wire) -> Result<Box<dyn Bucket>> {
        let (region, path_style) = (self.region(), self.path_style(settings));
        if !path_style && Self::has_no_name(settings) {
            return Err(Error::invalid(format!(
                "{} is an address, and no bucket can stand in front of an address",
                settings.server()
            ))
            .with_hint("leave out --path-style=false, or give the name of the server as --endpoint"));
        }
        let (credentials, clock) = (self.credentials.clone(), self.clock.clone());
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(&region)
            .with_skip_signature(true)
            .with_http_connector(Signing { wire, credentials, clock, region })
            .with_retry(no_retries())
            .with_allow_http(settings.plain())
            .with_virtual_hosted_style_request(!path_style)
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(self.endpoint_of_bucket(endpoint, path_style));
        }
        let bucket =
            builder.build().map_err(|e| Error::invalid("the S3 client cannot be set up").with_source(causes(&e)))?;
        Ok(Box::new(bucket))
    }

    fn is_absent(&self, code: &str) -> bool {
        code == "NoSuchKey"
    }

    async fn amend(&self, reply: &Reply, signed_by: Option<u64>, done: &[Amendment]) -> Option<Amendment> {
        let error = reply.error();
        let code = error.as_ref().map_or("", |error| error.code.as_str());
        let first = |amendment| !done.contains(&amendment);
        if skewed(code) && first(Amendment::Clock) {
            if let Some(ahead) = self.clock.follow(reply.meta().date?) {
                let line = format!(
                    "this machine's clock is {} the store's: requests are signed with the store's time",
                    clock_in_words(ahead)
                );
                match &self.warn {
                    Some(warn) => warn.say(&line),
                    None => tracing::warn!("{line}"),
                }
            }
            return Some(Amendment::Clock);
        }
        if (ended(code) || unknown_key(code) || code == "SignatureDoesNotMatch") && first(Amendment::Credentials) {
            return Box::pin(self.credentials.renew(signed_by?)).await.then_some(Amendment::Credentials);
        }
        let region = moved(reply, code).then(|| region_of(reply, error.as_ref())).flatten()?;
        if self.region.is_some() || region == self.region() || !first(Amendment::Place) {
            return None;
        }
        self.found(&region);
        Some(Amendment::Place)
    }

    fn listing(&self, reply: &Reply) -> Result<Listing, String> {
        listing(reply)
    }

    fn verdict(&self, subject: &Subject<'_>, error: &ErrorDocument, reply: &Reply) -> Option<Verdict> {
        let server = subject.settings.server();
        Some(match (error.code.as_str(), reply.status.as_u16()) {
            ("NoSuchBucket", _) => subject.missing_bucket(),
            (code, _) if moved(reply, code) => {
                self.wrong_region(region_of(reply, Some(error)), error.endpoint.as_deref())
            }
            (code, _) if ended(code) => {
                (Kind::Denied, "credentials_expired", vec![self.credentials.source().expired_hint()])
            }
            (code, _) if unknown_key(code) => (
                Kind::Denied,
                "wrong_key",
                vec![format!("{server} does not know this access key: {}", self.credentials.source().key_hint())],
            ),
            ("SignatureDoesNotMatch", _) => (Kind::Denied, "wrong_key", {
                let elsewhere = match self.path_style(subject.settings) {
                    true if Self::has_no_name(subject.settings) => None,
                    true => Some("host name: set up again with --path-style=false"),
                    false => Some("path: set up again with --path-style"),
                };
                let secret = self.credentials.source().secret_hint();
                [format!("the secret does not fit the access key: {secret}")]
                    .into_iter()
                    .chain(elsewhere.map(|place| format!("or the server expects the bucket in the {place}")))
                    .collect()
            }),
            (code, _) if skewed(code) => (Kind::Denied, "clock_skew", vec![skew(subject.env, reply)]),
            ("NotImplemented", _) => subject.unsupported(),
            (
                "RequestTimeout" | "IncompleteBody" | "BadDigest" | "SlowDown" | "ServiceUnavailable" | "InternalError",
                _,
            ) => subject.busy(),
            _ => return None,
        })
    }

    fn bare_verdict(&self, reply: &Reply) -> Option<Verdict> {
        let region = region_of(reply, None)?;
        moved(reply, "").then(|| self.wrong_region(Some(region), None))
    }

    fn rights(&self, op: Op) -> Vec<String> {
        let bucket = &self.bucket;
        let action = match op {
            Op::Get => "s3:GetObject",
            Op::Create | Op::Put => "s3:PutObject",
            Op::Delete => "s3:DeleteObject",
            Op::List => "s3:ListBucket",
        };
        let mut hints = vec![match op {
            Op::List => format!("the right {action} on the bucket '{bucket}' (for this prefix) is needed"),
            _ => format!("the right {action} on '{bucket}/…' (for this prefix) is needed"),
        }];
        if op == Op::Get {
            hints.push(format!(
                "without the right s3:ListBucket on '{bucket}' a missing object is refused like this too"
            ));
        }
        let policy = match op {
            Op::Get | Op::List => "'peat datastore policy --role reader' prints a policy that is enough",
            Op::Create | Op::Put => "'peat datastore policy --role writer' prints a policy that is enough",
            Op::Delete => "'peat datastore policy --role gc' prints a policy that is enough",
        };
        hints.push(policy.to_owned());
        hints
    }
}

fn ended(code: &str) -> bool {
    matches!(code, "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "InvalidToken")
}

fn unknown_key(code: &str) -> bool {
    matches!(code, "InvalidAccessKeyId" | "NotSignedUp" | "InvalidClientTokenId" | "UnrecognizedClientException")
}

fn skewed(code: &str) -> bool {
    matches!(code, "RequestTimeTooSkewed" | "RequestExpired")
}

/// By how much the clocks differ.
fn skew(env: &Env, reply: &Reply) -> String {
    let remedy = "set it, for example by NTP";
    match reply.meta().date {
        Some(date) => format!(
            "this machine's clock is {} the server's, and signing with the server's time was refused too: {remedy}",
            clock_in_words(env.now().millis_since(date))
        ),
        None => format!("this machine's clock is wrong, and the server does not say by how much: {remedy}"),
    }
}

/// Whether the bucket is in another region. Some of these replies have no error document.
fn moved(reply: &Reply, code: &str) -> bool {
    match code {
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException" => true,
        "" => matches!(reply.status.as_u16(), 301 | 307 | 308 | 400),
        _ => matches!(reply.status.as_u16(), 301 | 307),
    }
}

/// The region that the bucket is said to be in, if that is the name of one.
fn region_of(reply: &Reply, error: Option<&ErrorDocument>) -> Option<String> {
    let named = reply.header("x-amz-bucket-region").or(error.and_then(|error| error.region.as_deref()))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!named.is_empty() && named.len() <= 63 && named.bytes().all(plain)).then(|| named.to_owned())
}

/// One page of `ListObjectsV2`.
#[derive(Debug, Deserialize)]
#[serde(rename = "ListBucketResult", rename_all = "PascalCase")]
struct ListBucketResult {
    is_truncated: bool,
    #[serde(default)]
    encoding_type: Option<String>,
    #[serde(default)]
    next_continuation_token: Option<String>,
    #[serde(default)]
    contents: Vec<Contents>,
    #[serde(default)]
    common_prefixes: Vec<CommonPrefix>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Contents {
    key: String,
    size: u64,
    #[serde(default)]
    last_modified: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CommonPrefix {
    prefix: String,
}

/// The listing in the body. Google's service answers in the same form.
pub(super) fn listing(reply: &Reply) -> Result<Listing, String> {
    let text = std::str::from_utf8(&reply.body).map_err(|e| e.to_string())?;
    // Another document could be read as a listing of nothing.
    if !text.contains("<ListBucketResult") {
        return Err("it is not a listing".to_owned());
    }
    let list: ListBucketResult = quick_xml::de::from_str(text).map_err(|e| e.to_string())?;
    let token = list.next_continuation_token.filter(|token| !token.is_empty());
    if list.is_truncated && token.is_none() {
        return Err("it is not the end but does not say how to go on".to_owned());
    }
    // Nobody asks for it, but some encode all the same, and say so.
    let encoded = list.encoding_type.is_some_and(|how| how.eq_ignore_ascii_case("url"));
    let plain = |name: String| if encoded { decoded(&name) } else { Ok(name) };
    let object = |object: Contents| {
        let last_modified = object.last_modified.and_then(|time| time.parse().ok());
        Ok(Listed { key: plain(object.key)?, size: object.size, last_modified })
    };
    Ok(Listing {
        objects: list.contents.into_iter().map(object).collect::<Result<_, String>>()?,
        prefixes: list.common_prefixes.into_iter().map(|common| plain(common.prefix)).collect::<Result<_, _>>()?,
        token: token.filter(|_| list.is_truncated),
    })
}

fn decoded(name: &str) -> Result<String, String> {
    // As in forms: a space may come as a plus sign.
    let spaced = name.replace('+', " ");
    let plain = percent_encoding::percent_decode_str(&spaced).decode_utf8();
    plain.map(std::borrow::Cow::into_owned).map_err(|_| format!("the key '{name}' cannot be decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_with_a_dot_is_addressed_by_path() {
        let style = |bucket: &str, options: &OpenOptions| {
            let (s3, settings) = S3::new(bucket, options, &Env::system([])).unwrap();
            s3.path_style(&settings)
        };
        let own = OpenOptions { endpoint: Some("https://s3.example.com".to_owned()), ..OpenOptions::default() };
        let said = OpenOptions { path_style: Some(false), ..own.clone() };
        assert!(style("my.bucket", &OpenOptions::default()) && style("bucket", &own));
        assert!(!style("bucket", &OpenOptions::default()) && !style("my.bucket", &said));
    }

    #[test]
    fn no_bucket_stands_before_an_address() {
        for (endpoint, is_address) in [
            ("http://127.0.0.1:9000", true),
            ("https://[::1]:9000", true),
            ("https://s3.example.com", false),
            ("http://localhost:9000", false),
        ] {
            let options =
                OpenOptions { endpoint: Some(endpoint.to_owned()), path_style: Some(false), ..OpenOptions::default() };
            let (_, settings) = S3::new("bucket", &options, &Env::system([])).unwrap();
            assert_eq!(S3::has_no_name(&settings), is_address, "{endpoint}");
        }
    }
}
