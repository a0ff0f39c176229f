//! What the caller hands in: the engine reads no environment, no home folder and no clock of its own.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peat_clone::{Durability, Params, Reporter, Silent};
use peat_types::{Env, Result};

use crate::types::Registry;

/// The machine and the process, as the caller resolved them. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    /// Clock, randomness and environment variables.
    pub env: Env,
    /// Version of this program.
    pub version: String,
    /// Current folder of the process, absolute.
    pub cwd: PathBuf,
    /// Repository given by `--repo-dir` or `PEAT_REPO_DIR`.
    pub repo_dir: Option<PathBuf>,
    /// `PEAT_HOME`, or the platform's data folder for Peat; only shared datastores need it.
    pub peat_home: Option<PathBuf>,
    /// Command that runs [`supervise`](crate::supervise): this executable and its hidden subcommand. Empty means that
    /// commands of methods are started without a supervisor, which only tests of fake types want.
    pub supervisor: Vec<OsString>,
    /// For people: who works here.
    pub user: String,
    /// For people: on which machine.
    pub hostname: String,
    /// Is told what takes long.
    pub reporter: Arc<dyn Reporter>,
    /// How hard the journal tries to survive a power cut.
    pub durability: Durability,
    /// Types of models.
    pub types: Registry,
    /// How the heartbeat of a run is driven.
    pub beats: Beats,
    /// How long the programs of methods are waited for.
    pub patience: Patience,
    /// Limits of the ledgers that this process makes.
    pub params: Params,
    /// How a store is opened; tests put a store in memory here.
    pub stores: Arc<dyn crate::store::Opener>,
    /// Variables that make a program part of the trace of the span that starts it; none without a trace.
    pub trace: HandOn,
    /// Who carries on with maintenance after a command; nobody when it does not run by itself.
    pub keeper: Option<Arc<dyn Keeper>>,
}

/// Gives name and value of each variable.
pub type HandOn = Arc<dyn Fn() -> Vec<(&'static str, String)> + Send + Sync>;

/// Who carries on with the maintenance of a ledger without anybody waiting for it.
pub trait Keeper: Send + Sync {
    /// Starts [`maintain_by_itself`](crate::Repo::maintain_by_itself) for the repository in `root` elsewhere.
    ///
    /// # Errors
    /// What the system says. Nothing is lost by it: the next command tries again.
    fn start(&self, root: &Path) -> Result<()>;
}

/// How long the programs of methods are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From asking a program to end to killing it.
    pub grace: Duration,
    /// After its end, for output of processes it left behind.
    pub drain: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { grace: Duration::from_secs(5), drain: Duration::from_secs(5) }
    }
}

/// How the heartbeat of a run is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beats {
    /// On a thread and a runtime of its own, so that a busy method cannot starve it.
    #[default]
    Thread,
    /// Beside the method in the same task, under a simulated clock.
    Inline,
}

impl Host {
    /// A host with the usual parts: nothing is told, built-in types, real stores.
    pub fn new(env: Env, version: impl Into<String>, cwd: PathBuf, peat_home: Option<PathBuf>) -> Self {
        Self {
            env,
            version: version.into(),
            cwd,
            repo_dir: None,
            peat_home,
            supervisor: Vec::new(),
            user: "unknown".to_owned(),
            hostname: "localhost".to_owned(),
            reporter: Arc::new(Silent),
            durability: Durability::Synced,
            types: Registry::builtin(),
            beats: Beats::Thread,
            patience: Patience::default(),
            params: Params::default(),
            stores: Arc::new(crate::store::Real::default()),
            trace: Arc::new(Vec::new),
            keeper: None,
        }
    }

    /// `user@host`, as in records.
    pub fn who(&self) -> String {
        format!("{}@{}", self.user, self.hostname)
    }

    /// A random UUID (version 4).
    pub(crate) fn uuid(&self) -> String {
        uuid::Builder::from_random_bytes(self.env.random_bytes()).into_uuid().to_string()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("cwd", &self.cwd).field("repo_dir", &self.repo_dir).finish_non_exhaustive()
    }
}
