//! The clone's side of moving a ledger to another store, and of following one that moved.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peat_ledger::{Collected, Copied, CopyPlan, GcPlan, Ledger, Moved, NsInfo};
use peat_objects::Store;
use peat_types::{CloneId, Env, Error, InstanceId, Kind, LedgerId, Namespace, Result, Seq};
use tokio::runtime::Handle;

use crate::files::{self, Lock};
use crate::{Durability, Event, Hydration, LocalClone, Options, db, handle};

/// What the newest entry says of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The entry.
    pub seq: Seq,
    /// Units there are.
    pub units: u64,
    /// Items there are.
    pub items: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Where the ledger went, if it did.
    pub moved: Option<Moved>,
}

impl Standing {
    /// How a ledger stands that this machine need not have a clone of; and, when it moved, what whoever wants to use it is
    /// told.
    pub async fn of(store: Arc<dyn Store>, env: &Env, info: NsInfo) -> Result<(Self, Option<Error>)> {
        let ledger = Ledger::with_info(store, env, info, CloneId::random(env), InstanceId::random(env));
        let standing = Self::now(&ledger).await?;
        let gone = standing.moved.as_ref().map(|moved| ledger.gone_to(moved));
        Ok((standing, gone))
    }

    async fn now(ledger: &Ledger) -> Result<Self> {
        let head = ledger.head().await?.state;
        let (units, items, bytes) = (head.root.units, head.root.files, head.root.bytes);
        Ok(Self { seq: head.seq, units, items, bytes, moved: head.root.moved })
    }
}

/// An index that another clone may come to have.
#[derive(Debug)]
pub struct BegunIndex {
    fresh: PathBuf,
}

impl BegunIndex {
    /// Nobody is to have it.
    ///
    /// # Errors
    /// Those of [`Error::io`].
    pub fn discard(self) -> Result<()> {
        files::remove(&self.fresh)
    }
}

impl LocalClone {
    /// How the ledger stands now, as the store says.
    pub async fn standing(&self) -> Result<Standing> {
        Standing::now(&self.0.ledger).await
    }

    /// Where the ledger went, as far as this clone has heard. No request.
    pub fn moved(&self) -> Result<Option<Moved>> {
        Ok(self.0.db.heads()?.head.and_then(|head| head.root.moved))
    }

    /// What whoever wants to write here is told once the ledger moved.
    pub fn gone_to(&self, moved: &Moved) -> Error {
        self.0.ledger.gone_to(moved)
    }

    /// What of the ledger is missing in `target`, a store narrowed to the namespace to be; `None` for one that is not there
    /// yet. Nothing is changed.
    ///
    /// # Errors
    /// `Conflict` with code `not_this_ledger` when something else was begun there.
    pub async fn plan_copy(&self, target: Option<&Arc<dyn Store>>) -> Result<CopyPlan> {
        Box::pin(self.0.ledger.plan_copy(target.map(|target| &**target))).await
    }

    /// Copies what the plan names, and checks that the copy is whole.
    pub async fn copy(&self, target: &Arc<dyn Store>, plan: &CopyPlan) -> Result<Copied> {
        let reporter = &self.0.options.reporter;
        let of = plan.objects.len() as u64;
        let progress = |done: Copied| reporter.report(Event::Copying { done: done.objects, of });
        let (copied, prints) = Box::pin(self.0.ledger.copy(target, plan, &progress)).await?;
        self.0.env.step("move.check").await;
        Box::pin(self.0.ledger.check_copy(target, plan, &prints)).await?;
        Ok(copied)
    }

    /// Closes the ledger, brings the copy up to date and opens it. May be run again after a crash, by anybody.
    ///
    /// # Errors
    /// `Conflict` with code `moved` when the ledger went elsewhere before.
    pub async fn move_to(
        &self,
        target: &Arc<dyn Store>,
        (url, endpoint): (&str, Option<&str>),
        namespace: &Namespace,
        probe: &serde_json::Value,
    ) -> Result<NsInfo> {
        let ledger = LedgerId::from_bytes(self.0.env.random_bytes());
        let (url, endpoint) = (url.to_owned(), endpoint.map(str::to_owned));
        let to = Moved { url, namespace: namespace.clone(), ledger, upto: Seq::ZERO, endpoint };
        Box::pin(self.0.ledger.move_to(target, &to, &self.0.author(), probe)).await
    }

    /// Begins to give what is known here to the clone that will be opened with `to`: it need not be read again. Nothing changes
    /// here, no request is made, and others may go on with both clones. What is begun is ended by
    /// [`LocalClone::hand_over`] or [`BegunIndex::discard`]; after a kill the other clone removes it when it is opened. `None`
    /// when there is nothing to give, or a folder that was opened before has an index of its own.
    ///
    /// # Errors
    /// Those of files and databases. The other clone can do without.
    pub async fn begin_hand_over(&self, to: &Options) -> Result<Option<BegunIndex>> {
        let lock = handle::enter(to, &self.0.env).await?;
        if Self::has_seen_a_ledger(&to.dir) {
            return Ok(None);
        }
        drop(lock);
        let begun = BegunIndex { fresh: db::beside(&self.0.env, &to.dir.join("state.db")) };
        let (from, fresh) = (self.0.clone(), begun.fresh.clone());
        let synced = to.durability == Durability::Synced;
        let copy = move || {
            let copied = from.db.copy_out(&fresh)?;
            // Most of it is on the disk then when it is needed.
            if copied && synced { sync(&fresh).map(|()| true) } else { Ok(copied) }
        };
        let copied = match Handle::try_current() {
            Ok(runtime) => runtime
                .spawn_blocking(copy)
                .await
                .map_err(|e| Error::internal("a thread that copies an index came to an end").with_source(e))
                .flatten(),
            Err(_) => copy(),
        };
        if matches!(copied, Ok(true)) {
            self.0.env.step("take.begun").await;
            return Ok(Some(begun));
        }
        begun.discard()?;
        copied.map(|_| None)
    }

    /// Ends that: what is known here, up to the last entry that both have, is what the clone that will be opened with `to`
    /// knows of the ledger `next` that goes on from this one. One request. Killed anywhere, it is all there or not at all. Gives
    /// whether it was done: what is not part of the other ledger is of no use to it.
    ///
    /// # Errors
    /// Those of files and databases. The other clone can do without.
    pub async fn hand_over(&self, begun: BegunIndex, to: &Options, next: &NsInfo) -> Result<bool> {
        let done = self.end_hand_over(&begun, to, next).await;
        if !matches!(done, Ok(true)) {
            begun.discard()?;
        }
        done
    }

    async fn end_hand_over(&self, begun: &BegunIndex, to: &Options, next: &NsInfo) -> Result<bool> {
        let (ours, env) = (self.info().ledger, &self.0.env);
        let Some(upto) = next.origin.iter().find(|from| from.ledger == ours).map(|from| from.upto) else {
            return Ok(false);
        };
        let _lock = handle::enter(to, env).await?;
        // (The lock was free for a while.)
        if Self::has_seen_a_ledger(&to.dir) {
            return Ok(false);
        }
        let seen = self.0.db.heads()?;
        let shared = [seen.head, seen.position].into_iter().flatten().find(|state| state.seq <= upto);
        if let Some(shared) = shared {
            let there = Ledger::with_info(to.store.clone(), env, next.clone(), self.0.id, self.0.instance);
            if !Box::pin(there.holds(&shared)).await? {
                return Ok(false);
            }
        }
        if !self.0.db.hand_over(&begun.fresh, next, upto, to.hydration == Hydration::Full)? {
            return Ok(false);
        }
        if to.durability == Durability::Synced {
            sync(&begun.fresh)?;
        }
        env.step("take.index").await;
        db::swap_in(&begun.fresh, &to.dir.join("state.db"))?;
        env.step("take.indexed").await;
        Ok(true)
    }

    /// Whether the tree could go along to the clone that will be opened with `to`, as far as can be told before anything is
    /// changed. No request.
    ///
    /// # Errors
    /// Those of the index.
    pub fn tree_can_go(&self, to: &Options) -> Result<bool> {
        let tree = to.dir.join("tree");
        let room = match std::fs::read_dir(&tree) {
            Ok(mut names) => names.next().is_none(),
            Err(error) => files::absent(&error),
        };
        let there = tree.ancestors().find(|at| at.exists());
        Ok(room
            && !Self::has_seen_a_ledger(&to.dir)
            && self.0.db.can_be_handed_over()?
            && there.is_some_and(|there| same_disk(self.0.tree.root(), there)))
    }

    /// Whether files of this clone's tree still lie in that of the clone in `dir`, which handed its index over. No request.
    ///
    /// # Errors
    /// Those of the index.
    pub fn has_its_tree_in(&self, dir: &Path) -> Result<bool> {
        self.0.db.has_its_tree_in(dir)
    }

    /// Takes over the tree of the clone that handed its index over, as it is: with what people changed in it. Only whole, and
    /// only where that is one step; else the next pull fetches what belongs here. Gives whether it was done.
    ///
    /// # Errors
    /// Those of files and databases. Whatever they are, the next pull of either clone makes its tree right.
    pub async fn take_tree(&self, from: &Self) -> Result<bool> {
        let (theirs, ours) = (from.0.tree.root(), self.0.tree.root());
        if !self.has_its_tree_in(&from.0.options.dir)? || !same_disk(theirs, ours) {
            return Ok(false);
        }
        // First nobody misses a file there, then it goes; first it is here, then it may be missed.
        if !from.0.db.lose_tree()? {
            return Ok(false);
        }
        self.0.env.step("take.tree").await;
        // (An empty folder goes; one that somebody has begun to fill stays, and is filled on.)
        if std::fs::remove_dir(ours).is_err() || std::fs::rename(theirs, ours).is_err() {
            files::make_dir(ours)?;
            return Ok(false);
        }
        self.0.env.step("take.moved").await;
        files::make_dir(theirs)?;
        if self.0.options.durability == Durability::Synced {
            files::sync_dir(&self.0.options.dir)?;
            files::sync_dir(&from.0.options.dir)?;
        }
        self.0.db.has_got_its_tree(&self.0.tree)?;
        self.0.env.step("take.tree-taken").await;
        Ok(true)
    }

    /// Takes over the changes that another clone could not commit any more because its ledger moved to this one.
    /// Gives how many. A crash in between leaves some in both; a change enters the log once all the same. What was uploaded
    /// for one lies in the store that is left, so it is uploaded again.
    ///
    /// # Errors
    /// `Contended` while a process works on one of them.
    pub async fn take_journal(&self, from: &Path) -> Result<u64> {
        let (from, to) = (from.join("journal"), self.0.options.dir.join("journal"));
        let mut taken = 0;
        if !from.is_dir() {
            return Ok(taken);
        }
        for id in files::names(&from, ".change")? {
            let Some(_lock) = Lock::try_new(&from.join(format!("{id}.lock")))? else {
                return Err(Error::new(Kind::Contended, format!("another process works on change {id}"))
                    .with_hint("run the command again when it has ended"));
            };
            let change = format!("{id}.change");
            let mut rest = files::names(&from, "")?;
            rest.retain(|name| name.starts_with(&format!("{id}.")) && *name != change && !name.ends_with(".lock"));
            // A row without its state looks as if it had never been tried, so the change itself comes last, and goes first.
            let uploads = format!("{id}.packs");
            for name in rest.iter().filter(|name| **name != uploads).chain([&change]) {
                copy(&self.0.options, &from.join(name), &to.join(name))?;
                self.0.env.step("take.copied").await;
            }
            for name in [&change].into_iter().chain(&rest) {
                remove(&from.join(name))?;
                self.0.env.step("take.removed").await;
            }
            files::remove(&from.join(format!("{id}.lock")))?;
            taken += 1;
        }
        Ok(taken)
    }

    /// What can be removed of a ledger that moved to `successor`.
    pub async fn plan_clear(&self, successor: &NsInfo) -> Result<GcPlan> {
        Box::pin(self.0.ledger.plan_clear(successor)).await
    }

    /// Removes it.
    pub async fn clear(&self, plan: &GcPlan) -> Result<Collected> {
        let reporter = &self.0.options.reporter;
        let progress = |done, of| reporter.report(Event::Collecting { done, of });
        Box::pin(self.0.ledger.clear(plan, &self.collecting(Duration::ZERO), &progress)).await
    }
}

fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|e| Error::io("sync", path, e))
}

#[cfg(unix)]
fn same_disk(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let disk = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.dev());
    disk(one).is_some() && disk(one) == disk(other)
}

/// Elsewhere that is tried.
#[cfg(not(unix))]
fn same_disk(_: &Path, _: &Path) -> bool {
    true
}

/// Copies a file, or a folder of files, so that it is there whole or not at all.
fn copy(options: &Options, from: &Path, to: &Path) -> Result<()> {
    let sync = options.durability == Durability::Synced;
    let temp = options.dir.join(files::TEMP).join(format!("taken-{}", to.file_name().unwrap_or_default().display()));
    remove(&temp)?;
    copy_into(from, &temp, sync)?;
    if to.is_dir() {
        remove(to)?;
    }
    std::fs::rename(&temp, to).map_err(|e| Error::io("write", to, e))?;
    if sync { files::sync_dir(to.parent().unwrap_or(to)) } else { Ok(()) }
}

fn copy_into(from: &Path, to: &Path, sync: bool) -> Result<()> {
    let fail = |e| Error::io("copy", from, e);
    if from.is_dir() {
        std::fs::create_dir_all(to).map_err(|e| Error::io("create", to, e))?;
        for name in files::names(from, "")? {
            copy_into(&from.join(&name), &to.join(&name), sync)?;
        }
        return if sync { files::sync_dir(to) } else { Ok(()) };
    }
    std::fs::copy(from, to).map_err(fail)?;
    if sync {
        self::sync(to)?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    if path.is_dir() {
        return std::fs::remove_dir_all(path).map_err(|e| Error::io("remove", path, e));
    }
    files::remove(path)
}
