//! Reports about synchronising, and about files that were changed by hand.

use std::path::{Path, PathBuf};

use peat_types::Seq;
use serde::Serialize;

use super::{PendingChange, schema};

/// `peat datastore sync`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncReport {
    /// `pull`, `push` or `sync`.
    pub mode: String,
    /// Changes committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes_committed: Option<u64>,
    /// Items those changes set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_pushed: Option<u64>,
    /// Items deleted, by changes that waited in the journal or because their files were removed by hand and that was asked
    /// for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_deleted: Option<u64>,
    /// Changes that waited in the journal and were committed now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<PendingChange>,
    /// Items that others set or removed, and such whose files were brought back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_pulled: Option<u64>,
    /// Bytes downloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_pulled: Option<u64>,
    /// Where the clone stood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Seq>,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Seq>,
    /// Runs of dead processes that were marked as interrupted.
    pub interrupted: u64,
    /// Changes put aside now.
    pub parked: Vec<PendingChange>,
    /// Changes that could not be sent.
    pub pending: Vec<PendingChange>,
    /// Files of the tree that were not what the datastore holds, and where what they held is now.
    pub aside: Vec<AsideFile>,
    /// Files of the tree that were changed by hand and are not committed, without those that this refused to.
    pub by_hand: u64,
    /// Files that were put into the tree and removed by hand, and are not deleted in the datastore, without those that this
    /// refused to delete.
    pub missing: u64,
    /// What went wrong, one line each. Not empty means exit status 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// A file that a pull put aside.
#[derive(Clone, Debug, Serialize)]
pub struct AsideFile {
    /// Its path in the tree.
    pub path: String,
    /// Where its content is.
    pub kept: PathBuf,
}

impl AsideFile {
    /// Where all such files of the clone are, each in a folder of its own.
    pub fn folder(&self) -> Option<&Path> {
        self.kept.ancestors().nth(self.path.split('/').count() + 1)
    }
}

/// A file of the tree that was changed by hand.
#[derive(Clone, Debug, Serialize)]
pub struct ByHandFile {
    /// Its path in the tree.
    pub path: String,
    /// `new`, `modified` or `missing`.
    pub kind: String,
    /// Its size in bytes.
    pub size: u64,
}

/// A file that cannot be committed.
#[derive(Clone, Debug, Serialize)]
pub struct SkippedFile {
    /// Its path in the tree.
    pub path: String,
    /// Why.
    pub why: String,
}

/// `peat add`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddReport {
    /// Whether this is only the plan.
    pub dry_run: bool,
    /// Sum of the sizes of what is new or modified.
    pub bytes: u64,
    /// Items that were, or are to be, deleted: those whose file is missing.
    pub deletes: u64,
    /// Files that were, or are to be, committed.
    pub files: Vec<ByHandFile>,
    /// Files that cannot be.
    pub skipped: Vec<SkippedFile>,
    /// The entries that hold them.
    pub entries: Vec<Seq>,
}

/// What a pull would do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PulledPlan {
    /// Where the clone stands.
    pub from: Option<Seq>,
    /// Where it would stand.
    pub to: Seq,
    /// Whether the numbers can be told; a clone that is far behind compares directories.
    pub exact: bool,
    /// Items set, and files brought back.
    pub puts: u64,
    /// Items removed.
    pub deletes: u64,
    /// Bytes of the items set and brought back.
    pub bytes: u64,
}

/// `peat datastore sync --dry-run`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncPlan {
    /// `pull`, `push` or `sync`.
    pub mode: String,
    /// Pending changes that would be sent.
    pub changes: Vec<PendingChange>,
    /// Files of the tree that were changed by hand, sent with `--push`; missing ones are deleted with `--deletes`, too.
    pub by_hand: Vec<ByHandFile>,
    /// Files that cannot be.
    pub skipped: Vec<SkippedFile>,
    /// Items that would be set in the datastore.
    pub puts: u64,
    /// Items that would be deleted in the datastore.
    pub deletes: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Requests at least: one create for each change when nobody else writes, one look, one for each new entry.
    pub requests: u64,
    /// What would be fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<PulledPlan>,
    /// What was changed on both sides.
    pub conflicts: Vec<String>,
    /// Why the run would stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
}

schema! {
    AddReport => "peat.add/1",
    SyncPlan => "peat.datastore.sync.plan/1",
    SyncReport => "peat.datastore.sync/1",
}
