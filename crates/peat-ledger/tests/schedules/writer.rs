//! A machine that makes changes, keeps them in a journal that survives its processes, and settles what they left.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use peat_ledger::{Commit, Dead, Draft, DraftUnit, Entry, Follow, Ledger, NewContent, Op, Rank, State, TxKind};
use peat_testkit::sim::{Machine, Process};
use peat_types::{ChangeId, ItemPath, Result, Seq, TxId, Unit};

use super::replay::MapCache;
use super::world::{World, lock};

/// A journalled change: what is wanted, and the attempt that may be under way.
#[derive(Clone, Debug)]
struct Row {
    change: ChangeId,
    units: Vec<Unit>,
    size: usize,
    /// Where each unit was when the change was first planned.
    since: Vec<Option<Seq>>,
    attempt: Option<(TxId, Vec<Option<Seq>>)>,
}

/// What survives a process.
#[derive(Default)]
pub struct Disk {
    rows: Vec<Row>,
    state: Option<State>,
    cache: Arc<MapCache>,
    /// Changes that a living process is working on.
    locked: BTreeSet<ChangeId>,
}

/// The lock of a row. It goes with the process, however that ends.
struct Lock<'a>(&'a Mutex<Disk>, ChangeId);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        lock(self.0).locked.remove(&self.1);
    }
}

/// The row of a change as it is now, unless somebody else works on it.
fn take(disk: &Mutex<Disk>, change: ChangeId) -> Option<(Lock<'_>, Row)> {
    let mut held = lock(disk);
    let row = held.rows.iter().find(|row| row.change == change)?.clone();
    held.locked.insert(change).then(|| (Lock(disk, change), row))
}

/// Several processes of one machine, one after the other, and now and then two at once on one journal.
pub async fn machine(world: World, machine: Machine, disk: Arc<Mutex<Disk>>, lives: u64) {
    for life in 0..lives {
        let process = machine.process(life, world.mutation);
        if !process.part("starts") {
            continue;
        }
        let changes = 1 + process.below(3);
        let pause = process.below(1000);
        let beside = process.maybe(0.3, "with another process beside it").then(|| {
            world.sim.count("two processes of one journal");
            machine.process(format_args!("{life}b"), world.mutation)
        });
        let other = async {
            let Some(process) = &beside else { return };
            if process.part("starts") {
                world.sim.sleep(Duration::from_millis(process.below(300))).await;
                if let Some(Err(error)) = process.run(session(&world, process, &disk, 1)).await {
                    explain(&world, process, &error);
                }
            }
        };
        let (done, ()) = tokio::join!(process.run(session(&world, &process, &disk, changes)), other);
        if let Some(Err(error)) = done {
            explain(&world, &process, &error);
        }
        // Some restart at once, some later.
        let pause = if process.is_dead() { pause / 10 } else { pause * 3 };
        world.sim.sleep(Duration::from_millis(pause)).await;
    }
}

/// Settles until nothing is left. Call it when the network is healed.
pub async fn settle(world: World, machine: Machine, disk: Arc<Mutex<Disk>>) {
    for n in 0..50 {
        if lock(&disk).rows.is_empty() {
            return;
        }
        let process = machine.process(format_args!("settles{n}"), world.mutation);
        if let Some(Err(error)) = process.run(session(&world, &process, &disk, 0)).await {
            explain(&world, &process, &error);
        }
        world.sim.sleep(Duration::from_secs(1)).await;
    }
    world.sim.violation(format_args!("A9: {} cannot settle its journal", machine.name()));
}

fn explain(world: &World, process: &Process, error: &peat_types::Error) {
    if !world.is_expected(error) {
        world.unexpected(process.name(), error);
    }
}

async fn session(world: &World, process: &Process, disk: &Arc<Mutex<Disk>>, changes: u64) -> Result<()> {
    let ledger = world.ledger(process).await?;
    let mut at = At::new(world, process, disk, &ledger).await?;
    let left: Vec<Row> = lock(disk).rows.clone();
    for row in left {
        if let Some((_lock, row)) = take(disk, row.change) {
            at.carry_out(row).await?;
        }
    }
    // One after the other, or at the same time, as tasks of one process.
    if process.chance(0.5) {
        if !process.part("makes changes at the same time") {
            return Ok(());
        }
        let tasks = (0..2 * changes).filter(|_| process.maybe(1.0, "one of them")).map(|_| async {
            let mut at = At::new(world, process, disk, &ledger).await?;
            at.change(Duration::from_millis(60)).await
        });
        return join_all(tasks).await.into_iter().collect();
    }
    for _ in 0..changes {
        if process.part("makes a change") {
            at.change(Duration::from_millis(400)).await?;
        }
    }
    Ok(())
}

impl At<'_> {
    /// Journals a change and carries it out; now and then its future is dropped on the way, and the journal has it.
    async fn change(&mut self, within: Duration) -> Result<()> {
        let (world, process, env) = (self.world, self.process, self.process.env());
        env.sleep(env.jitter(within)).await;
        if process.maybe(0.5, "follows first") {
            self.sync().await?;
        }
        let mut units = vec![world.any_unit(process)];
        if process.maybe(0.15, "to two units") {
            units.push(world.any_unit(process));
            units.sort();
            units.dedup();
        }
        let size = process.pick(&[10, 30, 300, 3000, 6000]);
        let change = ChangeId::random(env);
        let mut since = Vec::new();
        for unit in &units {
            since.push(self.seq(unit).await?);
        }
        let row = Row { change, units, size, since, attempt: None };
        lock(self.disk).rows.push(row);
        let Some((_lock, row)) = take(self.disk, change) else { return Ok(()) };
        world.made(change);
        env.step("journalled").await;
        if process.maybe(0.1, "does not wait for it") {
            let limit = env.jitter(Duration::from_millis(200));
            return env.timeout(limit, self.carry_out(row)).await.unwrap_or(Ok(()));
        }
        self.carry_out(row).await
    }
}

/// Where a process stands.
struct At<'a> {
    world: &'a World,
    process: &'a Process,
    disk: &'a Mutex<Disk>,
    cache: Arc<MapCache>,
    ledger: &'a Ledger,
    state: State,
    read_at: Duration,
}

impl<'a> At<'a> {
    async fn new(world: &'a World, process: &'a Process, disk: &'a Mutex<Disk>, ledger: &'a Ledger) -> Result<Self> {
        let (stored, cache) = {
            let disk = lock(disk);
            (disk.state.clone(), disk.cache.clone())
        };
        let read_at = process.env().monotonic();
        let state = match stored {
            Some(state) => state,
            None => ledger.head().await?.state,
        };
        let mut at = Self { world, process, disk, cache, ledger, state, read_at };
        at.sync().await?;
        Ok(at)
    }

    fn moved_to(&mut self, state: State) {
        self.state = state;
        let mut disk = lock(self.disk);
        if disk.state.as_ref().is_none_or(|known| known.seq < self.state.seq) {
            disk.state = Some(self.state.clone());
        }
    }

    fn pass(&mut self, entries: &[Entry]) {
        for entry in entries {
            entry.keep_pages(&*self.cache);
        }
        if let Some(last) = entries.last() {
            self.moved_to(last.state.clone());
        }
    }

    async fn sync(&mut self) -> Result<()> {
        let read_at = self.process.env().monotonic();
        let list = self.world.collects || self.process.chance(0.2);
        match self.ledger.follow(&self.state, list).await? {
            Follow::Unchanged => {}
            Follow::Entries(entries) => self.pass(&entries),
            Follow::Jump(state) => self.moved_to(*state),
        }
        self.read_at = read_at;
        Ok(())
    }

    async fn seq(&self, unit: &Unit) -> Result<Option<Seq>> {
        Ok(self.ledger.unit(&self.state, unit, &*self.cache).await?.map(|row| row.last_seq))
    }

    /// Brings one row into the log, or leaves it in the journal.
    async fn carry_out(&mut self, mut row: Row) -> Result<()> {
        for _ in 0..20 {
            let found = match self.find(&row).await {
                Err(error) if self.world.collects && error.code() == "history_gone" => {
                    self.world.untold(row.change, row.since[0].unwrap_or(Seq::ZERO));
                    lock(self.disk).rows.retain(|kept| kept.change != row.change);
                    return Ok(());
                }
                found => found?,
            };
            if let Some((seq, tx)) = found {
                self.process.env().step("found").await;
                self.done(&row, tx, seq);
                return Ok(());
            }
            let mut expected = Vec::new();
            for unit in &row.units {
                expected.push(self.seq(unit).await?);
            }
            // An attempt that may still land keeps its id; one whose unit moved past it is dead.
            let tx = match &row.attempt {
                Some((tx, planned)) if *planned == expected => *tx,
                _ => TxId::random(self.process.env()),
            };
            row.attempt = Some((tx, expected));
            if let Some(kept) = lock(self.disk).rows.iter_mut().find(|kept| kept.change == row.change) {
                kept.clone_from(&row);
            }
            self.process.env().step("attempt").await;
            let draft = self.draft(&row, tx).await?;
            let base = self.state.seq;
            let patience = 500 + self.process.below(20_000);
            let outcome = self.ledger.commit(&self.state, self.read_at, &draft, &*self.cache, patience).await?;
            self.process.env().step("answered").await;
            match outcome {
                Commit::Committed { passed, entry } => {
                    let seq = entry.state.seq;
                    self.pass(&passed);
                    self.pass(&[*entry]);
                    self.done(&row, tx, seq);
                    return Ok(());
                }
                Commit::Lost { passed, why } => {
                    // Behind the floor nothing is known of it but that its base is void.
                    if !(passed.is_empty() && why == Dead::Gone) {
                        self.world.lost(tx, base);
                    }
                    self.pass(&passed);
                    if passed.is_empty() {
                        self.sync().await?;
                    }
                }
                Commit::Unknown { passed, .. } | Commit::Refused { passed, .. } => {
                    self.pass(&passed);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn find(&self, row: &Row) -> Result<Option<(Seq, TxId)>> {
        // The change touches all of its units at once, so one of them tells.
        let since = row.since[0].unwrap_or(Seq::ZERO);
        self.ledger.find_change(&self.state, &row.units[0], since, row.change, &*self.cache).await
    }

    fn done(&self, row: &Row, tx: TxId, seq: Seq) {
        self.world.acked(row.change, tx, seq);
        lock(self.disk).rows.retain(|kept| kept.change != row.change);
    }

    /// Plans the change: a new version, what is newest, and the one before into history.
    async fn draft(&self, row: &Row, tx: TxId) -> Result<Draft> {
        let mut units = Vec::new();
        let (_, expected) = row.attempt.as_ref().expect("planned");
        for (unit, expected) in row.units.iter().zip(expected) {
            let unit_row = self.ledger.unit(&self.state, unit, &*self.cache).await?;
            let files = match &unit_row {
                Some(unit_row) => self.ledger.tables(&[unit_row], &*self.cache).await?.remove(0),
                None => Vec::new(),
            };
            let versions = files.iter().filter(|(_, path, _)| path.as_str().starts_with("data/"));
            let last: u64 = versions.filter_map(|(_, path, _)| path.as_str()[5..].parse().ok()).max().unwrap_or(0);
            let path = |n: u64| -> ItemPath { format!("data/{n:06}").parse().expect("path") };
            let rank_of =
                |wanted: &ItemPath| files.iter().find(|(_, path, _)| path == wanted).map(|(rank, _, _)| *rank);
            let mut content = row.change.as_bytes().to_vec();
            content.resize(row.size.max(16), b'.');
            let content = NewContent::Bytes(Bytes::from(content));
            let mut ops = vec![Op::Put {
                path: path(last + 1),
                rank: Rank::Current,
                old: rank_of(&path(last + 1)),
                executable: row.size == 30,
                content,
            }];
            if last > 0 {
                ops.push(Op::Rank { path: path(last), from: Rank::Current, to: Rank::History(last) });
            }
            if last > 6 && rank_of(&path(last - 5)).is_some() {
                ops.push(Op::Delete { path: path(last - 5), rank: Rank::History(last - 5) });
            }
            let newest: ItemPath = "latest".parse().expect("path");
            let same = files.iter().find(|(_, path, _)| *path == newest).map(|(_, _, row)| row.clone());
            let content = match same {
                // What is stored already is not stored again (A11).
                Some(known) if row.size == 300 => NewContent::Known(known),
                _ => NewContent::Bytes(Bytes::from(format!("{}", last + 1))),
            };
            let old = rank_of(&newest);
            ops.push(Op::Put { path: newest, rank: Rank::Current, old, executable: false, content });
            units.push(DraftUnit { unit: unit.clone(), expected: *expected, ops });
        }
        Ok(Draft {
            tx,
            change: row.change,
            kind: TxKind::Change,
            author: self.process.name().to_owned(),
            message: String::new(),
            time: self.process.env().now(),
            guard: None,
            units,
        })
    }
}
