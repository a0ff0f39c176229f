//! Where a store is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use peat_types::{Error, Kind, Result};
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
    /// `file:///abs`: a folder.
    File {
        /// Absolute path.
        root: PathBuf,
    },
    /// `memory:`: gone with the process. For tests.
    Memory,
}

const FORMS: &str = "a store is s3://bucket/prefix or file:///absolute/folder";

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

fn parse_s3(text: &str, rest: &str) -> Result<StoreUrl> {
    if let Some((_, after)) = rest.split_once('@') {
        return Err(refuse(
            "s3://…@…",
            "credentials do not belong into it",
            format!(
                "write s3://{after} and give the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or in a profile"
            ),
        ));
    }
    if rest.contains('?') {
        return Err(refuse(text, "it takes no options", "endpoint and region are settings of their own"));
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_end_matches('/');
    let safe = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !(3..=63).contains(&bucket.len()) || !safe(bucket) {
        return Err(refuse(
            text,
            "a bucket name has 3 to 63 letters, digits, dots, hyphens and underscores",
            "write s3://bucket/prefix",
        ));
    }
    if !prefix.is_empty() && !prefix.split('/').all(|s| !s.is_empty() && s != "." && s != ".." && safe(s)) {
        return Err(refuse(
            text,
            "its prefix is not a path of letters, digits, dots, hyphens and underscores",
            "use a plain prefix such as s3://bucket/team/peat",
        ));
    }
    Ok(StoreUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
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
            "s3" => parse_s3(text, rest),
            "file" => parse_file(text),
            "gs" | "az" | "gcs" | "azure" | "abfs" | "abfss" => {
                Err(Error::new(Kind::Unsupported, format!("stores of kind '{scheme}://' are not in this version"))
                    .with_hint(
                        "use a bucket that speaks S3 (s3://bucket/prefix) or a folder (file:///absolute/folder)",
                    ))
            }
            "http" | "https" => Err(refuse(
                text,
                "an address alone does not name a bucket",
                format!("write s3://bucket/prefix and set AWS_ENDPOINT_URL_S3={scheme}://… for a server of your own"),
            )),
            _ => Err(refuse(text, "its scheme is unknown", FORMS)),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
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
