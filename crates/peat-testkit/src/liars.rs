//! What stores get wrong: as a list, and as an imitation around an honest [`Store`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_objects::{Created, List, Meta, Object, Page, Range, Store};
use peat_types::{Env, Error, Kind, Result, Timestamp};

/// One way of not being what a ledger needs. The S3 server tells them on the wire, [`LiarStore`] at the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Accepts `If-None-Match` and overwrites all the same.
    IgnoresCondition,
    /// Looks whether the object is there, and writes a moment later.
    ChecksThenActs,
    /// Answers a conditional PUT with 501.
    Refuses501,
    /// Answers a conditional PUT with 400 and the code `NotImplemented`.
    Refuses400,
    /// Takes `If-None-Match: *` for `If-Match: *`.
    Inverted,
    /// Confirms creates that lose against another one that runs at the same time.
    ConfirmsLosers,
    /// Lists keys in no useful order.
    UnsortedList,
    /// Lists no more than two keys in a page, whatever was asked for. Allowed.
    ShortPages,
    /// Puts an empty page with a token before the others. Allowed.
    EmptyPages,
    /// Lists a key only some listings after it was written.
    LateList,
    /// Gives more keys than were asked for.
    IgnoresMaxKeys,
    /// Gives the whole object when a part was asked for.
    IgnoresRange,
    /// Still knows a deleted key when it is to be created again.
    RemembersDeleted,
    /// A clock this many seconds fast, in `Date` and `Last-Modified` apart.
    BadDate(i64),
    /// Does not let this client delete. Allowed.
    NoDeleteRight,
    /// Answers 429 to a write of a key that was written less than a second ago. Allowed; at the seam only.
    OneWritePerSecond,
    /// For so many seconds after a write, reads answer as before it. At the seam only.
    StaleReads(u64),
    /// For so many seconds, a listing lacks what was written. At the seam only.
    StaleLists(u64),
    /// Gives the same continuation token for ever. At the seam only.
    RepeatsToken,
    /// Refuses what it does not know of newer S3: checksum headers, trailers, chunks. Allowed; on the wire only.
    OldS3,
}

/// An honest store made to lie.
#[derive(Clone)]
pub struct LiarStore {
    inner: Arc<dyn Store>,
    env: Env,
    lie: Lie,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Default)]
struct Memory {
    deleted: Vec<String>,
    fresh: Vec<(String, u32)>,
    /// The last write of each key: when, and what was there before.
    written: BTreeMap<String, (Duration, Option<Object>)>,
}

const GAP: Duration = Duration::from_millis(5);

impl LiarStore {
    /// `inner`, but for the `lie`.
    pub fn new(inner: Arc<dyn Store>, env: &Env, lie: Lie) -> Self {
        Self { inner, env: env.clone(), lie, memory: Arc::default() }
    }

    fn refuse(&self, key: &str, status: u16) -> Error {
        Error::new(
            Kind::Unsupported,
            format!(
                "create {}/{key}: status {status}: NotImplemented: A header you provided implies functionality that is not implemented",
                self.inner
            ),
        )
    }

    fn meta(&self, mut meta: Meta) -> Meta {
        if let Lie::BadDate(seconds) = self.lie {
            let shifted = Timestamp::from_millis(self.env.now().as_millis() + seconds * 1000);
            meta = Meta { date: Some(shifted), last_modified: meta.last_modified.or(Some(self.env.now())) };
        }
        meta
    }

    /// What was there before a write that is younger than this.
    fn before(&self, key: &str, seconds: u64) -> Option<Option<Object>> {
        let limit = Duration::from_secs(seconds);
        let now = self.env.monotonic();
        self.with(|m| m.written.get(key).filter(|(at, _)| now.saturating_sub(*at) < limit).map(|(_, old)| old.clone()))
    }

    fn throttle(&self, op: &str, key: &str) -> Result<()> {
        if self.lie == Lie::OneWritePerSecond && self.before(key, 1).is_some() {
            let error = format!("{op} {}/{key}: status 429: rateLimitExceeded", self.inner);
            return Err(Error::new(Kind::Offline, error).with_code("store_busy"));
        }
        Ok(())
    }

    fn wrote(&self, key: &str, before: Option<Object>) {
        let now = self.env.monotonic();
        self.with(|m| m.written.insert(key.to_owned(), (now, before)));
    }

    async fn there(&self, key: &str) -> Result<bool> {
        Ok(self.inner.get(key, Range::All).await?.is_some())
    }

    fn with<T>(&self, step: impl FnOnce(&mut Memory) -> T) -> T {
        step(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Store for LiarStore {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        if let Lie::StaleReads(seconds) = self.lie
            && let Some(before) = self.before(key, seconds)
        {
            return Ok(before);
        }
        let range = if self.lie == Lie::IgnoresRange { Range::All } else { range };
        let object = self.inner.get(key, range).await?;
        Ok(object.map(|object| Object { meta: self.meta(object.meta), ..object }))
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.throttle("create", key)?;
        let overwrite = |body| async move { self.inner.put(key, body).await.map(Created::Created) };
        let created = match self.lie {
            Lie::IgnoresCondition => overwrite(body).await?,
            Lie::ChecksThenActs => {
                if self.there(key).await? {
                    Created::Exists
                } else {
                    self.env.sleep(GAP).await;
                    overwrite(body).await?
                }
            }
            Lie::Refuses501 => return Err(self.refuse(key, 501)),
            Lie::Refuses400 => return Err(self.refuse(key, 400)),
            Lie::Inverted => {
                if self.there(key).await? {
                    overwrite(body).await?
                } else {
                    Created::Exists
                }
            }
            Lie::ConfirmsLosers => {
                let before = self.there(key).await?;
                self.env.sleep(GAP).await;
                match self.inner.create(key, body).await? {
                    Created::Exists if !before => Created::Created(Meta::default()),
                    honest => honest,
                }
            }
            Lie::RemembersDeleted if self.with(|m| m.deleted.iter().any(|k| k == key)) => Created::Exists,
            _ => self.inner.create(key, body).await?,
        };
        self.with(|m| m.fresh.push((key.to_owned(), 2)));
        if created != Created::Exists {
            self.wrote(key, None);
        }
        Ok(match created {
            Created::Created(meta) => Created::Created(self.meta(meta)),
            Created::Exists => Created::Exists,
        })
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.throttle("put", key)?;
        let before = self.inner.get(key, Range::All).await?;
        let meta = self.inner.put(key, body).await?;
        self.wrote(key, before);
        Ok(self.meta(meta))
    }

    async fn list(&self, list: &List) -> Result<Page> {
        let mut list = list.clone();
        match self.lie {
            Lie::IgnoresMaxKeys => list.max_keys = None,
            Lie::ShortPages => list.max_keys = Some(list.max_keys.unwrap_or(2).min(2)),
            Lie::EmptyPages if list.token.is_none() => {
                return Ok(Page { token: Some("from the start".to_owned()), ..Page::default() });
            }
            Lie::EmptyPages if list.token.as_deref() == Some("from the start") => list.token = None,
            Lie::RepeatsToken => list.token = None,
            _ => {}
        }
        let mut page = self.inner.list(&list).await?;
        match self.lie {
            Lie::UnsortedList => page.keys.reverse(),
            Lie::LateList => self.with(|m| {
                page.keys.retain(|listed| !m.fresh.iter().any(|(key, left)| *left > 0 && *key == listed.key));
                m.fresh.iter_mut().for_each(|(_, left)| *left = left.saturating_sub(1));
            }),
            Lie::StaleLists(seconds) => page.keys.retain(|listed| self.before(&listed.key, seconds).is_none()),
            Lie::RepeatsToken => page.token = Some("again".to_owned()),
            _ => {}
        }
        Ok(page)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.throttle("delete", key)?;
        match self.lie {
            Lie::NoDeleteRight => {
                return Err(Error::new(Kind::Denied, format!("delete {}/{key}: status 403: AccessDenied", self.inner)));
            }
            Lie::RemembersDeleted => self.with(|m| m.deleted.push(key.to_owned())),
            _ => {}
        }
        self.inner.delete(key).await?;
        if self.lie == Lie::OneWritePerSecond {
            self.wrote(key, None);
        }
        Ok(())
    }
}

impl fmt::Display for LiarStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for LiarStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiarStore").field("inner", &self.inner).field("lie", &self.lie).finish_non_exhaustive()
    }
}
