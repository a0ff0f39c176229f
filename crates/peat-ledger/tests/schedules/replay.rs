//! What the log says, replayed by the simplest code that can: the judge of everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use peat_ledger::{Entry, FileRow, Ledger, OpRecord, PageCache, Rank, Ref, State, TxKind, UnitOps, format};
use peat_objects::{MemoryStore, Range, Store};
use peat_types::{ChangeId, CloneId, Env, Hash, InstanceId, ItemPath, Result as PeatResult, Seq, TxId, Unit};
use setsum::Setsum;

/// A cache of pages that keeps everything.
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

/// What something comes to that never waits.
pub fn at_once<T>(what: impl Future<Output = PeatResult<T>>, doing: &str) -> Result<T, String> {
    let done = what.now_or_never().ok_or_else(|| format!("{doing}: memory made somebody wait"))?;
    done.map_err(|error| format!("{doing}: {error:?}"))
}

/// A handle of the ledger in `store` itself.
pub fn raw(store: &MemoryStore, env: &Env) -> Result<Ledger, String> {
    let (clone, instance) = (CloneId::from_bytes([0; 16]), InstanceId::from_bytes([0; 16]));
    let ledger = at_once(Ledger::open(Arc::new(store.clone()), env, clone, instance), "ns.json")?;
    ledger.ok_or_else(|| "ns.json is missing".to_owned())
}

/// A file as replayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct File {
    pub rank: Rank,
    pub size: u64,
    pub hash: Hash,
    pub executable: bool,
}

impl File {
    pub fn of(rank: Rank, row: &FileRow) -> Self {
        Self { rank, size: row.size, hash: row.hash, executable: row.executable }
    }
}

/// Files of one unit.
pub type Files = BTreeMap<ItemPath, File>;

/// All units, as far as somebody has read.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub units: BTreeMap<Unit, Files>,
}

impl View {
    pub fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        for unit in entry.ops.iter().flatten() {
            self.apply_unit(unit)?;
        }
        Ok(())
    }

    fn apply_unit(&mut self, changed: &UnitOps) -> Result<(), String> {
        let files = self.units.entry(changed.unit.clone()).or_default();
        for op in &changed.ops {
            match op {
                OpRecord::Put(path, rank, row) => {
                    files.insert(path.clone(), File::of(*rank, row));
                }
                OpRecord::Delete(path) => {
                    files.remove(path).ok_or_else(|| format!("{path} is deleted but was not there"))?;
                }
                OpRecord::Rank(path, rank) => {
                    let file = files.get_mut(path).ok_or_else(|| format!("{path} is ranked but was not there"))?;
                    file.rank = *rank;
                }
            }
        }
        Ok(())
    }

    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (unit, files) in self.units.iter().filter(|(_, files)| !files.is_empty()) {
            unit.as_str().hash(&mut hasher);
            for (path, file) in files {
                (path.as_str(), file).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

/// The log so far, and everything that must hold of it.
#[derive(Debug, Default)]
pub struct Replay {
    pub view: View,
    pub last_seq: BTreeMap<Unit, Seq>,
    pub changes: BTreeMap<ChangeId, Seq>,
    pub txs: BTreeMap<TxId, Seq>,
    pub head: Option<State>,
    /// Digest of the view after each entry.
    pub digests: Vec<u64>,
    /// Digest of a unit after each entry that changed it.
    pub unit_digests: BTreeMap<Unit, BTreeMap<Seq, u64>>,
}

pub fn files_digest(files: &Files) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, file) in files {
        (path.as_str(), file).hash(&mut hasher);
    }
    hasher.finish()
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

impl Replay {
    /// Takes the next entry; an error is a broken invariant.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        let state = &entry.state;
        let seq = state.seq;
        let before = self.head.as_ref();
        ensure!(seq == before.map_or(Seq::ZERO, |s| s.seq.next()), "entry {seq} follows {:?}", before.map(|s| s.seq));
        if let Some(before) = before {
            ensure!(entry.prev == before.hash, "A8: the chain is broken at entry {seq}");
            ensure!(state.ledger == before.ledger, "entry {seq} is of another ledger");
            let (old, new) = (&before.root, &state.root);
            ensure!(
                new.keep >= old.keep
                    && new.floor >= old.floor
                    && new.horizon >= old.horizon
                    && new.minlog >= old.minlog,
                "H, F, K or minlog went back at entry {seq}"
            );
        }
        let root = &state.root;
        ensure!(
            root.keep <= root.floor && root.floor <= root.horizon && root.horizon <= seq,
            "K ≤ F ≤ H ≤ head does not hold at entry {seq}"
        );
        let mut touched = BTreeSet::new();
        for tx in &entry.txs {
            if tx.kind == TxKind::Genesis {
                continue;
            }
            if let Some(other) = self.txs.insert(tx.tx, seq) {
                return Err(format!("A3: transaction {} is in entries {other} and {seq}", tx.tx));
            }
            if let Some(other) = self.changes.insert(tx.change, seq) {
                return Err(format!("A3: change {} is in entries {other} and {seq}", tx.change));
            }
            for unit in &tx.units {
                ensure!(touched.insert(unit.unit.clone()), "two transactions of entry {seq} touch {}", unit.unit);
                let last = self.last_seq.get(&unit.unit).copied();
                ensure!(
                    unit.expected == last,
                    "A2: entry {seq} changes {} as of {:?}, which is at {last:?}",
                    unit.unit,
                    unit.expected
                );
                ensure!(unit.row.last_seq == seq, "the row of {} in entry {seq} says {}", unit.unit, unit.row.last_seq);
            }
        }
        self.view.apply(entry).map_err(|why| format!("entry {seq}: {why}"))?;
        for unit in touched {
            let files = self.view.units.entry(unit.clone()).or_default();
            let row = entry.txs.iter().flat_map(|tx| &tx.units).find(|changed| changed.unit == unit);
            let bytes: u64 = files.values().map(|file| file.size).sum();
            let counted = row.map(|changed| (changed.row.files, changed.row.bytes));
            ensure!(
                counted == Some((files.len() as u64, bytes)),
                "entry {seq} counts {counted:?} in {unit}, not {} files of {bytes} bytes",
                files.len()
            );
            self.last_seq.insert(unit.clone(), seq);
            self.unit_digests.entry(unit).or_default().insert(seq, files_digest(files));
        }
        let files: u64 = self.view.units.values().map(|files| files.len() as u64).sum();
        let bytes: u64 = self.view.units.values().flat_map(BTreeMap::values).map(|file| file.size).sum();
        ensure!(
            (root.units, root.files, root.bytes) == (self.last_seq.len() as u64, files, bytes),
            "the root of entry {seq} counts {} units, {} files, {} bytes, not {}, {files}, {bytes}",
            root.units,
            root.files,
            root.bytes,
            self.last_seq.len()
        );
        ensure!(root.setsum == self.setsum(), "the setsum of entry {seq} is wrong");
        self.digests.push(self.view.digest());
        self.head = Some(state.clone());
        Ok(())
    }

    /// Looks at the store itself after a write to it; gives the entry when there is a new one.
    pub fn watch(&mut self, store: &MemoryStore, key: &str, env: &Env) -> Result<Option<Entry>, String> {
        let Some(number) = key.strip_prefix("log/").and_then(|name| name.split_once('.')).map(|(_, seq)| seq) else {
            return Ok(None);
        };
        let seq = Seq(number.parse().map_err(|e| format!("{key}: {e}"))?);
        if self.head.as_ref().is_some_and(|head| seq <= head.seq) {
            return Ok(None);
        }
        let body = at_once(store.get(key, Range::All), key)?.ok_or_else(|| format!("{key} is missing"))?.bytes;
        let entry = format::decode_entry(seq, &body).map_err(|e| format!("{key} cannot be decoded: {e:?}"))?;
        self.apply(&entry)?;

        // The tables in the tree must say what the replay says.
        let (ledger, cache) = (raw(store, env)?, MapCache::default());
        let rows = at_once(ledger.directory(&entry.state, &cache), "the directory of the newest entry")?;
        for (unit, row) in &rows {
            if self.last_seq.get(unit) != Some(&row.last_seq) {
                return Err(format!("the directory of entry {seq} has {unit} at {}", row.last_seq));
            }
            // A checkpoint moves the tables of many units.
            if row.last_seq != seq && !entry.txs.iter().any(|tx| tx.kind.is_maintenance()) {
                continue;
            }
            let table = at_once(ledger.tables(&[row], &cache), "a table of the newest entry")?;
            let files = table.into_iter().flatten().map(|(rank, path, row)| (path, File::of(rank, &row))).collect();
            if Some(files_digest(&files)) != self.view.units.get(unit).map(files_digest) {
                return Err(format!("the table of {unit} in entry {seq} is not the replay of its operations"));
            }
        }
        if rows.len() != self.last_seq.len() {
            return Err(format!("the directory of entry {seq} lists {} units", rows.len()));
        }
        Ok(Some(entry))
    }

    /// A10: every valid slot is there, and every state that is kept reads as it was, contents and all.
    pub fn audit(&self, store: &MemoryStore) -> Result<(), String> {
        let Some(head) = &self.head else { return Ok(()) };
        let env = Env::seeded(Arc::new(peat_testkit::sim::SimClock::new(std::time::Duration::ZERO, 0)), 0, []);
        let ledger = raw(store, &env)?;
        for seq in (head.root.keep.0..=head.seq.0).map(Seq) {
            let key = format!("log/{}.{seq}", seq.inverted());
            let Some(object) = at_once(store.get(&key, Range::All), &key)? else {
                return Err(format!("A10: slot {seq} is gone, K is {}", head.root.keep));
            };
            if seq < head.root.floor {
                continue;
            }
            let state = format::decode_entry(seq, &object.bytes).map_err(|e| format!("{key}: {e:?}"))?.state;
            let doing = format!("A10: state {seq} (F is {}, head {})", head.root.floor, head.seq);
            let cache = MapCache::default();
            let mut view = View::default();
            for (unit, row) in at_once(ledger.directory(&state, &cache), &doing)? {
                let table = at_once(ledger.tables(&[&row], &cache), &doing)?.remove(0);
                let rows: Vec<_> = table.iter().map(|(_, _, row)| row).collect();
                at_once(ledger.contents(&rows, &[]), &doing)?;
                let files = table.iter().map(|(rank, path, row)| (path.clone(), File::of(*rank, row))).collect();
                view.units.insert(unit, files);
            }
            let was = usize::try_from(seq.0).ok().and_then(|at| self.digests.get(at));
            ensure!(was == Some(&view.digest()), "{doing} is not what it was");
        }
        Ok(())
    }

    /// Last seq and digest of a unit as of entry `seq`.
    pub fn unit_at(&self, unit: &Unit, seq: Seq) -> Option<(Seq, u64)> {
        self.unit_digests.get(unit)?.range(..=seq).next_back().map(|(seq, digest)| (*seq, *digest))
    }

    fn setsum(&self) -> [u8; 32] {
        let mut sum = Setsum::default();
        for (unit, files) in &self.view.units {
            for (path, file) in files {
                let content = peat_ledger::Content::Tiny(Bytes::new());
                let row = FileRow { executable: file.executable, size: file.size, hash: file.hash, content };
                sum += format::setsum_of(unit, path, &row);
            }
        }
        sum.digest()
    }
}
