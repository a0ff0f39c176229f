//! Records in the ledger: output records and metadata of data versions, as YAML with the names every reader knows.

use std::collections::BTreeMap;

use peat_types::{Result, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::report::RunStatus;

/// Who may add versions to a data item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// `model-method`, `workflow-step` or `manual`.
    pub owner_type: String,
    /// Id of the definition, or who.
    pub owner_ref: String,
    /// Hash of the definition that the producing run saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition_hash: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Owner {
    /// Whether `other` is the same owner: kind and reference count, nothing else.
    pub fn same(&self, other: &Self) -> bool {
        self.owner_type == other.owner_type && self.owner_ref == other.owner_ref
    }
}

/// Metadata of one version of a data item (`metadata.yaml`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Id of the data item, the same over its versions.
    pub id: String,
    /// Name of the data item.
    pub name: String,
    /// The version.
    pub version: u64,
    /// MIME type.
    pub content_type: String,
    /// How long it should exist.
    pub lifetime: String,
    /// How many versions, or which age, are kept.
    pub garbage_collection: Value,
    /// Whether it grew while the method ran.
    #[serde(default)]
    pub streaming: bool,
    /// Its tags; `type` is always there.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Who may add versions.
    pub owner_definition: Owner,
    /// When it was written.
    pub created_at: Timestamp,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// SHA-256 of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// `deleted` on a tombstone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,
    /// Where a tombstone points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_to: Option<String>,
}

/// What made a run happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Provenance {
    /// Hash of the definition as it was.
    pub definition_hash: String,
    /// Version of the type.
    pub model_version: String,
    /// `manual`, `workflow` or `model`.
    pub triggered_by: String,
    /// Who started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiated_by: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Why a run did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// One line.
    pub message: String,
    /// Slug.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Where it happened, when a program said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
}

/// A data version that a run wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataArtifact {
    /// Id of the data item.
    pub data_id: String,
    /// Its name.
    pub name: String,
    /// The version.
    pub version: u64,
    /// Its tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// What a run wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Artifacts {
    /// Data versions.
    pub data_artifacts: Vec<DataArtifact>,
}

/// The record of one method call (`outputs/<type>/<method>/<definition id>-<stamp>.yaml`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Its id.
    pub id: String,
    /// Id of the definition.
    pub definition_id: String,
    /// The method.
    pub method_name: String,
    /// How it stands.
    pub status: RunStatus,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// How often it was tried again.
    #[serde(default)]
    pub retry_count: u64,
    /// Whether it ran without a lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unleased: bool,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// What made it run.
    pub provenance: Provenance,
    /// What it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Artifacts>,
    /// Path of its log, relative to the datastore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_file: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The bytes of a record.
pub(crate) fn to_yaml<T: Serialize>(record: &T) -> Result<Vec<u8>> {
    crate::yaml::to_string(record).map(String::into_bytes)
}
