//! A reply as it came over the wire.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use peat_types::Timestamp;
use serde::Deserialize;

use crate::{Listed, Meta};

/// Status, headers and the whole body.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An error document, as far as it is of use here. The services' XML is alike.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct ErrorDocument {
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
    pub fn error(&self) -> Option<ErrorDocument> {
        let text = std::str::from_utf8(&self.body).ok()?;
        if !text.contains("<Error") {
            return None;
        }
        quick_xml::de::from_str::<ErrorDocument>(text).ok().filter(|error| !error.code.is_empty())
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

    /// Whether the server, and no portal or proxy in between, confirms an object: all services send its ETag.
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

/// One page of a listing, whatever its protocol. Keys and prefixes are whole: the store's own prefix is in them.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub objects: Vec<Listed>,
    pub prefixes: Vec<String>,
    /// Where to go on, when this is not the end.
    pub token: Option<String>,
}
