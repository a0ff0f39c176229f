//! The runs of this machine, so that another process can end them.
//!
//! `<clone>/runs/<output id>.json` is locked by the running process: a lock that can be had proves that it is dead.
//! `<output id>.cancel` beside it ends the run; its supervisor looks for it.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use peat_types::{Env, Error, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Definition, Output, Reason};

/// How often the cancel file is looked for.
const POLL: Duration = Duration::from_millis(200);

/// A run as its file says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalRun {
    pub output_id: String,
    pub definition_id: String,
    pub model_name: String,
    #[serde(rename = "type")]
    pub type_name: String,
    pub method_name: String,
    pub started_at: Timestamp,
    pub pid: u32,
}

/// The folder of the runs of a clone.
#[derive(Debug)]
pub(crate) struct LocalRuns {
    dir: PathBuf,
}

/// A run that is entered; leaving removes it.
#[derive(Debug)]
pub(crate) struct Entered {
    path: PathBuf,
    // Holds the lock.
    _file: File,
}

impl LocalRuns {
    pub fn new(clone: &Path) -> Self {
        Self { dir: clone.join("runs") }
    }

    /// Enters a run of this process.
    pub fn enter(&self, env: &Env, definition: &Definition, output: &Output) -> Result<Entered> {
        fs::create_dir_all(&self.dir).map_err(|e| Error::io("make the folder", &self.dir, e))?;
        let run = LocalRun {
            output_id: output.id.clone(),
            definition_id: definition.id.clone(),
            model_name: definition.name.clone(),
            type_name: definition.type_name.clone(),
            method_name: output.method_name.clone(),
            started_at: output.started_at,
            pid: std::process::id(),
        };
        let path = self.dir.join(format!("{}.json", output.id));
        let temp = self.dir.join(format!(".{}.tmp", u64::from_le_bytes(env.random_bytes())));
        let entered = (|| {
            let mut file = File::create_new(&temp)?;
            // Locked before it has its name, so that nobody takes it for a dead one.
            file.lock()?;
            file.write_all(&serde_json::to_vec(&run)?)?;
            fs::rename(&temp, &path)?;
            Ok(file)
        })();
        match entered {
            Ok(file) => {
                if let Ok(now) = file.metadata().and_then(|meta| meta.modified()) {
                    self.sweep(now);
                }
                Ok(Entered { path, _file: file })
            }
            Err(e) => {
                let _ = fs::remove_file(&temp);
                Err(Error::io("write", &path, e))
            }
        }
    }

    /// Removes what processes that were killed have left.
    fn sweep(&self, now: SystemTime) {
        for run in self.list().unwrap_or_default() {
            self.alive(&run);
        }
        for path in fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let orphan = match path.extension().and_then(|e| e.to_str()) {
                // Asked of a run that had ended, or printed by one that was killed.
                Some("cancel" | "stdout" | "stderr") => !path.with_extension("json").exists(),
                Some("tmp") => true,
                _ => false,
            };
            if orphan && crate::files::is_left_over(&path, now) {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// The runs entered here, dead ones included, oldest first.
    pub fn list(&self) -> Result<Vec<LocalRun>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("list", &self.dir, e)),
        };
        let mut runs: Vec<LocalRun> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "json"))
            // One that just ended is gone by now.
            .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
            .collect();
        runs.sort_by_key(|run| run.started_at);
        Ok(runs)
    }

    /// Whether the process of a run lives. The file of a dead one is removed.
    pub fn alive(&self, run: &LocalRun) -> bool {
        let path = self.dir.join(format!("{}.json", run.output_id));
        let Ok(file) = File::open(&path) else { return false };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => true,
            // Locks that do not work prove nothing; better to wait for a dead one than to give up a live one.
            Err(TryLockError::Error(_)) => true,
            Ok(()) => {
                remove(&path);
                false
            }
        }
    }

    /// Asks a run to end.
    pub fn cancel(&self, env: &Env, run: &LocalRun, reason: &str) -> Result<()> {
        crate::files::write(env, &self.dir.join(format!("{}.cancel", run.output_id)), reason.as_bytes())
    }
}

impl Entered {
    /// Resolves once somebody asked for the end of the run. A program is ended by its supervisor, which looks at the same
    /// file, even when this process is busy; this is for everything else.
    pub async fn cancelled(&self, env: &Env) -> Reason {
        let file = self.cancel_file();
        loop {
            env.sleep(POLL).await;
            if file.exists() {
                let text = fs::read_to_string(&file).unwrap_or_default();
                return Reason::Request(text.trim().to_owned());
            }
        }
    }

    /// Beginning of the names of files for what the run prints.
    pub fn scratch(&self) -> PathBuf {
        self.path.with_extension("")
    }

    /// The file whose existence ends the run.
    pub fn cancel_file(&self) -> PathBuf {
        self.path.with_extension("cancel")
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    // Left-over files are noticed and removed by whoever looks next.
    for beside in ["cancel", "stdout", "stderr"] {
        let _ = fs::remove_file(path.with_extension(beside));
    }
    let _ = fs::remove_file(path);
}
