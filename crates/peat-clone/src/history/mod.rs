//! The past: which states are kept, what each of them held, what differs between two, and changes that take the present
//! back to one.

mod restore;
mod rewrite;
mod undo;

use bytes::Bytes;
use peat_ledger::{Entry, Kept, Ledger, LogPage, LogQuery, Past, UnitDiff};
use peat_types::{Error, ItemPath, Kind, Result, Seq, Timestamp, Unit};

pub use self::restore::Restore;
pub use self::rewrite::{REWRITE, Rewrite, RewriteUnit, Step, Stored, plan_rewrite};
pub use self::undo::Undo;

use crate::handle::{Inner, fits_memory};
use crate::{Item, LocalClone};

impl LocalClone {
    /// Entries of the log, newest first, read from the store.
    pub async fn log(&self, query: &LogQuery) -> Result<LogPage> {
        self.0.ledger.log(query, &self.0.db).await
    }

    /// Entries that this clone read whole, newest first: no request. Some may be missing in between, and those before the
    /// clone was made are. Their times are those of their writers.
    pub fn log_here(&self, query: &LogQuery) -> Result<LogPage> {
        let all = self.0.db.headers()?;
        let first = all.last().map_or(Seq::ZERO, |line| line.seq);
        let mut wanted = all.into_iter().filter_map(|line| query.of_line(line));
        let lines = wanted.by_ref().take(query.count.unwrap_or(usize::MAX)).collect();
        Ok(LogPage { lines, first, more: wanted.next().is_some(), unread: Vec::new() })
    }

    /// Which entries and states are kept, as the head of the log says.
    pub async fn kept(&self) -> Result<Kept> {
        self.0.ledger.kept().await
    }

    /// The state after an entry. Errors as [`Ledger::past`].
    pub async fn past(&self, kept: &Kept, seq: Seq) -> Result<Past> {
        self.0.ledger.past(kept, seq).await
    }

    /// The newest state written at or before `time`. Errors as [`Ledger::past_at`].
    pub async fn past_at(&self, kept: &Kept, time: Timestamp) -> Result<Past> {
        Box::pin(self.0.ledger.past_at(kept, time)).await
    }

    /// An entry, whole, and when it was written. Errors as [`Ledger::entry_at`].
    pub async fn entry(&self, kept: &Kept, seq: Seq) -> Result<(Entry, Timestamp)> {
        self.0.ledger.entry_at(kept, seq).await
    }

    /// What differs between two states, in some units or all.
    pub async fn compare(&self, before: &Past, after: &Past, units: Option<&[Unit]>) -> Result<Vec<UnitDiff>> {
        let compared = Box::pin(self.0.ledger.compare(before, after, units, &self.0.db)).await;
        compared.map_err(|error| let_go(error, "one of the two states"))
    }

    /// Items of a unit in a state whose path starts with `prefix`, by path.
    pub async fn past_items(&self, past: &Past, unit: &Unit, prefix: &str) -> Result<Vec<Item>> {
        let files = Box::pin(self.0.ledger.past_files(past, unit, &self.0.db)).await;
        let files = files.map_err(|error| let_go(error, &format!("the state after entry {}", past.state.seq)))?;
        let wanted = files.into_iter().filter(|(_, path, _)| path.as_str().starts_with(prefix));
        let mut items: Vec<Item> =
            wanted.map(|(rank, path, row)| Item { unit: unit.clone(), path, rank, row }).collect();
        items.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(items)
    }

    /// Contents of items of any state, in order: from this machine where they are here, else from the store, neighbours
    /// together. `at_hand` are entries that were read already.
    pub async fn past_contents(&self, items: &[&Item], at_hand: &[Entry]) -> Result<Vec<Bytes>> {
        items.iter().try_for_each(|item| fits_memory(&item.path, item.size()))?;
        Box::pin(self.0.past_contents(items, at_hand)).await
    }
}

impl Inner {
    pub(crate) async fn past_contents(&self, items: &[&Item], at_hand: &[Entry]) -> Result<Vec<Bytes>> {
        let here: Vec<Option<Bytes>> = items.iter().map(|item| self.content_here(item)).collect::<Result<_>>()?;
        let away: Vec<_> =
            items.iter().zip(&here).filter(|(_, here)| here.is_none()).map(|(item, _)| &item.row).collect();
        let fetched = self.ledger.contents(&away, at_hand).await.map_err(past_unread)?;
        let mut fetched = fetched.into_iter();
        let all = here.into_iter().map(|here| here.or_else(|| fetched.next()));
        all.map(|bytes| bytes.ok_or_else(|| Error::internal("fewer contents than rows"))).collect()
    }
}

/// Why contents of an older state cannot be read.
pub(crate) fn past_unread(error: Error) -> Error {
    match error.kind() {
        Kind::Offline => error
            .context("contents of older states are not on this machine, and the store cannot be asked")
            .with_code("not_local")
            .with_hint("run the command again when the store answers"),
        _ => let_go(error, "a content that was asked for"),
    }
}

/// Garbage collection went over a state while it was read, or an entry below the floor refers to what is gone.
fn let_go(error: Error, what: &str) -> Error {
    if !Ledger::is_gone(&error) {
        return error;
    }
    Error::not_found(format!("{what} is no longer kept: garbage collection let go of it"))
        .with_code("state_not_kept")
        .with_hint("'peat log' shows what is kept")
        .with_source(error)
}

/// Leases are no part of what is looked back at or taken back: their generations only grow.
pub(crate) fn is_lease(path: &ItemPath) -> bool {
    crate::db::is_lease(path)
}
