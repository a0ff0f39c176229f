//! Report about rights.

use serde::Serialize;
use serde_json::Value;

use super::schema;

/// What somebody does with a datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads: pull, status, data, verify.
    Reader,
    /// Reads, runs methods, commits, makes checkpoints.
    Writer,
    /// A writer who also frees what is not needed any more.
    Gc,
}

/// `peat datastore policy`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastorePolicy {
    /// Whose rights.
    pub role: Role,
    /// `s3`, `gs` or `az`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bucket or container.
    pub bucket: String,
    /// Folder in it to which the rights are to reach.
    pub folder: String,
    /// The rights, as the service names them.
    pub rights: Vec<String>,
    /// A role of the service that holds them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_role: Option<String>,
    /// The policy, for S3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Value>,
}

schema! {
    DatastorePolicy => "peat.datastore.policy/1",
}
