//! One simulated namespace: its judge, its units, what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use peat_ledger::{Ledger, NewLedger, PageCache, Params, Ref, State, format};
use peat_objects::{MemoryStore, Range, Store};
use peat_testkit::sim::{Process, Sim};
use peat_types::{ChangeId, CloneId, Env, InstanceId, Mutation, Namespace, Result, Seq, TxId, Unit};

use super::replay::{File, Replay, files_digest};

/// A cache of pages that keeps everything.
#[derive(Debug, Default)]
pub struct MapCache(Mutex<BTreeMap<Ref, Bytes>>);

impl PageCache for MapCache {
    fn get(&self, at: &Ref) -> Option<Bytes> {
        lock(&self.0).get(at).cloned()
    }

    fn put(&self, at: &Ref, record: &Bytes) {
        lock(&self.0).insert(*at, record.clone());
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Judge {
    replay: Replay,
    acked: BTreeMap<ChangeId, Seq>,
    lost: BTreeSet<TxId>,
    made: BTreeSet<ChangeId>,
}

/// Handle of everything a schedule shares.
#[derive(Clone)]
pub struct World {
    pub sim: Sim,
    pub units: Arc<Vec<Unit>>,
    pub mutation: Option<Mutation>,
    judge: Arc<Mutex<Judge>>,
}

pub fn params() -> Params {
    Params { inline_file: 2 << 10, inline_tx: 4 << 10, ring: 6, ..Params::default() }
}

impl World {
    pub fn new(sim: &Sim, units: usize, mutation: Option<Mutation>) -> Self {
        let units = (0..units).map(|n| format!("model/{n}").parse().expect("unit")).collect();
        let judge = Arc::<Mutex<Judge>>::default();
        let watching = judge.clone();
        let env = Env::seeded(Arc::new(peat_testkit::sim::SimClock::new(std::time::Duration::ZERO, 0)), 0, []);
        sim.watch(Box::new(move |store, key| lock(&watching).watch(store, key, &env)));
        Self { sim: sim.clone(), units: Arc::new(units), mutation, judge }
    }

    /// A handle of the ledger in a process; it is created if it is not there.
    pub async fn ledger(&self, process: &Process) -> Result<Ledger> {
        let env = process.env();
        let new = NewLedger {
            namespace: Namespace::default(),
            owner: "repo".to_owned(),
            params: params(),
            probe: serde_json::Value::Null,
        };
        Ledger::create(process.store(), env, new, CloneId::random(env), InstanceId::random(env)).await
    }

    pub fn any_unit(&self) -> Unit {
        self.units[usize::try_from(self.sim.below(self.units.len() as u64)).expect("small")].clone()
    }

    pub fn made(&self, change: ChangeId) {
        lock(&self.judge).made.insert(change);
    }

    /// A client was told that `change` is in entry `seq` as `tx`.
    pub fn acked(&self, change: ChangeId, tx: TxId, seq: Seq) {
        let mut judge = lock(&self.judge);
        let (change_at, tx_at) = (judge.replay.changes.get(&change).copied(), judge.replay.txs.get(&tx).copied());
        if let Some(other) = judge.acked.insert(change, seq).filter(|other| *other != seq) {
            self.sim.violation(format_args!("A3: change {change} was acknowledged in entries {other} and {seq}"));
        }
        if change_at != Some(seq) || tx_at != Some(seq) {
            self.sim
                .violation(format_args!("A3: change {change} was acknowledged in entry {seq}, it is in {change_at:?}"));
        }
    }

    /// A client was told that `tx`, sent on `base`, is dead for ever.
    pub fn lost(&self, tx: TxId, base: Seq) {
        let mut judge = lock(&self.judge);
        judge.lost.insert(tx);
        if let Some(seq) = judge.replay.txs.get(&tx).filter(|seq| **seq > base) {
            self.sim.violation(format_args!("R7: transaction {tx} was called dead and is in entry {seq}"));
        }
    }

    /// A client was told of an error that nothing explains.
    pub fn unexpected(&self, who: &str, error: &peat_types::Error) {
        self.sim.violation(format_args!("{who}: unexpected {error:?}"));
    }

    pub fn head(&self) -> Option<State> {
        lock(&self.judge).replay.head.clone()
    }

    /// Digest of everything after entry `seq`.
    pub fn digest_at(&self, seq: Seq) -> Option<u64> {
        lock(&self.judge).replay.digests.get(usize::try_from(seq.0).ok()?).copied()
    }

    /// Last seq and digest of a unit as of entry `seq`.
    pub fn unit_at(&self, unit: &Unit, seq: Seq) -> Option<(Seq, u64)> {
        let judge = lock(&self.judge);
        judge.replay.unit_digests.get(unit)?.range(..=seq).next_back().map(|(seq, digest)| (*seq, *digest))
    }

    /// What must hold when all is done: every change made is in the log.
    pub fn finish(&self) {
        let judge = lock(&self.judge);
        for change in &judge.made {
            if !judge.replay.changes.contains_key(change) {
                self.sim.violation(format_args!("A9: change {change} never got into the log"));
            }
        }
        for tx in judge.lost.iter().filter(|tx| judge.replay.txs.contains_key(tx)) {
            // It may have been committed below the base of the attempt that was called dead.
            self.sim.event(format_args!("{tx} had been committed before"));
        }
    }

    pub fn entries(&self) -> usize {
        lock(&self.judge).replay.digests.len()
    }
}

impl Judge {
    /// Looks at the store itself after every write to it.
    fn watch(&mut self, store: &MemoryStore, key: &str, env: &Env) -> Result<(), String> {
        let Some(number) = key.strip_prefix("log/").and_then(|name| name.split_once('.')).map(|(_, seq)| seq) else {
            return Ok(());
        };
        let seq = Seq(number.parse().map_err(|e| format!("{key}: {e}"))?);
        if self.replay.head.as_ref().is_some_and(|head| seq <= head.seq) {
            return Ok(());
        }
        let body = store.get(key, Range::All).now_or_never().and_then(Result::ok).flatten();
        let body = body.ok_or_else(|| format!("{key} cannot be read"))?.bytes;
        let entry = format::decode_entry(seq, &body).map_err(|e| format!("{key} cannot be decoded: {e:?}"))?;
        self.replay.apply(&entry)?;

        // The tables in the tree must say what the replay says.
        let object = store.get("ns.json", Range::All).now_or_never().and_then(Result::ok).flatten();
        let info = object.and_then(|object| serde_json::from_slice(&object.bytes).ok()).ok_or("ns.json is missing")?;
        let (clone, instance) = (CloneId::from_bytes([0; 16]), InstanceId::from_bytes([0; 16]));
        let ledger = Ledger::with_info(Arc::new(store.clone()), env, info, clone, instance);
        let cache = MapCache::default();
        let rows = ledger.directory(&entry.state, &cache).now_or_never().ok_or("memory made somebody wait")?;
        let rows = rows.map_err(|e| format!("the directory of entry {seq} cannot be read: {e:?}"))?;
        for (unit, row) in &rows {
            if self.replay.last_seq.get(unit) != Some(&row.last_seq) {
                return Err(format!("the directory of entry {seq} has {unit} at {}", row.last_seq));
            }
            if row.last_seq != seq {
                continue;
            }
            let table = ledger.tables(&[row], &cache).now_or_never().ok_or("memory made somebody wait")?;
            let table = table.map_err(|e| format!("the table of {unit} in entry {seq} cannot be read: {e:?}"))?;
            let files = table.into_iter().flatten().map(|(rank, path, row)| (path, File::of(rank, &row))).collect();
            let expected = self.replay.view.units.get(unit).map(files_digest);
            if Some(files_digest(&files)) != expected {
                return Err(format!("the table of {unit} in entry {seq} is not the replay of its operations"));
            }
        }
        if rows.len() != self.replay.last_seq.len() {
            return Err(format!("the directory of entry {seq} lists {} units", rows.len()));
        }
        Ok(())
    }
}
