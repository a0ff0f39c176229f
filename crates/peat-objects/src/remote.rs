//! A bucket behind a network protocol.
//!
//! `object_store` builds and signs the requests. What came back is judged here, from the raw reply: the library's own
//! idea of "not found" would include a missing bucket and the page of a proxy. What differs from service to service is
//! in a [`Dialect`].

mod azure;
mod client;
mod collector;
mod dialect;
mod explain;
mod gcs;
mod reply;
mod s3;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, PutMode, PutPayload};
use peat_types::{Env, Error, Kind, Result};
use tokio::sync::Mutex;

use crate::key::{check_key, check_list};
use crate::traced::tries_before;
use crate::{Created, List, Listed, Meta, Object, Op, OpenOptions, Page, Range, Store, StoreUrl};
use azure::Azure;
use client::Settings;
pub use collector::collector_client;
use dialect::{Amendment, Bucket, Dialect};
use explain::Subject;
use gcs::Gcs;
use reply::Reply;
use s3::S3;
use wire::{Context, Exchange, Lost, Wire};

/// A folder of a bucket. Connects and loads credentials on the first request.
pub(crate) struct Remote {
    url: Arc<StoreUrl>,
    /// Empty, or ends in `/`.
    prefix: String,
    dialect: Box<dyn Dialect>,
    options: OpenOptions,
    env: Env,
    /// As far as they are known.
    settings: StdMutex<Arc<Settings>>,
    /// None before the first request, and after it turned out that the bucket is elsewhere.
    bucket: Mutex<Option<Arc<dyn Bucket>>>,
}

/// One request to the library, made afresh for every attempt.
enum Request<'a> {
    Get(&'a str, Range),
    Head(&'a str),
    Put(&'a str, PutMode, Bytes),
    List(&'a List),
    Delete(&'a str),
}

impl Request<'_> {
    /// Bytes of its body.
    const fn len(&self) -> usize {
        if let Self::Put(_, _, body) = self { body.len() } else { 0 }
    }
}

impl Remote {
    /// A folder of a bucket behind S3.
    pub(crate) fn s3(bucket: &str, prefix: &str, options: &OpenOptions, env: &Env) -> Result<Self> {
        let url = StoreUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() };
        Self::new(url, prefix, S3::new(bucket, options, env), options, env)
    }

    /// A folder of a bucket of Google Cloud Storage.
    pub(crate) fn gcs(bucket: &str, prefix: &str, options: &OpenOptions, env: &Env) -> Result<Self> {
        let url = StoreUrl::Gcs { bucket: bucket.to_owned(), prefix: prefix.to_owned() };
        Self::new(url, prefix, Gcs::new(bucket, options, env), options, env)
    }

    /// A folder of a container of Azure Blob Storage.
    pub(crate) fn azure(container: &str, prefix: &str, options: &OpenOptions, env: &Env) -> Result<Self> {
        let url = StoreUrl::Azure { container: container.to_owned(), prefix: prefix.to_owned() };
        Self::new(url, prefix, Azure::new(container, options, env), options, env)
    }

    fn new(
        url: StoreUrl,
        prefix: &str,
        dialect: Result<(impl Dialect + 'static, Settings)>,
        options: &OpenOptions,
        env: &Env,
    ) -> Result<Self> {
        let (dialect, settings) = dialect.map_err(|e| e.prefixed(format_args!("open {url}")))?;
        Ok(Self {
            url: Arc::new(url),
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            dialect: Box::new(dialect),
            options: options.clone(),
            env: env.clone(),
            settings: StdMutex::new(Arc::new(settings)),
            bucket: Mutex::default(),
        })
    }

    fn settings(&self) -> Arc<Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn bucket(&self) -> Result<Arc<dyn Bucket>> {
        let mut bucket = self.bucket.lock().await;
        if let Some(bucket) = &*bucket {
            return Ok(bucket.clone());
        }
        let settings = Arc::new(self.dialect.complete(&self.settings()).await?);
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings.clone();
        let client = settings.http(&self.options)?;
        let (options, env) = (self.options.clone(), self.env.clone());
        let wire = Wire { client, condition: self.dialect.condition(), options, env };
        let connected: Arc<dyn Bucket> = self.dialect.connect(&settings, wire).await?.into();
        *bucket = Some(connected.clone());
        Ok(connected)
    }

    fn path(&self, key: &str) -> Result<Path> {
        check_key(key)?;
        Path::parse(format!("{}{key}", self.prefix)).map_err(|e| Error::internal(e.to_string()))
    }

    /// Lets the library make the request. Its own result is of no interest: the exchange has the raw one.
    async fn make(&self, bucket: &dyn Bucket, request: &Request<'_>) -> Result<()> {
        let library = bucket.library();
        match request {
            Request::Get(key, range) => {
                let range = match *range {
                    Range::All => None,
                    Range::Part { offset, len } => Some(GetRange::Bounded(offset..offset.saturating_add(len.max(1)))),
                    Range::Last { len } => Some(GetRange::Suffix(len)),
                };
                let _ = library.get_opts(&self.path(key)?, GetOptions { range, ..GetOptions::default() }).await;
            }
            Request::Head(key) => {
                let options = GetOptions { head: true, ..GetOptions::default() };
                let _ = library.get_opts(&self.path(key)?, options).await;
            }
            Request::Put(key, mode, body) => {
                let payload = PutPayload::from_bytes(body.clone());
                let _ = library.put_opts(&self.path(key)?, payload, mode.clone().into()).await;
            }
            Request::List(list) => {
                let options = PaginatedListOptions {
                    delimiter: list.delimiter.then_some("/".into()),
                    max_keys: list.max_keys.map(usize::from),
                    page_token: list.token.clone(),
                    ..PaginatedListOptions::default()
                };
                let prefix = format!("{}{}", self.prefix, list.prefix);
                let _ =
                    library.list_paginated(Some(&prefix).filter(|p| !p.is_empty()).map(String::as_str), options).await;
            }
            Request::Delete(key) => {
                bucket.delete(self.path(key)?).await;
            }
        }
        Ok(())
    }

    /// What came of one sending, after `resent` others, and which load of the credentials signed it.
    async fn attempt(
        &self,
        op: Op,
        key: &str,
        request: &Request<'_>,
        resent: u32,
    ) -> Result<(Result<Reply, Lost>, Option<u64>)> {
        let bucket = self.bucket().await.map_err(|e| self.about(op, key, |s| s.refused(e)))?;
        let context = Context::new(&self.url, op, key, resent);
        let make = Box::pin(context.run(self.make(bucket.as_ref(), request)));
        if op == Op::Create {
            let limit = self.options.timeouts.create + self.options.time_to_send(request.len());
            match self.env.timeout(limit, make).await {
                Some(made) => made?,
                None => {
                    let lost = Lost::NoReply(limit);
                    context.exchange().given_up(&lost);
                    return Ok((Err(lost), None));
                }
            }
        } else {
            make.await?;
        }
        match std::mem::take(&mut *context.exchange()) {
            Exchange { refused: Some(error), .. } => Err(self.about(op, key, |s| s.refused(error))),
            Exchange { lost: Some(lost), .. } => Ok((Err(lost), None)),
            Exchange { reply: Some(reply), signed_by, .. } => Ok((Ok(reply), signed_by)),
            Exchange { .. } => Err(self.about(op, key, |s| s.error(Kind::Internal, "the request was not made"))),
        }
    }

    /// The raw reply to one try. What was refused before anything was done is amended and sent again.
    async fn request(&self, op: Op, key: &str, request: Request<'_>) -> Result<Result<Reply, Lost>> {
        let mut amended = Vec::new();
        let tries = tries_before();
        loop {
            let resent = tries + u32::try_from(amended.len()).unwrap_or(0);
            let (outcome, signed_by) = self.attempt(op, key, &request, resent).await?;
            let amendment = match &outcome {
                Ok(reply) if !reply.status.is_success() => self.dialect.amend(reply, signed_by, &amended).await,
                _ => None,
            };
            let Some(amendment) = amendment else { return Ok(outcome) };
            if amendment == Amendment::Place {
                *self.bucket.lock().await = None;
            }
            amended.push(amendment);
        }
    }

    fn about(&self, op: Op, key: &str, error: impl FnOnce(&Subject<'_>) -> Error) -> Error {
        let store = self.url.to_string();
        let dialect = self.dialect.as_ref();
        error(&Subject { op, store: &store, key, settings: &self.settings(), dialect, env: &self.env })
    }

    /// The reply, or why there is none.
    async fn reply(&self, op: Op, key: &str, request: Request<'_>) -> Result<Reply> {
        let outcome = self.request(op, key, request).await?;
        outcome.map_err(|lost| self.about(op, key, |s| s.lost(&lost)))
    }

    fn refusal(&self, op: Op, key: &str, reply: &Reply) -> Error {
        self.about(op, key, |s| s.refusal(reply))
    }

    /// A 2xx to a write, which must be what the service would say.
    fn written(&self, op: Op, key: &str, reply: &Reply) -> Result<Meta> {
        if !reply.status.is_success() || reply.error().is_some() {
            return Err(self.refusal(op, key, reply));
        }
        if !reply.confirms_object() {
            return Err(self.about(op, key, |s| s.foreign(reply, "no ETag confirms the object")));
        }
        Ok(reply.meta())
    }

    fn object(&self, key: &str, range: Range, reply: &Reply) -> Result<Object> {
        let odd = |why: &str| Err(self.about(Op::Get, key, |s| s.foreign(reply, why)));
        let (bytes, meta) = (reply.body.clone(), reply.meta());
        let length = bytes.len() as u64;
        if !reply.confirms_object() {
            return odd("no ETag confirms the object");
        }
        if !reply.tells_its_length() {
            return odd("it does not say how long it is, so its end may be missing");
        }
        if reply.status.as_u16() != 206 {
            // All was asked for, or the server does not know ranges.
            let span = range.resolve(length);
            let index = |at: u64| usize::try_from(at).unwrap_or(bytes.len());
            return Ok(Object { bytes: bytes.slice(index(span.start)..index(span.end)), size: length, meta });
        }
        let Some((first, last, size)) = reply.content_range() else { return odd("there is no Content-Range") };
        let span = range.resolve(size);
        if (first, last.checked_add(1)) != (span.start, Some(span.end)) || span.end - span.start != length {
            return odd("it is another range than was asked for");
        }
        Ok(Object { bytes, size, meta })
    }

    /// The range holds no byte; the caller still learns the size.
    async fn past_the_end(&self, key: &str, range: Range, reply: &Reply) -> Result<Option<Object>> {
        let empty = |size, meta| Ok(Some(Object { bytes: Bytes::new(), size, meta }));
        if let Some(size) = reply.size_of_unsatisfied() {
            return empty(size, reply.meta());
        }
        let head = self.reply(Op::Get, key, Request::Head(key)).await?;
        match head.header("content-length").and_then(|length| length.parse().ok()) {
            Some(size) if head.status.is_success() && !range.resolve(size).is_empty() => {
                Err(self.about(Op::Get, key, |s| s.foreign(reply, "it is empty, and the object is not")))
            }
            Some(size) if head.status.is_success() => empty(size, head.meta()),
            _ if head.status.as_u16() == 404 => Ok(None),
            _ => Err(self.refusal(Op::Get, key, &head)),
        }
    }

    /// The end of an object, of a service that has to be told where it begins.
    async fn last(&self, key: &str, len: u64) -> Result<Option<Object>> {
        let head = self.reply(Op::Get, key, Request::Head(key)).await?;
        if self.absent(&head) {
            return Ok(None);
        }
        let size = head.header("content-length").and_then(|length| length.parse::<u64>().ok());
        let Some(size) = size.filter(|_| head.confirms_object()) else {
            return Err(self.refusal(Op::Get, key, &head));
        };
        let offset = size.saturating_sub(len);
        let object = self.get(key, Range::Part { offset, len: size - offset }).await?;
        // Replaced in between: what was read is not its end.
        match object {
            Some(object) if object.size != size => {
                Err(self.about(Op::Get, key, |s| s.error(Kind::Offline, "the object changed while it was read")))
            }
            object => Ok(object),
        }
    }

    /// The server says definitely that this one object is not there.
    fn absent(&self, reply: &Reply) -> bool {
        reply.status.as_u16() == 404 && reply.error().is_some_and(|error| self.dialect.is_absent(&error.code))
    }

    fn page(&self, list: &List, reply: &Reply) -> Result<Page> {
        let odd = |why: String| self.about(Op::List, &list.prefix, |s| s.foreign(reply, &why));
        let listing = self.dialect.listing(reply).map_err(odd)?;
        let strip = |key: &str| match key.strip_prefix(&self.prefix) {
            Some(key) if key.starts_with(&list.prefix) => Ok(key.to_owned()),
            _ => Err(self.about(Op::List, &list.prefix, |s| {
                s.error(Kind::Damaged, &format!("the listing holds '{key}', which is not below it"))
            })),
        };
        let mut page = Page { token: listing.token, ..Page::default() };
        for object in listing.objects {
            let key = strip(&object.key)?;
            // Consoles mark folders by empty objects that end in a slash.
            if !key.is_empty() && !key.ends_with('/') {
                page.keys.push(Listed { key, ..object });
            }
        }
        for prefix in listing.prefixes {
            page.prefixes.push(strip(&prefix)?);
        }
        Ok(page)
    }
}

/// The server says that the object is there, in one of the ways servers do.
fn exists(reply: &Reply) -> bool {
    let code = || reply.error().map(|error| error.code).unwrap_or_default();
    match reply.status.as_u16() {
        412 | 304 => true,
        409 => matches!(code().as_str(), "FileAlreadyExists" | "ObjectAlreadyExists" | "BlobAlreadyExists"),
        _ => false,
    }
}

#[async_trait]
impl Store for Remote {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        if let Range::Last { len } = range
            && !self.dialect.knows_suffixes()
        {
            return self.last(key, len).await;
        }
        let reply = self.reply(Op::Get, key, Request::Get(key, range)).await?;
        match reply.status.as_u16() {
            // Some emulators have no other answer to a range of an empty object.
            206 if reply.body.is_empty() && reply.content_range().is_none() => {
                self.past_the_end(key, range, &reply).await
            }
            200 | 206 => self.object(key, range, &reply).map(Some),
            404 if self.absent(&reply) => Ok(None),
            416 => self.past_the_end(key, range, &reply).await,
            _ => Err(self.refusal(Op::Get, key, &reply)),
        }
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        let reply = self.reply(Op::Create, key, Request::Put(key, PutMode::Create, body)).await?;
        if exists(&reply) {
            return Ok(Created::Exists);
        }
        self.written(Op::Create, key, &reply).map(Created::Created)
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        let reply = self.reply(Op::Put, key, Request::Put(key, PutMode::Overwrite, body)).await?;
        self.written(Op::Put, key, &reply)
    }

    async fn list(&self, list: &List) -> Result<Page> {
        check_list(list)?;
        let reply = self.reply(Op::List, &list.prefix, Request::List(list)).await?;
        match reply.status.as_u16() {
            200 if reply.error().is_none() => self.page(list, &reply),
            _ => Err(self.refusal(Op::List, &list.prefix, &reply)),
        }
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let reply = self.reply(Op::Delete, key, Request::Delete(key)).await?;
        match reply.status.as_u16() {
            200 | 202 | 204 if reply.error().is_none() && reply.body.is_empty() => Ok(()),
            404 if self.absent(&reply) => Ok(()),
            200 | 202 if reply.error().is_none() => {
                Err(self.about(Op::Delete, key, |s| s.foreign(&reply, "the reply has a body")))
            }
            _ => Err(self.refusal(Op::Delete, key, &reply)),
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).field("settings", &self.settings()).finish_non_exhaustive()
    }
}
