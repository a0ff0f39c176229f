//! Who takes leases: a run starts by taking the lease of its unit, beats, perhaps commits something meanwhile, and ends by
//! freeing it, each guarded. Whoever finds it held by a process that does not beat takes it over.

use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{
    Beat, Commit, Draft, DraftUnit, Follow, Guard, Lease, Ledger, NewContent, Op, PageCache, Rank, State, TxKind,
};
use peat_testkit::sim::{Machine, Process};
use peat_types::{ChangeId, CloneId, InstanceId, ItemPath, Result, RunNonce, Seq, TxId, Unit};

use super::leases::read;
use super::replay::MapCache;
use super::world::World;

/// Several processes of one machine, one after the other; some begin anew at once, some later.
pub async fn holder(world: World, machine: Machine, lives: u64) {
    for life in 0..lives {
        let process = machine.process(life, world.mutation);
        if !process.part("starts") {
            continue;
        }
        world.sim.sleep(Duration::from_millis(process.below(1200))).await;
        let runs = 1 + process.below(3);
        if let Some(Err(error)) = process.run(session(&world, &process, runs)).await
            && !world.is_expected(&error)
        {
            world.unexpected(process.name(), &error);
        }
    }
}

/// Where the lease of a unit lies.
fn path_of(unit: &Unit) -> ItemPath {
    format!("leases/{unit}").parse().expect("path")
}

async fn session(world: &World, process: &Process, runs: u64) -> Result<()> {
    let env = process.env();
    let (clone, instance) = (CloneId::random(env), InstanceId::random(env));
    let ledger = world.ledger_as(process, clone, instance).await?;
    let read_at = env.monotonic();
    let state = ledger.head().await?.state;
    let base = state.seq;
    let mut holder =
        Holder { world, process, ledger: &ledger, cache: MapCache::default(), state, read_at, base, clone, instance };
    for _ in 0..runs {
        if process.part("runs") {
            let unit = world.any_unit(process);
            holder.run(&unit).await?;
        }
    }
    Ok(())
}

struct Holder<'a> {
    world: &'a World,
    process: &'a Process,
    ledger: &'a Ledger,
    cache: MapCache,
    state: State,
    read_at: Duration,
    /// What the beats of this process are named after.
    base: Seq,
    clone: CloneId,
    instance: InstanceId,
}

/// What a change does to its unit, given the lease as it is and the highest version.
type Ops<'a> = &'a (dyn Fn(&Lease, Option<Rank>, u64) -> Option<Vec<Op>> + Sync);

impl Holder<'_> {
    /// Starts, works and ends, as far as it gets.
    async fn run(&mut self, unit: &Unit) -> Result<()> {
        let (process, env) = (self.process, self.process.env());
        self.sync().await?;
        let Some(was) = self.lease(unit).await? else { return Ok(()) };
        if was.held && !self.is_silent(&was).await? {
            self.world.sim.count("lease respected");
            return Ok(());
        }
        let nonce = RunNonce::random(env);
        let generation = was.generation + 1;
        let taken = Lease {
            generation,
            held: true,
            nonce,
            clone: self.clone,
            instance: self.instance,
            base: self.base,
            user: process.name().to_owned(),
            host: "here".to_owned(),
            since: env.now(),
            ttl_ms: 1000,
        };
        let start = |now: &Lease, old: Option<Rank>, _| {
            // Whoever had it when this was decided, and nobody else since.
            ((now.generation, now.nonce) == (was.generation, was.nonce) && now.held == was.held)
                .then(|| vec![put_lease(unit, &taken, old)])
        };
        if !self.commit(unit, TxKind::Start, None, &start).await? {
            return Ok(());
        }
        self.world.sim.count(if was.held { "lease taken over" } else { "lease taken" });
        let guard = Guard { path: path_of(unit), generation, nonce };
        let holds = |now: &Lease| now.held && (now.generation, now.nonce) == (generation, nonce);
        for count in 0..process.below(4) {
            if process.maybe(0.6, "beats") {
                self.ledger.beat_put(self.base, &Beat { count, nonces: vec![nonce] }).await?;
            }
            env.sleep(env.jitter(Duration::from_millis(500))).await;
        }
        if process.maybe(0.3, "commits meanwhile") {
            let more = |now: &Lease, _, last| holds(now).then(|| version(last));
            self.commit(unit, TxKind::Change, Some(&guard), &more).await?;
        }
        if process.maybe(0.15, "stands still") {
            env.sleep(env.jitter(Duration::from_secs(8))).await;
        }
        if process.maybe(0.1, "never ends") {
            return Ok(());
        }
        let freed = Lease { held: false, ..taken.clone() };
        let end = |now: &Lease, old: Option<Rank>, last| {
            holds(now).then(|| {
                let mut ops = version(last);
                ops.push(put_lease(unit, &freed, old));
                ops
            })
        };
        let ended = self.commit(unit, TxKind::End, Some(&guard), &end).await?;
        self.world.sim.count(if ended { "run ended" } else { "end refused" });
        self.ledger.beat_end(self.base, &[]).await;
        Ok(())
    }

    /// Whether a holder did not beat for a while.
    async fn is_silent(&self, lease: &Lease) -> Result<bool> {
        let env = self.process.env();
        let first = self.ledger.beat_get(lease.base, lease.instance).await?;
        env.sleep(Duration::from_millis(lease.ttl_ms)).await;
        let then = self.ledger.beat_get(lease.base, lease.instance).await?;
        Ok(first.map(|(bytes, _)| bytes) == then.map(|(bytes, _)| bytes))
    }

    async fn sync(&mut self) -> Result<()> {
        let read_at = self.process.env().monotonic();
        match self.ledger.follow(&self.state, true).await? {
            Follow::Unchanged => {}
            Follow::Entries(entries) => {
                entries.iter().for_each(|entry| entry.keep_pages(&self.cache));
                self.state = entries.last().expect("one").state.clone();
            }
            Follow::Jump(state) => self.state = *state,
        }
        self.read_at = read_at;
        Ok(())
    }

    /// The lease of a unit in the state that is planned on; a free one of generation 0 before the first run, `None` before
    /// the first change of the unit.
    async fn lease(&self, unit: &Unit) -> Result<Option<Lease>> {
        Ok(self.unit(unit).await?.map(|(lease, ..)| lease))
    }

    /// Lease, rank of its record, highest version and last seq of a unit.
    async fn unit(&self, unit: &Unit) -> Result<Option<(Lease, Option<Rank>, u64, Seq)>> {
        let cache: &dyn PageCache = &self.cache;
        let Some(row) = self.ledger.unit(&self.state, unit, cache).await? else { return Ok(None) };
        let files = self.ledger.tables(&[&row], cache).await?.remove(0);
        let versions = files.iter().filter_map(|(_, path, _)| path.as_str().strip_prefix("data/")?.parse::<u64>().ok());
        let last = versions.max().unwrap_or(0);
        let path = path_of(unit);
        let record = files.iter().find(|(_, known, _)| *known == path);
        let lease = match record {
            Some((_, _, row)) => read(&self.ledger.contents(&[row], &[]).await?[0])?,
            None => Lease {
                generation: 0,
                held: false,
                nonce: RunNonce::from_bytes([0; 16]),
                clone: self.clone,
                instance: self.instance,
                base: self.base,
                user: String::new(),
                host: String::new(),
                since: self.process.env().now(),
                ttl_ms: 1000,
            },
        };
        Ok(Some((lease, record.map(|(rank, ..)| *rank), last, row.last_seq)))
    }

    /// Commits what `ops` makes of the unit, again on each newer state; whether it is in the log. False when the lease no
    /// longer allows it, and when nobody knows.
    async fn commit(&mut self, unit: &Unit, kind: TxKind, guard: Option<&Guard>, ops: Ops<'_>) -> Result<bool> {
        let env = self.process.env();
        let change = ChangeId::random(env);
        let (mut tried, mut since): (Option<(TxId, Seq)>, Seq) = (None, self.state.seq);
        for _ in 0..12 {
            if tried.is_some() {
                match self.ledger.find_change(&self.state, unit, since, change, &self.cache).await {
                    Err(error) if self.world.collects && error.code() == "history_gone" => {
                        self.world.untold(change, since);
                        return Ok(false);
                    }
                    found => {
                        if let Some((seq, tx)) = found? {
                            self.world.acked(change, tx, seq);
                            return Ok(true);
                        }
                    }
                }
            }
            since = self.state.seq;
            let Some((lease, rank, last, expected)) = self.unit(unit).await? else { return Ok(false) };
            // The guard is checked in the state that is planned on; R1 carries it to the commit (A13).
            let Some(ops) = ops(&lease, rank, last) else { return Ok(false) };
            let tx = match tried {
                // It may still land.
                Some((tx, planned)) if planned == expected => tx,
                _ => TxId::random(env),
            };
            tried = Some((tx, expected));
            let draft = Draft {
                tx,
                change,
                kind,
                author: self.process.name().to_owned(),
                message: String::new(),
                time: env.now(),
                guard: guard.cloned(),
                units: vec![DraftUnit { unit: unit.clone(), expected: Some(expected), ops }],
            };
            let patience = 500 + self.process.below(10_000);
            match self.ledger.commit(&self.state, self.read_at, &draft, &self.cache, patience).await? {
                Commit::Committed { entry, .. } => {
                    self.world.acked(change, tx, entry.state.seq);
                    entry.keep_pages(&self.cache);
                    self.state = entry.state;
                    return Ok(true);
                }
                Commit::Lost { .. } => self.sync().await?,
                Commit::Unknown { .. } | Commit::Refused { .. } => return Ok(false),
            }
        }
        Ok(false)
    }
}

fn put_lease(unit: &Unit, lease: &Lease, old: Option<Rank>) -> Op {
    let bytes = serde_json::to_vec(lease).expect("a lease");
    let content = NewContent::Bytes(Bytes::from(bytes));
    Op::Put { path: path_of(unit), rank: Rank::Current, old, executable: false, content }
}

/// A new version, and the one before it into history, as writers have it.
fn version(last: u64) -> Vec<Op> {
    let path = |n: u64| -> ItemPath { format!("data/{n:06}").parse().expect("path") };
    let content = NewContent::Bytes(Bytes::from(format!("result {}", last + 1)));
    let mut ops = vec![Op::Put { path: path(last + 1), rank: Rank::Current, old: None, executable: false, content }];
    if last > 0 {
        ops.push(Op::Rank { path: path(last), from: Rank::Current, to: Rank::History(last) });
    }
    ops
}
