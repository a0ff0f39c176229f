//! What stores get wrong: as a list, and as an imitation around an honest [`Store`].

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
        let range = if self.lie == Lie::IgnoresRange { Range::All } else { range };
        let object = self.inner.get(key, range).await?;
        Ok(object.map(|object| Object { meta: self.meta(object.meta), ..object }))
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
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
        Ok(match created {
            Created::Created(meta) => Created::Created(self.meta(meta)),
            Created::Exists => Created::Exists,
        })
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.inner.put(key, body).await.map(|meta| self.meta(meta))
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
            _ => {}
        }
        let mut page = self.inner.list(&list).await?;
        match self.lie {
            Lie::UnsortedList => page.keys.reverse(),
            Lie::LateList => self.with(|m| {
                page.keys.retain(|listed| !m.fresh.iter().any(|(key, left)| *left > 0 && *key == listed.key));
                m.fresh.iter_mut().for_each(|(_, left)| *left = left.saturating_sub(1));
            }),
            _ => {}
        }
        Ok(page)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        match self.lie {
            Lie::NoDeleteRight => {
                return Err(Error::new(Kind::Denied, format!("delete {}/{key}: status 403: AccessDenied", self.inner)));
            }
            Lie::RemembersDeleted => self.with(|m| m.deleted.push(key.to_owned())),
            _ => {}
        }
        self.inner.delete(key).await
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
