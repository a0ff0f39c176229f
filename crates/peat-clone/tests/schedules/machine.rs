//! Machines: a folder each, and processes that work on it, two at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use peat_clone::{
    Adopt, Durability, Hydration, LocalClone, NewChange, NewNamespace, NewRun, OnRefusal, Options, PendingStatus, Run,
    Scope, Silent, Together,
};
use peat_ledger::Params;
use peat_testkit::sim::{Machine, Process, Sim, SimClock};
use peat_types::{ChangeId, Env, Error, Kind, Mutation, Namespace, Result, Unit};

use super::judge::Judge;
use super::planner::Appender;
use super::replay::{File, files_digest};

/// Handle of everything a schedule shares.
#[derive(Clone)]
pub struct World {
    pub sim: Sim,
    units: Arc<Vec<Unit>>,
    mutation: Option<Mutation>,
    judge: Arc<Mutex<Judge>>,
    tokens: Arc<Mutex<u64>>,
    /// Changes that somebody dropped on purpose.
    dropped: Arc<Mutex<BTreeSet<ChangeId>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Short times, so that takeovers happen within a schedule.
fn params() -> Params {
    Params {
        lease_ttl_ms: 1500,
        relist_ms: 500,
        ring: 8,
        inline_file: 1 << 10,
        inline_tx: 4 << 10,
        ..Params::default()
    }
}

impl World {
    pub fn new(sim: &Sim, units: u64, mutation: Option<Mutation>) -> Self {
        let units = (0..units).map(|n| format!("model/{n}").parse().expect("unit")).collect();
        let judge = Arc::<Mutex<Judge>>::default();
        let watching = judge.clone();
        let env = Env::seeded(Arc::new(SimClock::new(Duration::ZERO, 0)), 0, []);
        sim.watch(Box::new(move |store, key| lock(&watching).watch(store, key, &env)));
        let (tokens, dropped) = (Arc::default(), Arc::default());
        Self { sim: sim.clone(), units: Arc::new(units), mutation, judge, tokens, dropped }
    }

    fn any_unit(&self) -> Unit {
        self.units[usize::try_from(self.sim.below(self.units.len() as u64)).expect("small")].clone()
    }

    fn units(&self) -> Vec<Unit> {
        let mut units = vec![self.any_unit()];
        if self.sim.chance(0.15) {
            units.push(self.any_unit());
            units.sort();
            units.dedup();
        }
        units
    }

    fn token(&self) -> String {
        let mut tokens = lock(&self.tokens);
        *tokens += 1;
        format!("token {}", *tokens)
    }

    fn hold(&self, verdict: std::result::Result<(), String>) {
        if let Err(what) = verdict {
            self.sim.violation(what);
        }
    }

    /// What must hold at the very end; `parked` are the rows that are left in journals.
    pub fn finish(&self, parked: &BTreeSet<ChangeId>) {
        self.hold(lock(&self.judge).finish(parked, &lock(&self.dropped)));
    }

    /// How often things happened.
    pub fn seen(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.judge).seen.clone()
    }
}

/// One machine and its folder.
#[derive(Clone)]
pub struct Host {
    world: World,
    machine: Machine,
    dir: PathBuf,
}

/// One process that has opened the clone.
struct Actor<'a> {
    host: &'a Host,
    process: &'a Process,
    clone: LocalClone,
}

impl Host {
    pub fn new(world: &World, name: &str, dir: PathBuf) -> Self {
        Self { world: world.clone(), machine: world.sim.machine(name), dir }
    }

    async fn open(&self, process: &Process) -> Result<LocalClone> {
        let options = Options {
            store: process.store(),
            url: "sim:".to_owned(),
            namespace: Namespace::default(),
            dir: self.dir.clone(),
            repo_id: "repo".to_owned(),
            hydration: if self.machine.name().ends_with('0') { Hydration::Full } else { Hydration::Lazy },
            durability: Durability::Process,
            together: Together::default(),
            user: "somebody".to_owned(),
            host: self.machine.name().to_owned(),
            reporter: Arc::new(Silent),
        };
        let new = NewNamespace { params: params(), ..NewNamespace::default() };
        LocalClone::create(options, process.env().clone(), Arc::new(Appender), new).await
    }

    /// Processes one after the other.
    pub async fn live(self, lives: u64) {
        let sim = &self.world.sim;
        for _ in 0..lives {
            if sim.violated() {
                return;
            }
            let process = self.machine.process(self.world.mutation);
            let steps = 1 + sim.below(4);
            if let Some(Err(error)) = process.run(self.session(&process, steps)).await {
                self.explain(&process, &error);
            }
            self.look_at_journal();
            let pause = sim.below(if process.is_dead() { 200 } else { 1500 });
            sim.sleep(Duration::from_millis(pause)).await;
        }
    }

    fn explain(&self, process: &Process, error: &Error) {
        let expected = matches!(error.kind(), Kind::Offline | Kind::Contended | Kind::Conflict);
        if !expected {
            self.world.sim.violation(format_args!("{}: unexpected {error:?}", process.name()));
        }
    }

    /// Notes every row in the journal: from now on it must not be lost.
    fn look_at_journal(&self) {
        let Ok(files) = std::fs::read_dir(self.dir.join("journal")) else { return };
        for file in files.flatten() {
            let name = file.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".change")) else { continue };
            let (Ok(id), Ok(bytes)) = (id.parse(), std::fs::read(file.path())) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            let disposable = text.contains("\"is\":\"start\"") || text.contains("\"is\":\"release\"");
            lock(&self.world.judge).journalled(id, disposable);
        }
    }

    async fn session(&self, process: &Process, steps: u64) -> Result<()> {
        let clone = self.open(process).await?;
        let actor = Actor { host: self, process, clone };
        for _ in 0..steps {
            actor.step().await?;
        }
        Ok(())
    }

    /// Settles whatever is left, with nothing failing any more. Gives the rows that stay.
    pub async fn settle(&self) -> BTreeSet<ChangeId> {
        let sim = &self.world.sim;
        let mut left = BTreeSet::new();
        let mut open = String::new();
        for _ in 0..20 {
            if sim.violated() {
                return left;
            }
            let process = self.machine.process(self.world.mutation);
            let work = async {
                let clone = self.open(&process).await?;
                clone.settle().await?;
                clone.pull(&Scope::All).await?;
                Actor { host: self, process: &process, clone: clone.clone() }.check_view();
                let pending = clone.pending()?;
                let held = clone.leases()?.into_iter().any(|info| info.lease.held && info.lease.clone == clone.id());
                Ok::<_, Error>((pending, held))
            };
            match process.run(work).await {
                Some(Ok((pending, held))) => {
                    open = format!("{pending:?}, a lease held: {held}");
                    left = pending.iter().map(|row| row.change).collect();
                    if !held && pending.iter().all(|row| row.status == PendingStatus::Parked) {
                        return left;
                    }
                }
                Some(Err(error)) => self.explain(&process, &error),
                None => {}
            }
            sim.sleep(Duration::from_secs(1)).await;
        }
        sim.violation(format_args!("A9: {} cannot settle: {open}", self.machine.name()));
        left
    }
}

fn change(kind: &str, units: Vec<Unit>, token: &str, size: usize) -> NewChange {
    let mut content = token.as_bytes().to_vec();
    content.resize(size.max(content.len()), b'.');
    NewChange {
        contents: vec![Bytes::from(content)],
        message: token.to_owned(),
        patience: Duration::from_secs(5),
        ..NewChange::new(kind, units, serde_json::Value::Null)
    }
}

impl Actor<'_> {
    fn sim(&self) -> &Sim {
        &self.host.world.sim
    }

    fn size(&self) -> usize {
        [16, 200, 3000][usize::try_from(self.sim().below(3)).expect("small")]
    }

    fn acked(&self, committed: Result<peat_clone::Committed>) -> Result<()> {
        match committed {
            Ok(committed) => {
                self.host.world.hold(lock(&self.host.world.judge).acked(&committed));
                Ok(())
            }
            // It is in the journal, or was parked.
            Err(error) => {
                self.host.explain(self.process, &error);
                Ok(())
            }
        }
    }

    async fn step(&self) -> Result<()> {
        let (world, env) = (&self.host.world, self.process.env());
        env.sleep(env.jitter(Duration::from_millis(300))).await;
        match self.sim().below(13) {
            0..=3 => {
                let change = change("append", world.units(), &world.token(), self.size());
                self.acked(self.clone.commit(change).await)
            }
            4..=7 => self.run(world.units(), None, 0).await,
            8 => {
                let scope = if self.sim().chance(0.5) { Scope::All } else { Scope::Units(world.units()) };
                match self.clone.pull(&scope).await {
                    Ok(_) => self.check_view(),
                    Err(error) => self.host.explain(self.process, &error),
                }
                Ok(())
            }
            9 => self.begin_and_leave().await,
            10 => self.adopt_or_drop().await,
            11 => {
                // Tasks of one process.
                let commits = (0..1 + self.sim().below(3))
                    .map(|_| self.clone.commit(change("append", world.units(), &world.token(), self.size())));
                let (pulled, committed) = tokio::join!(self.clone.pull(&Scope::All), join_all(commits));
                if let Err(error) = pulled {
                    self.host.explain(self.process, &error);
                }
                committed.into_iter().try_for_each(|committed| self.acked(committed))
            }
            _ => {
                match self.clone.settle().await {
                    Ok(settled) => {
                        for committed in settled.committed {
                            world.hold(lock(&world.judge).acked(&committed));
                        }
                    }
                    Err(error) => self.host.explain(self.process, &error),
                }
                Ok(())
            }
        }
    }

    async fn begin(&self, new: NewRun, token: &str) -> Option<Run> {
        let world = &self.host.world;
        lock(&world.judge).begins(token, self.clone.instance());
        match self.clone.begin(new).await {
            Ok(run) => {
                if let Some(started) = run.started() {
                    world.hold(lock(&world.judge).acked(started));
                }
                Some(run)
            }
            Err(error) => {
                self.host.explain(self.process, &error);
                let left = self.clone.pending().is_ok_and(|rows| rows.iter().any(|row| row.message == token));
                if !left {
                    lock(&world.judge).gave_up(token);
                }
                None
            }
        }
    }

    /// A run, perhaps one with runs below it.
    async fn run(&self, units: Vec<Unit>, parent: Option<&Run>, depth: u32) -> Result<()> {
        let (world, env, sim) = (&self.host.world, self.process.env(), self.sim());
        let token = world.token();
        let mut start = change("start", units.clone(), &token, 0);
        start.contents = Vec::new();
        start.on_refusal = OnRefusal::Drop;
        start.capability = parent.and_then(Run::capability);
        let wait = Duration::from_millis(1000 + sim.below(9000));
        let Some(run) = self.begin(NewRun { wait, ..NewRun::new(start) }, &token).await else { return Ok(()) };
        let work = async {
            env.sleep(env.jitter(Duration::from_millis(600))).await;
            if sim.chance(0.3) {
                let change = change("append", units.clone(), &world.token(), self.size());
                self.acked(run.commit(change).await)?;
            }
            if depth < 2 && sim.chance(0.25) {
                Box::pin(self.run(world.units(), Some(&run), depth + 1)).await?;
            }
            if sim.chance(0.3) {
                // A process that stalls, or works for long, or is cut off from the store meanwhile.
                let long = Duration::from_millis(sim.below(8000));
                if sim.chance(0.5) {
                    self.process.cut_off(long.mul_f64(0.8));
                }
                env.sleep(long).await;
            }
            Ok::<(), Error>(())
        };
        if sim.chance(0.3) {
            // It does not beat at all.
            work.await?;
        } else {
            tokio::select! {
                biased;
                done = work => done?,
                () = run.beat() => {}
                // The method is cancelled, and what it has is committed or parked all the same.
                _ = run.lost() => {
                    *lock(&world.judge).seen.entry("lease seen lost").or_default() += 1;
                    sim.event(format_args!("{} lost its lease", self.process.name()));
                }
            }
        }
        env.step("test.worked").await;
        if sim.chance(0.1) {
            // It ends without a result, as if it had crashed.
            return Ok(());
        }
        let change = change("end", units, &world.token(), self.size());
        self.acked(run.end(change).await)
    }

    /// A start that is given up halfway, its future dropped.
    async fn begin_and_leave(&self) -> Result<()> {
        let (world, env) = (&self.host.world, self.process.env());
        let token = world.token();
        let mut start = change("start", world.units(), &token, 0);
        start.contents = Vec::new();
        let limit = env.jitter(Duration::from_millis(300));
        let _ = env.timeout(limit, self.begin(NewRun::new(start), &token)).await;
        Ok(())
    }

    async fn adopt_or_drop(&self) -> Result<()> {
        let rows = self.clone.pending()?;
        let Some(row) = rows.into_iter().find(|row| row.status == PendingStatus::Parked) else { return Ok(()) };
        self.host.look_at_journal();
        if self.sim().chance(0.2) {
            lock(&self.host.world.dropped).insert(row.change);
            match self.clone.drop_change(row.change).await {
                Err(error) if error.kind() == Kind::NotFound || error.kind() == Kind::AlreadyExists => {}
                Err(error) => self.host.explain(self.process, &error),
                Ok(()) => {}
            }
            return Ok(());
        }
        match self.clone.adopt(row.change, Adopt::Unleased).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            adopted => self.acked(adopted),
        }
    }

    /// What this clone knows is what the log says, as of where it says it stands.
    fn check_view(&self) {
        let judge = lock(&self.host.world.judge);
        let units = match self.clone.units() {
            Ok(units) => units,
            Err(error) => return self.host.explain(self.process, &error),
        };
        for info in units {
            let items = match self.clone.items(&info.unit, "") {
                Ok(items) => items,
                Err(error) => return self.host.explain(self.process, &error),
            };
            let files = items.iter().map(|item| (item.path.clone(), File::of(item.rank, &item.row))).collect();
            let truth = judge.replay.unit_at(&info.unit, info.as_of);
            if truth != Some((info.seq, files_digest(&files))) {
                self.sim().violation(format_args!(
                    "{} knows something else of {} as of {}: seq {}, not {:?}",
                    self.process.name(),
                    info.unit,
                    info.as_of,
                    info.seq,
                    truth.map(|(seq, _)| seq)
                ));
            }
        }
    }
}
