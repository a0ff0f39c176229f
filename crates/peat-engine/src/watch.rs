//! Following a namespace: changes in the words of the domain, and a command for each.

mod exec;

use std::collections::HashMap;
use std::time::Duration;

use peat_clone::{FileRow, Jumped, OpRecord, UnitOps, Watch, WatchOptions, Watched, WatchedChange};
use peat_types::{ItemPath, Result, Seq, Unit};

use crate::Repo;
use crate::names::check_old_name;
use crate::paths::{DataPath, METADATA, OutputPath};
use crate::planner::record;
use crate::record::{Metadata, Output};
use crate::report::{WatchChange, WatchData, WatchEvent, WatchItem, WatchOutput, WatchUnit};

pub use exec::{Exec, ExecNews, Executed, OnFailure};

/// How long names of definitions are believed. They are read from the work tree, which may hold many.
const NAMES: Duration = Duration::from_secs(5);
/// Shortest `interval`.
const SHORTEST: Duration = Duration::from_millis(100);

/// `peat datastore watch`.
#[derive(Clone, Debug)]
pub struct WatchRequest {
    /// Name of the cursor.
    pub name: String,
    /// Where a new cursor begins: after this entry, or after the newest.
    pub since: Option<u64>,
    /// Longest pause between two looks at the store; at least 100 ms.
    pub interval: Duration,
    /// Only changes of this model.
    pub model: Option<String>,
}

/// A namespace that is followed. What was given by [`next`](Self::next) or [`poll`](Self::poll) is given again, in this
/// process and the next, until [`done`](Self::done).
#[derive(Debug)]
pub struct Follow {
    repo: Repo,
    watch: Watch,
    only: Option<Unit>,
    names: HashMap<String, String>,
    named_at: Option<Duration>,
}

impl Repo {
    /// Follows the namespace.
    ///
    /// # Errors
    /// `watch_taken` (kind `Contended`), `model_not_found`, and those of opening the clone.
    pub async fn watch(&self, request: &WatchRequest) -> Result<Follow> {
        let only = match &request.model {
            Some(wanted) => Some(self.definition(wanted)?.unit()?),
            None => None,
        };
        let options = WatchOptions {
            name: request.name.clone(),
            since: request.since.map(Seq),
            interval: request.interval.max(SHORTEST),
        };
        let watch = self.clone_of().await?.watch(&options).await?;
        Ok(Follow { repo: self.clone(), watch, only, names: HashMap::new(), named_at: None })
    }
}

impl Follow {
    /// The last entry that is done.
    pub fn seq(&self) -> Seq {
        self.watch.seq()
    }

    /// Whether nobody followed under this name before.
    pub fn is_new(&self) -> bool {
        self.watch.is_new()
    }

    /// The next change, waiting until there is one. May be cancelled at any time.
    ///
    /// # Errors
    /// Those that trying again does not help against, such as `rollback` and `fork`.
    pub async fn next(&mut self) -> Result<WatchEvent> {
        loop {
            let seen = self.watch.next().await?;
            if self.wanted(&seen) {
                return Ok(self.event(seen).await);
            }
            self.watch.pass();
        }
    }

    /// The next change, if there is one now.
    ///
    /// # Errors
    /// As [`next`](Self::next), and when the store does not answer.
    pub async fn poll(&mut self) -> Result<Option<WatchEvent>> {
        while let Some(seen) = self.watch.poll().await? {
            if self.wanted(&seen) {
                return Ok(Some(self.event(seen).await));
            }
            self.watch.pass();
        }
        Ok(None)
    }

    /// What was given last is done: remembered durably.
    ///
    /// # Errors
    /// When it could not be remembered; it is then given again.
    pub async fn done(&mut self) -> Result<()> {
        self.watch.done().await
    }

    fn wanted(&self, seen: &Watched) -> bool {
        let Some(only) = &self.only else { return true };
        match seen {
            Watched::Change(change) => change.head.units.iter().any(|unit| unit.unit == *only),
            Watched::Jumped(jumped) => jumped.changed.iter().chain(&jumped.removed).any(|unit| unit == only),
        }
    }

    async fn event(&mut self, seen: Watched) -> WatchEvent {
        self.read_names();
        match seen {
            Watched::Change(change) => self.change(&change).await,
            Watched::Jumped(jumped) => self.jump(&jumped),
        }
    }

    /// Names are a convenience: a work tree that cannot be read is none of a follower's business.
    fn read_names(&mut self) {
        let now = self.repo.host().env.monotonic();
        if self.named_at.is_none_or(|at| now.saturating_sub(at) >= NAMES) {
            self.names = self.repo.model_names().unwrap_or_default();
            self.named_at = Some(now);
        }
    }

    fn unit(&self, unit: &Unit) -> WatchUnit {
        WatchUnit {
            model_name: definition_of(unit).and_then(|id| self.names.get(id)).cloned(),
            unit: unit.to_string(),
            removed: false,
            data: Vec::new(),
            outputs: Vec::new(),
            put: Vec::new(),
            deleted: Vec::new(),
        }
    }

    fn jump(&self, jumped: &Jumped) -> WatchEvent {
        let changed = jumped.changed.iter().map(|unit| self.unit(unit));
        let removed = jumped.removed.iter().map(|unit| WatchUnit { removed: true, ..self.unit(unit) });
        let units = changed.chain(removed).collect();
        WatchEvent { event: "jumped", seq: jumped.to, from: Some(jumped.from), change: None, units }
    }

    async fn change(&self, change: &WatchedChange) -> WatchEvent {
        let head = &change.head;
        let mut units = Vec::new();
        for touched in &head.units {
            let ops = change.ops.iter().find(|ops| ops.unit == touched.unit);
            units.push(match ops {
                Some(ops) => self.changed(ops).await,
                None => self.unit(&touched.unit),
            });
        }
        let kind = serde_json::to_value(head.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
        let about = WatchChange {
            change: head.change,
            tx: head.tx,
            kind: kind.unwrap_or_default(),
            time: head.time,
            author: head.author.clone(),
            message: head.message.clone(),
        };
        WatchEvent { event: "change", seq: change.seq, from: None, change: Some(about), units }
    }

    async fn changed(&self, ops: &UnitOps) -> WatchUnit {
        let mut unit = self.unit(&ops.unit);
        let definition = definition_of(&ops.unit).unwrap_or_default();
        for op in &ops.ops {
            match op {
                OpRecord::Put(path, _, _) if path.as_str().starts_with("leases/") => {}
                OpRecord::Put(path, _, row) => {
                    unit.put.push(WatchItem { path: path.to_string(), size: row.size });
                    if let Some(data) = DataPath::parse(path.as_str()) {
                        let version = WatchData { name: data.name.to_owned(), version: data.version };
                        if !unit.data.contains(&version) {
                            unit.data.push(version);
                        }
                        if data.file == METADATA && unit.model_name.is_none() {
                            unit.model_name = self.name_in(path, row).await;
                        }
                    }
                    if let Some(output) = OutputPath::parse(path.as_str(), definition).filter(|output| !output.log) {
                        let read: Option<Output> = self.read(path, row).await;
                        unit.outputs.push(WatchOutput {
                            id: read.as_ref().map(|output| output.id.clone()),
                            method_name: output.method.to_owned(),
                            status: read.map(|output| output.status.as_str().to_owned()),
                        });
                    }
                }
                OpRecord::Delete(path) => unit.deleted.push(path.to_string()),
                OpRecord::Rank(..) => {}
            }
        }
        unit
    }

    /// The name that a model had when it wrote data.
    async fn name_in(&self, path: &ItemPath, row: &FileRow) -> Option<String> {
        let metadata: Metadata = self.read(path, row).await?;
        metadata.tags.get("modelName").filter(|name| check_old_name(name).is_ok()).cloned()
    }

    /// A record that came with a change. What cannot be read is left out: that must not hold up what follows.
    async fn read<T: serde::de::DeserializeOwned>(&self, path: &ItemPath, row: &FileRow) -> Option<T> {
        let contents = self.watch.contents(&[row]).await.ok()?;
        record(contents.first()?, path).ok()
    }
}

fn definition_of(unit: &Unit) -> Option<&str> {
    unit.as_str().strip_prefix("model/")
}
