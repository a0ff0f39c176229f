//! One of the two machines: a repo, a home, a counter of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peat_clone::Silent;
use peat_engine::{Host, Real, Repo};
use peat_objects::{Meter, OpenOptions};
use peat_types::{Error, Result};

use super::Step;
use crate::context::Context;
use crate::stats::Stats;

/// A machine with one repo.
pub(super) struct Machine<'a> {
    pub name: &'static str,
    pub root: PathBuf,
    host: Host,
    meter: Meter,
    cx: &'a Context,
}

impl<'a> Machine<'a> {
    /// A machine below `folder`, with an empty folder for its repo.
    pub fn new(name: &'static str, folder: &Path, cx: &'a Context) -> Result<Self> {
        let root = folder.join(name).join("ops");
        std::fs::create_dir_all(&root).map_err(|e| Error::io("make the folder", &root, e))?;
        let meter = Meter::default();
        let mut host = cx.host()?;
        host.cwd.clone_from(&root);
        host.repo_dir = Some(root.clone());
        host.peat_home = Some(folder.join(name).join("home"));
        host.user = name.to_owned();
        host.hostname = format!("{name}s-machine");
        // The waits of the demo are part of the story.
        host.reporter = Arc::new(Silent);
        host.stores = Arc::new(Real { options: OpenOptions { meter: Some(meter.clone()), ..OpenOptions::default() } });
        Ok(Self { name, root, host, meter, cx })
    }

    /// The machine as the engine sees it.
    pub fn host(&self) -> Host {
        self.host.clone()
    }

    /// Its repo, as a new command would find it.
    pub fn repo(&self) -> Result<Repo> {
        Repo::find(self.host())
    }

    /// Does something that `peat <command>` does, and says what it cost. `does` gives what came out, and whether it should.
    pub async fn step(&self, command: &str, does: impl Future<Output = Result<(String, bool)>>) -> Result<Step> {
        let (counted, began) = (self.meter.snapshot(), self.cx.env.monotonic());
        let (outcome, passed) = does.await?;
        let took = self.cx.env.monotonic().saturating_sub(began);
        let cost = Stats::new(&self.meter.since(&counted), took, None);
        Ok(Step { who: self.name, command: format!("peat {command}"), outcome, passed, cost })
    }

    /// What it asked of the store since `earlier`, for steps that two machines take at once.
    pub fn cost(&self, earlier: &peat_objects::Counts, took: Duration) -> Stats {
        Stats::new(&self.meter.since(earlier), took, None)
    }

    /// Its counter now.
    pub fn counted(&self) -> peat_objects::Counts {
        self.meter.snapshot()
    }
}
