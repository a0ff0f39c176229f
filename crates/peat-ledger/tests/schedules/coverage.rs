//! What the schedules brought about: a run in which nobody helped would prove nothing about helping.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use peat_ledger::format;
use peat_objects::{Created, List, Meta, Object, Page, Range, Store};
use peat_testkit::sim::Sim;
use peat_types::{Error, Kind, Result, Seq};

/// Counts over all schedules of a run.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Transactions staged.
    pub staged: AtomicU64,
    /// Creates that carried others' transactions.
    pub helpers: AtomicU64,
    /// Others' transactions in creates that were answered with success.
    pub helped: AtomicU64,
    /// Creates that carried others and got no useful reply.
    pub helpers_in_doubt: AtomicU64,
    /// Of these, the ones that were in the log all the same.
    pub helpers_unanswered: AtomicU64,
    /// Transactions of other tasks of the same process in creates that were answered with success.
    pub batched: AtomicU64,
    /// Checkpoints entered.
    pub checkpoints: AtomicU64,
    /// Packs that checkpoints dropped.
    pub dropped: AtomicU64,
    /// Objects deleted by collections.
    pub collected: AtomicU64,
    /// Changes of which the log no longer tells what became of them.
    pub untold: AtomicU64,
}

/// A store that notes what helpers do.
pub struct Noting {
    pub inner: Arc<dyn Store>,
    /// Name of the process, which is the author of what it plans.
    pub process: String,
    pub sim: Sim,
    /// How often the reply to a helper is lost, above what the network loses anyway.
    pub lose: f64,
    pub coverage: Arc<Coverage>,
}

/// Counts.
pub fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}

#[async_trait]
impl Store for Noting {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.inner.get(key, range).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        let seq = key.split_once('.').and_then(|(_, seq)| seq.parse().ok()).map(Seq);
        let entry = seq.and_then(|seq| format::decode_entry(seq, &body).ok());
        let own = |entry: &peat_ledger::Entry| entry.txs.iter().filter(|tx| tx.author == self.process).count();
        let (all, own) = entry.map_or((1, 1), |entry| (entry.txs.len(), own(&entry)));
        let others = all - own.max(1);
        let mut created = self.inner.create(key, body.clone()).await;
        if matches!(created, Ok(Created::Created(_))) {
            add(&self.coverage.batched, own.saturating_sub(1));
        }
        if others > 0 && self.sim.chance(self.lose) {
            created = Err(Error::new(Kind::Offline, format!("create {key}: the helper gets no reply (simulated)")));
        }
        if others > 0 {
            add(&self.coverage.helpers, 1);
            match &created {
                Ok(Created::Created(_)) => add(&self.coverage.helped, others),
                Ok(Created::Exists) => {}
                Err(_) => {
                    add(&self.coverage.helpers_in_doubt, 1);
                    let stored = self.sim.store().get(key, Range::All).await?;
                    add(&self.coverage.helpers_unanswered, usize::from(stored.is_some_and(|s| s.bytes == body)));
                }
            }
        }
        created
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        add(&self.coverage.staged, usize::from(key.starts_with("tx/")));
        self.inner.put(key, body).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        self.inner.list(list).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).await
    }
}

impl fmt::Display for Noting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for Noting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Noting")
    }
}
