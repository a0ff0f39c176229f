//! A store at some distance.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{Env, Result};

use crate::{Created, List, Object, Page, Range, Store};

/// A store every request to which takes a while: half on the way there, half on the way back.
#[derive(Clone, Debug)]
pub struct LatencyStore {
    inner: Arc<dyn Store>,
    env: Env,
    mean: Duration,
    spread: Duration,
}

impl LatencyStore {
    /// Adds `mean ± spread`, uniformly, to every request; `spread` is at most `mean`.
    pub fn new(inner: Arc<dyn Store>, env: &Env, mean: Duration, spread: Duration) -> Self {
        Self { inner, env: env.clone(), mean, spread: spread.min(mean) }
    }

    async fn half(&self) {
        let whole = self.mean - self.spread + self.env.jitter(self.spread * 2);
        self.env.sleep(whole / 2).await;
    }

    async fn travel<T>(&self, request: impl Future<Output = T>) -> T {
        self.half().await;
        let reply = request.await;
        self.half().await;
        reply
    }
}

#[async_trait]
impl Store for LatencyStore {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.travel(self.inner.get(key, range)).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.travel(self.inner.create(key, body)).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<crate::Meta> {
        self.travel(self.inner.put(key, body)).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        self.travel(self.inner.list(list)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.travel(self.inner.delete(key)).await
    }
}

impl fmt::Display for LatencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
