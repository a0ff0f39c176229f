//! What the log says, replayed by the simplest code that can: the judge of everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use peat_ledger::format::PageSource;
use peat_ledger::{Entry, Ledger, PageCache, Ref, Root, Segment, State, TxHead, TxKind, UnitOps, format};
use peat_objects::{MemoryStore, Range, Store};
use peat_testkit::sim::Wrote;
use peat_types::{ChangeId, CloneId, Env, Error, InstanceId, PackId, Result as PeatResult, Seq, TxId, Unit};
use setsum::Setsum;

use super::leases::Leases;
use super::view::{File, View, files_digest, part_digest};

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
    let done = what.now_or_never().ok_or_else(|| format!("A1: {doing}: memory made somebody wait"))?;
    done.map_err(|error| format!("A1: {doing}: {error:?}"))
}

/// A handle of the ledger in `store` itself.
pub fn raw(store: &MemoryStore, env: &Env) -> Result<Ledger, String> {
    let (clone, instance) = (CloneId::from_bytes([0; 16]), InstanceId::from_bytes([0; 16]));
    let ledger = at_once(Ledger::open(Arc::new(store.clone()), env, clone, instance), "ns.json")?;
    ledger.ok_or_else(|| "A10: ns.json is missing".to_owned())
}

/// What became of a pack that an entry introduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pack {
    Live,
    /// By this entry.
    Dropped(Seq),
    /// No state that is kept refers to it.
    Pruned,
}

/// Pages straight from the objects.
struct RawPages<'a>(&'a MemoryStore);

#[async_trait]
impl PageSource for RawPages<'_> {
    async fn page(&self, at: &Ref) -> PeatResult<Bytes> {
        let key = match at.segment {
            Segment::Log(seq) => slot(seq),
            Segment::Pack(base, id) => pack(base, id),
        };
        let range = Range::Part { offset: at.off, len: u64::from(at.len) };
        let page = self.0.get(&key, range).await?;
        page.map(|page| page.bytes).ok_or_else(|| Error::damaged(format!("{key} is missing")))
    }
}

fn slot(seq: Seq) -> String {
    format!("log/{}.{seq}", seq.inverted())
}

fn pack(base: Seq, id: PackId) -> String {
    format!("pack/{:016x}-{id}", base.0)
}

/// What is known of one unit.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bytes: u64,
    part: u64,
}

/// The log so far, and everything that must hold of it. Each entry costs what it changes.
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
    /// What happened since somebody last looked that the schedules are meant to bring about.
    pub seen: Vec<&'static str>,
    /// Entries whose writer did not hear that they are there.
    pub unanswered: BTreeSet<Seq>,
    sums: BTreeMap<Unit, Sums>,
    /// Paths as they collide, with how many there are of each.
    folded: BTreeMap<Unit, BTreeMap<String, u32>>,
    files: u64,
    setsum: Setsum,
    digest: u64,
    /// Packs that an entry introduced.
    packs: BTreeMap<(Seq, PackId), Pack>,
    cache: MapCache,
    /// Judged in the ledger's own schedules; clones have rules of their own for who may free a lease.
    pub leases: Option<Leases>,
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

impl Replay {
    fn see(&mut self, what: &'static str) {
        self.seen.push(what);
    }

    /// Takes the next entry; an error is a broken invariant.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        let state = &entry.state;
        let seq = state.seq;
        let before = self.head.as_ref();
        ensure!(
            seq == before.map_or(Seq::ZERO, |s| s.seq.next()),
            "A8: entry {seq} follows {:?}",
            before.map(|s| s.seq)
        );
        if let Some(before) = before {
            ensure!(entry.prev == before.hash, "A8: the chain is broken at entry {seq}");
            ensure!(state.ledger == before.ledger, "A8: entry {seq} is of another ledger");
            let (old, new) = (&before.root, &state.root);
            let grows = new.keep >= old.keep && new.floor >= old.floor && new.horizon >= old.horizon;
            ensure!(grows && new.minlog >= old.minlog, "A10: H, F, K or minlog went back at entry {seq}");
        }
        let root = &state.root;
        ensure!(
            root.keep <= root.floor && root.floor <= root.horizon && root.horizon <= seq,
            "A10: K ≤ F ≤ H ≤ head does not hold at entry {seq}"
        );
        let pin = root.pins.iter().find(|(_, at)| *at < root.floor || *at > seq);
        ensure!(pin.is_none(), "A10: pin {pin:?} of entry {seq} is not kept, F is {}", root.floor);
        let mut touched = BTreeMap::new();
        for tx in entry.txs.iter().filter(|tx| tx.kind != TxKind::Genesis) {
            if let Some(other) = self.txs.insert(tx.tx, seq) {
                return Err(format!("A3: transaction {} is in entries {other} and {seq}", tx.tx));
            }
            if let Some(other) = self.changes.insert(tx.change, seq) {
                return Err(format!("A3: change {} is in entries {other} and {seq}", tx.change));
            }
            for unit in &tx.units {
                let once = touched.insert(unit.unit.clone(), &unit.row).is_none();
                ensure!(once, "R1: two transactions of entry {seq} touch {}", unit.unit);
                let last = self.last_seq.get(&unit.unit).copied();
                ensure!(
                    unit.expected == last,
                    "A2: entry {seq} changes {} as of {:?}, which is at {last:?}",
                    unit.unit,
                    unit.expected
                );
                ensure!(
                    unit.row.last_seq == seq,
                    "A1: the row of {} in entry {seq} says {}",
                    unit.unit,
                    unit.row.last_seq
                );
            }
            self.references(seq, tx)?;
        }
        for unit in entry.ops.iter().flatten() {
            self.ops(unit).map_err(|why| format!("{why} (entry {seq})"))?;
        }
        for (unit, row) in touched {
            let files = self.view.units.entry(unit.clone()).or_default();
            let sums = self.sums.entry(unit.clone()).or_default();
            ensure!(
                (row.files, row.bytes) == (files.len() as u64, sums.bytes),
                "A1: entry {seq} counts {} files of {} bytes in {unit}, not {} of {}",
                row.files,
                row.bytes,
                files.len(),
                sums.bytes
            );
            let digest = files_digest(files);
            let part = part_digest(&unit, digest, files.is_empty());
            self.digest = self.digest.wrapping_sub(std::mem::replace(&mut sums.part, part)).wrapping_add(part);
            self.last_seq.insert(unit.clone(), seq);
            self.unit_digests.entry(unit).or_default().insert(seq, digest);
        }
        self.totals(seq, root)?;
        self.digests.push(self.digest);
        self.head = Some(state.clone());
        Ok(())
    }

    /// R2 and R3 of a transaction on the head so far.
    fn references(&mut self, seq: Seq, tx: &TxHead) -> Result<(), String> {
        let Some(before) = &self.head else { return Ok(()) };
        for peat_ledger::NewPack { base, id, .. } in &tx.packs {
            ensure!(*base > before.root.horizon, "R2: entry {seq} introduces pack {base}-{id} below the horizon");
            let known = self.packs.insert((*base, *id), Pack::Live);
            ensure!(known.is_none(), "R2: entry {seq} introduces pack {base}-{id} once more");
        }
        let lowest = before.root.minlog;
        ensure!(
            tx.ext_log.is_none_or(|slot| slot >= lowest),
            "R3: entry {seq} refers to slot {:?} below {lowest}",
            tx.ext_log
        );
        for (base, id) in &tx.ext_packs {
            let known = self.packs.get(&(*base, *id));
            ensure!(known == Some(&Pack::Live), "R3: entry {seq} refers to pack {base}-{id}, which is {known:?}");
        }
        Ok(())
    }

    fn ops(&mut self, changed: &UnitOps) -> Result<(), String> {
        let Self { view, sums, files, setsum, folded, .. } = self;
        let sums = sums.entry(changed.unit.clone()).or_default();
        let folded = folded.entry(changed.unit.clone()).or_default();
        view.apply_unit(changed, &mut |(unit, path, before, after)| {
            if before.is_none() != after.is_none() {
                let same = folded.entry(path.folded()).or_default();
                *same = if after.is_some() { *same + 1 } else { same.saturating_sub(1) };
                ensure!(*same < 2, "P: {path} in {unit} equals another path");
            }
            if let Some(file) = before {
                *setsum -= file.setsum(unit, &path);
                (sums.bytes, *files) = (sums.bytes - file.size, *files - 1);
            }
            if let Some(file) = after {
                *setsum += file.setsum(unit, &path);
                (sums.bytes, *files) = (sums.bytes + file.size, *files + 1);
            }
            Ok(())
        })
    }

    fn totals(&self, seq: Seq, root: &Root) -> Result<(), String> {
        let units = self.last_seq.len() as u64;
        let bytes = self.sums.values().map(|sums| sums.bytes).sum();
        ensure!(
            (root.units, root.files, root.bytes) == (units, self.files, bytes),
            "A1: the root of entry {seq} counts {} units, {} files, {} bytes, not {units}, {}, {bytes}",
            root.units,
            root.files,
            root.bytes,
            self.files
        );
        ensure!(root.setsum == self.setsum.digest(), "A1: the setsum of entry {seq} is wrong");
        Ok(())
    }

    /// Looks at the store itself after a write to it; gives the entry when there is a new one.
    pub fn watch(&mut self, store: &MemoryStore, wrote: &Wrote<'_>, env: &Env) -> Result<Option<Entry>, String> {
        let Wrote { verb, key, by, .. } = *wrote;
        let log = key.strip_prefix("log/");
        if verb == "put" && log.is_some() {
            return self.overwritten(store, key, by).map(|()| None);
        }
        ensure!(verb != "put" || key != "ns.json", "A3: {by} overwrites {key}");
        if verb == "delete" {
            return self.deleted(key).map(|()| None);
        }
        if verb == "put" && key.starts_with("tx/") {
            self.see("transaction staged");
        }
        let Some(number) = log.and_then(|name| name.split_once('.')).map(|(_, seq)| seq) else {
            return Ok(None);
        };
        let seq = Seq(number.parse().map_err(|e| format!("A1: {key}: {e}"))?);
        if let Some(head) = self.head.as_ref().filter(|head| seq <= head.seq) {
            if seq < head.root.keep {
                self.see("void slot");
            }
            return Ok(None);
        }
        let body = at_once(store.get(key, Range::All), key)?.ok_or_else(|| format!("A10: {key} is missing"))?.bytes;
        let entry = format::decode_entry(seq, &body).map_err(|e| format!("A1: {key} cannot be decoded: {e:?}"))?;
        if let Some(leases) = &mut self.leases
            && leases.apply(store, env, &entry)? > 0
        {
            self.see("lease changed");
        }
        self.apply(&entry)?;
        self.compare(store, env, &entry)?;
        // (The author says which process a transaction is of.)
        let own = entry.txs.iter().filter(|tx| tx.author == by).count();
        let helps = entry.txs.len() > own.max(1);
        if own > 1 {
            self.see("changes of one process in one entry");
        }
        if helps {
            self.see("helper");
        }
        if !wrote.answered {
            self.unanswered.insert(seq);
            self.see(if helps { "helper without a reply" } else { "entry without a reply" });
        }
        Ok(Some(entry))
    }

    /// A purge overwrites slots that are void with what says nothing else.
    fn overwritten(&self, store: &MemoryStore, key: &str, by: &str) -> Result<(), String> {
        let keep = self.head.as_ref().map_or(Seq::ZERO, |head| head.root.keep);
        let seq = key.rsplit_once('.').and_then(|(_, seq)| seq.parse().ok()).map(Seq);
        ensure!(seq.is_some_and(|seq| seq < keep), "A3: {by} overwrites {key}, and K is {keep}");
        let now = at_once(store.get(key, Range::All), key)?.map(|object| object.bytes);
        ensure!(now == Some(format::void_slot().into()), "A3: {by} overwrites {key} with something");
        Ok(())
    }

    /// What may be deleted. Staged transactions and beats may always be lost.
    fn deleted(&self, key: &str) -> Result<(), String> {
        let keep = self.head.as_ref().map_or(Seq::ZERO, |head| head.root.keep);
        if let Some((_, seq)) = key.strip_prefix("log/").and_then(|name| name.split_once('.')) {
            let seq = Seq(seq.parse().map_err(|e| format!("R5: {key}: {e}"))?);
            ensure!(seq < keep, "R5: {key} is deleted, and K is {keep}");
        }
        if let Some((base, id)) = key.strip_prefix("pack/").and_then(|name| name.split_once('-')) {
            let base = u64::from_str_radix(base, 16).map(Seq).map_err(|e| format!("R4: {key}: {e}"))?;
            let id: PackId = id.parse().map_err(|e| format!("R4: {key}: {e}"))?;
            let horizon = self.head.as_ref().map_or(Seq::ZERO, |head| head.root.horizon);
            ensure!(base <= horizon, "R4: {key} is deleted, and H is {horizon}");
            let known = self.packs.get(&(base, id)).copied().unwrap_or(Pack::Pruned);
            ensure!(known == Pack::Pruned, "R4: {key} is deleted, which is {known:?}");
        }
        ensure!(key != "ns.json", "A10: {key} is deleted");
        Ok(())
    }

    /// The tables in the tree must say what the replay says.
    fn compare(&mut self, store: &MemoryStore, env: &Env, entry: &Entry) -> Result<(), String> {
        self.pack_table(store, entry)?;
        // A checkpoint moves the tables of many units.
        let moves = entry.txs.iter().any(|tx| tx.kind.is_maintenance());
        let (ledger, seq, cache) = (raw(store, env)?, entry.state.seq, &self.cache);
        let rows = at_once(ledger.directory(&entry.state, cache), "the directory of the newest entry")?;
        let mut changed = Vec::new();
        for (unit, row) in &rows {
            let last = self.last_seq.get(unit);
            ensure!(last == Some(&row.last_seq), "A1: the directory of entry {seq} has {unit} at {}", row.last_seq);
            if row.last_seq == seq || moves {
                changed.push((unit, row));
            }
        }
        ensure!(rows.len() == self.last_seq.len(), "A1: the directory of entry {seq} lists {} units", rows.len());
        let tables: Vec<_> = changed.iter().map(|(_, row)| *row).collect();
        let tables = at_once(ledger.tables(&tables, cache), "tables of the newest entry")?;
        for ((unit, _), table) in changed.into_iter().zip(tables) {
            let files = table.into_iter().map(|(rank, path, row)| (path, File::of(rank, &row))).collect();
            ensure!(
                self.view.units.get(unit) == Some(&files),
                "A1: the table of {unit} in entry {seq} is not the replay of its operations"
            );
        }
        for peat_ledger::NewPack { base, id, .. } in entry.txs.iter().flat_map(|tx| &tx.packs) {
            let durable = store.keys().contains(&pack(*base, *id));
            ensure!(durable, "A5: entry {seq} names pack {base}-{id}, which is not there");
        }
        Ok(())
    }

    /// A pack that was introduced is in the table of the tree: until a checkpoint drops it, and from then on until no
    /// state before that is kept.
    fn pack_table(&mut self, store: &MemoryStore, entry: &Entry) -> Result<(), String> {
        let (state, seq) = (&entry.state, entry.state.seq);
        let rows = at_once(format::packs(state, &RawPages(store)), "the pack table of the newest entry")?;
        let rows: BTreeMap<_, _> =
            rows.into_iter().map(|(dropped, base, id, row)| ((base, id), (dropped, row))).collect();
        for (at, (..)) in &rows {
            ensure!(self.packs.contains_key(at), "R4: the table of entry {seq} has pack {at:?}, which nobody made");
        }
        let drops = entry.txs.iter().any(|tx| tx.kind == TxKind::Checkpoint);
        for (at, known) in &mut self.packs {
            let now = match rows.get(at) {
                None => Pack::Pruned,
                Some((false, _)) => Pack::Live,
                Some((true, row)) => Pack::Dropped(row.seq),
            };
            let right = match (*known, now) {
                (Pack::Live, Pack::Dropped(at)) => drops && at == seq,
                (Pack::Dropped(at), Pack::Pruned) => at <= state.root.floor,
                (before, now) => before == now,
            };
            ensure!(
                right,
                "R4: pack {at:?} is {known:?} and becomes {now:?} in entry {seq}, F is {}",
                state.root.floor
            );
            *known = now;
        }
        Ok(())
    }

    /// A10: every valid slot is there, and every state that is kept reads as it was, contents and all.
    pub fn audit(&self, store: &MemoryStore, env: &Env) -> Result<(), String> {
        let Some(head) = &self.head else { return Ok(()) };
        let (ledger, cache, mut read) = (raw(store, env)?, MapCache::default(), BTreeSet::new());
        for seq in (head.root.keep.0..=head.seq.0).map(Seq) {
            let key = slot(seq);
            let object = at_once(store.get(&key, Range::All), &key)?;
            let object = object.ok_or_else(|| format!("A10: slot {seq} is gone, K is {}", head.root.keep))?;
            if seq < head.root.floor {
                continue;
            }
            let state = format::decode_entry(seq, &object.bytes).map_err(|e| format!("A10: {key}: {e:?}"))?.state;
            let wrong = |why: String| format!("A10: state {seq} (F is {}, head {}): {why}", head.root.floor, head.seq);
            let mut view = View::default();
            let rows = at_once(ledger.directory(&state, &cache), "its directory").map_err(wrong)?;
            let tables: Vec<_> = rows.iter().map(|(_, row)| row).collect();
            let tables = at_once(ledger.tables(&tables, &cache), "its tables").map_err(wrong)?;
            for ((unit, _), table) in rows.into_iter().zip(tables) {
                // What lies at one place is read once.
                let rows = table.iter().map(|(_, _, row)| row);
                let rows: Vec<_> = rows.filter(|row| read.insert(format!("{row:?}"))).collect();
                at_once(ledger.contents(&rows, &[]), "its contents").map_err(wrong)?;
                let files = table.iter().map(|(rank, path, row)| (path.clone(), File::of(*rank, row))).collect();
                view.units.insert(unit, files);
            }
            let was = usize::try_from(seq.0).ok().and_then(|at| self.digests.get(at));
            ensure!(was == Some(&view.digest()), "{}", wrong("is not what it was".to_owned()));
        }
        Ok(())
    }

    /// Last seq and digest of a unit as of entry `seq`.
    pub fn unit_at(&self, unit: &Unit, seq: Seq) -> Option<(Seq, u64)> {
        self.unit_digests.get(unit)?.range(..=seq).next_back().map(|(seq, digest)| (*seq, *digest))
    }
}
