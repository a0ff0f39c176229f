//! Reports about where the datastore is: setting it up, moving it, its namespaces.

use std::path::PathBuf;

use peat_types::{LedgerId, Namespace, Seq, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::schema;

/// What a setup does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SetupAction {
    /// Makes a namespace.
    Create,
    /// Uses one that is there.
    Join,
    /// Uses the one that the present ledger moved to.
    Follow,
    /// Moves the present ledger there.
    Move,
}

impl SetupAction {
    /// Its word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Join => "join",
            Self::Follow => "follow",
            Self::Move => "move",
        }
    }
}

/// `peat datastore setup`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreSetup {
    /// `file`, `s3`, `gs` or `az`.
    #[serde(rename = "type")]
    pub kind: String,
    /// URL of the store.
    pub url: String,
    /// Namespace.
    pub namespace: Namespace,
    /// What is done.
    pub action: SetupAction,
    /// Whether it was the datastore of the repository before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub already: bool,
    /// Whether this is only the plan.
    pub dry_run: bool,
    /// Identity of the ledger, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerId>,
    /// Whether this call made the namespace.
    pub created: bool,
    /// Folder of the clone.
    pub clone_path: PathBuf,
    /// URL of the store that the ledger is moved from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Units taken along.
    pub units_copied: u64,
    /// Items taken along.
    pub items_copied: u64,
    /// Objects that were, or are to be, copied.
    pub objects_copied: u64,
    /// Bytes of them.
    pub bytes_copied: u64,
    /// Objects that an earlier attempt had copied already.
    pub objects_there: u64,
    /// Pending changes taken over from the clone used before.
    pub pending_taken: u64,
    /// Items fetched, when everything could be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_pulled: Option<u64>,
    /// Bytes of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_pulled: Option<u64>,
    /// The store used before, when it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The namespace that `from` and `kept` are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_namespace: Option<String>,
    /// What the probe of the store found.
    pub probe: Value,
    /// What deserves attention.
    pub warnings: Vec<String>,
}

/// `peat datastore setup --cleanup`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreCleanup {
    /// URL of the store that is cleaned up.
    pub store: String,
    /// Namespace.
    pub namespace: Namespace,
    /// Whether this is only the plan.
    pub dry_run: bool,
    /// Objects that were, or are to be, removed.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Objects that could not be removed.
    pub left: u64,
    /// What the store said when it refused a deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
}

/// A namespace of a store.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceRow {
    /// Its name.
    pub namespace: Namespace,
    /// The repository it belongs to.
    pub repo_id: String,
    /// When it was made, by its maker's clock.
    pub registered_at: Timestamp,
    /// Whether this repository uses it now.
    pub is_current: bool,
    /// Whether it belongs to this repository.
    pub is_own: bool,
    /// Identity of the ledger.
    pub ledger: LedgerId,
    /// Where its ledger went, of one of this repository: it is not used any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
}

/// `peat datastore namespace list`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceList {
    /// URL of the store.
    pub store: String,
    /// The one in use.
    pub current_namespace: Namespace,
    /// By name.
    pub namespaces: Vec<NamespaceRow>,
    /// Those whose `ns.json` cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Namespace>,
    /// Whether only the one in use could be seen, because the store may not be listed.
    pub limited: bool,
}

/// What is known here of another namespace.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogNamespace {
    /// Its name.
    pub namespace: Namespace,
    /// The repository it belongs to.
    pub repo_id: String,
    /// Models it has data of.
    pub models: Vec<String>,
    /// Units.
    pub units: u64,
    /// Items.
    pub items: u64,
    /// Items that changed since the last look.
    pub changed: u64,
    /// Everything up to this entry is known.
    pub position: Seq,
}

/// `peat datastore catalog pull`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogPull {
    /// In the order asked for.
    pub namespaces: Vec<CatalogNamespace>,
}

schema! {
    DatastoreSetup => "peat.datastore.setup/2",
    DatastoreCleanup => "peat.datastore.cleanup/1",
    NamespaceList => "peat.datastore.namespace.list/1",
    CatalogPull => "peat.datastore.catalog.pull/1",
}
