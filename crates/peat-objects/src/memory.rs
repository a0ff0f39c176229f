//! Objects in memory, for tests and simulations. The reference that every other backend is compared with.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{Env, Result, Timestamp};

use crate::key::{MAX_PAGE, bad_token, check_key, check_list};
use crate::{Created, List, Listed, Meta, Object, Page, Range, Store};

/// An object store in memory. Clones share the objects; one mutex makes every operation a single step.
#[derive(Clone, Default)]
pub struct MemoryStore {
    objects: Arc<Mutex<BTreeMap<String, Stored>>>,
    clock: Option<Env>,
}

#[derive(Clone)]
struct Stored {
    bytes: Bytes,
    at: Option<Timestamp>,
}

impl MemoryStore {
    /// An empty store without a clock: replies carry no times.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store whose server time is the one of `env`.
    pub fn with_clock(env: &Env) -> Self {
        Self { clock: Some(env.clone()), ..Self::default() }
    }

    /// All keys, in byte order.
    pub fn keys(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// An independent copy of the store as it is now: what a restored backup would hold.
    pub fn fork(&self) -> Self {
        Self { objects: Arc::new(Mutex::new(self.lock().clone())), clock: self.clock.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(Env::now)
    }

    fn written(&self) -> Meta {
        Meta { date: self.now(), last_modified: None }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        check_key(key)?;
        Ok(self.lock().get(key).map(|stored| {
            let size = stored.bytes.len() as u64;
            let span = range.resolve(size);
            let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            Object {
                bytes: stored.bytes.slice(index(span.start)..index(span.end)),
                size,
                meta: Meta { date: self.now(), last_modified: stored.at },
            }
        }))
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        check_key(key)?;
        let mut objects = self.lock();
        if objects.contains_key(key) {
            return Ok(Created::Exists);
        }
        objects.insert(key.to_owned(), Stored { bytes: body, at: self.now() });
        Ok(Created::Created(self.written()))
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        check_key(key)?;
        self.lock().insert(key.to_owned(), Stored { bytes: body, at: self.now() });
        Ok(self.written())
    }

    async fn list(&self, list: &List) -> Result<Page> {
        check_list(list)?;
        // The token is the last key or prefix handed out. Keys hold no byte above 'z', so '~' ends a folder.
        let start = match &list.token {
            None => Bound::Included(list.prefix.clone()),
            Some(token) if !token.starts_with(&list.prefix) => return Err(bad_token(token)),
            Some(token) if token.ends_with('/') => Bound::Excluded(format!("{token}~")),
            Some(token) => Bound::Excluded(token.clone()),
        };
        let max = usize::from(list.max_keys.unwrap_or(MAX_PAGE));
        let mut page = Page::default();
        let mut last = None;
        for (key, stored) in self.lock().range((start, Bound::Unbounded)) {
            let Some(rest) = key.strip_prefix(&list.prefix) else { break };
            let folder = rest.find('/').filter(|_| list.delimiter).map(|at| &key[..=list.prefix.len() + at]);
            if folder.is_some() && folder == page.prefixes.last().map(String::as_str) {
                continue;
            }
            if page.keys.len() + page.prefixes.len() == max {
                page.token = last;
                break;
            }
            match folder {
                Some(folder) => page.prefixes.push(folder.to_owned()),
                None => page.keys.push(Listed {
                    key: key.clone(),
                    size: stored.bytes.len() as u64,
                    last_modified: stored.at,
                }),
            }
            last = Some(folder.unwrap_or(key).to_owned());
        }
        Ok(page)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        check_key(key)?;
        self.lock().remove(key);
        Ok(())
    }
}

impl fmt::Display for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("objects", &self.lock().len()).finish_non_exhaustive()
    }
}
