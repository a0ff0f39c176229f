//! What the two services answer: one store, told in their words.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use md5::{Digest, Md5};
use peat_objects::{Created, List, Object, Page, Range, Store};
use peat_types::{Error, Kind, Timestamp};
use s3s::Body;

use super::{ACCOUNT, BUCKET, Service};
use crate::s3::script::{Backend, whole};

/// One of the services over a store whose keys are those of the bucket.
#[derive(Clone)]
pub(super) struct Served {
    service: Service,
    store: Arc<Mutex<Arc<dyn Store>>>,
}

/// An answer before it is put into words.
enum Answer {
    Object { object: Object, whole: bool, etag: String, head: bool },
    Written { etag: String, at: Option<Timestamp> },
    Exists,
    Listing(Page, String),
    Deleted,
    NoObject,
    NoBucket,
    OutOfRange(u64),
    Unauthorised,
    Failed(Error),
    Strange,
}

impl Served {
    pub fn new(service: Service, store: Arc<dyn Store>) -> Self {
        Self { service, store: Arc::new(Mutex::new(store)) }
    }

    pub fn set_store(&self, store: Arc<dyn Store>) {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = store;
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bucket and key of a path.
    pub fn names(&self, path: &str) -> (String, String) {
        let path = path.replace("%2F", "/").replace("%2E", ".").replace("%2D", "-");
        let path = path.trim_start_matches('/');
        let path = match self.service {
            Service::Gcs => path,
            Service::Azure => path.strip_prefix(ACCOUNT).unwrap_or_default().trim_start_matches('/'),
        };
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        (bucket.to_owned(), key.to_owned())
    }

    /// What every reply of the service carries.
    pub fn sign(&self, reply: &mut Response<Body>, number: usize) {
        let name = match self.service {
            Service::Gcs => "x-guploader-uploadid",
            Service::Azure => "x-ms-request-id",
        };
        if let Ok(id) = HeaderValue::from_str(&format!("request-{number}")) {
            reply.headers_mut().entry(name).or_insert(id);
        }
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let key = format!("SharedKey {ACCOUNT}:");
        let sent = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        sent.starts_with("Bearer ") || self.service == Service::Azure && sent.starts_with(&key)
    }

    /// Whether a PUT is a create.
    fn conditional(&self, headers: &HeaderMap) -> bool {
        match self.service {
            Service::Gcs => headers.get("x-goog-if-generation-match").is_some_and(|value| value == "0"),
            Service::Azure => headers.get(http::header::IF_NONE_MATCH).is_some_and(|value| value == "*"),
        }
    }

    async fn ask(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let (bucket, key) = self.names(head.uri.path());
        let Ok(body) = whole(body).await else { return Answer::Strange };
        if !self.knows(&head.headers) {
            return Answer::Unauthorised;
        }
        if bucket != BUCKET {
            return Answer::NoBucket;
        }
        let answer = match (&head.method, key.as_str()) {
            (&Method::GET, "") => self.list(head.uri.query().unwrap_or_default()).await,
            (&Method::GET | &Method::HEAD, key) => {
                let part = head.headers.get(http::header::RANGE).and_then(|value| value.to_str().ok());
                self.get(key, part, head.method == Method::HEAD).await
            }
            (&Method::PUT, key) => self.put(key, body, self.conditional(&head.headers)).await,
            (&Method::DELETE, key) => self.delete(key).await,
            _ => Ok(Answer::Strange),
        };
        answer.unwrap_or_else(Answer::Failed)
    }

    async fn get(&self, key: &str, part: Option<&str>, head: bool) -> Result<Answer, Error> {
        let Some(all) = self.store().get(key, Range::All).await? else { return Ok(Answer::NoObject) };
        let etag = etag(&all.bytes);
        let bounds = part.and_then(|text| text.strip_prefix("bytes=")?.split_once('-'));
        let range = match (bounds, self.service) {
            (Some((first, last)), _) if !first.is_empty() => {
                let (first, last) = (first.parse().unwrap_or(0), last.parse::<u64>().unwrap_or(u64::MAX));
                Some(Range::Part { offset: first, len: last.saturating_sub(first).saturating_add(1) })
            }
            (Some((_, len)), Service::Gcs) => Some(Range::Last { len: len.parse().unwrap_or(0) }),
            // Azure knows no other ranges.
            _ => None,
        };
        let Some(range) = range else { return Ok(Answer::Object { object: all, whole: true, etag, head }) };
        let Some(object) = self.store().get(key, range).await? else { return Ok(Answer::NoObject) };
        if object.bytes.is_empty() {
            return Ok(Answer::OutOfRange(all.size));
        }
        // A store that lies gives the whole object.
        let whole = object.bytes.len() == all.bytes.len();
        Ok(Answer::Object { object, whole, etag, head })
    }

    async fn put(&self, key: &str, body: Bytes, create: bool) -> Result<Answer, Error> {
        let (store, etag) = (self.store(), etag(&body));
        let meta = match create {
            false => store.put(key, body).await?,
            true => match store.create(key, body).await? {
                Created::Created(meta) => meta,
                Created::Exists => return Ok(Answer::Exists),
            },
        };
        Ok(Answer::Written { etag, at: meta.last_modified })
    }

    async fn list(&self, query: &str) -> Result<Answer, Error> {
        let asked = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
            Some(value.replace("%2F", "/").replace("%20", " ").replace('+', " "))
        };
        let (max, token) = match self.service {
            Service::Gcs => ("max-keys", "continuation-token"),
            Service::Azure => ("maxresults", "marker"),
        };
        let list = List {
            prefix: asked("prefix").unwrap_or_default(),
            delimiter: asked("delimiter").is_some(),
            max_keys: asked(max).and_then(|max| max.parse().ok()),
            token: asked(token),
        };
        Ok(Answer::Listing(self.store().list(&list).await?, list.prefix))
    }

    async fn delete(&self, key: &str) -> Result<Answer, Error> {
        let store = self.store();
        if store.get(key, Range::All).await?.is_none() {
            return Ok(Answer::NoObject);
        }
        store.delete(key).await?;
        Ok(Answer::Deleted)
    }

    fn error(&self, status: u16, code: &str, message: &str) -> Response<Body> {
        let text = format!(
            "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        );
        match self.service {
            Service::Gcs => reply(status, &[("content-type", "application/xml")], text),
            // With the mark at the beginning that the service really sends.
            Service::Azure => reply(
                status,
                &[("content-type", "application/xml"), ("x-ms-error-code", code)],
                format!("\u{feff}{text}"),
            ),
        }
    }

    fn words(&self, answer: Answer) -> Response<Body> {
        let gcs = self.service == Service::Gcs;
        match answer {
            Answer::Object { object, whole, etag, head } => {
                let mut headers = vec![("etag", etag), ("content-type", "application/octet-stream".to_owned())];
                headers.extend(object.meta.last_modified.map(|at| ("last-modified", http_date(at))));
                if head {
                    headers.push(("content-length", object.size.to_string()));
                    return reply_owned(200, &headers, Bytes::new());
                }
                reply_owned(if whole { 200 } else { 206 }, &headers, object.bytes)
            }
            Answer::Written { etag, at } => {
                let mut headers = vec![("etag", etag)];
                headers.extend(at.map(|at| ("last-modified", http_date(at))));
                reply_owned(if gcs { 200 } else { 201 }, &headers, Bytes::new())
            }
            Answer::Exists if gcs => {
                self.error(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
            }
            Answer::Exists => self.error(409, "BlobAlreadyExists", "The specified blob already exists."),
            Answer::Listing(page, prefix) => {
                let text = if gcs { list_bucket_result(&page, &prefix) } else { enumeration_results(&page) };
                reply(200, &[("content-type", "application/xml")], text)
            }
            Answer::Deleted => reply(if gcs { 204 } else { 202 }, &[], String::new()),
            Answer::NoObject if gcs => self.error(404, "NoSuchKey", "The specified key does not exist."),
            Answer::NoObject => self.error(404, "BlobNotFound", "The specified blob does not exist."),
            Answer::NoBucket if gcs => self.error(404, "NoSuchBucket", "The specified bucket does not exist."),
            Answer::NoBucket => self.error(404, "ContainerNotFound", "The specified container does not exist."),
            Answer::OutOfRange(size) => {
                let mut reply = self.error(416, "InvalidRange", "The range specified is invalid.");
                if let Ok(range) = HeaderValue::from_str(&format!("bytes */{size}")) {
                    reply.headers_mut().insert(http::header::CONTENT_RANGE, range);
                }
                reply
            }
            Answer::Unauthorised if gcs => self.error(401, "AuthenticationRequired", "Authentication required."),
            Answer::Unauthorised => {
                self.error(403, "AuthenticationFailed", "Server failed to authenticate the request.")
            }
            Answer::Failed(error) => match error.kind() {
                Kind::Unsupported => self.error(501, "NotImplemented", "not implemented"),
                Kind::Denied => {
                    self.error(403, if gcs { "AccessDenied" } else { "AuthorizationPermissionMismatch" }, "denied")
                }
                _ => self.error(500, "InternalError", &error.to_string()),
            },
            Answer::Strange => self.error(400, "InvalidRequest", "this server does not know that"),
        }
    }
}

impl Backend for Served {
    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let part = request.headers().get(http::header::RANGE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let answer = self.ask(request).await;
        let range = match &answer {
            Answer::Object { object, whole: false, .. } => content_range(part.as_deref(), object),
            _ => None,
        };
        let mut reply = self.words(answer);
        if let Some(range) = range.and_then(|range| HeaderValue::from_str(&range).ok()) {
            reply.headers_mut().insert(http::header::CONTENT_RANGE, range);
        }
        reply
    }
}

/// Where the bytes lie, from what was asked.
fn content_range(part: Option<&str>, object: &Object) -> Option<String> {
    let (first, _) = part?.strip_prefix("bytes=")?.split_once('-')?;
    let length = object.bytes.len() as u64;
    let first = first.parse().unwrap_or(object.size - length);
    Some(format!("bytes {first}-{}/{}", first + length - 1, object.size))
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", hex::encode(Md5::digest(bytes)))
}

fn http_date(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn list_bucket_result(page: &Page, prefix: &str) -> String {
    let mut text = format!(
        "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'><Name>{BUCKET}</Name><Prefix>{prefix}</Prefix>"
    );
    let _ = write!(text, "<IsTruncated>{}</IsTruncated>", page.token.is_some());
    if let Some(token) = &page.token {
        let _ = write!(text, "<NextContinuationToken>{token}</NextContinuationToken>");
    }
    for listed in &page.keys {
        let at = listed.last_modified.map(|at| at.to_string()).unwrap_or_default();
        let _ = write!(
            text,
            "<Contents><Key>{}</Key><Generation>1</Generation><LastModified>{at}</LastModified><ETag>\"x\"</ETag><Size>{}</Size></Contents>",
            listed.key, listed.size
        );
    }
    for prefix in &page.prefixes {
        let _ = write!(text, "<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>");
    }
    text + "</ListBucketResult>"
}

/// Objects and prefixes in one order, as the service mixes them.
fn enumeration_results(page: &Page) -> String {
    let mut items: Vec<(&str, String)> = page
        .prefixes
        .iter()
        .map(|prefix| (prefix.as_str(), format!("<BlobPrefix><Name>{prefix}</Name></BlobPrefix>")))
        .collect();
    for listed in &page.keys {
        let at = listed.last_modified.map(http_date).unwrap_or_default();
        items.push((
            &listed.key,
            format!(
                "<Blob><Name>{}</Name><Properties><Last-Modified>{at}</Last-Modified><Etag>0x1</Etag><Content-Length>{}</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>",
                listed.key, listed.size
            ),
        ));
    }
    if !page.prefixes.is_empty() {
        items.sort_by_key(|(name, _)| *name);
    }
    let items: String = items.into_iter().map(|(_, item)| item).collect();
    let token = page.token.as_deref().unwrap_or_default();
    format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ContainerName=\"{BUCKET}\"><Blobs>{items}</Blobs><NextMarker>{token}</NextMarker></EnumerationResults>"
    )
}

fn reply(status: u16, headers: &[(&'static str, &str)], body: String) -> Response<Body> {
    let headers: Vec<(&'static str, String)> =
        headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    reply_owned(status, &headers, Bytes::from(body))
}

fn reply_owned(status: u16, headers: &[(&'static str, String)], body: Bytes) -> Response<Body> {
    let mut reply = Response::new(Body::from(body));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            reply.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    reply
}
