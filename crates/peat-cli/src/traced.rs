//! A store whose requests are logged one by one, for `-vv`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use peat_engine::{Datastore, Opened, Opener, Prices};
use peat_objects::{Created, List, Meta, Object, Page, Range, Store};
use peat_types::{Env, Result};
use serde_json::Value;

/// Opens stores that log what is asked of them.
pub(crate) struct TracedStores {
    pub inner: Arc<dyn Opener>,
    pub prices: PricesSeen,
}

/// The prices of the stores that a command opened, while they are the same. Clones share what they saw.
#[derive(Clone, Default)]
pub(crate) struct PricesSeen(Arc<Mutex<Option<Option<Prices>>>>);

impl PricesSeen {
    /// Those of every request so far, if they are known.
    pub fn get(&self) -> Option<Prices> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flatten()
    }

    fn see(&self, prices: Option<Prices>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Some(seen.map_or(prices, |before| before.filter(|_| before == prices)));
    }
}

#[async_trait]
impl Opener for TracedStores {
    fn open(&self, settings: &Datastore, env: &Env) -> Result<Opened> {
        let opened = self.inner.open(settings, env)?;
        self.prices.see(Prices::of(settings, env));
        tracing::info!(url = opened.url, "store opened");
        Ok(Opened { store: Arc::new(Traced { inner: opened.store, env: env.clone() }), ..opened })
    }

    async fn probe(&self, store: &Arc<dyn Store>, env: &Env) -> Result<Value> {
        self.inner.probe(store, env).await
    }
}

struct Traced {
    inner: Arc<dyn Store>,
    env: Env,
}

impl Traced {
    /// Waits for a reply and logs what came, in how long.
    async fn log<T>(
        &self,
        op: &str,
        key: &str,
        request: impl Future<Output = Result<T>>,
        outcome: impl Fn(&T) -> String,
    ) -> Result<T> {
        let began = self.env.monotonic();
        let reply = request.await;
        let took = self.env.monotonic().saturating_sub(began);
        match &reply {
            Ok(reply) => tracing::debug!(op, key, ?took, "{}", outcome(reply)),
            Err(error) => tracing::debug!(op, key, ?took, ?error, "failed"),
        }
        reply
    }
}

#[async_trait]
impl Store for Traced {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        let outcome = |object: &Option<Object>| match object {
            Some(object) => format!("{} of {} bytes", object.bytes.len(), object.size),
            None => "absent".to_owned(),
        };
        self.log("get", key, self.inner.get(key, range), outcome).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        let size = body.len();
        let outcome = |created: &Created| match created {
            Created::Created(_) => format!("created, {size} bytes"),
            Created::Exists => "exists".to_owned(),
        };
        self.log("create", key, self.inner.create(key, body), outcome).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        let size = body.len();
        self.log("put", key, self.inner.put(key, body), |_| format!("{size} bytes")).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        let outcome = |page: &Page| format!("{} keys, {} folders", page.keys.len(), page.prefixes.len());
        self.log("list", &list.prefix, self.inner.list(list), outcome).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.log("delete", key, self.inner.delete(key), |()| "deleted".to_owned()).await
    }
}

impl fmt::Display for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
