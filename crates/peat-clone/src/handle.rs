//! The handle: opening, and what needs no room of its own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{Ledger, NewLedger, NsInfo, Verified};
use peat_objects::Store;
use peat_types::{
    ChangeId, CloneId, Env, Error, InstanceId, ItemPath, Kind, Result, Seq, Timestamp, Unit, in_span, number, step,
};
use tracing::field::Empty;

use crate::anchor::Anchored;
use crate::beside::Beside;
use crate::db::{self, Db};
use crate::files::{self, Lock};
use crate::identity;
use crate::journal::{Journal, too_large};
use crate::lease::Runs;
use crate::tree::Tree;
use crate::{
    Adopt, Change, Committed, Finding, Item, LeaseInfo, Local, NewChange, NewNamespace, NewRun, Options, Pending,
    Planner, Pulled, Repair, Run, Scope, Settled, Spent, UnitInfo, Watch, WatchOptions,
};

/// How long an opening waits for another one of the same folder.
const OPEN_WAIT: Duration = Duration::from_secs(60);

/// Largest content that is given in one piece. What is larger is given piece by piece, or is a file.
pub const WHOLE: u64 = 64 << 20;

/// Whether a content may be read at once.
pub(crate) fn fits_memory(what: impl fmt::Display, size: u64) -> Result<()> {
    if size <= WHOLE {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} has {size} bytes, more than is read into memory"))
        .with_code("content_too_large")
        .with_hint("'peat data get <model> <name>' writes data of any size to a pipe"))
}

/// One machine's side of a ledger. Cheap to clone; all handles of a process share one connection.
///
/// (Not called `Clone`, which is a trait that every module has in scope.)
#[derive(Clone)]
pub struct LocalClone(pub(crate) Arc<Inner>);

/// What all rooms of this crate work with.
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) env: Env,
    pub(crate) planner: Arc<dyn Planner>,
    pub(crate) ledger: Ledger,
    pub(crate) db: Db,
    pub(crate) journal: Journal,
    pub(crate) tree: Tree,
    pub(crate) runs: Runs,
    /// Held by whoever asks for the head, while others of this process would ask the same.
    pub(crate) looking: tokio::sync::Mutex<()>,
    pub(crate) id: CloneId,
    pub(crate) instance: InstanceId,
    /// Whether this process got anything into the log.
    pub(crate) committed: AtomicBool,
    /// The newest note about the tree when this process began: later ones are about what changed since.
    pub(crate) noted: i64,
    /// What came of others without being pulled, as items and bytes: with a look at the head, or on the way to a commit.
    pub(crate) arrived: std::sync::Mutex<(u64, u64)>,
    /// What was put aside, until somebody asks.
    pub(crate) aside: std::sync::Mutex<Vec<(String, PathBuf)>>,
    copied: bool,
}

impl fmt::Debug for LocalClone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalClone").field("id", &self.0.id).field("dir", &self.0.options.dir).finish_non_exhaustive()
    }
}

impl LocalClone {
    /// Creates the namespace in the store if it is not there (or finishes an interrupted creation by the same
    /// repository), then opens the clone. `AlreadyExists` when it belongs to another repository.
    pub async fn create(options: Options, env: Env, planner: Arc<dyn Planner>, new: NewNamespace) -> Result<Self> {
        Self::open_with(options, env, planner, Some(new)).await
    }

    /// Opens the clone. No request, but for one on the very first opening in a folder. `NotFound` when the namespace
    /// does not exist.
    pub async fn open(options: Options, env: Env, planner: Arc<dyn Planner>) -> Result<Self> {
        Self::open_with(options, env, planner, None).await
    }

    /// Writes the first entry of the ledger, should whoever made the namespace have been interrupted before it did. For
    /// clones that never saw an entry. One request.
    ///
    /// # Errors
    /// `Damaged` when the log is empty and once was not.
    pub async fn finish_creation(&self) -> Result<()> {
        self.0.ledger.finish_creation().await
    }

    /// Whether the clone in `dir` has ever seen a ledger. A store that is not there is lost then, not new.
    pub fn has_seen_a_ledger(dir: &Path) -> bool {
        identity::Identity::knows_a_ledger(dir)
    }

    async fn open_with(
        options: Options,
        env: Env,
        planner: Arc<dyn Planner>,
        new: Option<NewNamespace>,
    ) -> Result<Self> {
        let lock = enter(&options, &env).await?;
        files::sweep(&env, &options.dir.join(files::TEMP));
        let instance = InstanceId::random(&env);
        let mut found = identity::find(&env, &options)?;
        let (id, copied) = (found.identity.clone, found.identity.copied);
        if found.reminted {
            // The locks of the original do not hold here, so its runs would look dead.
            forget_runs(&options)?;
        }
        let made_before = new.is_some() && found.identity.info.is_some();
        let ledger = open_ledger(&options, &env, &found.identity, instance, new).await?;
        if let Some(known) = &found.identity.info
            && known.ledger != ledger.info().ledger
        {
            return Err(Error::damaged(format!(
                "{} holds ledger {}, this clone knows it as {}",
                options.url,
                ledger.info().ledger,
                known.ledger
            ))
            .with_code("fork")
            .with_hint("the store was replaced: nothing was touched here; clone the new one into another folder"));
        }
        let beside = Arc::new(Beside::new(&env, &options.dir));
        let ledger = ledger.with_together(options.together).with_neighbours(beside);
        found.identity.info = Some(ledger.info().clone());
        let db = Db::open(&env, &options).await?;
        let (seen, shown) = db.read(|tx| Ok((db::head_seq(tx)?, db::shown_seq(tx)?)))?;
        let ledger = ledger.with_seen(seen.unwrap_or_default()).with_shown(shown.unwrap_or_default());
        if made_before && db.heads()?.head.is_none() {
            Box::pin(ledger.finish_creation()).await?;
        }
        found.identity.save(&env, &options)?;
        drop(lock);
        let journal = Journal::new(options.dir.join("journal"), options.durability, &ledger.info().params);
        let tree = Tree::new(options.dir.join("tree"));
        let runs = Runs::new(options.dir.join("run"));
        let looking = tokio::sync::Mutex::default();
        let committed = AtomicBool::new(false);
        let noted = db.read(db::last_todo)?;
        let inner = Inner {
            options,
            env,
            planner,
            ledger,
            db,
            journal,
            tree,
            runs,
            looking,
            id,
            instance,
            committed,
            noted,
            arrived: std::sync::Mutex::default(),
            aside: std::sync::Mutex::default(),
            copied,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Identity of this clone.
    pub fn id(&self) -> CloneId {
        self.0.id
    }

    /// Whether its folder was copied or restored from another one, now or earlier. A ledger inside the folder then exists
    /// twice under one id.
    pub fn was_copied(&self) -> bool {
        self.0.copied
    }

    /// Identity of this process instance.
    pub fn instance(&self) -> InstanceId {
        self.0.instance
    }

    /// The namespace's `ns.json`.
    pub fn info(&self) -> &NsInfo {
        self.0.ledger.info()
    }

    /// Up to which entry everything has been seen; `None` before the first whole pull (a clone that only ever pulled
    /// units is not complete).
    pub fn position(&self) -> Result<Option<Seq>> {
        self.0.db.read(db::position_seq)
    }

    /// The newest entry known of.
    pub fn head(&self) -> Result<Option<Seq>> {
        self.0.db.read(db::head_seq)
    }

    /// Whether the store was seen to be set back or replaced. Nothing is written to it then, until it is right again.
    pub fn is_suspect(&self) -> Result<bool> {
        Ok(self.0.db.heads()?.suspect)
    }

    /// When the store was last asked for news, by this machine's clock.
    pub fn synced_at(&self) -> Result<Option<Timestamp>> {
        Ok(self.0.db.heads()?.read.map(db::Moment::wall))
    }

    /// The units known here, by name.
    pub fn units(&self) -> Result<Vec<UnitInfo>> {
        self.0.db.units()
    }

    /// Items of a unit whose path starts with `prefix`, by path.
    pub fn items(&self, unit: &Unit, prefix: &str) -> Result<Vec<Item>> {
        self.0.db.read(|tx| db::items(tx, unit, prefix))
    }

    /// One item.
    pub fn item(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Item>> {
        self.0.db.read(|tx| db::get(tx, unit, path))
    }

    /// The content of an item: from the tree (repaired when it is missing or altered there) or, on demand, from the
    /// store. `Offline` with code `not_local` when it is not here and cannot be fetched, `Invalid` with code
    /// `content_too_large` when it is larger than [`WHOLE`].
    pub async fn content(&self, item: &Item) -> Result<Bytes> {
        fits_memory(&item.path, item.size())?;
        self.0.content(item).await
    }

    /// Whether a file of this size could be a content.
    ///
    /// # Errors
    /// `Invalid` with code `content_too_large` names the file and the limit.
    pub fn check_size(&self, file: &Path, size: u64) -> Result<()> {
        let largest = self.0.ledger.info().params.largest();
        if size > largest { Err(too_large(file.display(), size, largest)) } else { Ok(()) }
    }

    /// The content of an item, given to `take` piece by piece: however large it is, only a part of it is in memory. Errors
    /// as for [`content`](Self::content); what was given before one of them was right.
    pub async fn stream(&self, item: &Item, take: &mut (dyn FnMut(&[u8]) -> Result<()> + Send)) -> Result<()> {
        Box::pin(self.0.stream(item, take)).await
    }

    /// The content of an item if it is on this machine: no request.
    pub fn content_here(&self, item: &Item) -> Result<Option<Bytes>> {
        fits_memory(&item.path, item.size())?;
        self.0.content_here(item)
    }

    /// The file that holds the content of an item, made complete first. `Invalid` for an item that is not materialised.
    pub async fn file(&self, item: &Item) -> Result<PathBuf> {
        self.0.file(item).await
    }

    /// Where the tree is.
    pub fn tree(&self) -> PathBuf {
        self.0.tree.root().to_owned()
    }

    /// Brings the clone, or some units of it, up to date. Pending changes are never touched.
    pub async fn pull(&self, scope: &Scope) -> Result<Pulled> {
        let units = if let Scope::Units(units) = scope { Some(number(units.len())) } else { None };
        let span =
            step!("clone.pull", peat.units = units, peat.entries = Empty, peat.items = Empty, peat.bytes = Empty);
        let pulled = in_span(span.clone(), Box::pin(self.0.pull(scope))).await?;
        span.record("peat.entries", number(pulled.entries))
            .record("peat.items", number(pulled.items))
            .record("peat.bytes", number(pulled.bytes));
        Ok(pulled)
    }

    /// Commits a change: journal, plan, create, apply. Errors with code `commit_pending` (not in the log yet) and
    /// `outcome_unknown` leave it in the journal, to be settled later; a refused one is parked or dropped.
    pub async fn commit(&self, change: NewChange) -> Result<Committed> {
        Box::pin(self.0.commit(change)).await
    }

    /// Resolves what earlier invocations left in the journal. Rows other processes are working on are left to them.
    pub async fn settle(&self) -> Result<Settled> {
        in_span(step!("clone.settle"), Box::pin(self.0.settle())).await
    }

    /// Starts a run: takes the leases of the start's units, waiting for other holders. `Contended` with code
    /// `lock_timeout` names the holder.
    pub async fn begin(&self, run: NewRun) -> Result<Run> {
        in_span(step!("clone.begin"), Box::pin(Inner::begin(&self.0, run))).await
    }

    /// Follows the namespace from the cursor of that name, which is made when there is none: then one look at the store.
    ///
    /// # Errors
    /// `Contended` with code `watch_taken` when another process follows under this name; `Invalid` for a name that is no
    /// slug and for a beginning that is not in the log yet.
    pub async fn watch(&self, options: &WatchOptions) -> Result<Watch> {
        Box::pin(Watch::open(self.0.clone(), options)).await
    }

    /// All changes of the journal, oldest first. No request.
    pub fn pending(&self) -> Result<Vec<Pending>> {
        self.0.pending()
    }

    /// One change of the journal, whole. No request.
    pub fn pending_show(&self, change: ChangeId) -> Result<(Pending, Change)> {
        self.0.pending_show(change)
    }

    /// Takes a parked change up again and commits it.
    pub async fn adopt(&self, change: ChangeId, how: Adopt) -> Result<Committed> {
        Box::pin(self.0.adopt(change, how)).await
    }

    /// Gives a change up: makes sure that it is not in the log and never will be, then forgets it. `AlreadyExists` when
    /// it is found in the log after all.
    pub async fn drop_change(&self, change: ChangeId) -> Result<()> {
        Box::pin(self.0.drop_change(change)).await
    }

    /// The leases known here, by unit. No request: pull first. A lazy clone that took a whole state over at once leaves
    /// out those whose records it has not read yet.
    pub fn leases(&self) -> Result<Vec<LeaseInfo>> {
        self.0.leases()
    }

    /// Like [`Self::leases`], with the records that have not been read yet.
    pub async fn all_leases(&self) -> Result<Vec<LeaseInfo>> {
        Box::pin(self.0.read_leases()).await?;
        self.0.leases()
    }

    /// Takes the lease of a unit from whoever holds it and frees it; what its run left is marked as interrupted.
    /// `None` when it was free.
    pub async fn force_release(&self, unit: &Unit) -> Result<Option<Committed>> {
        Box::pin(self.0.force_release(unit)).await
    }

    /// Checks the clone. Cheap: sizes are compared, contents are not hashed, one request at most.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        Box::pin(self.0.doctor(false)).await
    }

    /// Like [`Self::doctor`], but reads and hashes every file of the tree.
    pub async fn examine(&self) -> Result<Vec<Finding>> {
        Box::pin(self.0.doctor(true)).await
    }

    /// Puts right what findings named; says what was done. Doing it again does nothing.
    pub async fn repair(&self, findings: &[Finding]) -> Result<Vec<String>> {
        let mut repairs: Vec<Repair> = Vec::new();
        for repair in findings.iter().filter_map(|finding| finding.repair.as_ref()) {
            if !repairs.contains(repair) {
                repairs.push(repair.clone());
            }
        }
        Box::pin(self.0.carry_out(&repairs)).await
    }

    /// Remembers what a command cost.
    pub fn note_spent(&self, spent: &Spent) -> Result<()> {
        self.0.db.note_spent(spent)
    }

    /// What the last commands cost, newest first.
    pub fn spent(&self) -> Result<Vec<Spent>> {
        self.0.db.spent()
    }

    /// How much of what is known is on this machine. Looks at every file of the tree; no request.
    pub fn local(&self) -> Result<Local> {
        self.0.local_share()
    }

    /// Checks the ledger in the store.
    pub async fn verify(&self, deep: bool) -> Result<Verified> {
        self.0.ledger.verify(deep).await
    }

    /// Any object of the ledger as JSON, by its key below the namespace.
    pub async fn cat(&self, key: &str) -> Result<serde_json::Value> {
        self.0.ledger.cat(key).await
    }
}

/// Makes the folder of a clone, and takes its lock.
pub(crate) async fn enter(options: &Options, env: &Env) -> Result<Lock> {
    for name in ["", "journal", "tree", "run", files::TEMP] {
        files::make_dir(&options.dir.join(name))?;
    }
    Lock::wait(env, &options.dir.join("open.lock"), OPEN_WAIT).await
}

async fn open_ledger(
    options: &Options,
    env: &Env,
    identity: &identity::Identity,
    instance: InstanceId,
    new: Option<NewNamespace>,
) -> Result<Ledger> {
    let store = match (&identity.info, &options.folder) {
        (Some(known), Some(folder)) => {
            let anchored: Arc<dyn Store> = Arc::new(Anchored::new(options.store.clone(), folder.clone(), known.ledger));
            anchored
        }
        _ => options.store.clone(),
    };
    if let (Some(_), Some(known)) = (&new, &identity.info) {
        // Made once already: whatever is there now is it, or it is lost. A second one would not be what this clone knows.
        let lost = |error: Error| {
            error.with_hint(format!(
                "restore the store from a backup; to begin again without what it held, remove {} first",
                options.dir.display()
            ))
        };
        let opened = Ledger::open(store, env, identity.clone, instance).await;
        return opened.map_err(|error| if error.code() == "store_missing" { lost(error) } else { error })?.ok_or_else(
            || {
                let (url, ledger) = (&options.url, known.ledger);
                let error = format!("{url} holds no ledger any more; this clone knows it as {ledger}");
                lost(Error::damaged(error).with_code("store_missing"))
            },
        );
    }
    if let Some(new) = new {
        let new = NewLedger {
            namespace: options.namespace.clone(),
            owner: options.repo_id.clone(),
            params: new.params,
            probe: new.probe,
        };
        return Ledger::create(store, env, new, identity.clone, instance).await;
    }
    match &identity.info {
        Some(info) => Ok(Ledger::with_info(store, env, info.clone(), identity.clone, instance)),
        None => Ledger::open(store, env, identity.clone, instance).await?.ok_or_else(|| {
            Error::new(Kind::NotFound, format!("there is no namespace '{}' in {}", options.namespace, options.url))
                .with_code("namespace_missing")
                .with_hint("correct the URL or the namespace in .peat.yaml, if they are wrong")
        }),
    }
}

fn forget_runs(options: &Options) -> Result<()> {
    let dir = options.dir.join("run");
    files::names(&dir, ".run")?.iter().try_for_each(|name| files::remove(&dir.join(format!("{name}.run"))))
}
