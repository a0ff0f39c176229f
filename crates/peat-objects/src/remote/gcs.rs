//! Google Cloud Storage, through its XML interface.

mod credentials;

use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderName;
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder};
use peat_types::{Env, Error, Kind, Result};

use super::client::{Settings, first_of, no_retries};
use super::dialect::{Amendment, Bucket, Dialect, Library, Verdict, Words};
use super::explain::Subject;
use super::reply::{ErrorDocument, Listing, Reply};
use super::s3;
use super::wire::{Wire, causes};
use crate::{Op, OpenOptions};
use credentials::{Credentials, Source};

const WORDS: Words = Words {
    protocol: "a Google Cloud Storage",
    service: "Google Cloud Storage",
    bucket: "bucket",
    foreign: "not_gcs",
    example: "https://storage.googleapis.com",
    ca_variables: &["SSL_CERT_FILE"],
};

/// The variable by which Google's own libraries find an emulator, which wants no credentials.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

/// A bucket of Google Cloud Storage.
#[derive(Debug)]
pub(super) struct Gcs {
    bucket: String,
    credentials: Arc<Credentials>,
}

impl Gcs {
    pub fn new(bucket: &str, options: &OpenOptions, env: &Env) -> Result<(Self, Settings)> {
        let emulator = first_of(env, &[EMULATOR]).map(|host| match host.contains("://") {
            true => host,
            false => format!("http://{host}"),
        });
        let source =
            if options.endpoint.is_none() && emulator.is_some() { Source::Anonymous } else { Source::choose(env) };
        let endpoint = options.endpoint.clone().or(emulator);
        let settings = Settings::new(&WORDS, endpoint.as_deref(), options, env)?;
        let login = Settings::new(&WORDS, None, options, env)?;
        let credentials = Arc::new(Credentials::new(source, login, options, env));
        Ok((Self { bucket: bucket.to_owned(), credentials }, settings))
    }
}

impl Bucket for GoogleCloudStorage {
    fn library(&self) -> &dyn Library {
        self
    }
}

#[async_trait]
impl Dialect for Gcs {
    fn words(&self) -> &'static Words {
        &WORDS
    }

    fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Generation 0 is the one of an object that is not there.
    fn condition(&self) -> (HeaderName, &'static str) {
        (HeaderName::from_static("x-goog-if-generation-match"), "0")
    }

    async fn connect(&self, settings: &Settings, wire: Wire) -> Result<Box<dyn Bucket>> {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&self.bucket)
            .with_credentials(self.credentials.clone())
            .with_http_connector(wire)
            .with_retry(no_retries());
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_base_url(endpoint.as_str().trim_end_matches('/'));
        }
        let bucket = builder.build().map_err(|e| {
            Error::invalid("the client of Google Cloud Storage cannot be set up").with_source(causes(&e))
        })?;
        Ok(Box::new(bucket))
    }

    fn is_absent(&self, code: &str) -> bool {
        code == "NoSuchKey"
    }

    async fn amend(&self, reply: &Reply, _signed_by: Option<u64>, done: &[Amendment]) -> Option<Amendment> {
        let ended = reply.status.as_u16() == 401 || reply.error().is_some_and(|error| ended(&error.code));
        if !ended || !self.credentials.source().renewable() || done.contains(&Amendment::Credentials) {
            return None;
        }
        self.credentials.renew().await;
        Some(Amendment::Credentials)
    }

    fn listing(&self, reply: &Reply) -> Result<Listing, String> {
        s3::listing(reply)
    }

    fn verdict(&self, subject: &Subject<'_>, error: &ErrorDocument, reply: &Reply) -> Option<Verdict> {
        let status = reply.status.as_u16();
        Some(match error.code.as_str() {
            "NoSuchBucket" => subject.missing_bucket(),
            code if ended(code) || status == 401 => {
                (Kind::Denied, "credentials_expired", vec![self.credentials.source().expired_hint()])
            }
            "RequestTimeTooSkewed" => (Kind::Denied, "clock_skew", vec![subject.skew(reply)]),
            "UserProjectMissing" => (
                Kind::Invalid,
                "store_answer",
                vec![format!("the bucket '{}' bills whoever reads it, which Peat does not do: use another", self.bucket)],
            ),
            "AccountProblem" | "UserProjectAccountProblem" => (
                Kind::Denied,
                "denied",
                vec![format!("the project of the bucket '{}' must have a billing account that is open", self.bucket)],
            ),
            "NotImplemented" => subject.unsupported(),
            _ if status == 429 => (
                Kind::Offline,
                "offline",
                vec![
                    "the service takes about one write a second of one object, and few at once of a new bucket: try again later"
                        .to_owned(),
                ],
            ),
            "RequestTimeout" | "SlowDown" | "InternalError" | "ServiceUnavailable" => subject.busy(),
            _ => return None,
        })
    }

    fn rights(&self, op: Op) -> Vec<String> {
        let bucket = &self.bucket;
        let permission = match op {
            Op::Get => "storage.objects.get",
            Op::Create => "storage.objects.create",
            Op::Put => "storage.objects.create and, to replace an object, storage.objects.delete",
            Op::Delete => "storage.objects.delete",
            Op::List => "storage.objects.list",
        };
        let mut hints =
            vec![format!("{permission} on the bucket '{bucket}' is needed: the role roles/storage.objectUser has it")];
        if op == Op::Get {
            hints.push(format!("without storage.objects.list on '{bucket}' a missing object is refused like this too"));
        }
        hints
    }
}

fn ended(code: &str) -> bool {
    matches!(code, "ExpiredToken" | "InvalidToken" | "AuthenticationRequired" | "authError")
}
