//! The protocol over a store: which requests are made, what each reply proves, and what is believed.

mod again;
mod aside;
mod beat;
mod busy;
mod commit;
mod contents;
mod create;
mod find;
mod history;
mod key;
mod local;
mod log;
mod maintain;
mod moving;
mod neighbours;
mod newest;
mod page;
mod pages;
mod read;
mod scoped;
mod tables;
mod upload;
mod verify;
mod whole;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use peat_objects::{Meta, Store};
use peat_types::{
    ChangeId, CloneId, Env, Error, InstanceId, ItemPath, Namespace, Result, RunNonce, Seq, Timestamp, TxId, Unit,
    failed, in_span, number, step,
};
use tracing::field::Empty;

pub use self::again::Again;
pub use self::contents::Piece;
pub use self::history::{Kept, Past, UnitDiff};
pub use self::log::{LogPage, LogQuery};
pub use self::maintain::{
    Built, Checkpoint, Checkpointing, Collected, Collecting, Copies, Doomed, GcPlan, KnownUnit, MendPlan, Mended,
    Mending, ObjectKind, Pin, PurgePlan, Purged, Purging, Rebuild, Tail,
};

pub use self::moving::{Copied, CopyPlan, Prints};

use self::busy::Busy;
use self::commit::Attempt;
use self::local::Local;
pub use self::local::Together;
pub use self::neighbours::{Held, Neighbours, News, Turn};
use self::pages::Pages;
pub use self::tables::Tables;
pub use self::upload::{Pieces, Stored, StoredPiece};
pub use self::verify::{Broken, Flaw, Lost, Orphan, Verified};
use crate::model::{Beat, Draft, Entry, FileRow, Mark, NsInfo, PageCache, Params, Rank, State, TxHead, UnitRow};

#[cfg(test)]
pub(crate) use self::key::log as log_key;

/// What a new ledger is made from.
#[derive(Clone, Debug)]
pub struct NewLedger {
    /// Its namespace.
    pub namespace: Namespace,
    /// `repoId` of the repository that owns it.
    pub owner: String,
    /// Its limits.
    pub params: Params,
    /// Verdict of the probe.
    pub probe: serde_json::Value,
}

/// Handle of one ledger: a store prefixed to its namespace, its `ns.json`, and the environment. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    store: Arc<dyn Store>,
    info: Arc<NsInfo>,
    env: Env,
    clone: CloneId,
    instance: InstanceId,
    /// The highest entry that this handle or a copy of it knows to exist.
    seen: Arc<AtomicU64>,
    /// The highest entry that a listing showed: what was written here since may stand on nothing.
    shown: Arc<AtomicU64>,
    /// What was noticed about other writers.
    busy: Arc<Busy>,
    /// The writers of this process.
    local: Arc<Local>,
    /// Other processes of this clone, if there can be any.
    neighbours: Option<Arc<dyn Neighbours>>,
    together: Together,
}

/// What follows a position.
#[derive(Debug)]
pub enum Follow {
    /// Nothing new.
    Unchanged,
    /// Every entry after the position, in order.
    Entries(Vec<Entry>),
    /// Too far behind to read forward, or behind the floor: the new head. Compare directories.
    Jump(Box<State>),
}

/// Some of what follows a mark.
#[derive(Debug)]
pub enum Page {
    /// The next entries, in order; none when there is nothing new.
    Entries {
        /// The entries.
        entries: Vec<Entry>,
        /// Whether nothing came after them at this moment.
        end: bool,
    },
    /// What came after the mark is no longer kept: the head.
    Behind(Box<State>),
}

/// Answer to a scoped look.
#[derive(Debug)]
pub struct Scoped {
    /// The head all units were read at. `complete` tells whether it can be built upon.
    pub state: State,
    /// Whether `state` came from a whole entry (its hash is known).
    pub complete: bool,
    /// For each unit that changed since the caller's seq of it: its row now, `None` when it does not exist.
    pub units: Vec<(Unit, Option<UnitRow>)>,
    /// Whole entries read on the way, for the contents they brought along.
    pub entries: Vec<Entry>,
}

/// Why a planned transaction can never be committed as it is. Final for its txid (R7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dead {
    /// R1: the unit is not at the seq it was planned on.
    Moved(Unit),
    /// R2: a pack it introduces is below the horizon.
    Horizon,
    /// R3: something it refers to is no longer there.
    Gone,
}

/// Outcome of a commit. In every case `passed` are the whole entries read since the base, in order, to be applied.
#[derive(Debug)]
pub enum Commit {
    /// The transaction is in the log. `entry` is the *stored* one (R7).
    Committed {
        /// Entries between the base and the one that holds the transaction.
        passed: Vec<Entry>,
        /// The entry that holds it.
        entry: Box<Entry>,
    },
    /// This attempt is dead for ever, or it was committed at or before the state it was given; look for the change, then
    /// plan again under a new txid.
    Lost {
        /// Entries since the base; none when the base lies behind the floor (`why` is `Gone`: follow with a LIST).
        passed: Vec<Entry>,
        /// Why.
        why: Dead,
    },
    /// Nothing is known; the attempt may still land in the slot after the newest entry. Keep the journal row. (So it is
    /// with an error other than `Invalid` and `Conflict`, which are found before anything is sent.)
    Unknown {
        /// Entries since the base.
        passed: Vec<Entry>,
        /// What the store said last.
        error: Error,
    },
    /// Definitely not applied by this call (the store refuses this client, and the slot is empty). What an earlier
    /// process sent may still land.
    Refused {
        /// Entries since the base.
        passed: Vec<Entry>,
        /// What the store said.
        error: Error,
    },
}

impl Commit {
    /// The outcome in one word, for traces.
    const fn word(&self) -> &'static str {
        match self {
            Self::Committed { .. } => "committed",
            Self::Lost { .. } => "lost",
            Self::Unknown { .. } => "unknown",
            Self::Refused { .. } => "refused",
        }
    }
}

/// One entry as shown by the log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// Its number.
    pub seq: Seq,
    /// When it was made, by its writer's clock.
    pub time: Timestamp,
    /// When it was written, by the store's clock where that tells.
    pub written: Timestamp,
    /// Its size in the store.
    pub size: u64,
    /// Its transactions.
    pub txs: Vec<TxHead>,
}

impl Ledger {
    /// Creates the ledger, or finishes an interrupted creation of it. `AlreadyExists` (naming the owner) when the
    /// namespace belongs to another repository; an existing ledger of the same owner is opened.
    pub async fn create(
        store: Arc<dyn Store>,
        env: &Env,
        new: NewLedger,
        clone: CloneId,
        instance: InstanceId,
    ) -> Result<Self> {
        Box::pin(create::create(store, env, new, clone, instance)).await
    }

    /// Opens an existing ledger: one GET of `ns.json`. `None` when there is none.
    pub async fn open(store: Arc<dyn Store>, env: &Env, clone: CloneId, instance: InstanceId) -> Result<Option<Self>> {
        create::open(store, env, clone, instance).await
    }

    /// A handle from an `ns.json` that is known already: no request.
    pub fn with_info(store: Arc<dyn Store>, env: &Env, info: NsInfo, clone: CloneId, instance: InstanceId) -> Self {
        Self {
            store,
            info: Arc::new(info),
            env: env.clone(),
            clone,
            instance,
            seen: Arc::default(),
            shown: Arc::default(),
            busy: Arc::default(),
            local: Arc::default(),
            neighbours: None,
            together: Together::default(),
        }
    }

    /// This handle with another way of dealing with writers that come at the same time.
    #[must_use]
    pub fn with_together(self, together: Together) -> Self {
        Self { together, ..self }
    }

    /// This handle as one of several processes that write through one clone.
    #[must_use]
    pub fn with_neighbours(self, neighbours: Arc<dyn Neighbours>) -> Self {
        Self { neighbours: Some(neighbours), ..self }
    }

    /// Its `ns.json`.
    pub fn info(&self) -> &NsInfo {
        &self.info
    }

    /// The newest entry, read whole: LIST and GET. `Damaged` when the log is empty.
    pub async fn head(&self) -> Result<Entry> {
        Box::pin(self.head_entry(self.known(Seq::ZERO))).await
    }

    /// This handle of somebody who saw the entry `seq` before: a log that ends before it went back.
    #[must_use]
    pub fn with_seen(self, seq: Seq) -> Self {
        self.saw(seq);
        self
    }

    /// This handle of somebody to whom a listing showed the entry `seq` before: the next one has to, or the log was emptied
    /// and goes on from what was written since.
    #[must_use]
    pub fn with_shown(self, seq: Seq) -> Self {
        self.shown.fetch_max(seq.0, Ordering::Relaxed);
        self
    }

    /// Makes sure that the log still holds the entry that `state` was read from, or let go of it: LIST and GET.
    ///
    /// # Errors
    /// `Damaged` with code `rollback` or `fork` when it does not.
    pub async fn confirm(&self, state: &State) -> Result<()> {
        Box::pin(self.still_holds(state)).await
    }

    /// Everything after `state` (see `docs/design/001-ledger.md`, *Following*). `list` asks for a LIST instead of the
    /// probe of the next slot. `Damaged` with code `rollback` or `fork` when the log went back or is another one.
    pub async fn follow(&self, state: &State, list: bool) -> Result<Follow> {
        let span = step!("ledger.follow", peat.namespace = %self.info.namespace, peat.seq = number(state.seq.0), peat.entries = Empty);
        let follow = in_span(span.clone(), Box::pin(self.follow_from(state, list))).await?;
        if let Follow::Entries(entries) = &follow {
            span.record("peat.entries", number(entries.len()));
        }
        Ok(follow)
    }

    /// The next few entries after `from`, however far behind the head that is: never a jump over entries that are still
    /// kept, and never more in memory than a few entries. `known` is an entry that the caller knows to exist. `list` as for
    /// [`follow`](Self::follow), whose errors it has.
    pub async fn page(&self, from: Mark, known: Seq, list: bool) -> Result<Page> {
        let span = step!("ledger.page", peat.namespace = %self.info.namespace, peat.seq = number(known.0));
        in_span(span, Box::pin(page::page(self, from, known, list))).await
    }

    /// The units named, each with the seq the caller has of it (`None`: never seen), at one head (*Scoped*).
    pub async fn scoped(
        &self,
        state: &State,
        list: bool,
        units: &[(Unit, Option<Seq>)],
        cache: &dyn PageCache,
    ) -> Result<Scoped> {
        let span = step!("ledger.scoped", peat.namespace = %self.info.namespace, peat.seq = number(state.seq.0), peat.units = number(units.len()));
        in_span(span, Box::pin(scoped::scoped(self, state, list, units, cache))).await
    }

    /// Entries that tables and contents of `state` lie in, whole: one request for each instead of several. None when they
    /// are very many.
    pub async fn entries_of(&self, state: &State, slots: &BTreeSet<Seq>) -> Result<Vec<Entry>> {
        Box::pin(self.entries_at(state, slots)).await
    }

    /// All units of a state.
    pub async fn directory(&self, state: &State, cache: &dyn PageCache) -> Result<Vec<(Unit, UnitRow)>> {
        let pages = Pages::new(self, cache);
        let read = Box::pin(pages.directory(state)).await;
        self.read_from(state.root.directory, read).await
    }

    /// All units of a state, and the entries that were read whole for it: who takes the state over finds in them what was
    /// changed together with the pages of the directory.
    pub async fn directory_and_entries(
        &self,
        state: &State,
        cache: &dyn PageCache,
    ) -> Result<(Vec<(Unit, UnitRow)>, Vec<Entry>)> {
        let read = Box::pin(tables::directory_and_entries(self, state, cache)).await;
        self.read_from(state.root.directory, read).await
    }

    /// One unit of a state.
    pub async fn unit(&self, state: &State, unit: &Unit, cache: &dyn PageCache) -> Result<Option<UnitRow>> {
        let read = Pages::new(self, cache).unit(state, unit).await;
        self.read_from(state.root.directory, read).await
    }

    /// Fetches the tables of many units; pages that are missing from the cache come in few, coalesced reads, and are held
    /// until the result is dropped: some 90 bytes per file.
    pub async fn tables_ahead<'a>(&'a self, rows: &[&UnitRow], cache: &'a dyn PageCache) -> Result<Tables<'a>> {
        Box::pin(Tables::ahead(self, rows, cache)).await
    }

    /// All files of units, fetched as by [`Ledger::tables_ahead`].
    pub async fn tables(
        &self,
        rows: &[&UnitRow],
        cache: &dyn PageCache,
    ) -> Result<Vec<Vec<(Rank, ItemPath, FileRow)>>> {
        let tables = self.tables_ahead(rows, cache).await?;
        let mut out = Vec::with_capacity(rows.len());
        for row in rows {
            out.push(tables.files(row).await?);
        }
        Ok(out)
    }

    /// Contents of rows, in order, verified; reads are coalesced. `at_hand` are entries whose bytes are here already.
    pub async fn contents(&self, rows: &[&FileRow], at_hand: &[Entry]) -> Result<Vec<Bytes>> {
        let span = step!("ledger.contents", peat.namespace = %self.info.namespace, peat.items = number(rows.len()));
        in_span(span, Box::pin(contents::contents(self, rows, at_hand))).await
    }

    /// The entry after `since` that holds `change`, found by walking back the chain of entries that touched `unit`.
    /// `Damaged` with code `history_gone` when the chain leads below the floor: then it cannot be told.
    pub async fn find_change(
        &self,
        state: &State,
        unit: &Unit,
        since: Seq,
        change: ChangeId,
        cache: &dyn PageCache,
    ) -> Result<Option<(Seq, TxId)>> {
        Box::pin(find::change(self, state, unit, since, change, cache)).await
    }

    /// Commits a draft on `state`, or tells why not (*Committing*). Gives up as unknown when `patience_ms` is over.
    /// `read_at` is `Env::monotonic` just before the request that showed `state` to be the head.
    pub async fn commit(
        &self,
        state: &State,
        read_at: Duration,
        draft: &Draft,
        cache: &dyn PageCache,
        patience_ms: u64,
    ) -> Result<Commit> {
        let span = step!(
            "ledger.commit",
            peat.namespace = %self.info.namespace,
            peat.units = number(draft.units.len()),
            peat.seq = Empty,
            peat.attempts = Empty,
            peat.outcome = Empty,
        );
        let work = async {
            match Attempt::new(self, state, read_at, draft, cache, patience_ms).await {
                Ok(attempt) => Box::pin(attempt.run()).await,
                // The state lies behind the floor.
                Err(error) if Self::is_gone(&error) => Ok(Commit::Lost { passed: Vec::new(), why: Dead::Gone }),
                Err(error) => Err(error),
            }
        };
        let outcome = in_span(span.clone(), Box::pin(work)).await?;
        span.record("peat.outcome", outcome.word());
        match &outcome {
            Commit::Committed { entry, .. } => {
                span.record("peat.seq", number(entry.state.seq.0));
            }
            Commit::Unknown { error, .. } | Commit::Refused { error, .. } => failed(&span, error),
            Commit::Lost { .. } => {}
        }
        Ok(outcome)
    }

    /// Entries, newest first: one LIST and a 16 KiB GET for each; of one unit a few GET more for the directory.
    pub async fn log(&self, query: &LogQuery, cache: &dyn PageCache) -> Result<LogPage> {
        let span = step!("ledger.log", peat.namespace = %self.info.namespace);
        in_span(span, Box::pin(log::log(self, query, cache))).await
    }

    /// Checks contiguity, chain, CRCs, horizons and that every reference of the head resolves; `deep` hashes contents.
    pub async fn verify(&self, deep: bool) -> Result<Verified> {
        let depth = if deep { verify::Depth::Contents } else { verify::Depth::References };
        let span = step!("ledger.verify", peat.namespace = %self.info.namespace);
        in_span(span, Box::pin(verify::verify(self, depth, None))).await
    }

    /// The cheap part of [`verify`](Self::verify): objects by name and size. A few listings and reads, however large the
    /// ledger is.
    pub async fn inventory(&self) -> Result<Verified> {
        let span = step!("ledger.verify", peat.namespace = %self.info.namespace);
        in_span(span, Box::pin(verify::verify(self, verify::Depth::Names, None))).await
    }

    /// Any object of the ledger as JSON.
    pub async fn cat(&self, key: &str) -> Result<serde_json::Value> {
        log::cat(self, key).await
    }

    /// Overwrites this instance's beat.
    pub async fn beat_put(&self, base: Seq, beat: &Beat) -> Result<()> {
        beat::put(self, base, beat).await
    }

    /// The bytes of an instance's beat; `None` only for a definite 404.
    pub async fn beat_get(&self, base: Seq, instance: InstanceId) -> Result<Option<(Bytes, Beat)>> {
        Ok(self.beat_seen(base, instance).await?.map(|(bytes, beat, _)| (bytes, beat)))
    }

    /// As [`beat_get`](Self::beat_get), with the server's times.
    pub async fn beat_seen(&self, base: Seq, instance: InstanceId) -> Result<Option<(Bytes, Beat, Meta)>> {
        beat::get(self, base, instance).await
    }

    /// Removes this instance's beat when none of its runs is alive (`nonces` are those that are); best effort.
    pub async fn beat_end(&self, base: Seq, nonces: &[RunNonce]) {
        beat::end(self, base, nonces).await;
    }
}
