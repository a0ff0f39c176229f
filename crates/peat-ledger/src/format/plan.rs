//! From a draft to a section.
//!
//! ```text
//! section := blocks_len:u32le  block record*  ops record  page record*
//! ```
//! Blocks come first because operations and pages refer to them. Every reference inside counts from the start of the
//! section, so an entry carries it byte for byte wherever it stands.
//!
//! The tables of a transaction with very many operations do not fit an entry: they go into packs of pages, unless
//! something below them lies in the log. What hangs below a page in a pack must lie in packs, for a checkpoint does not
//! look there for what it has to save from the log.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bytes::Bytes;
use peat_types::{Error, ItemPath, Kind, PackId, Result, Seq, Unit};
use setsum::Setsum;

use super::pack::PackWriter;
use super::page::{Page, PageOut, PageSink, TreeKind};
use super::record::{self, Pack};
use super::refs::Value;
use super::row::{
    TINY, checked_parts, file_rows, part_key, parts_of, read_file_value, read_unit_value, setsum_of, table_key,
};
use super::tree::lookup;
use super::tree_write::{Edit, apply};
use super::{PageSource, Section, block, check_writer, ops};
use crate::model::{
    Content, Draft, DraftUnit, FileRow, NewContent, NewPack, Op, OpRecord, Params, Rank, Ref, Segment, State, TxHead,
    TxUnit, UnitOps, UnitRow,
};

/// Operations from which on contents and tables go into packs, whatever their size.
const BULK: usize = 8192;
/// Bytes of `blocks_len`.
pub(crate) const SECTION_PREAMBLE: usize = 4;

/// Turns a draft into a section: ops, content blocks (and packs for what does not fit), new unit-table pages.
///
/// `pack_id` gives the id of a pack that is needed. Its base is `state.seq + 1`, the slot it is uploaded for: always
/// above the horizon of `state`, which may be `state.seq` itself (R2).
///
/// Each path may occur once per unit. Whether a new path equals another of its unit under case folding (P) is for the
/// caller to check: it has all paths at hand, a plan reads only the pages it changes.
///
/// # Errors
/// `Conflict` when a unit is not at the seq it was planned on or an op does not match its table, `Invalid` when a limit
/// is exceeded, and whatever `pages` reports.
pub async fn plan(
    draft: &Draft,
    state: &State,
    params: &Params,
    pages: &dyn PageSource,
    pack_id: &mut (dyn FnMut() -> PackId + Send),
) -> Result<Section> {
    check_writer(state)?;
    if draft.units.windows(2).any(|pair| pair[0].unit >= pair[1].unit) {
        return Err(Error::internal("the units of a draft are not sorted"));
    }
    let count: usize = draft.units.iter().map(|unit| unit.ops.len()).sum();
    if count > ops::MAX_OPS {
        return Err(Error::invalid("a change has too many operations").with_hint("make it in several smaller steps"));
    }
    let keys: Vec<&[u8]> = draft.units.iter().map(|unit| unit.unit.as_str().as_bytes()).collect();
    let found = lookup(state.root.directory.as_ref(), TreeKind::Directory, &keys, pages).await?;
    let mut changes = Vec::with_capacity(draft.units.len());
    for (unit, found) in draft.units.iter().zip(found) {
        let row = found.as_ref().map(read_unit_value).transpose()?;
        if row.as_ref().map(|row| row.last_seq) != unit.expected {
            return Err(conflict(&unit.unit, "it changed after the operation was planned"));
        }
        changes.push(Change::read(unit, row, pages).await?);
    }

    let mut out = vec![0; SECTION_PREAMBLE];
    let contents: Vec<Bytes> = changes.iter_mut().flat_map(Change::take_bytes).collect();
    let room = block::Room { params, ledger: state.ledger, base: state.seq.next(), packs_only: count >= BULK };
    let placed = block::place(&contents, &room, pack_id, &mut out)?;
    drop(contents);
    let blocks_len =
        u32::try_from(out.len() - SECTION_PREAMBLE).map_err(|_| Error::invalid("a section is too long"))?;
    out[..SECTION_PREAMBLE].copy_from_slice(&blocks_len.to_le_bytes());
    let mut contents = placed.contents.into_iter();
    let mut all_ops = Vec::with_capacity(changes.len());
    let mut all_edits = Vec::with_capacity(changes.len());
    let mut setsum = Setsum::default();
    for change in changes {
        let done = change.finish(&mut contents, &mut setsum)?;
        all_ops.push(done.ops);
        all_edits.push((done.planned, done.row, done.edits));
    }
    record::put(&mut out, &ops::encode(&all_ops), Pack::Zstd, record::OPS)?;

    let mut packs = placed.packs;
    let mut introduced: BTreeSet<NewPack> = packs.iter().map(|(pack, _)| *pack).collect();
    introduced.extend(uploaded(draft));
    let mut apart = PagePacks { room: &room, id: pack_id, open: None, full: Vec::new(), outside: BTreeSet::new() };
    let mut sink = PageSink::append(out);
    let mut units = Vec::with_capacity(all_edits.len());
    for (unit, (planned, mut row, edits)) in draft.units.iter().zip(all_edits) {
        let refs = edits.iter().filter_map(|edit| edit.value.as_ref()?.at);
        if room.packs_only && planned.into_iter().chain(refs).all(|at| matches!(at.segment, Segment::Pack(..))) {
            row.table = apply(planned, TreeKind::Table, &edits, pages, &mut apart).await?;
            apart.turn()?;
        } else {
            row.table = apply(planned, TreeKind::Table, &edits, pages, &mut sink).await?;
        }
        units.push(TxUnit { unit: unit.unit.clone(), expected: unit.expected, planned, row });
    }
    let PageSink::Append { out, mut outside } = sink else { return Err(Error::internal("page sink")) };
    apart.close()?;
    outside.append(&mut apart.outside);
    introduced.extend(apart.full.iter().map(|(pack, _)| *pack));
    packs.append(&mut apart.full);
    let bytes = Bytes::from(out);
    let mut head = TxHead {
        tx: draft.tx,
        change: draft.change,
        kind: draft.kind,
        author: draft.author.clone(),
        message: draft.message.clone(),
        time: draft.time,
        guard: draft.guard.clone(),
        units,
        packs: introduced.iter().copied().collect(),
        ext_log: None,
        ext_packs: Vec::new(),
        setsum: setsum.digest(),
        off: 0,
        len: bytes.len() as u64,
        hash: super::hash16(&bytes),
    };
    for segment in outside {
        match segment {
            Segment::Log(seq) => head.ext_log = Some(head.ext_log.map_or(seq, |low| low.min(seq))),
            pack @ Segment::Pack(..) if introduced.iter().any(|new| new.segment() == pack) => {}
            Segment::Pack(base, id) => head.ext_packs.push((base, id)),
        }
    }
    Ok(Section { head, bytes, packs })
}

/// Packs that were uploaded before, for contents of the draft.
fn uploaded(draft: &Draft) -> impl Iterator<Item = NewPack> {
    let ops = draft.units.iter().flat_map(|unit| &unit.ops);
    ops.filter_map(|op| match op {
        Op::Put { content: NewContent::Uploaded(_, packs), .. } => Some(packs.iter().copied()),
        _ => None,
    })
    .flatten()
}

/// Packs for the tables of a transaction that is too large for an entry.
struct PagePacks<'a> {
    room: &'a block::Room<'a>,
    id: &'a mut (dyn FnMut() -> PackId + Send),
    open: Option<PackWriter>,
    full: Vec<(NewPack, Bytes)>,
    /// The objects their rows refer to (R3).
    outside: BTreeSet<Segment>,
}

impl PagePacks<'_> {
    /// Between two tables: a pack that is full is closed.
    fn turn(&mut self) -> Result<()> {
        let full = self.open.as_ref().is_some_and(|pack| pack.body.len() as u64 >= self.room.params.pack_target);
        if full { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<()> {
        if let Some(pack) = self.open.take() {
            let (base, id, body) = pack.finish()?;
            self.full.push((NewPack { base, id, size: body.len() as u64, pages: true }, body));
        }
        Ok(())
    }
}

impl PageOut for PagePacks<'_> {
    fn page(&mut self, page: &Page) -> Result<Ref> {
        self.outside.extend(page.rows.iter().filter_map(|(_, value)| value.at).map(|at| at.segment));
        let mut pack = match self.open.take() {
            Some(pack) => pack,
            None => PackWriter::metadata(self.room.ledger, self.room.base, (self.id)())?,
        };
        let written = pack.put_page(page);
        self.open = Some(pack);
        written
    }
}

fn conflict(unit: &Unit, why: &str) -> Error {
    Error::new(Kind::Conflict, format!("unit {unit} cannot be changed: {why}"))
}

/// Operations on one unit together with the rows they are about.
struct Change<'a> {
    unit: &'a DraftUnit,
    row: Option<UnitRow>,
    /// Rows as they are, by key, for every key an operation names.
    found: BTreeMap<Vec<u8>, Value>,
    /// Puts with new bytes, in the order of their keys: neighbours share blocks.
    fresh: Vec<usize>,
}

/// A unit's part of the section.
struct Done {
    ops: UnitOps,
    planned: Option<Ref>,
    row: UnitRow,
    edits: Vec<Edit>,
}

impl<'a> Change<'a> {
    /// Reads the rows that the operations are about and checks that they are as planned.
    async fn read(unit: &'a DraftUnit, row: Option<UnitRow>, pages: &dyn PageSource) -> Result<Self> {
        let mut seen = HashSet::new();
        let mut keys = BTreeSet::new();
        for op in &unit.ops {
            let (path, ranks) = match op {
                Op::Put { path, rank, old, .. } => (path, [Some(*rank), *old]),
                Op::Delete { path, rank } => (path, [Some(*rank), None]),
                Op::Rank { path, from, to } => (path, [Some(*from), Some(*to)]),
            };
            if !seen.insert(path) {
                return Err(Error::internal(format!("{path} of unit {} is changed twice in one draft", unit.unit)));
            }
            keys.extend(ranks.into_iter().flatten().map(|rank| table_key(rank, path)));
        }
        let sorted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let table = row.as_ref().and_then(|row| row.table);
        let found = lookup(table.as_ref(), TreeKind::Table, &sorted, pages).await?;
        let found: BTreeMap<_, _> =
            keys.iter().zip(found).filter_map(|(key, value)| Some((key.clone(), value?))).collect();
        let mut change = Self { unit, row, found, fresh: Vec::new() };
        change.check()?;
        change.read_parts(pages).await?;
        Ok(change)
    }

    /// Reads the rows of the parts of contents that move to another rank.
    async fn read_parts(&mut self, pages: &dyn PageSource) -> Result<()> {
        let mut keys = BTreeSet::new();
        for op in &self.unit.ops {
            let Op::Rank { path, from, .. } = op else { continue };
            let key = table_key(*from, path);
            for n in 0..self.found.get(&key).map_or(Ok(0), parts_of)? {
                keys.insert(part_key(&key, n));
            }
        }
        let sorted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let table = self.row.as_ref().and_then(|row| row.table);
        let found = lookup(table.as_ref(), TreeKind::Table, &sorted, pages).await?;
        for (key, value) in keys.into_iter().zip(found) {
            let value = value.ok_or_else(|| super::damaged("a part of a content has no row"))?;
            self.found.insert(key, value);
        }
        Ok(())
    }

    /// Takes a row and those of its parts away.
    fn remove(&self, key: Vec<u8>, edits: &mut BTreeMap<Vec<u8>, Option<Value>>) -> Result<()> {
        for n in 0..self.found.get(&key).map_or(Ok(0), parts_of)? {
            edits.insert(part_key(&key, n), None);
        }
        edits.insert(key, None);
        Ok(())
    }

    fn value(&self, rank: Rank, path: &ItemPath) -> Option<&Value> {
        self.found.get(&table_key(rank, path))
    }

    fn check(&self) -> Result<()> {
        let here = |rank: Rank, path: &ItemPath| self.value(rank, path).is_some();
        for op in &self.unit.ops {
            let (path, ok) = match op {
                Op::Put { path, rank, old: Some(old), .. } => {
                    (path, here(*old, path) && (rank == old || !here(*rank, path)))
                }
                Op::Put { path, rank, old: None, .. } => (path, !here(*rank, path)),
                Op::Delete { path, rank } => (path, here(*rank, path)),
                Op::Rank { path, from, to } => (path, here(*from, path) && (from == to || !here(*to, path))),
            };
            if !ok {
                return Err(conflict(&self.unit.unit, &format!("{path} is not what the operation was planned on")));
            }
        }
        Ok(())
    }

    /// New bytes in the order in which they should lie.
    fn take_bytes(&mut self) -> Vec<Bytes> {
        let key = |i: usize| match &self.unit.ops[i] {
            Op::Put { path, rank, content: NewContent::Bytes(bytes), .. } => Some((table_key(*rank, path), i, bytes)),
            _ => None,
        };
        let mut puts: Vec<_> = (0..self.unit.ops.len()).filter_map(key).collect();
        puts.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let bytes = puts.iter().map(|put| put.2.clone()).collect();
        self.fresh = puts.into_iter().map(|put| put.1).collect();
        bytes
    }

    /// The recorded operations and edits, with the places of the new bytes taken from `contents`.
    fn finish(self, contents: &mut impl Iterator<Item = Content>, setsum: &mut Setsum) -> Result<Done> {
        let mut places: BTreeMap<usize, Content> = BTreeMap::new();
        for i in &self.fresh {
            let content = contents.next().ok_or_else(|| Error::internal("a content has no place"))?;
            places.insert(*i, content);
        }
        let unit = &self.unit.unit;
        let mut ops = Vec::with_capacity(self.unit.ops.len());
        let mut edits = BTreeMap::new();
        let (mut files, mut bytes) = self.row.as_ref().map_or((0, 0), |row| (row.files, row.bytes));
        let mut take = |old: &Value, path: &ItemPath, setsum: &mut Setsum| -> Result<()> {
            let row = read_file_value(old)?;
            *setsum -= setsum_of(unit, path, &row);
            let left = files.checked_sub(1).zip(bytes.checked_sub(row.size));
            (files, bytes) = left.ok_or_else(|| super::damaged("a unit holds more than it counts"))?;
            Ok(())
        };
        let mut added = (0u64, 0u64);
        for (i, op) in self.unit.ops.iter().enumerate() {
            match op {
                Op::Put { path, rank, old, executable, content } => {
                    if let Some(old) = old {
                        if let Some(value) = self.value(*old, path) {
                            take(value, path, setsum)?;
                        }
                        self.remove(table_key(*old, path), &mut edits)?;
                    }
                    let row = new_row(content, *executable, places.remove(&i))?;
                    *setsum += setsum_of(unit, path, &row);
                    added = (added.0 + 1, added.1.saturating_add(row.size));
                    edits.extend(file_rows(*rank, path, &row).into_iter().map(|(key, value)| (key, Some(value))));
                    ops.push(OpRecord::Put(path.clone(), *rank, row));
                }
                Op::Delete { path, rank } => {
                    if let Some(value) = self.value(*rank, path) {
                        take(value, path, setsum)?;
                    }
                    self.remove(table_key(*rank, path), &mut edits)?;
                    ops.push(OpRecord::Delete(path.clone()));
                }
                Op::Rank { path, from, to } => {
                    let value = self.value(*from, path).cloned();
                    let (from, new) = (table_key(*from, path), table_key(*to, path));
                    let parts = value.as_ref().map_or(Ok(0), parts_of)?;
                    let parts: Vec<_> = (0..parts).map(|n| self.found.get(&part_key(&from, n)).cloned()).collect();
                    self.remove(from, &mut edits)?;
                    for (n, part) in (0..).zip(parts) {
                        edits.insert(part_key(&new, n), part);
                    }
                    // The row moves as it is, with whatever a newer version keeps in it.
                    edits.insert(new, value);
                    ops.push(OpRecord::Rank(path.clone(), *to));
                }
            }
        }
        let row = UnitRow {
            // Filled in when the entry is built.
            last_seq: Seq::ZERO,
            table: None,
            files: files.saturating_add(added.0),
            bytes: bytes.saturating_add(added.1),
        };
        let edits = edits.into_iter().map(|(key, value)| Edit { key, value }).collect();
        let planned = self.row.and_then(|row| row.table);
        Ok(Done { ops: UnitOps { unit: unit.clone(), ops }, planned, row, edits })
    }
}

fn new_row(content: &NewContent, executable: bool, place: Option<Content>) -> Result<FileRow> {
    match content {
        NewContent::Known(row) | NewContent::Uploaded(row, _) => {
            let tiny =
                matches!(&row.content, Content::Tiny(bytes) if bytes.len() as u64 != row.size || row.size > TINY);
            let parts = matches!(&row.content, Content::Parts(parts) if checked_parts(row.size, parts).is_err());
            if tiny || parts {
                return Err(Error::internal("a known row says two sizes"));
            }
            Ok(FileRow { executable, ..row.clone() })
        }
        NewContent::Bytes(bytes) => {
            let content = place.ok_or_else(|| Error::internal("a content has no place"))?;
            Ok(FileRow { executable, size: bytes.len() as u64, hash: peat_types::Hash::of(bytes), content })
        }
    }
}
