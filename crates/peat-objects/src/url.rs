//! Where a store is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use peat_types::{Error, Result};
use serde::{Deserialize, Serialize};
use url::Url;

/// The URL of a store. Its text form is canonical: equal stores have equal texts as far as that can be known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum StoreUrl {
    /// `s3://bucket/prefix`: a bucket behind the S3 protocol.
    S3 {
        /// Name of the bucket.
        bucket: String,
        /// Folder in it, without slashes at its ends; may be empty.
        prefix: String,
    },
    /// `gs://bucket/prefix`: a bucket of Google Cloud Storage.
    Gcs {
        /// Name of the bucket.
        bucket: String,
        /// Folder in it, without slashes at its ends; may be empty.
        prefix: String,
    },
    /// `az://container/prefix`: a container of Azure Blob Storage. Which account it is in is a setting of its own.
    Azure {
        /// Name of the container.
        container: String,
        /// Folder in it, without slashes at its ends; may be empty.
        prefix: String,
    },
    /// `file:///abs`: a folder.
    File {
        /// Absolute path.
        root: PathBuf,
    },
    /// `memory:`: gone with the process. For tests.
    Memory,
}

const FORMS: &str =
    "a store is s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///absolute/folder";

fn refuse(text: &str, why: &str, hint: impl Into<String>) -> Error {
    Error::invalid(format!("'{text}' is not a store URL: {why}")).with_code("invalid_store_url").with_hint(hint)
}

fn parse_file(text: &str) -> Result<StoreUrl> {
    let absolute = || refuse(text, "the folder must be absolute", format!("write file://{}", "/absolute/folder"));
    if !text.starts_with("file:///") {
        return Err(absolute());
    }
    let url = Url::parse(text).map_err(|e| refuse(text, "it cannot be read", FORMS).with_source(e))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refuse(text, "it holds '?' or '#'", "write them as %3F and %23"));
    }
    let root = url.to_file_path().map_err(|()| absolute())?;
    // One spelling for one folder; PathBuf drops double and trailing slashes when it is put together again.
    Ok(StoreUrl::File { root: root.components().collect() })
}

/// A kind of bucket: its scheme, what a bucket is called there, the longest name, and where credentials belong.
struct Bucket {
    scheme: &'static str,
    word: &'static str,
    longest: usize,
    credentials: &'static str,
}

const S3: Bucket = Bucket {
    scheme: "s3",
    word: "bucket",
    longest: 63,
    credentials: "give the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or in a profile",
};
/// A name with dots may be longer than one without.
const GCS: Bucket = Bucket {
    scheme: "gs",
    word: "bucket",
    longest: 222,
    credentials: "name a file of credentials in GOOGLE_APPLICATION_CREDENTIALS",
};
const AZURE: Bucket =
    Bucket { scheme: "az", word: "container", longest: 63, credentials: "name the account in AZURE_STORAGE_ACCOUNT" };

impl Bucket {
    /// Name and prefix in what follows `scheme://`.
    fn parse(&self, text: &str, rest: &str) -> Result<(String, String)> {
        let Self { scheme, word, longest, .. } = self;
        if let Some((_, after)) = rest.split_once('@') {
            return Err(refuse(
                &format!("{scheme}://…@…"),
                "credentials do not belong into it",
                format!("write {scheme}://{after} and {}", self.credentials),
            ));
        }
        if rest.contains('?') {
            return Err(refuse(text, "it takes no options", "endpoint and region are settings of their own"));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let safe = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if !(3..=*longest).contains(&bucket.len()) || !safe(bucket) {
            return Err(refuse(
                text,
                &format!("a {word} name has 3 to {longest} letters, digits, dots, hyphens and underscores"),
                format!("write {scheme}://{word}/prefix"),
            ));
        }
        if !prefix.is_empty() && !prefix.split('/').all(|s| !s.is_empty() && s != "." && s != ".." && safe(s)) {
            return Err(refuse(
                text,
                "its prefix is not a path of letters, digits, dots, hyphens and underscores",
                format!("use a plain prefix such as {scheme}://{word}/team/peat"),
            ));
        }
        Ok((bucket.to_owned(), prefix.to_owned()))
    }
}

fn write_bucket(f: &mut fmt::Formatter<'_>, scheme: &str, bucket: &str, prefix: &str) -> fmt::Result {
    match prefix {
        "" => write!(f, "{scheme}://{bucket}"),
        prefix => write!(f, "{scheme}://{bucket}/{prefix}"),
    }
}

impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text {
                "memory:" => Ok(Self::Memory),
                path if path.starts_with('/') => {
                    Err(refuse(text, "it has no scheme", format!("write file://{path} for a folder")))
                }
                _ => Err(refuse(text, "it has no scheme", FORMS)),
            };
        };
        match scheme {
            "s3" => S3.parse(text, rest).map(|(bucket, prefix)| Self::S3 { bucket, prefix }),
            "gs" => GCS.parse(text, rest).map(|(bucket, prefix)| Self::Gcs { bucket, prefix }),
            "az" => AZURE.parse(text, rest).map(|(container, prefix)| Self::Azure { container, prefix }),
            "file" => parse_file(text),
            "gcs" => Err(refuse(text, "its scheme is unknown", format!("write gs://{rest}"))),
            "azure" | "abfs" | "abfss" | "wasb" | "wasbs" => Err(refuse(
                text,
                "its scheme is unknown",
                "write az://container/prefix and name the account in AZURE_STORAGE_ACCOUNT or by --endpoint https://account.blob.core.windows.net",
            )),
            "http" | "https" => Err(refuse(
                text,
                "an address alone does not name a bucket",
                format!("write s3://bucket/prefix and set AWS_ENDPOINT_URL_S3={scheme}://… for a server of your own"),
            )),
            _ => Err(refuse(text, "its scheme is unknown", FORMS)),
        }
    }
}

impl StoreUrl {
    /// The folder of a bucket that this one lies in, and its own name there; `None` for a whole bucket, and for what is none.
    pub fn above(&self) -> Option<(Self, String)> {
        let cut = |prefix: &str| match prefix.rsplit_once('/') {
            Some((above, name)) => Some((above.to_owned(), name.to_owned())),
            None => (!prefix.is_empty()).then(|| (String::new(), prefix.to_owned())),
        };
        let mut above = self.clone();
        let (Self::S3 { prefix, .. } | Self::Gcs { prefix, .. } | Self::Azure { prefix, .. }) = &mut above else {
            return None;
        };
        let (rest, name) = cut(prefix)?;
        *prefix = rest;
        Some((above, name))
    }

    /// The word before the colon.
    pub const fn scheme(&self) -> &'static str {
        match self {
            Self::S3 { .. } => S3.scheme,
            Self::Gcs { .. } => GCS.scheme,
            Self::Azure { .. } => AZURE.scheme,
            Self::File { .. } => "file",
            Self::Memory => "memory",
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, prefix } => write_bucket(f, S3.scheme, bucket, prefix),
            Self::Gcs { bucket, prefix } => write_bucket(f, GCS.scheme, bucket, prefix),
            Self::Azure { container, prefix } => write_bucket(f, AZURE.scheme, container, prefix),
            Self::File { root } => match Url::from_file_path(root) {
                Ok(url) => f.write_str(url.as_str()),
                Err(()) => write!(f, "file:{}", root.display()),
            },
            Self::Memory => f.write_str("memory:"),
        }
    }
}

impl TryFrom<String> for StoreUrl {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<StoreUrl> for String {
    fn from(url: StoreUrl) -> Self {
        url.to_string()
    }
}
