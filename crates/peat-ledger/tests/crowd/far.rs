//! A store at the distance of a cloud's, and what each client asked of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_objects::{Created, List, MemoryStore, Meta, Object, Page, Range, Store};
use peat_types::{Env, Result};

/// Requests of one client.
#[derive(Debug, Default)]
pub struct Asked {
    pub puts: AtomicU64,
    pub gets: AtomicU64,
    pub lists: AtomicU64,
}

/// Told of every entry that was made.
pub type OnEntry = Arc<dyn Fn(&str, &Bytes) + Send + Sync>;

/// The way from one client to the store.
#[derive(Clone)]
pub struct Far {
    pub store: MemoryStore,
    pub env: Env,
    pub asked: Arc<Asked>,
    pub on_entry: OnEntry,
}

impl Far {
    /// Lognormal with mean 30 and standard deviation 15 ms, at least 4.
    fn round_trip(&self) -> Duration {
        let spread = 1.25_f64.ln();
        let (u, v) = (1.0 - self.env.random_unit(), self.env.random_unit());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        let millis = (30.0_f64.ln() - spread / 2.0 + spread.sqrt() * normal).exp().max(4.0);
        Duration::from_secs_f64(millis / 1000.0)
    }

    async fn travel<T>(&self, count: &AtomicU64, request: impl Future<Output = T>) -> T {
        count.fetch_add(1, Ordering::Relaxed);
        let time = self.round_trip();
        self.env.sleep(time.mul_f64(0.6)).await;
        let reply = request.await;
        self.env.sleep(time.mul_f64(0.4)).await;
        reply
    }
}

#[async_trait]
impl Store for Far {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.travel(&self.asked.gets, self.store.get(key, range)).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        let create = async {
            let created = self.store.create(key, body.clone()).await;
            if matches!(created, Ok(Created::Created(_))) {
                (self.on_entry)(key, &body);
            }
            created
        };
        self.travel(&self.asked.puts, create).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.travel(&self.asked.puts, self.store.put(key, body)).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        self.travel(&self.asked.lists, self.store.list(list)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.travel(&AtomicU64::new(0), self.store.delete(key)).await
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("far:")
    }
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Far")
    }
}
