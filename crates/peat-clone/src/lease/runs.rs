//! The runs of this process, and the files that tell other processes of this clone whether a run lives.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peat_types::{ChangeId, Error, Result, RunNonce, Seq, Unit};
use serde::{Deserialize, Serialize};

use crate::files::{self, Lock};

/// `run/<nonce>.run`, locked by the run's process for as long as that lives.
#[derive(Debug, Serialize, Deserialize)]
struct RunFile {
    start: ChangeId,
    units: Vec<Unit>,
}

/// A run whose process is gone. Locked, so that only one process buries it.
pub(crate) struct DeadRun {
    pub(crate) nonce: RunNonce,
    pub(crate) start: ChangeId,
    pub(crate) units: Vec<Unit>,
    #[allow(dead_code)] // held
    lock: Lock,
}

/// The folder, and what this process does.
pub(crate) struct Runs {
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sequence number in the name of this instance's beat; fixed from its first run on.
    base: Option<Seq>,
    live: BTreeSet<RunNonce>,
    count: u64,
    last: Option<Duration>,
}

impl Runs {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, nonce: RunNonce) -> PathBuf {
        self.dir.join(format!("{nonce}.run"))
    }

    pub(crate) fn base(&self) -> Seq {
        self.state().base.unwrap_or_default()
    }

    pub(crate) fn set_base(&self, head: Seq) {
        self.state().base.get_or_insert(head);
    }

    /// Makes the file of a run and keeps it locked. It is locked before anybody can see it.
    pub(crate) fn announce(&self, nonce: RunNonce, start: ChangeId, units: &[Unit]) -> Result<Lock> {
        let path = self.file(nonce);
        let temp = self.dir.with_file_name(files::TEMP).join(nonce.to_string());
        let text = serde_json::to_vec(&RunFile { start, units: units.to_vec() })
            .map_err(|e| Error::internal("cannot write JSON").with_source(e))?;
        std::fs::write(&temp, text).map_err(|e| Error::io("write", &temp, e))?;
        let lock = Lock::try_existing(&temp)?
            .ok_or_else(|| Error::internal("the file of a new run is locked by another process"))?;
        std::fs::rename(&temp, &path).map_err(|e| Error::io("write", &path, e))?;
        Ok(lock)
    }

    /// The run is over for everybody: it ended, or its lease is somebody else's.
    pub(crate) fn retire(&self, nonce: RunNonce) {
        self.leave(nonce);
        if let Err(error) = files::remove(&self.file(nonce)) {
            tracing::debug!(%error, "the file of a run stays until the next settling");
        }
    }

    /// Whether a run of this clone is provably gone: its file is there and nobody holds it. A missing file proves
    /// nothing (A4).
    pub(crate) fn is_dead(&self, nonce: RunNonce) -> Result<bool> {
        Ok(Lock::try_existing(&self.file(nonce))?.is_some())
    }

    /// Whether a process of this clone holds the run's file.
    pub(crate) fn is_alive(&self, nonce: RunNonce) -> Result<bool> {
        let path = self.file(nonce);
        Ok(path.exists() && Lock::try_existing(&path)?.is_none() && path.exists())
    }

    /// All runs of this clone whose processes are gone.
    pub(crate) fn dead(&self) -> Result<Vec<DeadRun>> {
        let mut out = Vec::new();
        for name in files::names(&self.dir, ".run")? {
            let Ok(nonce) = name.parse::<RunNonce>() else { continue };
            let path = self.file(nonce);
            let Some(lock) = Lock::try_existing(&path)? else { continue };
            let Some(bytes) = files::read(&path)? else { continue };
            match serde_json::from_slice::<RunFile>(&bytes) {
                Ok(RunFile { start, units }) => out.push(DeadRun { nonce, start, units, lock }),
                Err(error) => {
                    // Written in one step, so this is damage; its lease will be found by its missing beats.
                    tracing::warn!(%error, path = %path.display(), "a run's file cannot be read");
                    files::remove(&path)?;
                }
            }
        }
        Ok(out)
    }

    pub(crate) fn forget(&self, dead: &DeadRun) -> Result<()> {
        files::remove(&self.file(dead.nonce))
    }

    pub(crate) fn enter(&self, nonce: RunNonce) {
        self.state().live.insert(nonce);
    }

    pub(crate) fn leave(&self, nonce: RunNonce) {
        self.state().live.remove(&nonce);
    }

    pub(crate) fn live(&self) -> Vec<RunNonce> {
        self.state().live.iter().copied().collect()
    }

    /// Number of the next beat, unless one went out within `recent`.
    pub(crate) fn next_beat(&self, now: Duration, recent: Duration) -> Option<u64> {
        let mut state = self.state();
        if state.last.is_some_and(|last| now.saturating_sub(last) < recent) {
            return None;
        }
        state.count += 1;
        Some(state.count)
    }

    pub(crate) fn beaten(&self, now: Duration) {
        self.state().last = Some(now);
    }

    /// When the last beat got through.
    pub(crate) fn last_beat(&self) -> Option<Duration> {
        self.state().last
    }
}
