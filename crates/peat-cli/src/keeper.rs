//! Maintenance in a process of its own, which the command that starts it does not wait for.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use peat_engine::{HandOn, Keeper};
use peat_types::{Error, Result};

/// Turns maintenance by itself off when it is `off`.
pub(crate) const VARIABLE: &str = "PEAT_MAINTENANCE";

/// This executable, and what makes it part of the trace of the command that starts it.
pub(crate) struct Child {
    pub exe: PathBuf,
    pub trace: HandOn,
}

impl Keeper for Child {
    // It goes on when this process has ended, which is soon; the system reaps it then.
    #[allow(clippy::zombie_processes)]
    fn start(&self, root: &Path) -> Result<()> {
        let mut child = Command::new(&self.exe);
        child.args(["ledger", "maintain", "--by-itself", "--quiet", "--repo-dir"]).arg(root);
        // (A run lends its lease to its children by the environment; this one is none of the run's.)
        child
            .envs((self.trace)())
            .env(VARIABLE, "off")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        child.current_dir(root).spawn().map(drop).map_err(|e| Error::io("start", &self.exe, e))
    }
}
