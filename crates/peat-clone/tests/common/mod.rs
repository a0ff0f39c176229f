//! What the tests of this crate share: a store with faults and a counter, a planner with a few simple kinds of change,
//! and processes that can be killed at a named step.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

pub mod carried;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_clone::{
    Change, Durability, Hydration, Interrupted, Item, LocalClone, LogQuery, NewChange, NewNamespace, NewRun, Options,
    Params, Plan, PlanContent, PlanOp, Planner, REWRITE, Rank, Refusal, Reporter, Run, Scope, Silent, Source, Together,
    View, plan_rewrite,
};
use peat_objects::{Count, FaultStore, MemoryStore, Meter, Metered, Op, Store};
use peat_testkit::clock::tokio_env;
use peat_types::{Env, Error, ItemPath, Kind, Mutation, Result, Steps, Unit};
use serde_json::{Value, json};
use tempfile::TempDir;

pub fn path(text: &str) -> ItemPath {
    text.parse().unwrap()
}

pub fn unit(text: &str) -> Unit {
    text.parse().unwrap()
}

/// Understands `put`, `many`, `delete`, `append`, `start`, `end` and `refuse`.
pub struct TestPlanner;

fn put(unit: &Unit, at: ItemPath, content: PlanContent) -> PlanOp {
    PlanOp::Put { unit: unit.clone(), path: at, rank: Rank::Current, executable: false, content }
}

fn text(payload: &Value, key: &str) -> String {
    payload.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[async_trait]
impl Planner for TestPlanner {
    async fn plan(&self, change: &Change, view: &dyn View) -> Result<Plan, Refusal> {
        let unit = change.units.first().ok_or_else(|| Error::internal("no unit"))?;
        let payload = &change.payload;
        let mut plan = Plan::default();
        match change.kind.as_str() {
            "put" => {
                let content = match payload.get("text") {
                    Some(_) => PlanContent::Bytes(text(payload, "text").into()),
                    None => PlanContent::Journalled(0),
                };
                plan.ops.push(put(unit, text(payload, "path").parse()?, content));
            }
            "many" => {
                let paths = payload.get("paths").and_then(Value::as_array).into_iter().flatten();
                for (at, path) in paths.enumerate() {
                    let path = path.as_str().unwrap_or_default();
                    let unit = change.units.get(at % change.units.len()).unwrap_or(unit);
                    plan.ops.push(put(unit, format!("{unit}/{path}").parse()?, PlanContent::Journalled(at)));
                }
            }
            "each" => {
                for unit in &change.units {
                    let content = PlanContent::Bytes(text(payload, "text").into());
                    plan.ops.push(put(unit, format!("{unit}/each").parse()?, content));
                }
            }
            "create" => {
                let at: ItemPath = text(payload, "path").parse()?;
                if view.item(unit, &at)?.is_some() {
                    return Err(Refusal::Refused(Error::new(Kind::AlreadyExists, format!("{at} exists"))));
                }
                plan.ops.push(put(unit, at, PlanContent::Bytes("created".into())));
            }
            "delete" => plan.ops.push(PlanOp::Delete { unit: unit.clone(), path: text(payload, "path").parse()? }),
            "rank" => plan.ops.push(PlanOp::Rank {
                unit: unit.clone(),
                path: text(payload, "path").parse()?,
                rank: Rank::History(7),
            }),
            "append" | "end" => {
                let prefix = format!("data/{unit}/");
                let version = view.items(unit, &prefix)?.len() + 1;
                plan.answer = json!({ "version": version });
                for (at, _) in change.contents.iter().enumerate() {
                    let name = format!("{prefix}{version:06}-{at}");
                    plan.ops.push(put(unit, name.parse()?, PlanContent::Journalled(at)));
                }
                if change.contents.is_empty() {
                    let name = format!("{prefix}{version:06}");
                    plan.ops.push(put(unit, name.parse()?, PlanContent::Bytes(text(payload, "text").into())));
                }
                if change.unleased {
                    plan.ops.push(put(unit, format!("unleased/{unit}").parse()?, PlanContent::Bytes("yes".into())));
                }
                if change.kind == "end" {
                    let at = format!("outputs/{unit}/latest").parse()?;
                    plan.ops.push(put(unit, at, PlanContent::Bytes("done".into())));
                }
            }
            "start" => {
                let at = format!("outputs/{unit}/latest").parse()?;
                plan.ops.push(put(unit, at, PlanContent::Bytes("running".into())));
            }
            REWRITE => return plan_rewrite(change, view).await,
            "refuse" => return Err(Refusal::Refused(Error::new(Kind::Conflict, "no"))),
            other => return Err(Refusal::Refused(Error::internal(format!("unknown kind {other}")))),
        }
        Ok(plan)
    }

    async fn interrupt(&self, dead: &Interrupted, view: &dyn View) -> Result<Plan, Refusal> {
        let at = path(&format!("outputs/{}/latest", dead.unit));
        let mut plan = Plan::default();
        if view.read(&dead.unit, &at).await?.is_some_and(|bytes| &bytes[..] == b"running") {
            let log = format!("interrupted/{}/{}", dead.unit, dead.lease.generation).parse()?;
            plan.ops.push(put(&dead.unit, at, PlanContent::Bytes("interrupted".into())));
            plan.ops.push(put(&dead.unit, log, PlanContent::Bytes("x".into())));
        }
        Ok(plan)
    }
}

/// Stops a process at the nth passing of a step: the future that reaches it never goes on.
#[derive(Clone, Default)]
pub struct Killer {
    at: Arc<Mutex<Option<(String, u32)>>>,
    seen: Arc<Mutex<Vec<&'static str>>>,
    died: Arc<tokio::sync::Notify>,
}

impl Killer {
    pub fn arm(&self, step: &str, nth: u32) {
        *self.at.lock().unwrap() = Some((step.to_owned(), nth));
    }

    /// Steps passed since the last call.
    pub fn seen(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// Runs `what` until it is done (`Some`) or killed (`None`).
    pub async fn run<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            value = what => Some(value),
            () = self.died.notified() => None,
        }
    }
}

impl Steps for Killer {
    fn reach(&self, name: &'static str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.seen.lock().unwrap().push(name);
        let mut at = self.at.lock().unwrap();
        let dies = match &mut *at {
            Some((step, nth)) if step == name => {
                *nth -= 1;
                *nth == 0
            }
            _ => false,
        };
        if dies {
            *at = None;
            self.died.notify_one();
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(()))
    }
}

/// A store whose writes can be forbidden.
#[derive(Debug)]
struct Gate(Arc<dyn Store>, Arc<AtomicBool>);

impl std::fmt::Display for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Gate {
    fn check(&self) -> Result<()> {
        if self.1.load(Ordering::Relaxed) { Err(Error::new(Kind::Denied, "403 (test)")) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for Gate {
    async fn get(&self, key: &str, range: peat_objects::Range) -> Result<Option<peat_objects::Object>> {
        self.0.get(key, range).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<peat_objects::Created> {
        self.check()?;
        self.0.create(key, body).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<peat_objects::Meta> {
        self.check()?;
        self.0.put(key, body).await
    }

    async fn list(&self, list: &peat_objects::List) -> Result<peat_objects::Page> {
        self.0.list(list).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.check()?;
        self.0.delete(key).await
    }
}

/// One bucket, seen by any number of machines.
pub struct World {
    pub memory: MemoryStore,
    pub env: Env,
    pub params: Params,
    pub probe: Value,
    dirs: TempDir,
}

/// One process on one machine.
pub struct Machine {
    pub clone: LocalClone,
    pub faults: Arc<FaultStore>,
    pub meter: Meter,
    pub killer: Killer,
    /// Whether the store forbids this process to write.
    pub denied: Arc<AtomicBool>,
    pub env: Env,
}

#[derive(Clone)]
pub struct Opening {
    pub hydration: Hydration,
    pub durability: Durability,
    pub mutation: Option<Mutation>,
}

impl Default for Opening {
    fn default() -> Self {
        Self { hydration: Hydration::Full, durability: Durability::Process, mutation: None }
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let env = tokio_env(seed);
        let memory = MemoryStore::with_clock(&env);
        Self { memory, env, params: Params::default(), probe: json!({}), dirs: tempfile::tempdir().unwrap() }
    }

    /// A world whose machines have their folders below `dir`.
    pub fn inside(seed: u64, dir: &Path) -> Self {
        Self { dirs: tempfile::tempdir_in(dir).unwrap(), ..Self::new(seed) }
    }

    pub fn dir(&self, name: &str) -> std::path::PathBuf {
        self.dirs.path().join(name)
    }

    /// A process on the machine `name`; the first one creates the namespace.
    pub async fn open(&self, name: &str) -> Machine {
        self.open_with(name, Opening::default()).await
    }

    pub async fn open_with(&self, name: &str, opening: Opening) -> Machine {
        self.try_open(name, opening).await.unwrap()
    }

    /// A process that tells `reporter` what happens.
    pub async fn open_heard(&self, name: &str, reporter: Arc<dyn Reporter>) -> Machine {
        self.try_open_heard(name, Opening::default(), reporter).await.unwrap()
    }

    pub async fn try_open(&self, name: &str, opening: Opening) -> Result<Machine> {
        self.try_open_heard(name, opening, Arc::new(Silent)).await
    }

    async fn try_open_heard(&self, name: &str, opening: Opening, reporter: Arc<dyn Reporter>) -> Result<Machine> {
        let killer = Killer::default();
        let env = self.env.with_steps(Arc::new(killer.clone())).with_mutation(opening.mutation);
        let faults = Arc::new(FaultStore::new(Arc::new(self.memory.clone()), &env));
        let denied = Arc::<AtomicBool>::default();
        let metered = Metered::new(Arc::new(Gate(faults.clone(), denied.clone())));
        let meter = metered.meter().clone();
        let options = options(Arc::new(metered), &self.dir(name), name, opening.hydration, opening.durability);
        let options = Options { reporter, ..options };
        let new = NewNamespace { params: self.params.clone(), probe: self.probe.clone() };
        let clone = if self.memory.keys().is_empty() {
            LocalClone::create(options, env.clone(), Arc::new(TestPlanner), new).await?
        } else {
            LocalClone::open(options, env.clone(), Arc::new(TestPlanner)).await?
        };
        Ok(Machine { clone, faults, meter, killer, denied, env })
    }
}

pub fn options(store: Arc<dyn Store>, dir: &Path, name: &str, hydration: Hydration, durability: Durability) -> Options {
    Options {
        store,
        folder: None,
        url: "memory:test".to_owned(),
        namespace: peat_types::Namespace::default(),
        dir: dir.to_owned(),
        repo_id: "repo".to_owned(),
        hydration,
        durability,
        together: Together::default(),
        user: name.to_owned(),
        host: "box".to_owned(),
        reporter: Arc::new(Silent),
    }
}

impl Machine {
    /// Requests that `what` makes.
    pub async fn counted<T>(&self, what: impl Future<Output = T>) -> (T, Requests) {
        let before = self.meter.snapshot();
        let value = what.await;
        (value, Requests(self.meter.since(&before)))
    }

    pub async fn pull(&self) -> peat_clone::Pulled {
        self.clone.pull(&Scope::All).await.unwrap()
    }

    pub async fn put(&self, on: &str, at: &str, text: &str) -> peat_clone::Committed {
        self.clone.commit(change_put(on, at, text)).await.unwrap()
    }

    /// The content of an item as this machine knows it.
    pub async fn text(&self, on: &str, at: &str) -> Option<String> {
        let item = self.clone.item(&unit(on), &path(at)).unwrap()?;
        Some(String::from_utf8(self.clone.content(&item).await.unwrap().to_vec()).unwrap())
    }

    /// The size of a content as it is really read.
    pub async fn text_len(&self, on: &str, at: &str) -> usize {
        let item = self.clone.item(&unit(on), &path(at)).unwrap().unwrap();
        self.clone.content(&item).await.unwrap().len()
    }

    pub fn file(&self, at: &str) -> Option<String> {
        std::fs::read_to_string(self.clone.tree().join(at)).ok()
    }

    pub async fn begin(&self, on: &str) -> Result<Run> {
        self.clone.begin(new_run(on, Duration::from_secs(60))).await
    }

    /// Paths of a unit.
    pub fn paths(&self, on: &str) -> Vec<String> {
        self.clone.items(&unit(on), "").unwrap().into_iter().map(|item: Item| item.path.to_string()).collect()
    }

    /// Everything this machine knows: unit, path, hash.
    pub fn facts(&self) -> Vec<(String, String, String)> {
        let mut out = Vec::new();
        for known in self.clone.units().unwrap() {
            for item in self.clone.items(&known.unit, "").unwrap() {
                out.push((known.unit.to_string(), item.path.to_string(), item.hash().to_string()));
            }
        }
        out
    }
}

pub struct Requests(peat_objects::Counts);

impl Requests {
    pub fn total(&self) -> u64 {
        self.0.total().requests
    }

    pub fn count(&self) -> Count {
        self.0.total()
    }

    pub fn of(&self, op: Op) -> u64 {
        self.0.of(op).requests
    }
}

impl std::fmt::Display for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

pub fn change_put(on: &str, at: &str, text: &str) -> NewChange {
    NewChange::new("put", vec![unit(on)], json!({ "path": at, "text": text }))
}

pub fn change_bytes(on: &str, at: &str, bytes: impl Into<Bytes>) -> NewChange {
    let mut change = NewChange::new("put", vec![unit(on)], json!({ "path": at }));
    change.contents = vec![bytes.into().into()];
    change
}

/// A change that brings all of these, one after the other for each of `units` in turn.
pub fn change_many(units: &[Unit], contents: Vec<(String, Source)>) -> NewChange {
    let (paths, contents): (Vec<String>, Vec<Source>) = contents.into_iter().unzip();
    NewChange { contents, ..NewChange::new("many", units.to_vec(), json!({ "paths": paths })) }
}

pub fn change_append(on: &str, text: &str) -> NewChange {
    NewChange::new("append", vec![unit(on)], json!({ "text": text }))
}

pub fn change_end(on: &str) -> NewChange {
    NewChange::new("end", vec![unit(on)], json!({ "text": "result" }))
}

pub fn new_run(on: &str, wait: Duration) -> NewRun {
    let mut run = NewRun::new(NewChange::new("start", vec![unit(on)], json!({})));
    run.wait = wait;
    run
}

/// Every change id of the log with the entry it is in, from the store.
pub async fn changes_in_log(machine: &Machine) -> Vec<(u64, String, String)> {
    let mut lines = machine.clone.log(&LogQuery::default()).await.unwrap().lines;
    lines.reverse();
    let heads = lines.iter().flat_map(|line| line.txs.iter().map(move |tx| (line.seq.0, tx)));
    heads.map(|(seq, tx)| (seq, tx.change.to_string(), format!("{:?}", tx.kind))).collect()
}

/// Noise that does not compress.
pub fn noise(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
