//! Maintenance: by hand, and by itself, when it is worth it and one process of a clone at a time. Purges and pins.

use std::path::PathBuf;
use std::time::Duration;

use peat_ledger::{Checkpoint, Checkpointing, Collected, Collecting, GcPlan, Pin, PurgePlan, Purged, Purging, Tail};
use peat_types::{ItemPath, Kind, Result, Seq, Timestamp, Unit};
use serde::{Deserialize, Serialize};

use crate::files::{self, Lock};
use crate::handle::Inner;
use crate::{Event, LocalClone, Scope};

/// How long a checkpoint, a collection or a repair is tried.
pub(crate) const MAINTENANCE: Duration = Duration::from_secs(600);
/// How long a change of the pins is tried.
const PINNING: Duration = Duration::from_secs(30);
/// Garbage is collected once in so long at most: by anybody, and tried as often by one clone.
const COLLECT_EVERY: Duration = Duration::from_secs(24 * 3600);
/// A clone that may not delete asks again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// What is known here of the maintenance of the ledger. No request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upkeep {
    /// What lies in the log since the last checkpoint.
    pub tail: Tail,
    /// The last checkpoint and when it was made, by its writer's clock.
    pub checkpointed: Option<(Seq, Timestamp)>,
    /// The last collection of garbage that changed something, and when it was made, by its writer's clock.
    pub collected: Option<(Seq, Timestamp)>,
    /// Since when a collection is wanted, if it is.
    pub collect_since: Option<Timestamp>,
    /// What the last collection by this clone came to.
    pub last_try: Option<Tried>,
    /// The oldest state that can be read.
    pub floor: Seq,
    /// The pins.
    pub pins: Vec<(String, Seq)>,
}

impl Upkeep {
    /// Whether a checkpoint is worth its requests.
    pub fn checkpoint_due(&self) -> bool {
        self.tail.is_due()
    }

    /// Whether anything is to be done.
    pub fn is_due(&self) -> bool {
        self.checkpoint_due() || self.collect_since.is_some()
    }
}

/// What a collection by this clone came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// When, by this machine's clock.
    pub at: Timestamp,
    /// Whether the store lets this clone delete.
    pub may_delete: bool,
    /// Bytes that the store holds after it; absent when it was not carried out.
    #[serde(default)]
    pub stored: Option<u64>,
}

/// What maintenance by itself did.
#[derive(Debug)]
pub struct Maintained {
    /// The checkpoint, or why there is none.
    pub checkpoint: Checkpoint,
    /// The collection of garbage, if it was time for one and this clone may delete.
    pub collected: Option<Collected>,
}

impl LocalClone {
    /// Whether this process committed anything with this clone.
    pub fn has_committed(&self) -> bool {
        self.0.committed.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// What is known of maintenance; `None` when no head is known yet. No request.
    pub fn upkeep(&self) -> Result<Option<Upkeep>> {
        self.0.upkeep()
    }

    /// Whether a process of this clone is at maintenance now.
    pub fn is_maintained_now(&self) -> Result<bool> {
        Ok(Lock::try_new(&self.0.upkeep_lock())?.is_none())
    }

    /// Does what is due, keeping states of the last `keep`: the first process of a clone does, for others it is done
    /// (`None`). `patience` is for the checkpoint and the collection each.
    pub async fn maintain(&self, keep: Duration) -> Result<Option<Maintained>> {
        Box::pin(self.0.maintain(self, keep)).await
    }

    /// Notes what a collection came to.
    pub fn note_collection(&self, may_delete: bool, stored: Option<u64>) -> Result<()> {
        self.0.note_collection(may_delete, stored)
    }

    /// Copies what the state needs of the log into packs: when that is due, or `force`. `full` rewrites all metadata and
    /// compacts packs.
    pub async fn checkpoint(&self, force: bool, full: bool) -> Result<Checkpoint> {
        let how = Checkpointing { author: self.0.author(), force, full, patience: MAINTENANCE };
        let made = self.0.guarded(self.0.ledger.checkpoint(&how)).await?;
        if let Checkpoint::Done { .. } = made {
            self.0.note_own_entry().await;
        }
        Ok(made)
    }

    /// What a collection would do that keeps states of the last `keep`. Nothing is changed.
    pub async fn plan_gc(&self, keep: Duration) -> Result<GcPlan> {
        self.0.ledger.plan_gc(&self.collecting(keep)).await
    }

    /// Carries out a plan for garbage collection.
    pub async fn gc(&self, plan: &GcPlan, keep: Duration) -> Result<Collected> {
        let reporter = &self.0.options.reporter;
        let progress = |done, of| reporter.report(Event::Collecting { done, of });
        let done = self.0.guarded(self.0.ledger.gc(plan, &self.collecting(keep), &progress)).await?;
        if done.entry.is_some() {
            self.0.note_own_entry().await;
        }
        Ok(done)
    }

    pub(crate) fn collecting(&self, keep: Duration) -> Collecting {
        Collecting { author: self.0.author(), keep, patience: MAINTENANCE }
    }

    /// What a purge of items of a unit would do. Nothing is changed.
    pub async fn plan_purge(&self, unit: &Unit, paths: &[ItemPath]) -> Result<PurgePlan> {
        self.0.ledger.plan_purge(&self.purging(unit, paths)).await
    }

    /// Removes items, or folders of items, of a unit from the present and from history, then brings the clone up to date.
    pub async fn purge(&self, unit: &Unit, paths: &[ItemPath]) -> Result<Purged> {
        let reporter = &self.0.options.reporter;
        let progress = |done, of| reporter.report(Event::Collecting { done, of });
        let purged = self.0.guarded(self.0.ledger.purge(&self.purging(unit, paths), &progress)).await;
        // One that stopped half-way has changed the present, too.
        if purged.as_ref().err().is_none_or(|error| error.kind() != Kind::Offline) {
            let pulled = self.pull(&Scope::All).await;
            return purged.and_then(|purged| pulled.map(|_| purged));
        }
        purged
    }

    fn purging(&self, unit: &Unit, paths: &[ItemPath]) -> Purging {
        let (unit, paths) = (unit.clone(), paths.to_vec());
        Purging { unit, paths, author: self.0.author(), patience: MAINTENANCE }
    }

    /// The states that are kept under a name.
    pub async fn pins(&self) -> Result<Vec<Pin>> {
        self.0.ledger.pins().await
    }

    /// Keeps a state, the newest when none is given, under a name. Gives the entry that says so and the one pinned.
    pub async fn pin(&self, name: &str, at: Option<Seq>) -> Result<(Seq, Seq)> {
        self.0.guarded(self.0.ledger.pin(name, at, &self.0.author(), PINNING)).await
    }

    /// Removes a pin. Gives the entry that says so and the one that was pinned.
    pub async fn unpin(&self, name: &str) -> Result<(Seq, Seq)> {
        self.0.guarded(self.0.ledger.unpin(name, &self.0.author(), PINNING)).await
    }
}

impl Inner {
    fn upkeep_lock(&self) -> PathBuf {
        self.options.dir.join("maintain.lock")
    }

    fn tried_file(&self) -> PathBuf {
        self.options.dir.join("collected.json")
    }

    fn upkeep(&self) -> Result<Option<Upkeep>> {
        let Some(head) = self.db.heads()?.head else { return Ok(None) };
        // What cannot be read is not known.
        let last_try: Option<Tried> =
            files::read(&self.tried_file())?.and_then(|text| serde_json::from_slice(&text).ok());
        let now = self.env.now();
        let after = |at: Timestamp, wait: Duration| {
            let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            let due = Timestamp::from_millis(at.as_millis().saturating_add(wait));
            (now >= due).then_some(due)
        };
        let since = head.root.collected.map_or(self.ledger.info().created, |(_, at)| at);
        let wanted = after(since, COLLECT_EVERY);
        let tried = last_try.as_ref().map(|tried| {
            let wait = if tried.may_delete { COLLECT_EVERY } else { ASK_AGAIN };
            // A try in the future was noted by a clock that was wrong.
            tried.at > now || after(tried.at, wait).is_some()
        });
        Ok(Some(Upkeep {
            tail: Tail::of(&head),
            checkpointed: head.root.checkpointed,
            collected: head.root.collected,
            collect_since: wanted.filter(|_| tried.unwrap_or(true)),
            last_try,
            floor: head.root.floor,
            pins: head.root.pins,
        }))
    }

    fn note_collection(&self, may_delete: bool, stored: Option<u64>) -> Result<()> {
        let tried = Tried { at: self.env.now(), may_delete, stored };
        let text =
            serde_json::to_vec(&tried).map_err(|e| peat_types::Error::internal("cannot write JSON").with_source(e))?;
        let temps = self.options.dir.join(files::TEMP);
        files::write_atomic(&self.env, &temps, &self.tried_file(), &[&text], false, false)
    }

    async fn maintain(&self, clone: &LocalClone, keep: Duration) -> Result<Option<Maintained>> {
        let Some(_lock) = Lock::try_new(&self.upkeep_lock())? else { return Ok(None) };
        let checkpoint = clone.checkpoint(false, false).await?;
        let wanted = self.upkeep()?.is_some_and(|upkeep| upkeep.collect_since.is_some());
        let mut collected = None;
        if wanted {
            // Noted first: what fails is not tried again by the next command.
            let may_delete = self.ledger.may_delete().await?;
            self.note_collection(may_delete, None)?;
            if may_delete {
                let plan = clone.plan_gc(keep).await?;
                let done = clone.gc(&plan, keep).await?;
                self.note_collection(done.denied.is_none(), Some(plan.retained))?;
                collected = Some(done);
            }
        }
        Ok(Some(Maintained { checkpoint, collected }))
    }
}
