//! A reply as it came over the wire.

use std::time::Duration;

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
    /// What else the service says about the cause.
    #[serde(alias = "AuthenticationErrorDetail")]
    pub details: Option<String>,
    pub actual_object_size: Option<u64>,
}

/// The error of Google's JSON interface.
#[derive(Deserialize)]
struct GoogleError {
    error: GoogleErrorBody,
}

#[derive(Deserialize)]
struct GoogleErrorBody {
    message: String,
    #[serde(default)]
    errors: Vec<GoogleReason>,
}

#[derive(Deserialize)]
struct GoogleReason {
    reason: String,
}

impl GoogleError {
    fn document(self) -> Option<ErrorDocument> {
        let code = self.error.errors.into_iter().next()?.reason;
        Some(ErrorDocument { code, message: self.error.message, ..ErrorDocument::default() })
    }
}

/// A date as HTTP writes it.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp::from_millis(date.as_millisecond()))
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The error document, when the body is one, or what stands for it: Azure has its code in a header as well, for
    /// replies without a body; the front ends of Google speak JSON.
    pub fn error(&self) -> Option<ErrorDocument> {
        let text = std::str::from_utf8(&self.body).ok()?.trim_start_matches('\u{feff}');
        let document = if text.contains("<Error") {
            quick_xml::de::from_str(text).ok()
        } else if text.starts_with('{') {
            serde_json::from_str(text).ok().and_then(GoogleError::document)
        } else {
            None
        };
        let document = document.filter(|error| !error.code.is_empty()).map(|error| ErrorDocument {
            // Azure repeats request and time there.
            message: error.message.split("\nRequestId:").next().unwrap_or_default().to_owned(),
            ..error
        });
        document.or_else(|| {
            let code = self.header("x-ms-error-code")?.to_owned();
            Some(ErrorDocument { code, ..ErrorDocument::default() })
        })
    }

    /// A header that dates the reply or the object.
    fn date(&self, name: &str) -> Option<Timestamp> {
        http_date(self.header(name)?)
    }

    pub fn meta(&self) -> Meta {
        Meta { date: self.date("date"), last_modified: self.date("last-modified") }
    }

    pub fn request_id(&self) -> Option<&str> {
        ["x-amz-request-id", "x-guploader-uploadid", "x-ms-request-id", "x-request-id", "x-amz-id-2"]
            .into_iter()
            .find_map(|name| self.header(name))
    }

    /// Whether the server, and no portal or proxy in between, confirms an object: all services send its ETag.
    pub fn confirms_object(&self) -> bool {
        self.status.is_success() && self.headers.contains_key(http::header::ETAG)
    }

    /// For how long the server wants to be left alone: seconds, or until a date, which is compared with the server's own
    /// clock if it says the time and with `now` if not (RFC 9110, 10.2.3).
    pub fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        let text = self.header("retry-after")?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let pause = self.date("retry-after")?.millis_since(self.date("date").unwrap_or(now));
        Some(Duration::from_millis(u64::try_from(pause).unwrap_or(0)))
    }

    /// Whether a body that was cut off could be told from a whole one.
    pub fn tells_its_length(&self) -> bool {
        [http::header::CONTENT_LENGTH, http::header::TRANSFER_ENCODING]
            .iter()
            .any(|name| self.headers.contains_key(name))
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
