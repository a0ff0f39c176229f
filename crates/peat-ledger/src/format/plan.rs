//! From a draft to a section.
//!
//! ```text
//! section := blocks_len:u32le  block record*  ops record  page record*
//! ```
//! Blocks come first because operations and pages refer to them. Every reference inside counts from the start of the
//! section, so an entry carries it byte for byte wherever it stands.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bytes::Bytes;
use peat_types::{Error, ItemPath, Kind, PackId, Result, Seq, Unit};
use setsum::Setsum;

use super::page::{PageSink, TreeKind};
use super::record::{self, Pack};
use super::refs::Value;
use super::row::{TINY, file_value, read_file_value, read_unit_value, setsum_of, table_key};
use super::tree::lookup;
use super::tree_write::{Edit, apply};
use super::{PageSource, Section, block, check_writer, ops};
use crate::model::{
    Content, Draft, DraftUnit, FileRow, NewContent, Op, OpRecord, Params, Rank, Segment, State, TxHead, TxUnit,
    UnitOps, UnitRow,
};

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
    if draft.units.iter().map(|unit| unit.ops.len()).sum::<usize>() > ops::MAX_OPS {
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
    let placed = block::place(&contents, params, state.ledger, state.seq.next(), pack_id, &mut out)?;
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

    let mut sink = PageSink::append(out);
    let mut units = Vec::with_capacity(all_edits.len());
    for (unit, (planned, mut row, edits)) in draft.units.iter().zip(all_edits) {
        row.table = apply(planned, TreeKind::Table, &edits, pages, &mut sink).await?;
        units.push(TxUnit { unit: unit.unit.clone(), expected: unit.expected, planned, row });
    }
    let PageSink::Append { out, outside } = sink else { return Err(Error::internal("page sink")) };
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
        packs: placed.packs.iter().map(|(base, id, body)| (*base, *id, body.len() as u64)).collect(),
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
            Segment::Pack(base, id) if placed.packs.iter().any(|pack| (pack.0, pack.1) == (base, id)) => {}
            Segment::Pack(base, id) => head.ext_packs.push((base, id)),
        }
    }
    Ok(Section { head, bytes, packs: placed.packs })
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
    planned: Option<crate::model::Ref>,
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
        let change = Self { unit, row, found, fresh: Vec::new() };
        change.check()?;
        Ok(change)
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
                        edits.insert(table_key(*old, path), None);
                    }
                    let row = new_row(content, *executable, places.remove(&i))?;
                    *setsum += setsum_of(unit, path, &row);
                    added = (added.0 + 1, added.1.saturating_add(row.size));
                    edits.insert(table_key(*rank, path), Some(file_value(&row)));
                    ops.push(OpRecord::Put(path.clone(), *rank, row));
                }
                Op::Delete { path, rank } => {
                    if let Some(value) = self.value(*rank, path) {
                        take(value, path, setsum)?;
                    }
                    edits.insert(table_key(*rank, path), None);
                    ops.push(OpRecord::Delete(path.clone()));
                }
                Op::Rank { path, from, to } => {
                    let value = self.value(*from, path).cloned();
                    edits.insert(table_key(*from, path), None);
                    // The row moves as it is, with whatever a newer version keeps in it.
                    edits.insert(table_key(*to, path), value);
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
        NewContent::Known(row) => {
            let tiny =
                matches!(&row.content, Content::Tiny(bytes) if bytes.len() as u64 != row.size || row.size > TINY);
            if tiny {
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
