//! Copying what lies in the log, and in packs that are not worth keeping, into new packs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use peat_types::{Error, Mutation, Result, Seq};

use super::enter::{Entered, Mark, enter};
use super::moved::Plan;
use super::shelf::Shelf;
use super::{Checkpoint, Checkpointing, Tail};
use crate::format::pack::{PackWriter, TRAILER, index_len};
use crate::format::page::TreeKind;
use crate::format::record;
use crate::format::relocate::{Contents, Moves, NOT_COPIED, blocks, reached, relocate};
use crate::format::row::PackRow;
use crate::ledger::pages::{NoCache, Pages, fetch};
use crate::ledger::{Ledger, key};
use crate::model::{Ref, Segment, State};

/// Bodies of entries kept at hand while they are copied from.
const HELD: u64 = 32 << 20;
/// Bodies of entries in flight at once, each of which is several times as large while it is decoded, and their number.
const IN_FLIGHT: u64 = 8 << 20;
const PARALLEL: u64 = 16;
/// Units whose pages are fetched together.
const BATCH: usize = 512;
/// Bytes of blocks fetched together.
const BATCH_BYTES: u64 = 16 << 20;
/// Content packs below this size are worth joining.
const SMALL: u64 = 1 << 20;
/// Times a plan is made again because another maintenance came first.
const PLANS: u32 = 3;

pub(super) async fn checkpoint(ledger: &Ledger, how: &Checkpointing) -> Result<Checkpoint> {
    make(ledger, how, &Extra::default()).await
}

/// A full checkpoint after which no live pack holds a block that nothing refers to.
pub(super) async fn checkpoint_clean(ledger: &Ledger, how: &Checkpointing) -> Result<Checkpoint> {
    make(ledger, how, &Extra { clean: true, packs: BTreeSet::new() }).await
}

/// A full checkpoint that drops these packs of contents, whatever else they are worth.
pub(super) async fn checkpoint_without(
    ledger: &Ledger,
    how: &Checkpointing,
    packs: BTreeSet<Segment>,
) -> Result<Checkpoint> {
    make(ledger, how, &Extra { clean: false, packs }).await
}

/// What a full checkpoint leaves behind beside what is worth it.
#[derive(Default)]
struct Extra {
    /// Every pack that holds a block which nothing refers to.
    clean: bool,
    /// These.
    packs: BTreeSet<Segment>,
}

async fn make(ledger: &Ledger, how: &Checkpointing, extra: &Extra) -> Result<Checkpoint> {
    let give_up = ledger.env.monotonic() + how.patience;
    let mut why = String::new();
    let (mut plans, mut spoilt) = (0, BTreeSet::new());
    while plans < PLANS {
        plans += 1;
        let head = ledger.head_entry(ledger.known(Seq::ZERO)).await?.state;
        let tail = Tail::of(&head);
        if !(tail.is_due() || how.full || how.force && tail.bytes > 0) {
            return Ok(Checkpoint::NotDue(tail));
        }
        let mut planner = Planner::new(ledger, head, give_up, spoilt.clone())?;
        let mut plan = match planner.plan(how, extra).await {
            Ok(Some(plan)) => plan,
            Ok(None) => return Ok(Checkpoint::NotDue(tail)),
            // What is damaged in packs that need not move stays where it is: it may be restored, and must not hold up the rest.
            Err(_) if !extra.clean && planner.spoilt.len() > spoilt.len() => {
                spoilt = planner.spoilt;
                plans -= 1;
                continue;
            }
            Err(error) => match moved_on(ledger, planner.base.root.minlog, error).await {
                Ok(moved) => {
                    why = moved;
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        let Planner { base, pages, .. } = planner;
        match enter(ledger, base, pages, &mut plan, give_up).await {
            Ok(Entered::Yes(entry, _)) => return Ok(plan.done(entry.state.seq)),
            Ok(Entered::Void) => "another maintenance came first".clone_into(&mut why),
            Ok(Entered::Late(error) | Entered::Unknown(error)) => {
                return Ok(Checkpoint::Later(error.chain().join(": ")));
            }
            Err(error) if error.code() == NOT_COPIED => why = error.to_string(),
            Err(error) => return Err(error),
        }
    }
    Ok(Checkpoint::Later(why))
}

/// Why a plan could not be made, when others moved what it reads meanwhile, and somebody collected.
async fn moved_on(ledger: &Ledger, lowest: Seq, error: Error) -> Result<String> {
    let said = error.to_string();
    match ledger.unless_void(lowest, error).await {
        None => Ok(said),
        Some(error) if Ledger::is_gone(&error) => Ok(said),
        Some(error) => Err(error),
    }
}

/// Makes the plan; what it uploads is not in the log yet.
struct Planner<'a> {
    ledger: &'a Ledger,
    base: State,
    cut: Seq,
    pages: Pages<'a>,
    shelf: Shelf<'a>,
    moved: BTreeMap<Ref, Ref>,
    /// Packs of contents that hold something which is needed and cannot be read.
    spoilt: BTreeSet<Segment>,
}

/// Rows of live packs.
type PackRows = BTreeMap<Segment, PackRow>;

impl<'a> Planner<'a> {
    fn new(ledger: &'a Ledger, base: State, give_up: Duration, spoilt: BTreeSet<Segment>) -> Result<Self> {
        let cut = base.seq.next();
        let shelf = Shelf::new(ledger, cut, give_up)?;
        Ok(Self { ledger, cut, pages: Pages::new(ledger, &NoCache), shelf, moved: BTreeMap::new(), spoilt, base })
    }

    async fn plan(&mut self, how: &Checkpointing, extra: &Extra) -> Result<Option<Plan>> {
        self.hold_tail().await?;
        let packs = self.pack_rows().await?;
        let log_only = Moves { cut: self.cut, packs: BTreeSet::new(), contents: false };
        let (tables, mut bytes) = self.reached_tables(&log_only).await?;
        for batch in tables.chunks(BATCH) {
            let roots = batch.iter().map(|(_, root)| *root).collect();
            bytes += self.pages.prefetch_reached(roots, &log_only).await?;
            self.pages.forget();
        }
        let (levels, all) = if how.full { (metadata(&packs), true) } else { levels(&packs, bytes) };
        let mut moves = Moves { packs: levels, contents: all, ..log_only };
        let mut live = BTreeMap::new();
        if all {
            live = self.live(&moves).await?;
            moves.packs.extend(worth_joining(&packs, &live));
            if extra.clean {
                moves.packs.extend(self.with_dead(&packs, &live).await?);
            }
            moves.packs.extend(extra.packs.iter().filter(|pack| packs.contains_key(pack)));
            moves.packs.retain(|pack| !self.spoilt.contains(pack));
        }
        let nothing = tables.is_empty() && bytes == 0 && moves.packs.is_empty();
        if nothing {
            return Ok(None);
        }
        self.copy(&moves).await?;
        let mut root = self.base.root.clone();
        for (kind, at) in [(TreeKind::Directory, &mut root.directory), (TreeKind::Packs, &mut root.packs)] {
            self.pages.prefetch_reached(at.iter().copied().collect(), &moves).await?;
            *at = relocate(*at, kind, &moves, &mut self.moved, &self.pages, &mut self.shelf.pages).await?;
            self.pages.forget();
        }
        self.shelf.finish().await?;
        if let Some((segment, body)) = self.shelf.last.take() {
            self.pages.hold_object(segment, body);
        }
        let dropped: BTreeMap<Segment, PackRow> =
            moves.packs.iter().filter_map(|segment| Some((*segment, *packs.get(segment)?))).collect();
        live.retain(|segment, _| packs.contains_key(segment) && !dropped.contains_key(segment));
        let recounted = live
            .into_iter()
            .filter_map(|(segment, live)| Some((segment, PackRow { live, ..*packs.get(&segment)? })))
            .filter(|(segment, row)| packs.get(segment) != Some(row))
            .collect();
        Ok(Some(Plan {
            mark: Mark::new(self.ledger, &how.author),
            full: all,
            moves,
            moved: std::mem::take(&mut self.moved),
            directory: root.directory,
            packs: root.packs,
            checkpoint: self.shelf.newest,
            stored: std::mem::take(&mut self.shelf.stored),
            page_bytes: self.shelf.page_bytes,
            content_bytes: self.shelf.content_bytes,
            dropped,
            recounted,
            no_rebase: self.ledger.env.mutated(Mutation::NoRebase),
            no_void: self.ledger.env.mutated(Mutation::NoVoid),
            changed: BTreeSet::new(),
            introduced: Vec::new(),
            tail: 0,
        }))
    }

    /// Reads the entries that will be copied from, newest first, as many as fit.
    async fn hold_tail(&mut self) -> Result<()> {
        let (low, tail) = (self.base.root.minlog, Tail::of(&self.base));
        let mean = (tail.bytes / tail.entries.max(1)).max(1);
        let at_once = (IN_FLIGHT / mean).clamp(1, PARALLEL);
        let (mut next, mut held) = (self.base.seq.next(), 0);
        while next > low && held <= HELD {
            let from = Seq(next.0.saturating_sub(at_once)).max(low);
            for read in join_all((from.0..next.0).map(|seq| self.ledger.entry(Seq(seq)))).await {
                // A slot that is missing is noticed when something in it is needed.
                if let Some(entry) = read? {
                    held += entry.body.len() as u64;
                    self.pages.hold(entry.state.seq, entry.body);
                }
            }
            next = from;
        }
        Ok(())
    }

    async fn pack_rows(&self) -> Result<PackRows> {
        self.pages.prefetch_trees(self.base.root.packs.into_iter().collect()).await?;
        let rows = crate::format::packs(&self.base, &self.pages).await?;
        self.pages.forget();
        let live = rows.into_iter().filter(|(dropped, ..)| !dropped);
        Ok(live.map(|(_, base, id, row)| (Segment::Pack(base, id), row)).collect())
    }

    /// Tables below which something may move, and the bytes of the directory and pack-table pages that do.
    async fn reached_tables(&self, moves: &Moves) -> Result<(Vec<(Vec<u8>, Ref)>, u64)> {
        let roots = self.base.root.directory.into_iter().chain(self.base.root.packs).collect();
        let bytes = self.pages.prefetch_reached(roots, moves).await?;
        let rows = reached(self.base.root.directory, TreeKind::Directory, moves, &self.pages).await?;
        self.pages.forget();
        let tables = rows.into_iter().filter_map(|(key, value)| Some((key, value.at?)));
        Ok((tables.filter(|(_, at)| moves.reaches(at)).collect(), bytes))
    }

    /// Content packs that hold a block which nothing refers to.
    async fn with_dead(&self, packs: &PackRows, live: &BTreeMap<Segment, u64>) -> Result<BTreeSet<Segment>> {
        let mut out = BTreeSet::new();
        for (segment, row) in packs.iter().filter(|(_, row)| !row.metadata) {
            let Segment::Pack(base, id) = *segment else { continue };
            let end = u64::from(TRAILER);
            let at = Ref { segment: *segment, off: row.size.saturating_sub(end), len: TRAILER };
            let fetched = fetch(self.ledger, BTreeSet::from([at])).await?;
            let index = fetched.get(&at).map_or(Ok(0), |trailer| index_len(trailer))?;
            let header = PackWriter::new(self.ledger.info.ledger, base, id)?.body.len() as u64;
            let blocks = row.size.saturating_sub(end + index + header);
            if blocks != live.get(segment).copied().unwrap_or(0) {
                out.insert(*segment);
            }
        }
        Ok(out)
    }

    /// Bytes of each content pack that are referred to.
    async fn live(&self, moves: &Moves) -> Result<BTreeMap<Segment, u64>> {
        let (tables, _) = self.reached_tables(moves).await?;
        let mut live = BTreeMap::new();
        // Units of one transaction may share a block.
        let mut seen = BTreeSet::new();
        for batch in tables.chunks(BATCH) {
            self.pages.prefetch_reached(batch.iter().map(|(_, root)| *root).collect(), moves).await?;
            for (_, root) in batch {
                for at in blocks(*root, moves, &self.pages).await?.into_keys() {
                    if matches!(at.segment, Segment::Pack(..)) && seen.insert(at) {
                        *live.entry(at.segment).or_insert(0) += u64::from(at.len);
                    }
                }
            }
            self.pages.forget();
        }
        Ok(live)
    }

    /// Copies blocks and table pages, unit by unit.
    async fn copy(&mut self, moves: &Moves) -> Result<()> {
        let (tables, _) = self.reached_tables(moves).await?;
        for batch in tables.chunks(BATCH) {
            self.pages.prefetch_reached(batch.iter().map(|(_, root)| *root).collect(), moves).await?;
            let mut wanted: Vec<(Ref, Contents)> = Vec::new();
            let (mut from, mut bytes, mut since) = (0, 0, 0);
            for (n, (_, root)) in batch.iter().enumerate() {
                for (at, contents) in blocks(*root, moves, &self.pages).await? {
                    if moves.moves(&at) && !self.moved.contains_key(&at) {
                        bytes += u64::from(at.len);
                        wanted.push((at, contents));
                    }
                    // One content alone may be more than memory holds.
                    if bytes >= BATCH_BYTES {
                        self.copy_blocks(std::mem::take(&mut wanted)).await?;
                        since += std::mem::take(&mut bytes);
                    }
                }
                if since + bytes >= BATCH_BYTES || n + 1 == batch.len() {
                    self.copy_blocks(std::mem::take(&mut wanted)).await?;
                    (bytes, since) = (0, 0);
                    for (_, root) in &batch[from..=n] {
                        let out = &mut self.shelf.pages;
                        relocate(Some(*root), TreeKind::Table, moves, &mut self.moved, &self.pages, out).await?;
                        self.shelf.turn().await?;
                    }
                    from = n + 1;
                }
            }
            self.pages.forget();
        }
        Ok(())
    }

    async fn fetch_blocks(&mut self, wanted: BTreeSet<Ref>) -> Result<BTreeMap<Ref, Bytes>> {
        let error = match fetch(self.ledger, wanted.clone()).await {
            Err(error) if Ledger::is_gone(&error) => error,
            fetched => return fetched,
        };
        for at in wanted.into_iter().filter(|at| matches!(at.segment, Segment::Pack(..))) {
            if self.spoilt.contains(&at.segment) {
                continue;
            }
            match fetch(self.ledger, BTreeSet::from([at])).await {
                Err(error) if Ledger::is_gone(&error) => drop(self.spoilt.insert(at.segment)),
                fetched => drop(fetched?),
            }
        }
        Err(error)
    }

    async fn copy_blocks(&mut self, wanted: Vec<(Ref, Contents)>) -> Result<()> {
        let away = wanted.iter().map(|(at, _)| *at).filter(|at| self.pages.held(at).is_none()).collect();
        let fetched = self.fetch_blocks(away).await?;
        for (at, contents) in wanted {
            // Units of one transaction may share a block.
            if self.moved.contains_key(&at) {
                continue;
            }
            let record = self.pages.held(&at).or_else(|| fetched.get(&at).cloned());
            let record = record.ok_or_else(|| self.ledger.gone(&at))?;
            // Damage must not spread: a copy would outlive the original.
            if let Err(error) = whole(&record) {
                self.spoilt.extend(Some(at.segment).filter(|segment| matches!(segment, Segment::Pack(..))));
                return Err(self.ledger.unreadable(&key::segment(at.segment), error));
            }
            let new = self.shelf.block(&record, contents).await?;
            self.moved.insert(at, new);
        }
        Ok(())
    }
}

/// Whether a block is what it was when it was written.
fn whole(record: &Bytes) -> Result<()> {
    if record::length(record, record::BLOCK)? == record.len() {
        return Ok(());
    }
    Err(Error::damaged("a block has another length than its reference says"))
}

fn metadata(packs: &PackRows) -> BTreeSet<Segment> {
    packs.iter().filter(|(_, row)| row.metadata).map(|(segment, _)| *segment).collect()
}

/// The metadata packs that move along with `bytes` of pages from the log, and whether that is all of them: the newest
/// ones, as long as they are smaller than twice what moves already.
fn levels(packs: &PackRows, bytes: u64) -> (BTreeSet<Segment>, bool) {
    let mut generations: BTreeMap<Seq, (u64, Vec<Segment>)> = BTreeMap::new();
    for (segment, row) in packs.iter().filter(|(_, row)| row.metadata) {
        let generation = generations.entry(row.seq).or_default();
        generation.0 += row.size;
        generation.1.push(*segment);
    }
    let mut moves = BTreeSet::new();
    let mut sum = bytes;
    let all = generations.len();
    let mut taken = 0;
    for (size, segments) in generations.into_values().rev() {
        if size >= sum.saturating_mul(2) {
            break;
        }
        sum = sum.saturating_add(size);
        moves.extend(segments);
        taken += 1;
    }
    (moves, taken == all)
}

/// Content packs of which less than half is referred to, and small ones when there are several.
fn worth_joining(packs: &PackRows, live: &BTreeMap<Segment, u64>) -> BTreeSet<Segment> {
    let contents = || packs.iter().filter(|(_, row)| !row.metadata);
    let half_dead = |segment: &Segment, row: &PackRow| live.get(segment).copied().unwrap_or(0) * 2 < row.size;
    let mut out: BTreeSet<Segment> =
        contents().filter(|(segment, row)| half_dead(segment, row)).map(|(segment, _)| *segment).collect();
    let small: Vec<Segment> = contents().filter(|(_, row)| row.size < SMALL).map(|(segment, _)| *segment).collect();
    if small.len() > 1 {
        out.extend(small);
    }
    out
}
