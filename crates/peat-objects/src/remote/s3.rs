//! S3, as AWS and many others speak it.

mod aws_chain;
mod credentials;

use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderName;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use peat_types::{Env, Error, Kind, Result};
use reqwest::Url;
use serde::Deserialize;

use super::client::{Settings, first_of, no_retries};
use super::dialect::{Bucket, Dialect, Library, Verdict, Words};
use super::explain::Subject;
use super::reply::{ErrorDocument, Listing, Reply};
use super::wire::{Wire, causes};
use crate::{Listed, Op, OpenOptions};
use credentials::{Credentials, Source, expired_hint};

const WORDS: Words = Words {
    protocol: "an S3",
    service: "Amazon S3",
    bucket: "bucket",
    foreign: "not_s3",
    example: "https://s3.example.com",
    ca_variables: &["AWS_CA_BUNDLE", "SSL_CERT_FILE"],
};

/// A bucket of S3.
#[derive(Debug)]
pub(super) struct S3 {
    bucket: String,
    region: Option<String>,
    path_style: bool,
    credentials: Arc<Credentials>,
}

impl S3 {
    pub fn new(bucket: &str, options: &OpenOptions, env: &Env) -> Result<(Self, Settings)> {
        let endpoint = options.endpoint.clone().or_else(|| first_of(env, &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
        let settings = Settings::new(&WORDS, endpoint.as_deref(), options, env)?;
        let region = options.region.clone().or_else(|| first_of(env, &["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let path_style = options.path_style.unwrap_or(settings.endpoint.is_some() || bucket.contains('.'));
        let source = Source::choose(options.profile.as_deref(), env)?;
        let credentials = Arc::new(Credentials::new(source, env));
        Ok((Self { bucket: bucket.to_owned(), region, path_style, credentials }, settings))
    }

    /// The region: as set, of the profile, or where AWS begins.
    async fn region(&self, settings: &Settings) -> String {
        let source = self.credentials.source();
        match (&self.region, &settings.endpoint) {
            (Some(region), _) => region.clone(),
            (None, None) if source.renewable() => {
                Box::pin(aws_chain::region(source.profile())).await.unwrap_or_else(|| "us-east-1".to_owned())
            }
            _ => "us-east-1".to_owned(),
        }
    }

    /// Without path style the library expects the bucket in the host name already.
    fn endpoint_of_bucket(&self, endpoint: &Url) -> String {
        let plain = endpoint.as_str().trim_end_matches('/');
        match plain.split_once("://") {
            Some((scheme, rest)) if !self.path_style => format!("{scheme}://{}.{rest}", self.bucket),
            _ => plain.to_owned(),
        }
    }

    fn wrong_region(&self, region: Option<String>, endpoint: Option<&str>) -> Verdict {
        let hint = match (region, endpoint) {
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

    fn condition(&self) -> (HeaderName, &'static str) {
        (http::header::IF_NONE_MATCH, "*")
    }

    async fn connect(&self, settings: &Settings, wire: Wire) -> Result<Box<dyn Bucket>> {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(self.region(settings).await)
            .with_credentials(self.credentials.clone())
            .with_http_connector(wire)
            .with_retry(no_retries())
            .with_allow_http(settings.plain())
            .with_virtual_hosted_style_request(!self.path_style)
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(self.endpoint_of_bucket(endpoint));
        }
        let bucket =
            builder.build().map_err(|e| Error::invalid("the S3 client cannot be set up").with_source(causes(&e)))?;
        Ok(Box::new(bucket))
    }

    fn is_absent(&self, code: &str) -> bool {
        code == "NoSuchKey"
    }

    fn is_busy(&self, code: &str) -> bool {
        matches!(code, "RequestTimeout" | "SlowDown" | "InternalError")
    }

    fn has_ended(&self, reply: &Reply) -> bool {
        !reply.status.is_success() && reply.error().is_some_and(|error| ended(&error.code))
    }

    fn is_renewable(&self) -> bool {
        self.credentials.source().renewable()
    }

    async fn renew(&self) {
        self.credentials.renew().await;
    }

    fn listing(&self, reply: &Reply) -> Result<Listing, String> {
        listing(reply)
    }

    fn verdict(&self, subject: &Subject<'_>, error: &ErrorDocument, reply: &Reply) -> Option<Verdict> {
        let server = subject.settings.server();
        let region = reply.header("x-amz-bucket-region").or(error.region.as_deref()).map(str::to_owned);
        Some(match (error.code.as_str(), reply.status.as_u16()) {
            ("NoSuchBucket", _) => subject.missing_bucket(),
            (
                "PermanentRedirect"
                | "TemporaryRedirect"
                | "AuthorizationHeaderMalformed"
                | "IllegalLocationConstraintException",
                _,
            )
            | (_, 301 | 307) => self.wrong_region(region, error.endpoint.as_deref()),
            (code, _) if ended(code) => {
                (Kind::Denied, "credentials_expired", vec![expired_hint(self.credentials.source())])
            }
            ("InvalidAccessKeyId" | "InvalidClientTokenId" | "UnrecognizedClientException", _) => (
                Kind::Denied,
                "wrong_key",
                vec![format!("{server} does not know this access key: check AWS_ACCESS_KEY_ID or the profile")],
            ),
            ("SignatureDoesNotMatch", _) => (
                Kind::Denied,
                "wrong_key",
                vec![
                    "the secret does not fit the access key: check AWS_SECRET_ACCESS_KEY or the profile".to_owned(),
                    format!(
                        "or the server expects the bucket in the {}",
                        if self.path_style { "host name: switch path style off" } else { "path: switch path style on" }
                    ),
                ],
            ),
            ("RequestTimeTooSkewed" | "RequestExpired", _) => (Kind::Denied, "clock_skew", vec![subject.skew(reply)]),
            ("NotImplemented", _) => subject.unsupported(),
            (
                "RequestTimeout" | "IncompleteBody" | "BadDigest" | "SlowDown" | "ServiceUnavailable" | "InternalError",
                _,
            ) => subject.busy(),
            _ => return None,
        })
    }

    fn bare_verdict(&self, reply: &Reply) -> Option<Verdict> {
        let region = reply.header("x-amz-bucket-region")?;
        matches!(reply.status.as_u16(), 301 | 307 | 308 | 400).then(|| self.wrong_region(Some(region.to_owned()), None))
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
        hints
    }
}

fn ended(code: &str) -> bool {
    matches!(code, "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "InvalidToken")
}

/// One page of `ListObjectsV2`.
#[derive(Debug, Deserialize)]
#[serde(rename = "ListBucketResult", rename_all = "PascalCase")]
struct ListBucketResult {
    is_truncated: bool,
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
    let objects = list.contents.into_iter().map(|object| Listed {
        key: object.key,
        size: object.size,
        last_modified: object.last_modified.and_then(|time| time.parse().ok()),
    });
    Ok(Listing {
        objects: objects.collect(),
        prefixes: list.common_prefixes.into_iter().map(|common| common.prefix).collect(),
        token: token.filter(|_| list.is_truncated),
    })
}
