//! Opening stores for a command, which remembers what they cost.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use peat_engine::{Datastore, Opened, Opener, Prices};
use peat_objects::Store;
use peat_types::{Env, Result};
use serde_json::Value;

/// Opens stores and notes their prices.
pub(crate) struct PricedStores {
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
impl Opener for PricedStores {
    fn open(&self, settings: &Datastore, env: &Env) -> Result<Opened> {
        let opened = self.inner.open(settings, env)?;
        self.prices.see(Prices::of(settings, env));
        tracing::info!(url = opened.url, "store opened");
        Ok(opened)
    }

    async fn probe(&self, store: &Arc<dyn Store>, env: &Env) -> Result<Value> {
        self.inner.probe(store, env).await
    }
}
