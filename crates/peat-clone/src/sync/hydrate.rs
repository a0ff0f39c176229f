//! The tree follows the index.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::StreamExt;
use peat_ledger::{Content, Entry, FileRow, Ledger, Piece, Segment};
use peat_types::{Hash, Result, Unit, in_span, number, step};
use tracing::field::Empty;

use super::content::{LOST, lost_content, not_in_the_way};
use crate::byhand::Sent;
use crate::db::{self, Applied, Todo};
use crate::handle::Inner;
use crate::tree::{Glance, Partial};
use crate::{Brought, Event, Hydration, Item};

/// Notes looked at in one go.
pub(crate) const WINDOW: usize = 16_384;
/// Notes settled in one transaction.
const BATCH: usize = 512;
/// Contents up to this size are read at once.
const SMALL: u64 = 1 << 20;

/// Bytes that are here already.
#[derive(Default)]
pub(crate) struct AtHand {
    entries: Vec<Entry>,
    contents: BTreeMap<Hash, Brought>,
}

impl AtHand {
    pub(crate) fn entries(entries: Vec<Entry>) -> Self {
        Self { entries, contents: BTreeMap::new() }
    }

    pub(crate) fn with(mut self, contents: BTreeMap<Hash, Brought>) -> Self {
        self.contents = contents;
        self
    }

    fn has(&self, item: &Item) -> bool {
        match &item.row.content {
            Content::Tiny(_) => true,
            Content::At(at) => self.entries.iter().any(|entry| at.block.segment == Segment::Log(entry.state.seq)),
            Content::Parts(_) => false,
        }
    }
}

/// Contents that became local.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fetched {
    pub(crate) bytes: u64,
    /// Files of items that changed before this process began.
    pub(crate) restored: u64,
}

impl std::ops::AddAssign for Fetched {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.restored += more.restored;
    }
}

/// What was done about notes.
struct Work<'a> {
    of: u64,
    done: u64,
    fetched: Fetched,
    /// Notes that are to be settled.
    shown: Vec<Shown<'a>>,
    sent: Sent,
}

/// A note that was seen to.
struct Shown<'a> {
    todo: &'a Todo,
    /// What the path held then.
    item: Option<Item>,
    /// Whether the file is somebody's newer one; else it is what the item says, or gone.
    newer: bool,
}

impl<'a> Work<'a> {
    fn shown(&mut self, todo: &'a Todo, item: Option<Item>) {
        self.shown.push(Shown { todo, item, newer: false });
    }

    fn left_as_it_is(&mut self, todo: &'a Todo, item: Option<Item>) {
        self.shown.push(Shown { todo, item, newer: true });
    }
}

/// Whether a piece is the last one that its item waits for.
fn completes(item: &Item, piece: &Piece, partials: &BTreeMap<usize, Partial>) -> bool {
    partials.get(&piece.row).map_or(item.row.size, Partial::left) == piece.bytes.len() as u64
}

impl Inner {
    /// Makes the tree what the index says, for some units or all.
    pub(crate) async fn hydrate(&self, only: Option<&[Unit]>, at_hand: &AtHand) -> Result<Fetched> {
        let fetch = self.options.hydration == Hydration::Full;
        let span = step!("clone.hydrate", peat.bytes = Empty);
        let work = async {
            let Some(units) = only else { return self.hydrate_with(None, 0, at_hand, fetch).await };
            let mut fetched = Fetched::default();
            for unit in units {
                fetched += self.hydrate_with(Some(unit), 0, at_hand, fetch).await?;
            }
            Ok(fetched)
        };
        let fetched = in_span(span.clone(), Box::pin(work)).await?;
        span.record("peat.bytes", number(fetched.bytes));
        Ok(fetched)
    }

    /// Makes visible what was noted after `noted` and is at hand, without any request: others' contents must not hold up
    /// a commit. The rest stays noted for the next pull. `applied` is what others changed.
    pub(crate) async fn hydrate_at_hand(&self, applied: Applied, at_hand: &AtHand) {
        let fetched = Box::pin(self.hydrate_with(None, applied.noted, at_hand, false)).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the tree is completed later");
            Fetched::default()
        });
        self.note_arrived(applied.items, fetched.bytes);
    }

    /// Counts what others changed and no pull tells of.
    pub(crate) fn note_arrived(&self, items: u64, bytes: u64) {
        let mut arrived = self.arrived.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *arrived = (arrived.0 + items, arrived.1 + bytes);
    }

    async fn hydrate_with(&self, unit: Option<&Unit>, after: i64, at_hand: &AtHand, fetch: bool) -> Result<Fetched> {
        let (mut after, mut fetched, mut done) = (after, Fetched::default(), 0);
        let of = self.db.todo_count()?;
        let mut lost = None;
        loop {
            let notes = self.db.todo_by_place(unit, after)?;
            let Some(newest) = notes.iter().max() else { return lost.map_or(Ok(fetched), Err) };
            after = *newest;
            for ids in notes.chunks(WINDOW) {
                let window = self.db.todo(ids)?;
                let mut work = Work { of, done, fetched, shown: Vec::new(), sent: Sent::default() };
                let hydrated = self.hydrate_window(&window, at_hand, fetch, &mut work).await;
                // What is in its place need not be fetched again, whatever went wrong with the rest.
                self.settle_notes(&mut work).await?;
                match hydrated {
                    Err(error) if error.code() == LOST => lost = Some(error),
                    hydrated => hydrated?,
                }
                done += window.len() as u64;
                fetched = work.fetched;
            }
        }
    }

    async fn hydrate_window<'a>(
        &self,
        window: &'a [Todo],
        at_hand: &AtHand,
        fetch: bool,
        work: &mut Work<'a>,
    ) -> Result<()> {
        let items: Vec<Option<Item>> =
            self.db.read(|tx| window.iter().map(|todo| db::claimant(tx, &todo.path)).collect())?;
        let mut wanted: Vec<(&Todo, Item)> = Vec::new();
        for (todo, item) in window.iter().zip(items) {
            if work.shown.len() >= BATCH {
                self.settle_notes(work).await?;
            }
            let Some(item) = item else {
                if db::is_lease(&todo.path) {
                    work.shown(todo, None);
                } else if self.make_way(todo, None, &work.sent)? {
                    self.tree.remove(&todo.path)?;
                    work.shown(todo, None);
                } else {
                    work.left_as_it_is(todo, None);
                }
                continue;
            };
            if self.is_here(&item)? {
                work.shown(todo, Some(item));
            } else if let Some(kept) = at_hand.contents.get(&item.row.hash) {
                if self.make_way(todo, Some(&item), &work.sent)? {
                    self.show_kept(&item, kept)?;
                    work.shown(todo, Some(item));
                } else {
                    work.left_as_it_is(todo, Some(item));
                }
            } else if fetch || at_hand.has(&item) {
                wanted.push((todo, item));
            } else if db::is_lease(&item.path) || self.tree.glance(&item)? == Glance::Missing {
                if self.options.hydration == Hydration::Lazy {
                    work.shown(todo, Some(item));
                }
            } else if self.make_way(todo, Some(&item), &work.sent)? {
                // Whatever is there is not this content: better nothing than something stale.
                self.tree.remove(&todo.path)?;
                if self.options.hydration == Hydration::Lazy {
                    work.shown(todo, Some(item));
                }
            } else {
                work.left_as_it_is(todo, Some(item));
            }
        }
        let mut missing: BTreeSet<usize> = (0..wanted.len()).collect();
        let all: Vec<usize> = missing.iter().copied().collect();
        match self.fetch_window(&wanted, &all, at_hand, work, &mut missing).await {
            Err(error) if Ledger::is_lost(&error) => {}
            fetched => return fetched,
        }
        // One by one, so that what is lost holds up nothing else.
        let (mut lost, mut first) = (0_u32, None);
        for at in missing.clone() {
            match self.fetch_window(&wanted, &[at], at_hand, work, &mut missing).await {
                Err(error) if Ledger::is_lost(&error) => {
                    lost += 1;
                    first.get_or_insert((at, error));
                }
                fetched => fetched?,
            }
        }
        let Some((_, item, error)) =
            first.and_then(|(at, error)| wanted.get(at).map(|(todo, item)| (todo, item, error)))
        else {
            return Ok(());
        };
        let others = if lost > 1 { format!(" (and of {} others)", lost - 1) } else { String::new() };
        Err(lost_content(&format!("{}{others}", item.path), error))
    }

    /// Fetches some of the items that are wanted, and takes those that are complete off `missing`.
    async fn fetch_window<'a>(
        &self,
        wanted: &[(&'a Todo, Item)],
        which: &[usize],
        at_hand: &AtHand,
        work: &mut Work<'a>,
        missing: &mut BTreeSet<usize>,
    ) -> Result<()> {
        let rows: Vec<&FileRow> = which.iter().filter_map(|at| Some(&wanted.get(*at)?.1.row)).collect();
        let mut pieces = self.ledger.pieces(&rows, &at_hand.entries);
        let mut partials: BTreeMap<usize, Partial> = BTreeMap::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            let Some(at) = which.get(piece.row) else { continue };
            let Some((todo, item)) = wanted.get(*at) else { continue };
            // What lies there is hashed: once, not for each part.
            if completes(item, &piece, &partials) && !self.make_way(todo, Some(item), &work.sent)? {
                partials.remove(&piece.row);
                missing.remove(at);
                work.left_as_it_is(todo, Some(item.clone()));
            } else if self.show_piece(item, &piece, &mut partials)? {
                missing.remove(at);
                work.shown(todo, Some(item.clone()));
                work.fetched += Fetched { bytes: item.row.size, restored: u64::from(todo.id <= self.noted) };
                if work.shown.len() >= BATCH {
                    self.settle_notes(work).await?;
                }
            }
        }
        Ok(())
    }

    /// Forgets the notes of what was shown, in one transaction.
    async fn settle_notes(&self, work: &mut Work<'_>) -> Result<()> {
        self.done(&work.shown)?;
        work.done += work.shown.len() as u64;
        work.shown.clear();
        if work.of > BATCH as u64 {
            let Work { of, done, fetched, .. } = *work;
            self.options.reporter.report(Event::Hydrating { done: done.min(of), of, bytes: fetched.bytes });
        }
        self.env.step("pull.tree").await;
        Ok(())
    }

    /// Takes a piece of a content; gives whether the item is complete now.
    pub(super) fn show_piece(
        &self,
        item: &Item,
        piece: &Piece,
        partials: &mut BTreeMap<usize, Partial>,
    ) -> Result<bool> {
        if piece.bytes.len() as u64 == item.row.size {
            return self.show(item, &piece.bytes).map(|()| true);
        }
        let mut partial = match partials.remove(&piece.row) {
            Some(partial) => partial,
            None => self.tree.begin(&self.env, item)?,
        };
        if !partial.add(piece.offset, &piece.bytes)? {
            partials.insert(piece.row, partial);
            return Ok(false);
        }
        if db::is_lease(&item.path) {
            return self.db.keep_bytes(item, &partial.read()?).map(|()| true);
        }
        self.clear_way(&item.path)?;
        not_in_the_way(item, self.tree.finish(item, &mut partial)).map(|()| true)
    }

    /// Makes visible what this task brought along and nobody else had: another one may have taken the entry in before,
    /// with only what is in it.
    pub(crate) fn show_own(&self, items: &[Item], at_hand: &AtHand) {
        for item in items.iter().filter(|item| !at_hand.has(item)) {
            let Some(kept) = at_hand.contents.get(&item.row.hash) else { continue };
            let shown = self.db.read(|tx| db::claimant(tx, &item.path)).and_then(|now| {
                let named = now.is_some_and(|now| now.row.hash == item.row.hash);
                if !named || self.tree.glance(item)? != Glance::Missing {
                    return Ok(());
                }
                self.show_kept(item, kept)?;
                self.note_placed(item)
            });
            if let Err(error) = shown {
                tracing::warn!(%error, path = %item.path, "the tree is completed later");
            }
        }
    }

    /// Writes a file of the tree.
    pub(super) fn show(&self, item: &Item, bytes: &Bytes) -> Result<()> {
        if db::is_lease(&item.path) {
            return self.db.keep_bytes(item, bytes);
        }
        self.clear_way(&item.path)?;
        not_in_the_way(item, self.tree.write(&self.env, item, bytes))
    }

    fn show_kept(&self, item: &Item, kept: &Brought) -> Result<()> {
        if kept.size() <= SMALL || db::is_lease(&item.path) {
            return self.show(item, &kept.read()?);
        }
        self.clear_way(&item.path)?;
        not_in_the_way(item, self.tree.write_from(&self.env, item, &mut |out| kept.copy_to(out)))
    }

    /// Forgets notes of files that are what the index says *now*, or somebody's newer ones.
    fn done(&self, shown: &[Shown<'_>]) -> Result<()> {
        self.db.write(|tx| {
            for Shown { todo, item, newer } in shown {
                let now = db::claimant(tx, &todo.path)?;
                let same = match (&now, item) {
                    (None, None) => true,
                    (Some(now), Some(shown)) => {
                        now.row.hash == shown.row.hash && now.row.executable == shown.row.executable
                    }
                    _ => false,
                };
                if !same {
                    db::note(tx, todo.unit.as_ref(), &todo.path, todo.was)?;
                    continue;
                }
                db::todo_done(tx, todo.id)?;
                match &now {
                    Some(now) if !db::is_lease(&now.path) && (*newer || self.tree.glance(now)? == Glance::SameSize) => {
                        db::placed(tx, now)?;
                    }
                    _ => db::not_placed(tx, todo.path.as_str())?,
                }
            }
            Ok(())
        })
    }
}
