//! Reports about runs.

use peat_types::{ChangeId, Seq};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::schema;

/// State of a run, in reports and in output records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Announced, not begun.
    Pending,
    /// Begun.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly, a time-out included.
    Failed,
    /// Somebody stopped it.
    Cancelled,
    /// Its process died; what it did is unknown.
    Interrupted,
}

impl RunStatus {
    /// The word used in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// An item of data that a run wrote.
#[derive(Clone, Debug, Serialize)]
pub struct Artifact {
    /// Id of the data item, the same over its versions; absent while the change is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the data item.
    pub name: String,
    /// The version written; absent while the change is pending, because versions are given at the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Path of the content in the datastore; absent while the change is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Content of a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Value>,
}

/// `peat model method run`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// Id of the definition.
    pub model_id: String,
    /// Its name.
    pub model_name: String,
    /// Normalised type.
    pub model_type: String,
    /// The method.
    pub method_name: String,
    /// How it ended.
    pub status: RunStatus,
    /// Milliseconds from start to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<u64>,
    /// Id of the output record.
    pub output_id: String,
    /// Path of the run log in the datastore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_file: Option<String>,
    /// What it wrote.
    pub data_artifacts: Vec<Artifact>,
    /// Arguments visible to every method.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub global_arguments: Map<String, Value>,
    /// Arguments the method was given.
    pub method_arguments: Map<String, Value>,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Slug of `error` (`method_execution_failed`, `cancelled`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Whether it ran without a lease (`--offline`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unleased: bool,
    /// The log entry that holds its end; absent while that is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The change that holds its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeId>,
    /// Who started it.
    pub initiated_by: String,
    /// What deserves attention.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A run that was cancelled.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelledRun {
    /// Id of the output record.
    pub id: String,
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Name of the definition.
    pub model_name: String,
    /// The method.
    pub method: String,
    /// What became of it: `cancelled`, `interrupted` (its process was dead already) or `cancelling` (it has been told
    /// and has not ended yet).
    pub status: String,
}

/// `peat model cancel`.
#[derive(Clone, Debug, Serialize)]
pub struct CancelReport {
    /// Id of the output, when one model was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What became of it, when one model was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The runs that were told to end.
    pub cancelled: Vec<CancelledRun>,
    /// How many.
    pub count: u64,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

schema! {
    RunReport => "peat.model.method.run/1",
    CancelReport => "peat.model.cancel/1",
}
