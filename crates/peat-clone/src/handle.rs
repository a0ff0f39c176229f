//! The handle.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use peat_ledger::{LogLine, NsInfo, Verified};
use peat_types::{ChangeId, CloneId, Env, Error, InstanceId, ItemPath, Result, Seq, Timestamp, Unit};

use crate::{
    Adopt, Change, Committed, Finding, Item, LeaseInfo, NewChange, NewNamespace, NewRun, Options, Pending, Planner,
    Pulled, Run, Scope, Settled, UnitInfo,
};

/// One machine's side of a ledger. Cheap to clone; all handles of a process share one connection.
///
/// (Not called `Clone`, which is a trait that every module has in scope.)
#[derive(Clone)]
pub struct LocalClone(#[allow(dead_code)] Arc<Inner>);

struct Inner {
    #[allow(dead_code)]
    options: Options,
    info: NsInfo,
}

fn todo<T>() -> Result<T> {
    Err(Error::internal("not yet"))
}

impl LocalClone {
    /// Creates the namespace in the store if it is not there (or finishes an interrupted creation by the same
    /// repository), then opens the clone. `AlreadyExists` when it belongs to another repository.
    pub async fn create(options: Options, env: Env, planner: Arc<dyn Planner>, new: NewNamespace) -> Result<Self> {
        let _ = (options, env, planner, new);
        todo()
    }

    /// Opens the clone. No request, but for one on the very first opening in a folder. `NotFound` when the namespace
    /// does not exist.
    pub async fn open(options: Options, env: Env, planner: Arc<dyn Planner>) -> Result<Self> {
        let _ = (options, env, planner);
        todo()
    }

    /// Identity of this clone.
    pub fn id(&self) -> CloneId {
        CloneId::from_bytes([0; 16])
    }

    /// Identity of this process instance.
    pub fn instance(&self) -> InstanceId {
        InstanceId::from_bytes([0; 16])
    }

    /// The namespace's `ns.json`.
    pub fn info(&self) -> &NsInfo {
        &self.0.info
    }

    /// Up to which entry everything has been seen; `None` before the first whole pull (a clone that only ever pulled
    /// units is not complete).
    pub fn position(&self) -> Result<Option<Seq>> {
        todo()
    }

    /// The newest entry known of.
    pub fn head(&self) -> Result<Option<Seq>> {
        todo()
    }

    /// When the store was last asked for news, by this machine's clock.
    pub fn synced_at(&self) -> Result<Option<Timestamp>> {
        todo()
    }

    /// The units known here, by name.
    pub fn units(&self) -> Result<Vec<UnitInfo>> {
        todo()
    }

    /// Items of a unit whose path starts with `prefix`, by path.
    pub fn items(&self, unit: &Unit, prefix: &str) -> Result<Vec<Item>> {
        let _ = (unit, prefix);
        todo()
    }

    /// One item.
    pub fn item(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Item>> {
        let _ = (unit, path);
        todo()
    }

    /// The content of an item: from the tree (repaired when it is missing or altered there) or, on demand, from the
    /// store. `Offline` when it is not here and cannot be fetched.
    pub async fn content(&self, item: &Item) -> Result<Bytes> {
        let _ = item;
        todo()
    }

    /// The file that holds the content of an item, made complete first. `Invalid` for an item that is not materialised.
    pub async fn file(&self, item: &Item) -> Result<PathBuf> {
        let _ = item;
        todo()
    }

    /// Where the tree is.
    pub fn tree(&self) -> PathBuf {
        PathBuf::new()
    }

    /// Brings the clone, or some units of it, up to date. Pending changes are never touched.
    pub async fn pull(&self, scope: &Scope) -> Result<Pulled> {
        let _ = scope;
        todo()
    }

    /// Commits a change: journal, plan, create, apply. Errors with code `commit_pending` (not in the log yet) and
    /// `outcome_unknown` leave it in the journal, to be settled later; a refused one is parked or dropped.
    pub async fn commit(&self, change: NewChange) -> Result<Committed> {
        let _ = change;
        todo()
    }

    /// Resolves what earlier invocations left in the journal. Rows other processes are working on are left to them.
    pub async fn settle(&self) -> Result<Settled> {
        todo()
    }

    /// Starts a run: takes the leases of the start's units, waiting for other holders. `Contended` with code
    /// `lock_timeout` names the holder.
    pub async fn begin(&self, run: NewRun) -> Result<Run> {
        let _ = run;
        todo()
    }

    /// All changes of the journal, oldest first. No request.
    pub fn pending(&self) -> Result<Vec<Pending>> {
        todo()
    }

    /// One change of the journal, whole. No request.
    pub fn pending_show(&self, change: ChangeId) -> Result<(Pending, Change)> {
        let _ = change;
        todo()
    }

    /// Takes a parked change up again and commits it.
    pub async fn adopt(&self, change: ChangeId, how: Adopt) -> Result<Committed> {
        let _ = (change, how);
        todo()
    }

    /// Gives a change up: makes sure that it is not in the log and never will be, then forgets it. `AlreadyExists` when
    /// it is found in the log after all.
    pub async fn drop_change(&self, change: ChangeId) -> Result<()> {
        let _ = change;
        todo()
    }

    /// The leases known here, by unit. No request: pull first.
    pub fn leases(&self) -> Result<Vec<LeaseInfo>> {
        todo()
    }

    /// Takes the lease of a unit from whoever holds it and frees it; what its run left is marked as interrupted.
    /// `None` when it was free.
    pub async fn force_release(&self, unit: &Unit) -> Result<Option<Committed>> {
        let _ = unit;
        todo()
    }

    /// The newest entries of the log, newest first, read from the store.
    pub async fn log(&self, count: u16) -> Result<Vec<LogLine>> {
        let _ = count;
        todo()
    }

    /// Checks the clone. Cheap: sizes are compared, contents are not hashed, one request at most.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        todo()
    }

    /// Checks the ledger in the store.
    pub async fn verify(&self, deep: bool) -> Result<Verified> {
        let _ = deep;
        todo()
    }
}
