//! What must hold of the log and of what clients were told, whatever happened.

use std::collections::{BTreeMap, BTreeSet};

use peat_clone::{Committed, Lease};
use peat_ledger::{Entry, FileRow, OpRecord, TxHead, TxKind};
use peat_objects::MemoryStore;
use peat_testkit::sim::{Process, Sim, Wrote};
use peat_types::{ChangeId, Env, InstanceId, ItemPath, Seq, Unit};

use super::planner::version_in;
use super::replay::{Replay, at_once, raw};

pub struct Judge {
    sim: Sim,
    pub replay: Replay,
    /// Who wrote each entry.
    writers: Vec<InstanceId>,
    /// The processes that began runs.
    processes: BTreeMap<InstanceId, Process>,
    /// Changes made in each part of a schedule.
    parts: BTreeMap<String, u32>,
    /// Starts that their process waits for.
    waiting: BTreeSet<String>,
    /// Lease records as of the newest entry.
    pub leases: BTreeMap<Unit, Lease>,
    /// Newest version of each unit.
    versions: BTreeMap<Unit, u64>,
    /// Tokens of versions, with their entries.
    tokens: BTreeMap<String, Seq>,
    /// The process that began a run, by the token of its start.
    starters: BTreeMap<String, InstanceId>,
    /// Starts that their process gave up for good.
    over: BTreeSet<String>,
    /// Rows seen in a journal: whether it is one that may end without being in the log.
    journalled: BTreeMap<ChangeId, bool>,
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

fn lease_unit(path: &ItemPath) -> Option<&str> {
    path.as_str().strip_prefix("leases/")
}

impl Judge {
    pub fn new(sim: &Sim) -> Self {
        Self {
            sim: sim.clone(),
            replay: Replay::default(),
            writers: Vec::new(),
            processes: BTreeMap::new(),
            parts: BTreeMap::new(),
            waiting: BTreeSet::new(),
            leases: BTreeMap::new(),
            versions: BTreeMap::new(),
            tokens: BTreeMap::new(),
            starters: BTreeMap::new(),
            over: BTreeSet::new(),
            journalled: BTreeMap::new(),
        }
    }

    /// What a change of this part is known by.
    pub fn token(&mut self, part: &str) -> String {
        let n = self.parts.entry(part.to_owned()).or_default();
        *n += 1;
        format!("token {part}.{n}")
    }

    /// Looks at the store after every write to it.
    pub fn watch(&mut self, store: &MemoryStore, wrote: &Wrote<'_>, env: &Env) -> Result<(), String> {
        let entry = self.replay.watch(store, wrote, env)?;
        self.replay.seen.drain(..).for_each(|what| self.sim.count(what));
        let Some(entry) = entry else { return Ok(()) };
        self.writers.push(entry.state.writer);
        for (tx, ops) in entry.txs.iter().zip(&entry.ops) {
            let before = self.leases.clone();
            for (unit, op) in ops.iter().flat_map(|unit| unit.ops.iter().map(move |op| (&unit.unit, op))) {
                self.op(store, env, &entry, tx, unit, op)?;
            }
            self.transaction(&entry, tx, &before)?;
        }
        Ok(())
    }

    fn op(
        &mut self,
        store: &MemoryStore,
        env: &Env,
        entry: &Entry,
        tx: &TxHead,
        unit: &Unit,
        op: &OpRecord,
    ) -> Result<(), String> {
        let seq = entry.state.seq;
        let read = |row: &FileRow| {
            let bytes = at_once(raw(store, env)?.contents(&[row], std::slice::from_ref(entry)), "a content")?;
            bytes.into_iter().next().ok_or_else(|| "A5: no content".to_owned())
        };
        match op {
            OpRecord::Delete(path) => {
                ensure!(lease_unit(path).is_none(), "A13: entry {seq} deletes the lease record {path}");
                ensure!(version_in(path).is_none(), "A4: entry {seq} deletes {path}");
            }
            OpRecord::Put(path, _, row) if lease_unit(path).is_some() => {
                let lease: Lease = serde_json::from_slice(&read(row)?).map_err(|e| format!("A13: {path}: {e}"))?;
                if let Some(old) = self.leases.get(unit) {
                    ensure!(
                        lease.generation >= old.generation,
                        "A13: the generation of {path} goes from {} to {} in entry {seq}",
                        old.generation,
                        lease.generation
                    );
                    ensure!(
                        lease.nonce == old.nonce || !lease.held || lease.generation > old.generation,
                        "A13: two runs hold {path} under generation {}",
                        lease.generation
                    );
                }
                self.leases.insert(unit.clone(), lease);
            }
            OpRecord::Put(path, _, row) => {
                let Some(n) = version_in(path) else { return Ok(()) };
                let last = self.versions.insert(unit.clone(), n).unwrap_or(0);
                ensure!(n == last + 1, "A2: version {n} of {unit} follows version {last} in entry {seq}");
                let token = String::from_utf8_lossy(&read(row)?).trim_end_matches('.').to_owned();
                let token = format!("{token} {unit}");
                if let Some(other) = self.tokens.insert(token.clone(), seq) {
                    return Err(format!("A3: '{token}' is in entries {other} and {seq}, there as {}", tx.change));
                }
            }
            OpRecord::Rank(..) => {}
        }
        Ok(())
    }

    fn transaction(&mut self, entry: &Entry, tx: &TxHead, before: &BTreeMap<Unit, Lease>) -> Result<(), String> {
        let seq = entry.state.seq;
        if let Some(guard) = &tx.guard {
            let unit: Unit = lease_unit(&guard.path)
                .and_then(|unit| unit.parse().ok())
                .ok_or_else(|| format!("A13: {} is not a lease", guard.path))?;
            // What a start takes it holds afterwards; everybody else must have held it before.
            let after_start = tx.kind == TxKind::Start && before.get(&unit) != self.leases.get(&unit);
            let lease = if after_start { self.leases.get(&unit) } else { before.get(&unit) };
            let held = lease.is_some_and(|l| l.held && l.generation == guard.generation && l.nonce == guard.nonce);
            ensure!(
                held,
                "A13: entry {seq} ({:?} '{}') was made under generation {} of {unit}, the lease is {:?}",
                tx.kind,
                tx.message,
                guard.generation,
                lease.map(|lease| (lease.generation, lease.held))
            );
        }
        let taken = |(unit, lease): &(&Unit, &Lease)| lease.held && self.leases.get(*unit) != Some(*lease);
        let seen = |what: &'static str| self.sim.count(what);
        match tx.kind {
            TxKind::Abort => seen("abort"),
            TxKind::Start => {
                seen("start");
                for (_, lease) in before.iter().filter(taken) {
                    seen(match self.processes.get(&lease.instance) {
                        Some(holder) if holder.is_dead() => "takeover from a dead process",
                        Some(holder) if holder.is_stopped() => "takeover from a stopped process",
                        Some(holder) if holder.is_cut_off() => "takeover from a process that is cut off",
                        _ => "takeover from a process that lives",
                    });
                }
                if !self.waiting.contains(&tx.message) {
                    seen("start committed late");
                }
            }
            TxKind::End if tx.message.starts_with("token") => seen("end"),
            TxKind::End => seen("release"),
            _ if tx.guard.is_some() => seen("commit under a lease"),
            _ => seen("commit"),
        }
        if tx.units.len() > 1 {
            seen("several units");
        }
        if !tx.packs.is_empty() {
            seen("pack");
        }
        if tx.kind == TxKind::Start {
            let starter = self.starters.get(&tx.message);
            // A writer's own transaction comes first in its entry; what follows was staged by others and only carried.
            let carried = entry.txs.first().is_some_and(|first| first.tx != tx.tx);
            ensure!(
                carried || starter == Some(&entry.state.writer),
                "A13: the start '{}' in entry {seq} was sent by another process than the one that began it",
                tx.message
            );
            ensure!(!self.over.contains(&tx.message), "A13: the start '{}' had been given up for good", tx.message);
        }
        Ok(())
    }

    /// A process is about to begin a run.
    pub fn begins(&mut self, token: &str, instance: InstanceId, process: &Process) {
        self.starters.insert(token.to_owned(), instance);
        self.processes.insert(instance, process.clone());
        self.waiting.insert(token.to_owned());
    }

    /// It was told what came of that, or does not listen any more.
    pub fn waits_no_more(&mut self, token: &str) {
        self.waiting.remove(token);
    }

    /// A process was told that its run did not begin, and nothing of it is left in the journal.
    pub fn gave_up(&mut self, token: &str) {
        self.over.insert(token.to_owned());
    }

    /// A client was told that its change is in the log.
    pub fn acked(&self, committed: &Committed, instance: InstanceId) -> Result<(), String> {
        let at = self.replay.changes.get(&committed.change);
        ensure!(
            at == Some(&committed.seq),
            "A3: change {} was acknowledged in entry {}, it is in {at:?}",
            committed.change,
            committed.seq
        );
        let writer = usize::try_from(committed.seq.0).ok().and_then(|seq| self.writers.get(seq));
        if writer != Some(&instance) {
            self.sim.count("committed by somebody else");
        }
        if self.replay.unanswered.contains(&committed.seq) {
            self.sim.count("stored entry adopted");
        }
        Ok(())
    }

    /// A row was seen in a journal; `disposable` when it may be dropped without being committed.
    pub fn journalled(&mut self, change: ChangeId, disposable: bool) {
        self.journalled.insert(change, disposable);
    }

    /// What must hold when everything is settled: `parked` are the rows that are left.
    pub fn finish(&self, parked: &BTreeSet<ChangeId>, dropped: &BTreeSet<ChangeId>) -> Result<(), String> {
        parked.iter().for_each(|_| self.sim.count("parked to the end"));
        for (change, disposable) in &self.journalled {
            let kept = self.replay.changes.contains_key(change) || parked.contains(change) || *disposable;
            ensure!(kept || dropped.contains(change), "A9: the journalled change {change} is lost");
        }
        for (unit, lease) in &self.leases {
            ensure!(!lease.held, "A13: the lease of {unit} is held by {} although nobody is left", lease.nonce);
        }
        Ok(())
    }
}
