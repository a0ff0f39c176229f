//! What the engine's changes mean: from an intention to operations on the state of the moment.
//!
//! Called at every attempt, so versions, "latest" and ranks come from the view that is given and from nothing else (A2).
//! Appending versions commutes: two runs that ended at once get one number each, whoever comes first.

mod hand;
mod ops;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use peat_clone::{Change, Interrupted, Plan, PlanOp, Planner, REWRITE, Rank, Refusal, View, plan_rewrite};
use peat_types::{Error, Hash, ItemPath, Kind, Result, Timestamp, Unit};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

pub(crate) use hand::{AddedFile, HandChange, RemovedFile};

use crate::definition::Library;
use crate::paths::{self, DataPath, METADATA};
use crate::record::{Artifacts, Output, Owner, RunError, to_yaml};
use crate::report::RunStatus;
use crate::yaml;

/// A run begins: payload [`RunRecord`].
pub(crate) const START: &str = "run.start";
/// A run ends: payload [`RunRecord`].
pub(crate) const END: &str = "run.end";
/// Files of the tree that were changed, added or removed by hand: payload [`HandChange`].
pub(crate) const ADD: &str = "tree.add";
/// Everything a model produced goes.
pub(crate) const DELETE: &str = "model.delete";

/// The start or the end of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunRecord {
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The output record; what it wrote is added at planning.
    pub output: Output,
    /// What it wrote.
    #[serde(default)]
    pub data: Vec<DataWrite>,
    /// Index of the content that is the run log.
    #[serde(default)]
    pub log: Option<usize>,
}

/// A data version to be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DataWrite {
    /// Id for the item, should it be new.
    pub fresh_id: String,
    /// Name of the item.
    pub name: String,
    pub content_type: String,
    pub lifetime: String,
    pub garbage_collection: Value,
    pub streaming: bool,
    pub tags: BTreeMap<String, String>,
    pub owner: Owner,
    pub created_at: Timestamp,
    pub size: u64,
    pub checksum: String,
    /// Index of the content.
    pub content: usize,
}

/// What the end of a run answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunAnswer {
    /// Path of the output record.
    pub output: String,
    /// Path of the run log.
    pub log: Option<String>,
    /// What was written.
    pub data: Vec<Written>,
}

/// A data version as written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    pub id: String,
    pub name: String,
    pub version: u64,
    /// Path of the content.
    pub path: String,
}

/// Versions and outputs among paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Data versions.
    pub versions: u64,
    /// Output records.
    pub outputs: u64,
}

impl Count {
    /// Counts.
    pub fn of<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        let mut count = Self::default();
        for path in paths {
            count.versions += u64::from(DataPath::parse(path).is_some_and(|p| p.file == METADATA));
            count.outputs += u64::from(path.starts_with("outputs/") && path.ends_with(".yaml"));
        }
        count
    }

    /// Whether there is anything.
    pub const fn any(self) -> bool {
        self.versions > 0 || self.outputs > 0
    }
}

/// The engine's planner.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainPlanner {
    /// The repository whose definitions say what models are called.
    root: Option<PathBuf>,
}

impl DomainPlanner {
    /// For a clone of the repository in `root`.
    pub fn of(root: &Path) -> Self {
        Self { root: Some(root.to_owned()) }
    }
}

#[async_trait]
impl Planner for DomainPlanner {
    async fn plan(&self, change: &Change, view: &dyn View) -> Result<Plan, Refusal> {
        let unit = change.units.first().ok_or_else(|| refused(Error::internal("a change without a unit")))?;
        match change.kind.as_str() {
            START => plan_start(&payload(change)?, unit, view).await,
            END => plan_end(change, payload(change)?, unit, view).await,
            DELETE => plan_delete(unit, view).await,
            ADD => hand::plan_add(payload(change)?, change, view).await,
            REWRITE => plan_rewrite(change, view).await,
            other => Err(refused(
                Error::new(Kind::Unsupported, format!("this version of Peat does not know changes of kind '{other}'"))
                    .with_code("unsupported_version")
                    .with_hint("they come from a newer version: settle them with it, by 'peat datastore sync --push'"),
            )),
        }
    }

    fn made_from(&self, change: &Change) -> Vec<(ItemPath, Option<Hash>)> {
        match change.kind.as_str() {
            ADD => payload::<HandChange>(change).map(HandChange::made_from).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn name_of(&self, unit: &Unit) -> String {
        let id = unit.as_str().strip_prefix("model/");
        let known = self.root.as_ref().zip(id).and_then(|(root, id)| {
            let all = Library::new(root).all().ok()?.definitions;
            all.into_iter().find(|definition| definition.id == id)
        });
        known.map_or_else(|| unit.to_string(), |definition| format!("model '{}'", definition.name))
    }

    async fn interrupt(&self, dead: &Interrupted, view: &dyn View) -> Result<Plan, Refusal> {
        let mut plan = Plan::default();
        for item in view.items(&dead.unit, "outputs/")? {
            if item.rank != Rank::Current || !item.path.as_str().ends_with(".yaml") {
                continue;
            }
            let Some(bytes) = view.read(&dead.unit, &item.path).await? else { continue };
            // A record that cannot be read cannot be marked, and must not keep a lease for ever.
            let Ok(mut output) = record::<Output>(&bytes, &item.path) else { continue };
            if output.status != RunStatus::Running || output.unleased {
                continue;
            }
            output.status = RunStatus::Interrupted;
            output.error = Some(RunError {
                message: format!(
                    "the process of this run on {} ended or lost its lease without saying how the run ended",
                    dead.lease.host
                ),
                code: Some("interrupted".to_owned()),
                stack: None,
            });
            ops::put(&mut plan, &dead.unit, item.path, Rank::Current, to_yaml(&output).map_err(refused)?);
        }
        Ok(plan)
    }
}

fn refused(error: Error) -> Refusal {
    Refusal::Refused(error)
}

fn payload<T: DeserializeOwned>(change: &Change) -> Result<T, Refusal> {
    serde_json::from_value(change.payload.clone()).map_err(|e| {
        refused(Error::damaged(format!("the journalled change {} cannot be understood", change.id)).with_source(e))
    })
}

pub(crate) fn record<T: DeserializeOwned>(bytes: &[u8], path: &ItemPath) -> Result<T> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::damaged(format!("the record {path} is not text")))?;
    yaml::from_str(text, path.as_str())
        .map_err(|e| Error::damaged(format!("the record {path} cannot be read")).with_source(e))
}

async fn plan_start(run: &RunRecord, unit: &Unit, view: &dyn View) -> Result<Plan, Refusal> {
    let mut plan = Plan::default();
    let path = ops::output_path(run, unit, view).await?;
    let yaml = paths::with(&path, "yaml").map_err(refused)?;
    ops::put(&mut plan, unit, yaml.clone(), Rank::Current, to_yaml(&run.output).map_err(refused)?);
    ops::rank_outputs(&mut plan, &run.output.definition_id, &yaml, unit, view)?;
    plan.answer = json!({"output": yaml, "log": null, "data": []});
    Ok(plan)
}

async fn plan_end(change: &Change, mut run: RunRecord, unit: &Unit, view: &dyn View) -> Result<Plan, Refusal> {
    let mut plan = Plan::default();
    let mut answer = RunAnswer::default();
    let mut artifacts = Artifacts::default();
    let items = view.items(unit, "data/")?;
    for write in &run.data {
        let (written, artifact) = ops::write_data(&mut plan, &run, write, unit, view, &items).await?;
        answer.data.push(written);
        artifacts.data_artifacts.push(artifact);
    }
    let path = ops::output_path(&run, unit, view).await?;
    let yaml = paths::with(&path, "yaml").map_err(refused)?;
    if let Some(index) = run.log {
        let log = paths::with(&path, "log").map_err(refused)?;
        run.output.log_file = Some(log.to_string());
        answer.log = Some(log.to_string());
        ops::put_journalled(&mut plan, unit, log, index);
    }
    run.output.unleased |= change.unleased;
    if !artifacts.data_artifacts.is_empty() {
        run.output.artifacts = Some(artifacts);
    }
    answer.output = yaml.to_string();
    ops::put(&mut plan, unit, yaml.clone(), Rank::Current, to_yaml(&run.output).map_err(refused)?);
    ops::rank_outputs(&mut plan, &run.output.definition_id, &yaml, unit, view)?;
    plan.answer = serde_json::to_value(answer).unwrap_or_default();
    Ok(plan)
}

/// Refuses while a run is in progress: it may rely on what would go.
async fn no_run(unit: &Unit, view: &dyn View) -> Result<(), Refusal> {
    for item in view.items(unit, "leases/")? {
        let Some(bytes) = view.read(unit, &item.path).await? else { continue };
        let lease: Option<peat_clone::Lease> = serde_json::from_slice(&bytes).ok();
        if let Some(lease) = lease.filter(|lease| lease.held) {
            return Err(refused(
                Error::new(
                    Kind::Contended,
                    format!(
                        "a run of this model by {}@{} is in progress since {}",
                        lease.user, lease.host, lease.since
                    ),
                )
                .with_hint("wait for its end, or end it with 'peat model cancel <model>'")
                .with_hint("'peat datastore lock status' shows who holds it"),
            ));
        }
    }
    Ok(())
}

async fn plan_delete(unit: &Unit, view: &dyn View) -> Result<Plan, Refusal> {
    no_run(unit, view).await?;
    let mut plan = Plan::default();
    for item in view.items(unit, "")? {
        // The lease record stays: its generation never decreases.
        if !item.path.as_str().starts_with("leases/") {
            plan.ops.push(PlanOp::Delete { unit: unit.clone(), path: item.path });
        }
    }
    Ok(plan)
}
