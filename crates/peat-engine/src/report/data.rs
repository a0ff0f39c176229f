//! Reports about data and outputs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use peat_types::{Seq, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::{RunStatus, schema};
use crate::LargeContent;
use crate::record::{Artifacts, Owner, Provenance, RunError};

/// `peat data get`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataView {
    /// Id of the data item.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Id of the definition.
    pub model_id: String,
    /// Name of the definition.
    pub model_name: String,
    /// Normalised type.
    pub model_type: String,
    /// This version.
    pub version: u64,
    /// MIME type.
    pub content_type: String,
    /// How long it should exist.
    pub lifetime: String,
    /// How many versions are kept.
    pub garbage_collection: Value,
    /// Whether it grew while the method ran.
    pub streaming: bool,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Who may add versions.
    pub owner_definition: Owner,
    /// When it was written.
    pub created_at: Timestamp,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// SHA-256 of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Of a state of the past: its entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Seq>,
    /// The file in the local tree; that holds the present only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_path: Option<PathBuf>,
    /// The content, parsed when it is JSON; absent with `--no-content`, when it is larger than 8 MiB, and when it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// The content as it is, for text output.
    #[serde(skip)]
    pub bytes: Option<Bytes>,
    /// Instead of these, a content that is too large to be held in memory.
    #[serde(skip)]
    pub large: Option<LargeContent>,
}

/// An item of `peat data list`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataItem {
    /// Id of the data item.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Newest version.
    pub version: u64,
    /// MIME type.
    pub content_type: String,
    /// Tag `type`.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Whether it grew while the method ran.
    pub streaming: bool,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// When it was written.
    pub created_at: Timestamp,
}

/// Items of one type.
#[derive(Clone, Debug, Serialize)]
pub struct DataGroup {
    /// Tag `type`.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Its items.
    pub items: Vec<DataItem>,
}

/// `peat data list`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataList {
    /// Id of the definition.
    pub model_id: String,
    /// Name of the definition.
    pub model_name: String,
    /// Normalised type.
    pub model_type: String,
    /// Of a state of the past: its entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Seq>,
    /// Items by type.
    pub groups: Vec<DataGroup>,
    /// Number of items.
    pub total: u64,
    /// Items that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<super::Warning>,
}

/// A line of `peat data versions`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVersion {
    /// The version.
    pub version: u64,
    /// When it was written; absent when that is not on this machine and the store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// SHA-256 of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Whether it is the newest.
    pub is_latest: bool,
}

/// `peat data versions`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVersions {
    /// Name of the data item.
    pub data_name: String,
    /// Id of the definition.
    pub model_id: String,
    /// Name of the definition.
    pub model_name: String,
    /// Normalised type.
    pub model_type: String,
    /// Of a state of the past: its entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<Seq>,
    /// Newest first.
    pub versions: Vec<DataVersion>,
    /// How many.
    pub total: u64,
}

/// A line of `peat model output search` and `peat model method history search`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputRow {
    /// Id of the output record.
    pub id: String,
    /// Id of the definition.
    pub definition_id: String,
    /// Its name, when it still exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The method.
    pub method_name: String,
    /// How it ended.
    pub status: RunStatus,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// `peat model output search`.
#[derive(Clone, Debug, Serialize)]
pub struct OutputSearch {
    /// What was searched for.
    pub query: String,
    /// Newest first.
    pub results: Vec<OutputRow>,
    /// Records that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<super::Warning>,
}

/// `peat model output get`, `peat model method history get`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputView {
    /// Id of the output record.
    pub id: String,
    /// Id of the definition.
    pub definition_id: String,
    /// Its name, when it still exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The method.
    pub method_name: String,
    /// How it ended.
    pub status: RunStatus,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// How often it was tried again.
    pub retry_count: u64,
    /// Whether it ran without a lease.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unleased: bool,
    /// What and who made it run.
    pub provenance: Provenance,
    /// What it wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Artifacts>,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// Path of the run log in the datastore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_file: Option<String>,
}

/// `peat model output data`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputData {
    /// Id of the output record.
    pub output_id: String,
    /// The method.
    pub method_name: String,
    /// Id of the data item.
    pub data_id: String,
    /// Its name.
    pub data_name: String,
    /// The version.
    pub version: u64,
    /// MIME type.
    pub content_type: String,
    /// The field asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The content, or the field of it.
    pub data: Value,
}

/// `peat model output logs`, `peat model method history logs`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputLogs {
    /// Id of the output record.
    pub output_id: String,
    /// The method.
    pub method_name: String,
    /// Path of the run log in the datastore; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Log files of the run.
    pub log_artifacts: Vec<String>,
    /// The lines asked for.
    pub lines: Vec<String>,
    /// Lines in the log.
    pub total_lines: u64,
    /// Lines shown.
    pub showing_lines: u64,
}

schema! {
    DataView => "peat.data.get/1",
    DataList => "peat.data.list/1",
    DataVersions => "peat.data.versions/1",
    OutputSearch => "peat.model.output.search/1",
    OutputView => "peat.model.output.get/1",
    OutputData => "peat.model.output.data/1",
    OutputLogs => "peat.model.output.logs/1",
}
