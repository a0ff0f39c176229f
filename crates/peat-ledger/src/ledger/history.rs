//! Looking back: which states are kept, which of them was current at a time, and what differs between two of them.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use peat_types::{Error, ItemPath, Kind, Result, Seq, Timestamp, Unit};

use super::Ledger;
use super::pages::Pages;
use super::read::Glance;
use crate::format::{self, FileDiff};
use crate::model::{Entry, FileRow, PageCache, Rank, State, UnitRow};

/// Units whose tables are compared at once.
const PARALLEL: usize = 8;

/// What the head of the log says about which entries and states are kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The newest state.
    pub newest: Past,
    /// `Env::monotonic` before it was asked for.
    asked: Duration,
}

impl Kept {
    /// The number of the newest state.
    pub fn head(&self) -> Seq {
        self.newest.state.seq
    }

    /// F: the oldest state that can be read.
    pub fn floor(&self) -> Seq {
        self.newest.state.root.floor
    }

    /// K: the oldest entry that can be read. What it refers to may be gone when it lies below the floor.
    pub fn first_entry(&self) -> Seq {
        self.newest.state.root.keep
    }
}

/// A state, to be read from. (Whether it can be built upon is another matter: its hash may be unknown.)
#[derive(Clone, Debug)]
pub struct Past {
    /// The state after an entry.
    pub state: State,
    /// When the entry was written: by the store's clock, or by its writer's where the store does not say.
    pub written: Timestamp,
    /// The first bytes of the entry.
    prefix: Bytes,
}

impl Past {
    fn of(glance: Glance) -> Self {
        Self { state: glance.state, written: glance.written, prefix: glance.prefix }
    }

    /// Makes what was read of it a source of pages.
    pub(super) fn near(&self, pages: &mut Pages<'_>) {
        pages.hold(self.state.seq, self.prefix.clone());
    }
}

/// A unit that differs between two states.
#[derive(Clone, Debug)]
pub struct UnitDiff {
    /// The unit.
    pub unit: Unit,
    /// Its row before.
    pub before: Option<UnitRow>,
    /// Its row after.
    pub after: Option<UnitRow>,
    /// Its files that differ, by path: before and after, each with its rank.
    pub files: Vec<(ItemPath, FileDiff)>,
}

impl Ledger {
    /// Which entries and states are kept: one LIST and a 16 KiB GET.
    pub async fn kept(&self) -> Result<Kept> {
        let asked = self.env.monotonic();
        let head = self.glance_head(self.known(Seq::ZERO)).await?;
        Ok(Kept { newest: Past::of(head), asked })
    }

    /// The state after an entry: a 16 KiB GET, none for the newest.
    ///
    /// # Errors
    /// `NotFound` with code `entry_not_found` when it is not in the log yet, and `state_not_kept` when it was let go.
    pub async fn past(&self, kept: &Kept, seq: Seq) -> Result<Past> {
        if seq == kept.head() {
            return Ok(kept.newest.clone());
        }
        self.not_yet(kept, seq)?;
        if seq < kept.floor() {
            return Err(self.not_kept(kept, &format!("the state after entry {seq}")).await);
        }
        let glance = self.slot(kept, seq).await?;
        if let Some(now) = self.renewed(kept).await?.filter(|now| seq < now.floor()) {
            return Err(self.not_kept(&now, &format!("the state after entry {seq}")).await);
        }
        Ok(Past::of(glance))
    }

    /// The newest state that was written at or before `time`: found by halving, so one GET for each doubling of the
    /// number of states that are kept, and two more.
    ///
    /// # Errors
    /// `NotFound` with code `state_not_kept` when that was before the oldest state that is kept.
    pub async fn past_at(&self, kept: &Kept, time: Timestamp) -> Result<Past> {
        if kept.newest.written <= time {
            return Ok(kept.newest.clone());
        }
        let mut low = self.past(kept, kept.floor()).await?;
        if low.written > time {
            return Err(self.not_kept(kept, &format!("the state of {time}")).await);
        }
        let mut high = kept.head();
        while high.0 - low.state.seq.0 > 1 {
            let middle = Seq(low.state.seq.0.midpoint(high.0));
            let past = self.past(kept, middle).await?;
            if past.written <= time {
                low = past;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// An entry, whole, and when it was written.
    ///
    /// # Errors
    /// `NotFound` with code `entry_not_found` when it is not in the log yet or was cleared away.
    pub async fn entry_at(&self, kept: &Kept, seq: Seq) -> Result<(Entry, Timestamp)> {
        self.not_yet(kept, seq)?;
        if seq < kept.first_entry() {
            return Err(self.cleared(kept, seq));
        }
        let read = self.entry_seen(seq).await?;
        match read {
            Some((entry, meta)) if self.renewed(kept).await?.is_none_or(|now| now.first_entry() <= seq) => {
                let at = self.written(&entry.state, entry.time, &meta);
                Ok((entry, at))
            }
            _ => Err(self.lost(seq).await?),
        }
    }

    /// Header of an entry that is kept.
    pub(super) async fn glance_entry(&self, kept: &Kept, seq: Seq) -> Result<Glance> {
        let glance = self.slot(kept, seq).await?;
        match self.renewed(kept).await? {
            Some(now) if seq < now.first_entry() => Err(self.cleared(&now, seq)),
            _ => Ok(glance),
        }
    }

    /// What differs between two states, in some units or all. Pages both states share are not read, so it costs what
    /// differs; a checkpoint between the two costs the directory once more.
    pub async fn compare(
        &self,
        before: &Past,
        after: &Past,
        units: Option<&[Unit]>,
        cache: &dyn PageCache,
    ) -> Result<Vec<UnitDiff>> {
        let mut pages = Pages::new(self, cache);
        before.near(&mut pages);
        after.near(&mut pages);
        let rows: Vec<(Unit, Option<UnitRow>, Option<UnitRow>)> = match units {
            None => {
                let all = format::directory_diff(&before.state, &after.state, &pages).await?;
                all.into_iter().map(|(unit, (was, is))| (unit, was, is)).collect()
            }
            Some(units) => {
                let named: Vec<&Unit> = units.iter().collect();
                let was = format::unit_rows(&before.state, &named, &pages).await?;
                let is = format::unit_rows(&after.state, &named, &pages).await?;
                units.iter().cloned().zip(was).zip(is).map(|((unit, was), is)| (unit, was, is)).collect()
            }
        };
        // A checkpoint moves the table of a unit, but within one ledger an equal last seq means an equal unit.
        let seq = |row: &Option<UnitRow>| row.as_ref().map(|row| row.last_seq);
        let pages = &pages;
        let reads =
            rows.into_iter().filter(|(_, was, is)| seq(was) != seq(is)).map(|(unit, before, after)| async move {
                let files = format::table_diff(before.as_ref(), after.as_ref(), pages).await?;
                Ok(UnitDiff { unit, before, after, files: files.into_iter().collect() })
            });
        stream::iter(reads).buffered(PARALLEL).try_collect().await
    }

    /// All files of a unit in a state; none when it does not exist there.
    pub async fn past_files(
        &self,
        past: &Past,
        unit: &Unit,
        cache: &dyn PageCache,
    ) -> Result<Vec<(Rank, ItemPath, FileRow)>> {
        let mut pages = Pages::new(self, cache);
        past.near(&mut pages);
        let Some(row) = pages.unit(&past.state, unit).await? else { return Ok(Vec::new()) };
        pages.prefetch_trees(row.table.into_iter().collect()).await?;
        format::table(&row, &pages).await
    }

    async fn slot(&self, kept: &Kept, seq: Seq) -> Result<Glance> {
        match self.glance(seq).await {
            Ok(Some(glance)) => Ok(glance),
            Err(error) if error.kind() != Kind::Damaged => Err(error),
            missing => {
                let now = self.kept().await?;
                if seq < now.first_entry() {
                    return Err(self.cleared(&now, seq));
                }
                if seq < now.floor() && seq >= kept.floor() {
                    return Err(self.not_kept(&now, &format!("the state after entry {seq}")).await);
                }
                missing?.ok_or_else(|| self.missing(seq))
            }
        }
    }

    /// What the head says now, when the last look at it is so old that slots may have been cleared away since and
    /// created again, void (R6).
    async fn renewed(&self, kept: &Kept) -> Result<Option<Kept>> {
        let fresh = Duration::from_millis(self.info.params.fresh_ms);
        let old = self.env.monotonic().saturating_sub(kept.asked) > fresh;
        Ok(if old { Some(self.kept().await?) } else { None })
    }

    fn not_yet(&self, kept: &Kept, seq: Seq) -> Result<()> {
        if seq <= kept.head() {
            return Ok(());
        }
        Err(Error::not_found(format!("there is no entry {seq} in {}: the newest is {}", self.store, kept.head()))
            .with_code("entry_not_found")
            .with_hint("'peat log' shows the newest entries"))
    }

    fn cleared(&self, kept: &Kept, seq: Seq) -> Error {
        let first = kept.first_entry();
        Error::not_found(format!("entry {seq} is no longer kept in {}: the log begins with entry {first}", self.store))
            .with_code("entry_not_found")
            .with_hint("'peat log' shows the newest entries")
    }

    async fn lost(&self, seq: Seq) -> Result<Error> {
        let now = self.kept().await?;
        Ok(if seq < now.first_entry() { self.cleared(&now, seq) } else { self.missing(seq) })
    }

    async fn not_kept(&self, kept: &Kept, what: &str) -> Error {
        let floor = kept.floor();
        if floor == Seq::ZERO {
            return Error::not_found(format!("{what} is before the ledger was created"))
                .with_code("state_not_kept")
                .with_hint("'peat log' shows its entries");
        }
        let when = match self.glance(floor).await {
            Ok(Some(oldest)) => format!(", written {}", oldest.written),
            // When it was written is a service; that it is the oldest is the answer.
            _ => String::new(),
        };
        Error::not_found(format!(
            "{what} is no longer kept: the oldest that can be read is that of entry {floor}{when}"
        ))
        .with_code("state_not_kept")
        .with_hint("name that entry or a later one; older states were let go by garbage collection")
    }
}
