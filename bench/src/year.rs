//! A year of a team, on a clock of its own: runs of many models, checkpoints when they are due, garbage collected once a
//! day. Afterwards: what the bucket holds against what it has to, and what a fresh clone costs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use peat_clone::{Durability, Hydration, LocalClone, Options, Scope, Silent, Together};
use peat_ledger::{
    Checkpoint, Checkpointing, Collecting, Commit, Draft, DraftUnit, Ledger, NewContent, NewLedger, Op, PageCache,
    Params, Rank, Ref, State, Tail, TxKind,
};
use peat_objects::{Count, Counts, MemoryStore, Meter, Metered, Store};
use peat_types::{ChangeId, Clock, CloneId, Env, InstanceId, Seq, Timestamp, TxId, Unit};

use crate::Failure;
use crate::commit::OneFile;
use crate::retained::{self, Held, Needed};

/// How the year goes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Year {
    /// Entries in all: every run makes two
    #[arg(long, default_value_t = 500_000)]
    entries: u64,
    /// Models; a fifth of them does four fifths of the runs
    #[arg(long, default_value_t = 3_000)]
    models: usize,
    /// Days over which the runs are spread
    #[arg(long, default_value_t = 365)]
    days: u64,
    /// Versions a model keeps: older ones are removed by its runs
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..))]
    versions: u64,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Largest ratio of the bytes in the bucket to those that are live or retained; the program fails above it
    #[arg(long, default_value_t = 1.5)]
    bound: f64,
    /// File whose section on the year is replaced
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Most requests of a fresh clone, in full and lazily: what the design allows for a namespace of this size.
const CLONE: (u64, u64) = (200, 150);
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);

/// Time passes only when somebody says so, or sleeps.
#[derive(Default)]
struct Simulated(AtomicU64);

impl Simulated {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Clock for Simulated {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(START + i64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.pass(duration);
        Box::pin(std::future::ready(()))
    }
}

/// Pages since the last checkpoint.
#[derive(Default)]
struct Cache(Mutex<HashMap<Ref, Bytes>>);

impl Cache {
    fn clear(&self) {
        if let Ok(mut pages) = self.0.lock() {
            pages.clear();
        }
    }
}

impl PageCache for Cache {
    fn get(&self, at: &Ref) -> Option<Bytes> {
        self.0.lock().ok()?.get(at).cloned()
    }

    fn put(&self, at: &Ref, record: &Bytes) {
        if let Ok(mut pages) = self.0.lock() {
            pages.insert(*at, record.clone());
        }
    }
}

/// One model and what its next run builds on.
struct Model {
    id: String,
    unit: Unit,
    seq: Option<Seq>,
    /// Runs that ended.
    runs: u64,
    /// Whether a run began and did not end.
    running: bool,
}

/// The simulation under way.
struct Team {
    year: Year,
    clock: Arc<Simulated>,
    env: Env,
    store: Arc<dyn Store>,
    meter: Meter,
    ledger: Ledger,
    state: State,
    cache: Cache,
    models: Vec<Model>,
    checkpoints: u64,
    full: u64,
    collections: u64,
    freed: u64,
    of_maintenance: Count,
}

/// Runs the year and gives the section of the results.
pub(crate) fn year(year: &Year) -> Result<String, Failure> {
    crate::runtime()?.block_on(simulate(year))
}

async fn simulate(year: &Year) -> Result<String, Failure> {
    let mut team = Team::new(year).await?;
    team.work().await?;
    let floor = team.ledger.kept().await?.floor();
    let needed = retained::needed(&*team.store, floor, &team.state).await?;
    let held = retained::held(&*team.store, &team.state).await?;
    let ratio = ratio(held.bytes, needed.bytes());
    let full = team.fresh_clone(Hydration::Full).await?;
    let lazy = team.fresh_clone(Hydration::Lazy).await?;
    let verified = team.ledger.verify(false).await?;
    if let Some(flaw) = verified.findings.first() {
        return Err(format!("the ledger is not sound after the year: {} {}", flaw.object, flaw.what).into());
    }
    let text = team.text(needed, held, ratio, full, lazy)?;
    if ratio >= year.bound {
        return Err(
            format!("{text}\nthe bucket holds {ratio:.2} times what it has to, {} is allowed", year.bound).into()
        );
    }
    if full.requests > CLONE.0 || lazy.requests > CLONE.1 {
        return Err(format!("{text}\na fresh clone may take {} requests, a lazy one {}", CLONE.0, CLONE.1).into());
    }
    Ok(text)
}

impl Team {
    async fn new(year: &Year) -> Result<Self, Failure> {
        let clock = Arc::new(Simulated::default());
        let env = Env::seeded(clock.clone(), year.seed, []);
        let meter = Meter::default();
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(&env));
        let store: Arc<dyn Store> = Arc::new(Metered::with_meter(memory, meter.clone()));
        let new = NewLedger {
            namespace: "bench".parse()?,
            owner: "bench".to_owned(),
            params: Params::default(),
            probe: serde_json::Value::Null,
        };
        let (clone, instance) = (CloneId::random(&env), InstanceId::random(&env));
        let ledger = Ledger::create(store.clone(), &env, new, clone, instance).await?;
        let state = ledger.head().await?.state;
        let models = (0..year.models).map(|_| Model::new(&env)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            year: year.clone(),
            clock,
            env,
            store,
            meter,
            ledger,
            state,
            cache: Cache::default(),
            models,
            checkpoints: 0,
            full: 0,
            collections: 0,
            freed: 0,
            of_maintenance: Count::default(),
        })
    }

    #[allow(clippy::print_stderr)] // progress of a benchmark
    async fn work(&mut self) -> Result<(), Failure> {
        let pause = DAY * u32::try_from(self.year.days)? / u32::try_from(self.year.entries.max(1))?;
        let mut collected = self.env.monotonic();
        let every = (self.year.entries / 20).max(1);
        for entry in 0..self.year.entries {
            self.clock.pass(pause);
            let model = self.pick();
            self.step(model).await?;
            if Tail::of(&self.state).is_due() {
                self.checkpoint().await?;
            }
            if self.env.monotonic().saturating_sub(collected) >= DAY {
                collected = self.env.monotonic();
                self.collect().await?;
            }
            if entry % every == 0 {
                let rss = getrusage(UsageWho::RUSAGE_SELF)?.max_rss() / 1024;
                eprintln!("entry {entry}, head {}, peak memory {rss} MiB", self.state.seq);
            }
        }
        Ok(())
    }

    fn pick(&self) -> usize {
        let number = u64::from_le_bytes(self.env.random_bytes::<8>());
        let all = self.models.len() as u64;
        let busy = (all / 5).max(1);
        let of = if number % 5 < 4 { busy } else { all };
        usize::try_from((number >> 8) % of).unwrap_or(0)
    }

    /// Begins a run of a model, or ends the one that is under way.
    async fn step(&mut self, model: usize) -> Result<(), Failure> {
        let versions = self.year.versions;
        let Some(model) = self.models.get_mut(model) else { return Ok(()) };
        let (kind, ops) = if model.running {
            (TxKind::End, model.end(&self.env, versions)?)
        } else {
            (TxKind::Start, model.begin(&self.env)?)
        };
        let draft = Draft {
            tx: TxId::random(&self.env),
            change: ChangeId::random(&self.env),
            kind,
            author: "bench@bench".to_owned(),
            message: "run".to_owned(),
            time: self.env.now(),
            guard: None,
            units: vec![DraftUnit { unit: model.unit.clone(), expected: model.seq, ops }],
        };
        let sent = self.ledger.commit(&self.state, self.env.monotonic(), &draft, &self.cache, 60_000);
        match sent.await? {
            Commit::Committed { entry, .. } => {
                entry.keep_pages(&self.cache);
                self.state = entry.state;
                model.seq = Some(self.state.seq);
                model.runs += u64::from(model.running);
                model.running = !model.running;
                Ok(())
            }
            other => Err(format!("a commit nobody else is in the way of: {other:?}").into()),
        }
    }

    async fn checkpoint(&mut self) -> Result<(), Failure> {
        let before = self.meter.snapshot();
        let how = Checkpointing { author: "bench@bench".to_owned(), force: false, full: false, patience: KEEP };
        match self.ledger.checkpoint(&how).await? {
            Checkpoint::Done { full, .. } => {
                self.checkpoints += 1;
                self.full += u64::from(full);
            }
            Checkpoint::NotDue(_) => {}
            Checkpoint::Later(why) => return Err(why.into()),
        }
        self.after_maintenance(&before).await
    }

    async fn collect(&mut self) -> Result<(), Failure> {
        let before = self.meter.snapshot();
        let how = Collecting { author: "bench@bench".to_owned(), keep: KEEP, patience: KEEP };
        let plan = self.ledger.plan_gc(&how).await?;
        let done = self.ledger.gc(&plan, &how, &|_, _| {}).await?;
        self.collections += 1;
        self.freed += done.deleted.iter().map(|doomed| doomed.size).sum::<u64>();
        self.after_maintenance(&before).await
    }

    async fn after_maintenance(&mut self, before: &Counts) -> Result<(), Failure> {
        self.of_maintenance += self.meter.since(before).total();
        self.cache.clear();
        self.state = self.ledger.head().await?.state;
        Ok(())
    }

    /// What a first pull costs.
    async fn fresh_clone(&self, hydration: Hydration) -> Result<Count, Failure> {
        let dir = tempfile::tempdir()?;
        let before = self.meter.snapshot();
        let options = Options {
            folder: None,
            store: self.store.clone(),
            url: "memory:".to_owned(),
            namespace: "bench".parse()?,
            dir: dir.path().to_owned(),
            repo_id: "bench".to_owned(),
            hydration,
            durability: Durability::Process,
            together: Together::default(),
            user: "bench".to_owned(),
            host: "bench".to_owned(),
            reporter: Arc::new(Silent),
        };
        let clone = LocalClone::open(options, self.env.clone(), Arc::new(OneFile)).await?;
        clone.pull(&Scope::All).await?;
        Ok(self.meter.since(&before).total())
    }

    fn text(&self, needed: Needed, held: Held, ratio: f64, full: Count, lazy: Count) -> Result<String, Failure> {
        let Year { entries, models, days, versions, seed, .. } = self.year;
        let root = &self.state.root;
        let mut out = format!(
            "\n## A year\n\nMade by `cargo run --release -p peat-bench -- year --entries {entries} --models {models} --days {days} \
             --versions {versions} --seed {seed} --out bench/RESULTS.md`: {entries} entries of runs of {models} models over {days} simulated \
             days, a checkpoint whenever one is due, garbage collected once a day, 30 days kept.\n\n| what | |\n| --- | ---: |\n"
        );
        let rss = getrusage(UsageWho::RUSAGE_SELF)?.max_rss() / 1024;
        let rows = [
            ("head", self.state.seq.to_string()),
            ("files in the head", format!("{} of {}", root.files, megabytes(root.bytes))),
            ("checkpoints, of them full", format!("{}, {}", self.checkpoints, self.full)),
            ("collections", format!("{}, {} freed", self.collections, megabytes(self.freed))),
            ("requests of maintenance per entry", format!("{:.2}", per(self.of_maintenance.requests, entries))),
            ("states kept", needed.states.to_string()),
            ("live: records that the newest state refers to", megabytes(needed.live)),
            ("live and retained: entries of the kept states", megabytes(needed.log)),
            ("live and retained: records below, of any kept state", megabytes(needed.records)),
            ("in the bucket", format!("{} in {} objects", megabytes(held.bytes), held.objects)),
            ("of it entries", megabytes(held.log)),
            ("of it packs of contents: live, dropped", both(held.contents, held.dropped_contents)),
            ("of it packs of pages: live, dropped", both(held.pages, held.dropped_pages)),
            (
                "live packs of contents, of pages; entries since the last checkpoint",
                since(&self.state, held.live_packs),
            ),
            ("ratio of the bucket to live and retained", format!("{ratio:.2}")),
            ("fresh full clone", format!("{} requests, {}", full.requests, megabytes(full.bytes_in))),
            ("fresh lazy clone", format!("{} requests, {}", lazy.requests, megabytes(lazy.bytes_in))),
            ("peak memory of the simulation, bucket included", format!("{rss} MiB")),
        ];
        for (name, value) in rows {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "| {name} | {value} |");
        }
        Ok(out)
    }
}

impl Model {
    fn new(env: &Env) -> Result<Self, Failure> {
        let hex: String = env.random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        let id = format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        Ok(Self { unit: Unit::model(&id)?, id, seq: None, runs: 0, running: false })
    }

    fn put(path: &str, rank: Rank, old: Option<Rank>, text: String) -> Result<Op, Failure> {
        let content = NewContent::Bytes(Bytes::from(text.into_bytes()));
        Ok(Op::Put { path: path.parse()?, rank, old, executable: false, content })
    }

    fn output(&self, run: u64) -> String {
        format!("outputs/command/shell/{}/{run}.yaml", self.id)
    }

    fn file(&self, version: u64, name: &str) -> String {
        format!("data/command/shell/{}/result/{version}/{name}", self.id)
    }

    fn begin(&self, env: &Env) -> Result<Vec<Op>, Failure> {
        let run = self.runs + 1;
        Ok(vec![Self::put(&self.output(run), Rank::Current, None, text(env, "status: running", 400))?])
    }

    /// A new version becomes the current one, and what is older than it should be goes.
    fn end(&self, env: &Env, versions: u64) -> Result<Vec<Op>, Failure> {
        let run = self.runs + 1;
        let mut ops = vec![Self::put(
            &self.output(run),
            Rank::Current,
            Some(Rank::Current),
            text(env, "status: succeeded", 700),
        )?];
        for (name, size) in [("metadata.yaml", 620), ("raw", 1_500)] {
            ops.push(Self::put(&self.file(run, name), Rank::Current, None, text(env, name, size))?);
            if self.runs > 0 {
                let path = self.file(self.runs, name).parse()?;
                ops.push(Op::Rank { path, from: Rank::Current, to: Rank::History(self.runs) });
            }
            if let Some(old) = run.checked_sub(versions).filter(|old| *old > 0) {
                ops.push(Op::Delete { path: self.file(old, name).parse()?, rank: Rank::History(old) });
            }
        }
        if let Some(old) = run.checked_sub(versions).filter(|old| *old > 0) {
            ops.push(Op::Delete { path: self.output(old).parse()?, rank: Rank::Current });
        }
        Ok(ops)
    }
}

/// Half noise, half words, as records and results are.
fn text(env: &Env, head: &str, size: usize) -> String {
    let mut text = format!("{head}\n");
    while text.len() < size {
        let noise: String = env.random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(text, "item: {noise} state: available");
    }
    text
}

fn since(state: &State, (contents, pages): (u64, u64)) -> String {
    format!("{contents}, {pages}; {}", Tail::of(state).entries)
}

#[allow(clippy::cast_precision_loss)] // for people
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[allow(clippy::cast_precision_loss)] // a share
fn ratio(held: u64, needed: u64) -> f64 {
    held as f64 / needed.max(1) as f64
}

fn both(live: u64, dropped: u64) -> String {
    format!("{}, {}", megabytes(live), megabytes(dropped))
}

fn per(count: u64, of: u64) -> f64 {
    ratio(count, of)
}
