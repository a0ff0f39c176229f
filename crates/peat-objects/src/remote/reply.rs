//! A reply as it came over the wire.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use peat_types::Timestamp;
use serde::Deserialize;

use crate::Meta;

/// Status, headers and the whole body.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The error document of S3, as far as it is of use here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct S3Error {
    pub code: String,
    pub message: String,
    pub region: Option<String>,
    pub endpoint: Option<String>,
    pub request_id: Option<String>,
    pub actual_object_size: Option<u64>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The error document, when the body is one.
    pub fn error(&self) -> Option<S3Error> {
        let text = std::str::from_utf8(&self.body).ok()?;
        if !text.contains("<Error") {
            return None;
        }
        quick_xml::de::from_str::<S3Error>(text).ok().filter(|error| !error.code.is_empty())
    }

    /// A header that dates the reply or the object.
    fn date(&self, name: &str) -> Option<Timestamp> {
        let zoned = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(self.header(name)?).ok()?;
        Some(Timestamp::from_millis(zoned.as_millisecond()))
    }

    pub fn meta(&self) -> Meta {
        Meta { date: self.date("date"), last_modified: self.date("last-modified") }
    }

    pub fn request_id(&self) -> Option<&str> {
        ["x-amz-request-id", "x-request-id", "x-amz-id-2"].into_iter().find_map(|name| self.header(name))
    }

    /// Whether the server, and no portal or proxy in between, confirms an object: S3 always sends its ETag.
    pub fn confirms_object(&self) -> bool {
        self.status.is_success() && self.headers.contains_key(http::header::ETAG)
    }

    /// The server's answer to too many requests: how many seconds to leave it alone.
    pub fn retry_after(&self) -> Option<u64> {
        self.header("retry-after")?.trim().parse().ok()
    }

    /// First byte, last byte and size of `Content-Range: bytes 0-9/10`.
    pub fn content_range(&self) -> Option<(u64, u64, u64)> {
        let (span, size) = self.header("content-range")?.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = span.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?, size.parse().ok()?))
    }

    /// Size of the object that a range did not fit: `Content-Range: bytes */10`, or in the error document.
    pub fn size_of_unsatisfied(&self) -> Option<u64> {
        let header = || self.header("content-range")?.strip_prefix("bytes */")?.parse().ok();
        header().or_else(|| self.error()?.actual_object_size)
    }
}

/// One page of `ListObjectsV2`.
#[derive(Debug, Deserialize)]
#[serde(rename = "ListBucketResult", rename_all = "PascalCase")]
pub(super) struct ListReply {
    pub is_truncated: bool,
    #[serde(default)]
    pub next_continuation_token: Option<String>,
    #[serde(default)]
    pub contents: Vec<ListedObject>,
    #[serde(default)]
    pub common_prefixes: Vec<CommonPrefix>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListedObject {
    pub key: String,
    pub size: u64,
    #[serde(default)]
    pub last_modified: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CommonPrefix {
    pub prefix: String,
}

impl Reply {
    /// The listing in the body.
    pub fn list(&self) -> Result<ListReply, String> {
        let text = std::str::from_utf8(&self.body).map_err(|e| e.to_string())?;
        // Another document could be read as a listing of nothing.
        if !text.contains("<ListBucketResult") {
            return Err("it is not a listing".to_owned());
        }
        let list: ListReply = quick_xml::de::from_str(text).map_err(|e| e.to_string())?;
        let token = list.next_continuation_token.as_ref().is_some_and(|token| !token.is_empty());
        if list.is_truncated && !token {
            return Err("it is not the end but does not say how to go on".to_owned());
        }
        Ok(list)
    }
}
