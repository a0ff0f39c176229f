//! Machines and the store between them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use http::Method;
use peat_testkit::cloud::{CloudServer, Service};
use peat_testkit::s3::{Fault, S3Server};
use serde_json::Value;

use crate::typed::all_can_be_typed;

/// The store of a story, with a prefix of its own.
pub(crate) struct Shop {
    server: Option<S3Server>,
    _cloud: Option<CloudServer>,
    url: String,
    vars: Vec<(String, String)>,
}

impl Shop {
    pub fn open() -> Self {
        let random = std::process::id();
        let nth = NTH.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if let Ok(url) = std::env::var("PEAT_TEST_STORE") {
            let of_store = ["AWS_", "AZURE_", "STORAGE_EMULATOR_HOST"];
            let vars = std::env::vars().filter(|(name, _)| of_store.iter().any(|start| name.starts_with(start)));
            return Self {
                server: None,
                _cloud: None,
                url: format!("{url}/story-{random}-{nth}"),
                vars: vars.collect(),
            };
        }
        let server = S3Server::start().unwrap();
        Self { url: server.url(), vars: server.vars().to_vec(), server: Some(server), _cloud: None }
    }

    /// A bucket of another service, imitated.
    pub fn of(service: Service) -> Self {
        let server = CloudServer::start(service).unwrap();
        Self { url: server.url(), vars: server.vars(), server: None, _cloud: Some(server) }
    }

    /// From now on every reply takes this much longer. (A server that somebody started is as far away as it is.)
    pub fn slow(&self, by: Duration) {
        for server in self.server.iter() {
            for method in [Method::GET, Method::PUT, Method::DELETE] {
                server.script_times(method, "", 1, u32::MAX, Fault::Slow(by));
            }
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The words that set up a store of this service.
    pub fn setup(&self, url: &str, more: &[&str]) -> Vec<String> {
        let mut args = vec!["datastore", "setup", url];
        if url.starts_with("s3://") {
            args.push("--path-style");
        }
        let endpoint = self.vars.iter().find(|(name, _)| name.starts_with("AWS_ENDPOINT_URL"));
        if let Some((_, endpoint)) = endpoint.filter(|_| url.starts_with("s3://")) {
            args.extend(["--endpoint", endpoint]);
        }
        args.into_iter().chain(more.iter().copied()).map(str::to_owned).collect()
    }

    /// Another prefix beside this one.
    pub fn beside(&self, name: &str) -> String {
        format!("{}-{name}", self.url)
    }

    /// Puts an object at the root of a store, as somebody else does.
    pub fn put(&self, url: &str, key: &str, body: &str) {
        let env = peat_types::Env::system(self.vars.clone());
        let url: peat_objects::StoreUrl = url.parse().unwrap();
        let store = peat_objects::open(&url, &peat_objects::OpenOptions::default(), &env).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(store.put(key, body.to_owned().into())).unwrap();
    }

    pub fn vars(&self) -> &[(String, String)] {
        &self.vars
    }
}

/// A proxy at which nobody listens: the port of a service that went out of use long ago.
const NOBODY: &str = "http://127.0.0.1:9";

static NTH: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// How long the loops are.
pub(crate) fn runs() -> u32 {
    std::env::var("PEAT_STORY_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(5)
}

/// A computer: a work tree, a home, an environment.
pub(crate) struct Machine {
    dir: tempfile::TempDir,
    vars: Vec<(String, String)>,
    user: String,
}

impl Machine {
    /// A machine with an empty folder.
    pub fn new(user: &str, shop: &Shop) -> Self {
        let dir = tempfile::Builder::new().prefix("peat-story-").tempdir().unwrap();
        std::fs::create_dir(dir.path().join("repo")).unwrap();
        Self { dir, vars: shop.vars().to_vec(), user: user.to_owned() }
    }

    /// Another machine, with a git clone of this one's repository.
    pub fn cloned(&self, user: &str, shop: &Shop) -> Self {
        let other = Self::new(user, shop);
        let git = |dir: &Path, args: &[&str]| {
            let status = Command::new("git")
                .args(["-c", "user.name=ann", "-c", "user.email=ann@example.com"])
                .args(args)
                .current_dir(dir)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            assert!(status.unwrap().success(), "git {args:?}");
        };
        git(&self.repo(), &["init", "-q"]);
        git(&self.repo(), &["add", "-A"]);
        git(&self.repo(), &["commit", "-q", "--allow-empty", "-m", "models"]);
        git(&other.repo(), &["clone", "-q", self.repo().to_str().unwrap(), "."]);
        other
    }

    pub fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    /// The folder of this machine's only shared clone.
    pub fn clone_dir(&self) -> PathBuf {
        let mut clones = std::fs::read_dir(self.dir.path().join("peat/clones")).unwrap();
        clones.next().unwrap().unwrap().path()
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peat"));
        command
            .args(args)
            .current_dir(self.repo())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.dir.path().join("home"))
            .env("PEAT_HOME", self.dir.path().join("peat"))
            .env("USER", &self.user)
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs words split at spaces and expects success.
    #[track_caller]
    pub fn peat(&self, words: &str) -> Value {
        self.ok(words.split_whitespace())
    }

    /// Runs with `--json` and expects success.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Value {
        let output = self.command(args).arg("--json").output().unwrap();
        json(&output)
    }

    /// Runs a shell command through the model and expects success; gives the report.
    #[track_caller]
    pub fn run(&self, model: &str, run: &str) -> Value {
        self.ok(["model", "method", "run", model, "execute", "--input", &format!("run={run}"), "--stats"])
    }

    /// Starts a run and leaves it.
    pub fn spawn_run(&self, model: &str, run: &str) -> Child {
        let input = format!("run={run}");
        self.command(["model", "method", "run", model, "execute", "--json", "--input", &input]).spawn().unwrap()
    }

    /// The version numbers of a data name, sorted.
    #[track_caller]
    pub fn versions(&self, model: &str, name: &str) -> Vec<u64> {
        let report = self.ok(["data", "versions", model, name]);
        let list = report["versions"].as_array().unwrap_or_else(|| panic!("{report}"));
        let mut versions: Vec<u64> = list.iter().map(|version| version["version"].as_u64().unwrap()).collect();
        versions.sort_unstable();
        versions
    }

    /// Makes this machine's repo the owner of a namespace in the store whose leases live `ttl_ms`.
    pub fn share_with_ttl(&self, shop: &Shop, ttl_ms: u64) {
        let marker = std::fs::read_to_string(self.repo().join(".peat.yaml")).unwrap();
        let id = marker.lines().find_map(|line| line.strip_prefix("repoId:")).unwrap();
        let owner = id.trim().trim_matches(['"', '\'']).to_owned();
        let env = peat_types::Env::system(shop.vars().to_vec());
        let url: peat_objects::StoreUrl = shop.url().parse().unwrap();
        let store = peat_objects::open(&url, &peat_objects::OpenOptions::default(), &env).unwrap();
        let store = std::sync::Arc::new(peat_objects::PrefixStore::new(store, "infra").unwrap());
        let new = peat_ledger::NewLedger {
            namespace: "infra".parse().unwrap(),
            owner,
            params: peat_ledger::Params { lease_ttl_ms: ttl_ms, ..Default::default() },
            probe: Value::Null,
        };
        let (clone, instance) = (peat_types::CloneId::random(&env), peat_types::InstanceId::random(&env));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(peat_ledger::Ledger::create(store, &env, new, clone, instance)).unwrap();
        self.share(shop);
    }

    /// Sets the shared store up, as a user would.
    #[track_caller]
    pub fn share(&self, shop: &Shop) {
        self.ok(shop.setup(shop.url(), &["--namespace", "infra"]));
    }

    /// Runs words split at spaces and expects them to fail with status 1 and this code; gives the error.
    #[track_caller]
    pub fn refused<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, code: &str) -> Value {
        let refused = error(&self.command(args).arg("--json").output().unwrap(), 1);
        assert_eq!(refused["code"], code, "{refused}");
        refused
    }

    /// Whether every entry and content of its namespace is as it must be.
    #[track_caller]
    pub fn verify(&self) {
        let verified = self.peat("ledger verify --deep");
        assert_eq!(verified["passed"], true, "{verified}");
    }

    /// Lets requests reach no store, or reach it again.
    pub fn cut_off(&mut self, off: bool) {
        self.vars.retain(|(name, value)| !(name.ends_with("_PROXY") && value == NOBODY));
        if off {
            self.vars.extend(["HTTP_PROXY", "HTTPS_PROXY"].map(|name| (name.to_owned(), NOBODY.to_owned())));
        }
    }

    /// Uses other keys of the store from now on.
    pub fn log_in(&mut self, key: &str, secret: &str) {
        self.vars.retain(|(name, _)| !name.starts_with("AWS_ACCESS_KEY") && !name.starts_with("AWS_SECRET"));
        self.vars.push(("AWS_ACCESS_KEY_ID".to_owned(), key.to_owned()));
        self.vars.push(("AWS_SECRET_ACCESS_KEY".to_owned(), secret.to_owned()));
    }
}

/// The JSON document of a command that succeeded.
#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    all_can_be_typed(&format!("{out}\n{err}"));
    assert!(output.status.success(), "{}\nstdout: {out}\nstderr: {err}", output.status);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}\nstdout: {out}\nstderr: {err}"))
}

/// The error document of a command that failed with `status`.
#[track_caller]
pub(crate) fn error(output: &Output, status: i32) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    all_can_be_typed(&format!("{out}\n{err}"));
    assert_eq!(output.status.code(), Some(status), "stdout: {out}\nstderr: {err}");
    let line = err.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}\nstdout: {out}\nstderr: {err}"))
}

/// Polls until `done`, as long as `limit`.
#[track_caller]
pub(crate) fn until(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < limit, "waited in vain for {what}");
        std::thread::yield_now();
    }
}
