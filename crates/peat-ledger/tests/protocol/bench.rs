//! A ledger in memory behind a meter, and a store whose replies a test can change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_ledger::{
    Commit, Draft, DraftUnit, Entry, Ledger, NewContent, NewLedger, Op, PageCache, Params, Rank, Ref, State, TxKind,
};
use peat_objects::{Counts, Created, LatencyStore, List, MemoryStore, Meta, Metered, Object, Page, Range, Store};
use peat_testkit::sim::SimClock;
use peat_types::{ChangeId, CloneId, Env, InstanceId, ItemPath, Namespace, Result, Seq, TxId, Unit};

#[derive(Debug, Default)]
pub struct MapCache(Mutex<BTreeMap<Ref, Bytes>>);

impl PageCache for MapCache {
    fn get(&self, at: &Ref) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(at).cloned()
    }

    fn put(&self, at: &Ref, record: &Bytes) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(*at, record.clone());
    }
}

impl MapCache {
    /// Ruins every page in it.
    pub fn damage(&self) {
        for record in self.0.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            let mut bytes = record.to_vec();
            *bytes.last_mut().expect("not empty") ^= 1;
            *record = bytes.into();
        }
    }
}

pub type OnGet = Box<dyn Fn(&str, Option<Object>) -> Result<Option<Object>> + Send + Sync>;
pub type OnList = Box<dyn Fn(&List, Page) -> Result<Page> + Send + Sync>;
pub type OnCreate = Box<dyn Fn(&str) -> Option<Result<Created>> + Send + Sync>;

/// A store whose replies a test changes.
#[derive(Clone)]
pub struct Hooked {
    inner: Arc<dyn Store>,
    on_get: Arc<Mutex<Option<OnGet>>>,
    on_create: Arc<Mutex<Option<OnCreate>>>,
    on_list: Arc<Mutex<Option<OnList>>>,
}

impl Hooked {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, on_get: Arc::default(), on_create: Arc::default(), on_list: Arc::default() }
    }

    /// Changes the replies to reads.
    pub fn on_get(&self, hook: impl Fn(&str, Option<Object>) -> Result<Option<Object>> + Send + Sync + 'static) {
        *self.on_get.lock().expect("hook") = Some(Box::new(hook));
    }

    /// Answers creates instead of the store, where it returns an answer.
    pub fn on_create(&self, hook: impl Fn(&str) -> Option<Result<Created>> + Send + Sync + 'static) {
        *self.on_create.lock().expect("hook") = Some(Box::new(hook));
    }

    /// Changes the replies to listings.
    pub fn on_list(&self, hook: impl Fn(&List, Page) -> Result<Page> + Send + Sync + 'static) {
        *self.on_list.lock().expect("hook") = Some(Box::new(hook));
    }

    pub fn calm(&self) {
        *self.on_list.lock().expect("hook") = None;
        *self.on_get.lock().expect("hook") = None;
        *self.on_create.lock().expect("hook") = None;
    }
}

#[async_trait]
impl Store for Hooked {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        let object = self.inner.get(key, range).await?;
        self.on_get.lock().expect("hook").as_ref().map_or(Ok(object.clone()), |hook| hook(key, object))
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        let answer = self.on_create.lock().expect("hook").as_ref().and_then(|hook| hook(key));
        match answer {
            Some(answer) => answer,
            None => self.inner.create(key, body).await,
        }
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.inner.put(key, body).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        if self.on_list.lock().expect("hook").is_none() {
            return self.inner.list(list).await;
        }
        // Tokens are the hook's own.
        let page = self.inner.list(&List { token: None, ..list.clone() }).await?;
        self.on_list.lock().expect("hook").as_ref().map_or(Ok(page.clone()), |hook| hook(list, page))
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).await
    }
}

impl fmt::Display for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hooked:")
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}

pub fn env(seed: u64) -> Env {
    Env::seeded(Arc::new(SimClock::new(Duration::from_secs(1_000_000), 0)), seed, [])
}

pub fn new_ledger(owner: &str, params: Params) -> NewLedger {
    NewLedger { namespace: Namespace::default(), owner: owner.to_owned(), params, probe: serde_json::Value::Null }
}

/// One client of a ledger, all its requests counted.
pub struct Bench {
    pub env: Env,
    pub memory: MemoryStore,
    pub hooks: Hooked,
    pub metered: Metered,
    pub ledger: Ledger,
    pub cache: MapCache,
    pub state: State,
    pub read_at: Duration,
}

impl Bench {
    pub async fn new() -> Self {
        Self::with(Params::default()).await
    }

    pub async fn with(params: Params) -> Self {
        Self::on(MemoryStore::new(), params, 1).await
    }

    /// Another client of the same store.
    pub async fn peer(&self, seed: u64) -> Self {
        Self::on(self.memory.clone(), Params::default(), seed).await
    }

    /// A client of a store; the ledger is created if it is not there.
    pub async fn on(memory: MemoryStore, params: Params, seed: u64) -> Self {
        Self::at(memory, params, seed, Duration::ZERO).await
    }

    /// As [`on`](Self::on), with the store so far away.
    pub async fn at(memory: MemoryStore, params: Params, seed: u64, distance: Duration) -> Self {
        let env = env(seed);
        let hooks = Hooked::new(Arc::new(memory.clone()));
        let near: Arc<dyn Store> = Arc::new(hooks.clone());
        let far = Arc::new(LatencyStore::new(near.clone(), &env, distance, Duration::ZERO));
        let metered = Metered::new(if distance.is_zero() { near } else { far });
        let (clone, instance) = (CloneId::random(&env), InstanceId::random(&env));
        let store = Arc::new(metered.clone());
        let ledger = Ledger::create(store, &env, new_ledger("repo", params), clone, instance).await.expect("create");
        let read_at = env.monotonic();
        let state = ledger.head().await.expect("head").state;
        Self { env, memory, hooks, metered, ledger, cache: MapCache::default(), state, read_at }
    }

    /// What `work` asks of the store.
    pub fn mark(&self) -> Counts {
        self.metered.meter().snapshot()
    }

    /// Requests and bytes received since `mark`.
    pub fn used(&self, mark: &Counts) -> (u64, u64) {
        let total = self.metered.meter().since(mark).total();
        (total.requests, total.bytes_in)
    }

    /// Takes over entries.
    pub fn pass(&mut self, entries: &[Entry]) {
        for entry in entries {
            entry.keep_pages(&self.cache);
            self.state = entry.state.clone();
        }
    }

    pub async fn draft(&self, unit: &str, files: &[(&str, &[u8])]) -> Draft {
        let unit: Unit = unit.parse().expect("unit");
        let row = self.ledger.unit(&self.state, &unit, &self.cache).await.expect("unit");
        let table = match &row {
            Some(row) => self.ledger.tables(&[row], &self.cache).await.expect("table").remove(0),
            None => Vec::new(),
        };
        let ops = files.iter().map(|(path, bytes)| {
            let path: ItemPath = path.parse().expect("path");
            Op::Put {
                old: table.iter().find(|(_, old, _)| *old == path).map(|(rank, _, _)| *rank),
                path,
                rank: Rank::Current,
                executable: false,
                content: NewContent::Bytes(Bytes::copy_from_slice(bytes)),
            }
        });
        let ops = ops.collect();
        Draft {
            tx: TxId::random(&self.env),
            change: ChangeId::random(&self.env),
            kind: TxKind::Change,
            author: "somebody@somewhere".to_owned(),
            message: "a change".to_owned(),
            time: self.env.now(),
            guard: None,
            units: vec![DraftUnit { unit, expected: row.map(|row| row.last_seq), ops }],
        }
    }

    pub async fn send(&self, draft: &Draft) -> Commit {
        let sent = self.ledger.commit(&self.state, self.read_at, draft, &self.cache, 30_000).await;
        sent.expect("no error")
    }

    /// Commits a change that must go through, and takes over what it led to.
    pub async fn put(&mut self, unit: &str, files: &[(&str, &[u8])]) -> Seq {
        let draft = self.draft(unit, files).await;
        let Commit::Committed { passed, entry } = self.send(&draft).await else { unreachable!("not committed") };
        self.pass(&passed);
        let seq = entry.state.seq;
        self.pass(&[*entry]);
        seq
    }
}

/// Pages straight from the objects.
pub struct RawPages(pub MemoryStore);

#[async_trait]
impl peat_ledger::format::PageSource for RawPages {
    async fn page(&self, at: &Ref) -> Result<Bytes> {
        let key = match at.segment {
            peat_ledger::Segment::Log(seq) => log_key(seq),
            peat_ledger::Segment::Pack(base, id) => format!("pack/{:016x}-{id}", base.0),
        };
        let range = Range::Part { offset: at.off, len: u64::from(at.len) };
        Ok(self.0.get(&key, range).await?.expect("there").bytes)
    }
}

pub fn log_key(seq: Seq) -> String {
    format!("log/{}.{seq}", seq.inverted())
}

impl Bench {
    /// What a garbage collector leaves: an entry that raises H, F and K, and no slot below K.
    pub async fn collect(&mut self, keep: Seq) {
        use peat_ledger::format;
        let draft = self.draft("maintenance", &[("gc", b"done")]).await;
        let mut state = self.state.clone();
        let root = &mut state.root;
        (root.keep, root.floor, root.horizon, root.minlog) = (keep, keep, keep, keep);
        let pages = RawPages(self.memory.clone());
        let mut pack_id = || unreachable!("small");
        let params = Params::default();
        let section = format::plan(&draft, &state, &params, &pages, &mut pack_id).await.expect("plan");
        let writer = format::Writer {
            clone: CloneId::random(&self.env),
            instance: InstanceId::random(&self.env),
            time: self.env.now(),
        };
        let entry = peat_types::EntryId::random(&self.env);
        let built = format::build_entry(&state, &[section], entry, writer, &params, &pages).await;
        let (body, _) = built.expect("build");
        let seq = self.state.seq.next();
        self.memory.create(&log_key(seq), body.clone()).await.expect("create");
        self.pass(&[format::decode_entry(seq, &body).expect("decode")]);
        for slot in 0..keep.0 {
            self.memory.delete(&log_key(Seq(slot))).await.expect("delete");
        }
    }
}
