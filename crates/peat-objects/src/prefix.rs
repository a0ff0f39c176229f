//! A folder of a store as a store of its own.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{Error, Result};

use crate::key::{check_key, check_list};
use crate::{Created, List, Object, Page, Range, Store};

/// The objects below one folder of another store, by keys relative to that folder.
#[derive(Clone, Debug)]
pub struct PrefixStore {
    inner: Arc<dyn Store>,
    /// Ends in `/`.
    prefix: String,
}

impl PrefixStore {
    /// The folder `folder` (no slash at its end) of `inner`.
    ///
    /// # Errors
    /// `Internal` when `folder` cannot be part of a key.
    pub fn new(inner: Arc<dyn Store>, folder: &str) -> Result<Self> {
        check_key(folder)?;
        Ok(Self { inner, prefix: format!("{folder}/") })
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn strip(&self, key: &str) -> Result<String> {
        match key.strip_prefix(&self.prefix) {
            Some(rest) => Ok(rest.to_owned()),
            None => Err(Error::damaged(format!(
                "{} answered a listing of '{}' with the key '{key}' outside it",
                self.inner, self.prefix
            ))),
        }
    }
}

#[async_trait]
impl Store for PrefixStore {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.inner.get(&self.full(key), range).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.inner.create(&self.full(key), body).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<crate::Meta> {
        self.inner.put(&self.full(key), body).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        check_list(list)?;
        let list = List { prefix: self.full(&list.prefix), ..list.clone() };
        let mut page = self.inner.list(&list).await?;
        for listed in &mut page.keys {
            listed.key = self.strip(&listed.key)?;
        }
        for prefix in &mut page.prefixes {
            *prefix = self.strip(prefix)?;
        }
        Ok(page)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(&self.full(key)).await
    }
}

impl fmt::Display for PrefixStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner.to_string();
        let slash = if inner.ends_with('/') || inner.ends_with(':') { "" } else { "/" };
        write!(f, "{inner}{slash}{}", self.prefix.trim_end_matches('/'))
    }
}
