//! What every state must still say, read from the store alone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use peat_ledger::{Ledger, State, format};
use peat_objects::{Created, List, MemoryStore, Meta, Object, Page, Range, Store};
use peat_types::{CloneId, Error, InstanceId, Kind, Result, Seq};

use super::bench::{Bench, MapCache, env, log_key};

/// Contents by unit and path.
pub type Files = BTreeMap<(String, String), Bytes>;

/// Another handle of a bench's ledger, over `store`.
pub fn handle(bench: &Bench, store: Arc<dyn Store>) -> Ledger {
    let info = bench.ledger.info().clone();
    Ledger::with_info(store, &bench.env, info, CloneId::random(&bench.env), InstanceId::random(&bench.env))
}

/// All files of a state, from the store.
pub async fn files(ledger: &Ledger, state: &State) -> Result<Files> {
    let cache = MapCache::default();
    let mut out = Files::new();
    for (unit, row) in ledger.directory(state, &cache).await? {
        let table = ledger.tables(&[&row], &cache).await?.remove(0);
        let rows: Vec<_> = table.iter().map(|(_, _, row)| row).collect();
        let contents = ledger.contents(&rows, &[]).await?;
        for ((_, path, _), content) in table.iter().zip(contents) {
            out.insert((unit.to_string(), path.to_string()), content);
        }
    }
    Ok(out)
}

/// The state after an entry, straight from its object.
pub async fn state_at(memory: &MemoryStore, seq: Seq) -> Option<State> {
    let object = memory.get(&log_key(seq), Range::All).await.expect("get")?;
    Some(format::decode_entry(seq, &object.bytes).expect("decode").state)
}

/// What was true after each entry.
#[derive(Default)]
pub struct History(BTreeMap<Seq, Files>);

impl History {
    /// Notes what is true of every entry up to the newest that is not noted yet.
    pub async fn note(&mut self, bench: &Bench) {
        let ledger = handle(bench, Arc::new(bench.memory.clone()));
        let head = ledger.head().await.expect("head").state;
        let from = self.0.last_key_value().map_or(Seq::ZERO, |(seq, _)| seq.next()).max(head.root.keep);
        for seq in (from.0..=head.seq.0).map(Seq) {
            let state = state_at(&bench.memory, seq).await.expect("there");
            self.0.insert(seq, files(&ledger, &state).await.expect("readable"));
        }
    }

    /// A10: every state that is kept reads as it was, every valid slot is there, and the ledger is sound.
    pub async fn holds(&self, memory: &MemoryStore) {
        let env = env(77);
        let (clone, instance) = (CloneId::random(&env), InstanceId::random(&env));
        let ledger = Ledger::open(Arc::new(memory.clone()), &env, clone, instance).await.expect("open").expect("there");
        let head = ledger.head().await.expect("head").state;
        for seq in (head.root.keep.0..=head.seq.0).map(Seq) {
            assert!(state_at(memory, seq).await.is_some(), "slot {seq} of {}.. is gone", head.root.keep);
        }
        for seq in (head.root.floor.0..=head.seq.0).map(Seq) {
            let state = state_at(memory, seq).await.expect("slot");
            let now = files(&ledger, &state).await;
            let now = now.unwrap_or_else(|e| unreachable!("A10: state {seq} of {}.. lost: {e:?}", head.root.floor));
            if let Some(was) = self.0.get(&seq) {
                assert_eq!(&now, was, "state {seq} reads differently");
            }
        }
        let verified = ledger.verify(true).await.expect("verified");
        assert!(verified.findings.is_empty(), "{:?}", verified.findings);
    }
}

/// A store whose client dies with its `n`th request, before or after that was carried out.
pub struct Dying {
    inner: Arc<dyn Store>,
    left: AtomicI64,
    applied: bool,
}

impl Dying {
    pub fn at(inner: Arc<dyn Store>, request: i64, applied: bool) -> Arc<Self> {
        Arc::new(Self { inner, left: AtomicI64::new(request), applied })
    }

    /// Whether it lived.
    pub fn lives(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    async fn pass<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        if left > 1 {
            return request.await;
        }
        if left == 1 && self.applied {
            let _ = request.await;
        }
        Err(Error::new(Kind::Offline, "dead"))
    }
}

#[async_trait]
impl Store for Dying {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.pass(self.inner.get(key, range)).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.pass(self.inner.create(key, body)).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.pass(self.inner.put(key, body)).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        self.pass(self.inner.list(list)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.pass(self.inner.delete(key)).await
    }
}

impl fmt::Display for Dying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for Dying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dying")
    }
}
