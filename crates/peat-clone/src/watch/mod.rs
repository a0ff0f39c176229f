//! Following a namespace: every change of the log, in order, from a cursor that survives restarts.
//!
//! The cursor belongs to whoever follows, not to the clone: other processes of the clone move its position, and `state.db`
//! may be rebuilt at any time. See `docs/design/009-watch.md`.

mod cursor;
mod pace;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{Content, Entry, FileRow, Mark, Page, Segment, State, TxHead, UnitOps};
use peat_types::{Error, Kind, Result, Seq, Timestamp, Unit};

use self::cursor::{Cursor, Stored};
use self::pace::Pace;
use crate::Event;
use crate::db::{self, Moment};
use crate::handle::{Inner, fits_memory};
use crate::sync::{AtHand, Look};

/// How a namespace is followed.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Name of the cursor. One clone may have several, each followed by one process at a time.
    pub name: String,
    /// Where a name that has no cursor yet begins: after this entry, or after the newest one when absent.
    pub since: Option<Seq>,
    /// Longest pause between two looks at the store while it answers.
    pub interval: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { name: "default".to_owned(), since: None, interval: Duration::from_secs(2) }
    }
}

/// What is seen when a namespace is followed.
#[derive(Clone, Debug)]
pub enum Watched {
    /// A change.
    Change(Box<WatchedChange>),
    /// The changes in between are no longer kept by the ledger; what they led to is.
    Jumped(Jumped),
}

/// One transaction of the log.
#[derive(Clone, Debug)]
pub struct WatchedChange {
    /// The entry that holds it.
    pub seq: Seq,
    /// When the entry was written, by its writer's clock.
    pub time: Timestamp,
    /// What it is: ids, kind, author, message, units.
    pub head: TxHead,
    /// What it did.
    pub ops: Vec<UnitOps>,
}

/// A gap: history that is gone.
#[derive(Clone, Debug)]
pub struct Jumped {
    /// The last entry that was seen.
    pub from: Seq,
    /// The entry that is followed from now on.
    pub to: Seq,
    /// Units that one of the entries in between changed, by name.
    pub changed: Vec<Unit>,
    /// Units this clone knew and that are not there any more, by name.
    pub removed: Vec<Unit>,
}

/// Follows a namespace. While it lives nobody else can follow under its name from this clone.
///
/// Every method may be cancelled at any time: nothing is lost, and what was not confirmed by [`done`](Self::done) or
/// [`pass`](Self::pass) is given again, in this process and in the next one.
pub struct Watch {
    inner: Arc<Inner>,
    stored: Stored,
    fresh: bool,
    /// Where it stands: everything before was done or passed.
    cursor: Cursor,
    /// Entries read after the cursor, the first of which may be partly done.
    page: Vec<Entry>,
    /// Whether nothing came after them when they were read.
    end: bool,
    /// A gap that was found after the cursor, and where it ends.
    gap: Option<(Jumped, Mark)>,
    /// When it was last certain that the entry after the cursor is valid, and when the log was last listed.
    valid: Option<Moment>,
    listed: Option<Moment>,
    pace: Pace,
    /// Since when the store does not answer, by `Env::monotonic`.
    away: Option<Duration>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) async fn open(inner: Arc<Inner>, options: &WatchOptions) -> Result<Self> {
        let mut stored = Stored::lock(&inner, &options.name)?;
        let known = stored.read(inner.ledger.info().ledger)?;
        let fresh = known.is_none();
        let cursor = match known {
            Some(cursor) => cursor,
            None => {
                let cursor = Cursor::new(begin(&inner, options.since).await?);
                stored.write(&inner, &cursor)?;
                cursor
            }
        };
        let pace = Pace::new(options.interval);
        let (page, end, gap, valid, listed, away) = (Vec::new(), false, None, None, None, None);
        Ok(Self { inner, stored, fresh, cursor, page, end, gap, valid, listed, pace, away })
    }

    /// The last entry all of whose changes were done or passed.
    pub fn seq(&self) -> Seq {
        self.cursor.mark.seq
    }

    /// Whether nobody followed under this name before.
    pub fn is_new(&self) -> bool {
        self.fresh
    }

    /// The next change, waiting until there is one. While the store does not answer, or a login has ended, it keeps
    /// trying, with growing pauses, and tells the reporter once.
    ///
    /// # Errors
    /// `Damaged` with codes `rollback`, `fork` and so on, as a pull: the log is not the one that was followed; `Conflict` with
    /// code `moved` once all of a ledger that moved was seen. Other errors that trying again does not help against.
    pub async fn next(&mut self) -> Result<Watched> {
        loop {
            match Box::pin(self.look()).await {
                Ok(true) => {
                    if let Some(found) = self.peek() {
                        return Ok(found);
                    }
                }
                Ok(false) => {
                    self.save()?;
                    // All that came before it was seen, and nothing comes any more.
                    if let Some(moved) = self.inner.db.heads()?.head.and_then(|head| head.root.moved) {
                        return Err(self.inner.ledger.gone_to(&moved));
                    }
                    let pause = self.pace.quiet(&self.inner.env);
                    self.inner.env.sleep(pause).await;
                }
                Err(error) if passing(&error) => {
                    if self.away.is_none() {
                        self.away = Some(self.inner.env.monotonic());
                        self.inner.options.reporter.report(Event::StoreAway { error: &error });
                    }
                    let pause = self.pace.failed(&self.inner.env);
                    self.inner.env.sleep(pause).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next change if there is one now; one look at the store at most.
    ///
    /// # Errors
    /// As [`next`](Self::next), and `Offline`.
    pub async fn poll(&mut self) -> Result<Option<Watched>> {
        while self.look().await? {
            if let Some(found) = self.peek() {
                return Ok(Some(found));
            }
        }
        self.save()?;
        Ok(None)
    }

    /// What was given last is done and is not given again, not even after a power cut.
    pub async fn done(&mut self) -> Result<()> {
        self.inner.env.step("watch.done").await;
        self.pass();
        self.save()?;
        self.inner.env.step("watch.saved").await;
        Ok(())
    }

    /// What was given last is of no interest. Remembered no later than the next `done`, or when all was seen.
    pub fn pass(&mut self) {
        if let Some((_, mark)) = self.gap.take() {
            self.cursor = Cursor::new(mark);
        } else if let Some(entry) = self.page.first() {
            self.cursor.within += 1;
            if self.cursor.within >= entry.txs.len() {
                self.cursor = Cursor::new(entry.state.mark());
                self.page.remove(0);
            }
        }
    }

    /// Contents of rows of the change that was given last, from the entry it came with when they are in there.
    pub async fn contents(&self, rows: &[&FileRow]) -> Result<Vec<Bytes>> {
        rows.iter().try_for_each(|row| fits_memory("a content", row.size))?;
        let own: Vec<Entry> = self.page.first().cloned().into_iter().collect();
        let near = |row: &FileRow| match &row.content {
            Content::Tiny(_) => true,
            Content::At(at) => own.iter().any(|entry| at.block.segment == Segment::Log(entry.state.seq)),
            Content::Parts(_) => false,
        };
        let at_hand: &[Entry] = if rows.iter().any(|row| near(row)) { &own } else { &[] };
        self.inner.ledger.contents(rows, at_hand).await
    }

    /// What comes next of that which was read.
    fn peek(&mut self) -> Option<Watched> {
        if let Some((jumped, _)) = &self.gap {
            return Some(Watched::Jumped(jumped.clone()));
        }
        let (entry, at) = loop {
            let entry = self.page.first()?;
            // A transaction that names no unit is maintenance: it changes nothing of what the namespace holds.
            let rest = entry.txs.iter().skip(self.cursor.within);
            if let Some(skipped) = rest.map(|tx| &tx.units).position(|units| !units.is_empty()) {
                self.cursor.within += skipped;
                break (entry, self.cursor.within);
            }
            self.cursor = Cursor::new(entry.state.mark());
            self.page.remove(0);
        };
        let (head, ops) = entry.txs.get(at).zip(entry.ops.get(at))?;
        Some(Watched::Change(Box::new(WatchedChange {
            seq: entry.state.seq,
            time: entry.time,
            head: head.clone(),
            ops: ops.clone(),
        })))
    }

    /// Makes sure that something is there to be given; reads the next page if need be. `false` when nothing is new.
    async fn look(&mut self) -> Result<bool> {
        if self.gap.is_some() || !self.page.is_empty() {
            return Ok(true);
        }
        if std::mem::take(&mut self.end) {
            return Ok(false);
        }
        let params = &self.inner.ledger.info().params;
        let older = |moment: Option<Moment>, ms| {
            moment.is_none_or(|moment| moment.age(&self.inner.env) >= Duration::from_millis(ms))
        };
        let list = older(self.valid, params.fresh_ms) || older(self.listed, params.relist_ms);
        let at = Moment::now(&self.inner.env);
        let known = self.inner.db.read(db::head_seq)?.unwrap_or_default();
        let page = self.inner.ledger.page(self.cursor.mark, known, list).await?;
        self.inner.env.step("watch.read").await;
        let found = match page {
            Page::Entries { entries, end } => {
                if entries.is_empty() {
                    self.inner.db.seen(self.cursor.mark.seq, at, list)?;
                } else {
                    // Only who reached the end knows that what it read was the newest.
                    let read = if end || list { at } else { self.valid.unwrap_or(at) };
                    let applied = self.inner.apply(&entries, read, list, false).await?;
                    self.inner.hydrate_at_hand(applied, &AtHand::entries(entries.clone())).await;
                }
                if list || end {
                    self.valid = Some(at);
                }
                self.end = end && !entries.is_empty();
                self.page = entries;
                !self.page.is_empty()
            }
            Page::Behind(state) => {
                self.gap = Some(self.jump(&state, at).await?);
                self.valid = Some(at);
                true
            }
        };
        if list {
            self.listed = Some(at);
        }
        if found {
            self.pace.news();
        }
        self.pace.answered();
        if let Some(since) = self.away.take() {
            let away = self.inner.env.monotonic().saturating_sub(since);
            self.inner.options.reporter.report(Event::StoreBack { away });
        }
        Ok(found)
    }

    /// Takes the clone to the head as a pull would, and tells what the entries in between changed.
    async fn jump(&self, state: &State, at: Moment) -> Result<(Jumped, Mark)> {
        let from = self.cursor.mark.seq;
        let directory = self.inner.ledger.directory(state, &self.inner.db).await?;
        let known = self.inner.db.units()?;
        let removed = known.into_iter().map(|known| known.unit);
        let removed =
            removed.filter(|unit| directory.binary_search_by(|(there, _)| there.cmp(unit)).is_err()).collect();
        if self.inner.db.read(db::position_seq)?.is_some() {
            self.inner.jump(state, at, true).await?;
        } else {
            self.inner.jump_head(state, at)?;
        }
        // The last seq of a unit says exactly whether it changed after the cursor, whatever this clone knew of it.
        let changed = directory.into_iter().filter(|(_, row)| row.last_seq > from).map(|(unit, _)| unit).collect();
        Ok((Jumped { from, to: state.seq, changed, removed }, state.mark()))
    }

    fn save(&mut self) -> Result<()> {
        self.stored.write(&self.inner, &self.cursor)
    }
}

/// Where a new cursor stands.
async fn begin(inner: &Inner, since: Option<Seq>) -> Result<Mark> {
    inner.look(Look::List).await?;
    let head = inner.db.heads()?.head.ok_or_else(|| Error::internal("no head after looking for it"))?;
    match since {
        None => Ok(head.mark()),
        Some(since) if since <= head.seq => Ok(Mark { seq: since, hash: [0; 16] }),
        Some(since) => Err(Error::invalid(format!("the newest entry is {}, there is no entry {since} yet", head.seq))
            .with_hint("'peat log' shows the newest entries")),
    }
}

/// Whether an error may go away without this process being started again. A login that has ended is renewed elsewhere.
fn passing(error: &Error) -> bool {
    matches!(error.kind(), Kind::Offline | Kind::Contended) || error.has_code("credentials_expired")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_has_ended_is_waited_out_and_a_missing_right_is_not() {
        let denied = |code| Error::new(Kind::Denied, "refused").with_code(code).context("read log/1");
        assert!(passing(&denied("credentials_expired")));
        assert!(!passing(&denied("denied")));
        assert!(passing(&Error::new(Kind::Offline, "no answer")));
        assert!(!passing(&Error::damaged("rollback")));
    }
}
