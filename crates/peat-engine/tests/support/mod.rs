//! A store in memory that can go away, a type whose method does what the test says, and machines that share the store.
#![allow(dead_code)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_clone::Durability;
use peat_engine::{
    Call, Cancel, CreateModel, DataGet, DataKind, DataSpec, Datastore, End, Host, InitRequest, MethodKind, MethodSpec,
    ModelType, Opened, Opener, Outcome, Produced, Quiet, Ran, Real, Registry, Repo, RunRequest, SharedType, Stream,
    TypeSpec, Write,
};
use peat_objects::{Created, List, MemoryStore, Meta, Object, OpenOptions, Page, Range, Store};
use peat_types::{Env, Error, Kind, Result};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// A store that can be switched off.
#[derive(Clone, Debug, Default)]
pub struct Cloud {
    inner: Arc<MemoryStore>,
    off: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
    /// Beats that came.
    beats: Arc<tokio::sync::watch::Sender<u64>>,
    /// Those that must have come before a pack is taken.
    wanted: Arc<AtomicU64>,
}

impl Cloud {
    pub fn off(&self, off: bool) {
        self.off.store(off, Ordering::SeqCst);
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    /// Takes no pack before so many more beats have come.
    pub fn hold_packs(&self, beats: u64) {
        self.wanted.store(*self.beats.borrow() + beats, Ordering::SeqCst);
    }

    /// Waits for the beats that are wanted.
    async fn admit(&self, key: &str) {
        if key.contains("/beat/") {
            self.beats.send_modify(|beats| *beats += 1);
        }
        if key.contains("/pack/") {
            let wanted = self.wanted.load(Ordering::SeqCst);
            self.beats.subscribe().wait_for(|beats| *beats >= wanted).await.unwrap();
        }
    }

    fn check(&self) -> Result<()> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        if self.off.load(Ordering::SeqCst) { Err(Error::new(Kind::Offline, "the cloud is off")) } else { Ok(()) }
    }
}

impl std::fmt::Display for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("memory:")
    }
}

#[async_trait]
impl Store for Cloud {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.check()?;
        self.inner.get(key, range).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.check()?;
        self.inner.create(key, body).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.check()?;
        self.admit(key).await;
        self.inner.put(key, body).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        self.check()?;
        self.inner.list(list).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.check()?;
        self.inner.delete(key).await
    }
}

/// Ends a process at a chosen one of the steps it passes and the requests it makes, before or after they had their effect.
#[derive(Clone, Debug, Default)]
pub struct Trap {
    /// Steps to go; none when nothing is to happen.
    left: Arc<Mutex<Option<u64>>>,
    passed: Arc<AtomicU64>,
    died: Arc<tokio::sync::Notify>,
}

impl Trap {
    /// Lets the process die at the `nth` point from now.
    pub fn arm(&self, nth: u64) {
        *self.left.lock().unwrap() = Some(nth);
        self.passed.store(0, Ordering::SeqCst);
    }

    /// From now on nothing happens. Gives how many points were passed since it was armed.
    pub fn disarm(&self) -> u64 {
        *self.left.lock().unwrap() = None;
        self.passed.load(Ordering::SeqCst)
    }

    pub async fn point(&self) {
        self.passed.fetch_add(1, Ordering::SeqCst);
        let dies = match &mut *self.left.lock().unwrap() {
            None => false,
            Some(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
        };
        if dies {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Runs `what` until it is done (`Some`) or dead (`None`).
    pub async fn run<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            value = what => Some(value),
            () = self.died.notified() => None,
        }
    }
}

impl peat_types::Steps for Trap {
    fn reach(&self, _: &'static str) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let trap = self.clone();
        Box::pin(async move { trap.point().await })
    }
}

/// A store whose requests pass a trap.
#[derive(Debug)]
struct Trapped(Arc<dyn Store>, Trap);

impl std::fmt::Display for Trapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl Store for Trapped {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.1.point().await;
        self.0.get(key, range).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.1.point().await;
        let done = self.0.create(key, body).await;
        self.1.point().await;
        done
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.1.point().await;
        let done = self.0.put(key, body).await;
        self.1.point().await;
        done
    }

    async fn list(&self, list: &List) -> Result<Page> {
        self.1.point().await;
        self.0.list(list).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.1.point().await;
        let done = self.0.delete(key).await;
        self.1.point().await;
        done
    }
}

/// Folders are real, `memory:` is the cloud.
pub struct Stores {
    cloud: Cloud,
    pub unfit: AtomicBool,
    pub trap: Trap,
}

#[async_trait]
impl Opener for Stores {
    fn open(&self, settings: &Datastore, env: &Env) -> Result<Opened> {
        let opened = if settings.url == "memory:" {
            Opened {
                store: Arc::new(self.cloud.clone()),
                url: settings.url.clone(),
                kind: "memory",
                folder: None,
                endpoint: None,
            }
        } else {
            let options = OpenOptions { durability: peat_objects::Durability::Process, ..OpenOptions::default() };
            Real { options }.open(settings, env)?
        };
        Ok(Opened { store: Arc::new(Trapped(opened.store, self.trap.clone())), ..opened })
    }

    async fn probe(&self, store: &Arc<dyn Store>, _: &Env) -> Result<Value> {
        if self.unfit.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Unsupported, format!("{store} is unfit")).with_code("store_refused"));
        }
        Ok(json!({"fit": true}))
    }
}

/// Called by the fake method with the name and the environment of its call.
pub type Hook =
    Arc<dyn Fn(Map<String, Value>, Vec<(String, String)>) -> futures::future::BoxFuture<'static, ()> + Send + Sync>;

/// `test/fake`: `go` writes its arguments as data; `fail` makes it fail, `wait` makes it wait for a cancel.
pub struct Fake {
    spec: TypeSpec,
    hook: Arc<Mutex<Option<Hook>>>,
}

#[async_trait]
impl ModelType for Fake {
    fn spec(&self) -> &TypeSpec {
        &self.spec
    }

    async fn execute(&self, call: &Call<'_>) -> Outcome {
        (call.lines)(Stream::Stdout, "working");
        let hook = self.hook.lock().unwrap().clone();
        if let Some(hook) = hook {
            let variables = call.variables.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            hook(call.arguments.clone(), variables).await;
        }
        let flag = |name: &str| call.arguments.get(name) == Some(&Value::Bool(true));
        let mut end = if flag("fail") { End::Failed("told to fail".to_owned()) } else { End::Succeeded };
        if flag("wait") {
            end = End::Cancelled(call.cancel.cancelled().await.text());
        }
        let content = Bytes::from(Value::Object(call.arguments.clone()).to_string());
        let content = Produced::Bytes(content);
        Outcome { end, writes: vec![Write { spec: "result".to_owned(), name: "result".to_owned(), content }] }
    }
}

fn fake(hook: Arc<Mutex<Option<Hook>>>) -> SharedType {
    let method = |name: &str, kind| MethodSpec {
        name: name.to_owned(),
        description: String::new(),
        kind,
        arguments: json!({"type": "object", "properties": {
            "n": {"type": "integer"}, "fail": {"type": "boolean"}, "wait": {"type": "boolean"}, "text": {"type": "string"},
        }, "additionalProperties": false}),
    };
    let spec = TypeSpec {
        name: "test/fake".to_owned(),
        version: "2026.01.01.1".to_owned(),
        description: String::new(),
        global_arguments: None,
        methods: vec![method("go", MethodKind::Action), method("look", MethodKind::Read)],
        data: vec![DataSpec {
            name: "result".to_owned(),
            kind: DataKind::Resource,
            description: String::new(),
            schema: None,
            content_type: "application/json".to_owned(),
            lifetime: "infinite".to_owned(),
            garbage_collection: json!(10),
            streaming: false,
        }],
    };
    Arc::new(Fake { spec, hook })
}

/// Several machines with one cloud.
pub struct World {
    pub cloud: Cloud,
    pub stores: Arc<Stores>,
    pub hook: Arc<Mutex<Option<Hook>>>,
    /// Where the folders of its machines are.
    root: std::path::PathBuf,
}

/// A disk in memory, where there is one.
const QUICK: &str = "/dev/shm";

/// One machine: a work tree and a home.
pub struct Machine {
    pub dir: TempDir,
    pub home: TempDir,
    pub host: Host,
    pub hook: Arc<Mutex<Option<Hook>>>,
}

impl World {
    pub fn new() -> Self {
        let cloud = Cloud::default();
        let stores = Arc::new(Stores { cloud: cloud.clone(), unfit: AtomicBool::new(false), trap: Trap::default() });
        Self { cloud, stores, hook: Arc::default(), root: std::env::temp_dir() }
    }

    /// A world whose disks are in memory, where that is possible: for tests that make very many, and whose subject is not
    /// what a power cut leaves.
    pub fn quick() -> Self {
        let quick = std::path::PathBuf::from(QUICK);
        let root = if quick.is_dir() { quick } else { std::env::temp_dir() };
        Self { root, ..Self::new() }
    }

    /// A folder of this world.
    pub fn folder(&self) -> TempDir {
        tempfile::Builder::new().prefix("peat-test-").tempdir_in(&self.root).unwrap()
    }

    pub fn machine(&self, user: &str, vars: &[(&str, &str)]) -> Machine {
        let (dir, home) = (self.folder(), self.folder());
        let vars: Vec<(String, String)> = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut host = Host::new(Env::system(vars), "0.1.0", dir.path().to_owned(), Some(home.path().to_owned()));
        user.clone_into(&mut host.user);
        host.hostname = format!("{user}-host");
        host.durability = Durability::Process;
        // Beats every 300 ms instead of every 10 s.
        host.params.lease_ttl_ms = 900;
        host.stores = self.stores.clone();
        let hook: Arc<Mutex<Option<Hook>>> = Arc::default();
        let shell = Registry::builtin().get("command/shell").unwrap().clone();
        host.types = Registry::new([fake(hook.clone()), shell]);
        Machine { dir, home, host, hook }
    }

    /// A machine with a repository on the cloud and a model `m`.
    pub async fn shared(&self, user: &str) -> (Machine, Repo) {
        self.on(user, "ops").await
    }

    /// The same in a namespace of its own.
    pub async fn on(&self, user: &str, namespace: &str) -> (Machine, Repo) {
        let machine = self.machine(user, &[]);
        machine.init().await;
        let repo = machine.repo();
        repo.datastore_setup(&setup("memory:", namespace)).await.unwrap();
        let repo = machine.repo();
        machine.model(&repo, "m");
        (machine, repo)
    }

    /// Another machine with a checkout of the same repository.
    pub fn checkout(&self, of: &Machine, user: &str) -> (Machine, Repo) {
        let machine = self.machine(user, &[]);
        copy(of.dir.path(), machine.dir.path());
        let repo = machine.repo();
        (machine, repo)
    }
}

pub fn setup(url: &str, namespace: &str) -> peat_engine::SetupRequest {
    peat_engine::SetupRequest {
        datastore: Datastore { url: url.into(), namespace: Some(namespace.into()), ..Datastore::default() },
        ..peat_engine::SetupRequest::default()
    }
}

/// What git would bring along.
pub fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_name() == ".peat" {
            continue;
        }
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

impl Machine {
    pub async fn init(&self) -> peat_engine::report::InitReport {
        Repo::init(self.host.clone(), &InitRequest::default()).await.unwrap()
    }

    pub fn repo(&self) -> Repo {
        Repo::find(self.host.clone()).unwrap()
    }

    pub fn model(&self, repo: &Repo, name: &str) -> peat_engine::report::ModelCreated {
        let request = CreateModel { type_name: "test/fake".into(), name: name.into(), global_args: vec![] };
        repo.model_create(&request, &|path| repo.read_input(path)).unwrap()
    }

    /// What the fake method does while it runs.
    pub fn during<F, W>(&self, what: F)
    where
        F: Fn() -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        *self.hook.lock().unwrap() = Some(Arc::new(move |_, _| Box::pin(what())));
    }
}

pub fn request(model: &str, inputs: Value) -> RunRequest {
    RunRequest {
        model: model.into(),
        method: "go".into(),
        inputs: inputs.as_object().unwrap().clone(),
        lock_timeout: Some(Duration::from_secs(8)),
        ..RunRequest::default()
    }
}

pub async fn go(repo: &Repo, inputs: Value) -> Ran {
    repo.run(&request("m", inputs), &Cancel::default(), &Quiet).await.unwrap()
}

pub fn get(name: &str) -> DataGet {
    DataGet { model: "m".into(), name: name.into(), ..DataGet::default() }
}

pub fn hints(error: &Error) -> String {
    error.hints().join("\n")
}

impl Cloud {
    /// Puts an object there, as somebody else does, if its key is one that the store takes.
    pub async fn put_foreign(&self, key: &str, body: &str) {
        let _ = self.inner.put(key, Bytes::from(body.to_owned())).await;
    }

    /// Everything below a folder.
    pub async fn keys(&self, prefix: &str) -> Vec<String> {
        let list = List { prefix: prefix.to_owned(), ..List::default() };
        self.inner.list(&list).await.unwrap().keys.into_iter().map(|listed| listed.key).collect()
    }

    /// Whether there is anything below a folder.
    pub async fn has(&self, prefix: &str) -> bool {
        !self.keys(prefix).await.is_empty()
    }
}
