//! Reading entries: whole, or their first bytes.

use bytes::Bytes;
use peat_types::{Result, Seq, Timestamp};

use super::header::{Header, KIND_ENTRY, PREAMBLE, header_len};
use super::page::{Page, TreeKind};
use super::plan::SECTION_PREAMBLE;
use super::refs::Origin;
use super::row::check_row;
use super::varint::Reader;
use super::{damaged, hash16, ops, record, ring};
use crate::model::{Entry, OWN_SEQ, Ref, Ring, Segment, State, TxHead, UnitOps};

/// Header and ring of an entry, and where its sections begin.
pub(crate) struct Opened {
    pub(crate) header: Header,
    pub(crate) ring: Ring,
    pub(crate) pages: usize,
    pub(crate) sections: usize,
}

/// Reads header and ring from the first bytes of an entry of `size` bytes; `Err(needed)` when they are too few.
pub(crate) fn open(seq: Seq, bytes: &Bytes, size: u64) -> Result<std::result::Result<Opened, u64>> {
    let needs = |end: u64| if end > size { Err(damaged("an entry is cut off")) } else { Ok(Err(end)) };
    let Some(len) = header_len(bytes, KIND_ENTRY)? else { return needs(PREAMBLE as u64) };
    let start = PREAMBLE + len;
    if bytes.len() < start {
        return needs(start as u64);
    }
    let raw = record::open(&bytes.slice(PREAMBLE..start), record::HEADER)?;
    let header = Header::decode(&raw, seq, start as u64)?;
    let cut = || damaged("the parts of an entry are too long");
    let part = |len: u64, from: usize| usize::try_from(len).ok().and_then(|len| from.checked_add(len)).ok_or_else(cut);
    let pages = part(header.ring_len, start)?;
    let sections = part(header.pages_len, pages)?;
    let end = header.txs.last().map_or(Some(sections as u64), |tx| tx.off.checked_add(tx.len)).ok_or_else(cut)?;
    if end != size {
        return Err(damaged(format!("an entry has {size} bytes, its header says {end}")));
    }
    if bytes.len() < pages {
        return needs(pages as u64);
    }
    let ring = ring::decode(&bytes.slice(start..pages))?;
    if ring.entries.len() as u64 > seq.0.saturating_add(1) {
        return Err(damaged("a ring tells of more entries than there are"));
    }
    Ok(Ok(Opened { header, ring, pages, sections }))
}

impl Opened {
    fn state(self, hash: [u8; 16]) -> (State, Vec<TxHead>) {
        let Header { seq, ledger, entry, clone, instance, min_writer, txs, root, .. } = self.header;
        (State { ledger, seq, entry, hash, clone, writer: instance, root, ring: self.ring, min_writer }, txs)
    }
}

/// What the first bytes of an entry tell: the state after it, its transactions, and when it was written.
pub type Prefix = (State, Vec<TxHead>, Timestamp);

/// Header and ring from the first bytes of an entry: `Err(needed)` when `prefix` is too short.
/// The hash of the state is not known from a prefix: it is all zero, and such a state is never built upon.
///
/// # Errors
/// As [`decode_entry`].
pub fn decode_prefix(seq: Seq, prefix: &Bytes, size: u64) -> Result<std::result::Result<Prefix, u64>> {
    Ok(open(seq, prefix, size)?.map(|opened| {
        let time = opened.header.time;
        let (state, txs) = opened.state([0; 16]);
        (state, txs, time)
    }))
}

/// State, hash of the entry before it and transactions of an entry whose bytes, with this hash, were decoded before.
pub(crate) fn decode_again(seq: Seq, body: &Bytes, hash: [u8; 16]) -> Result<(State, [u8; 16], Vec<TxHead>)> {
    let opened = open(seq, body, body.len() as u64)?.map_err(|_| damaged("an entry is cut off"))?;
    let prev = opened.header.prev;
    let (state, txs) = opened.state(hash);
    Ok((state, prev, txs))
}

/// A whole entry. Checks every CRC, hash, bound and path.
///
/// # Errors
/// `Damaged`; `Unsupported` with code `unsupported_version` for a newer format.
pub fn decode_entry(seq: Seq, body: &Bytes) -> Result<Entry> {
    let opened = open(seq, body, body.len() as u64)?.map_err(|_| damaged("an entry is cut off"))?;
    let mut refs = Vec::new();
    read_pages(body, seq, opened.pages..opened.sections, |kind| kind != TreeKind::Table, &mut refs)?;
    let mut all_ops = Vec::with_capacity(opened.header.txs.len());
    for tx in &opened.header.txs {
        all_ops.push(read_section(body, seq, tx, &mut refs)?);
    }
    let header = &opened.header;
    let root = [header.root.directory, header.root.packs, header.root.checkpoint];
    let tables = header.txs.iter().flat_map(|tx| &tx.units).flat_map(|unit| [unit.planned, unit.row.table]);
    root.into_iter().chain(tables).flatten().try_for_each(|at| check_ref(&at, seq, body))?;
    let (prev, time) = (header.prev, header.time);
    let (state, txs) = opened.state(hash16(body));
    Ok(Entry { state, prev, time, txs, ops: all_ops, body: body.clone(), pages: refs })
}

/// Operations of a section that lies in no entry yet, checked as [`decode_entry`] would; references into itself stay
/// relative.
pub(crate) fn section_alone(bytes: &Bytes, tx: &TxHead) -> Result<Vec<UnitOps>> {
    let ops = read_section(bytes, OWN_SEQ, tx, &mut Vec::new())?;
    let tables = tx.units.iter().flat_map(|unit| [unit.planned, unit.row.table]);
    tables.flatten().try_for_each(|at| check_ref(&at, OWN_SEQ, bytes))?;
    Ok(ops)
}

/// Operations of the section of `tx`, its blocks and pages checked.
fn read_section(body: &Bytes, seq: Seq, tx: &TxHead, refs: &mut Vec<Ref>) -> Result<Vec<UnitOps>> {
    let cut = || damaged("a section is cut off");
    let range = usize::try_from(tx.off).ok().zip(usize::try_from(tx.len).ok());
    let (start, len) = range.ok_or_else(cut)?;
    let end = start.checked_add(len).filter(|end| *end <= body.len()).ok_or_else(cut)?;
    let bytes = body.slice(start..end);
    if hash16(&bytes) != tx.hash {
        return Err(damaged("a section does not match its hash"));
    }
    let mut r = Reader::new(&bytes);
    let blocks = usize::try_from(r.u32le()?).map_err(|_| cut())?;
    let ops_start = SECTION_PREAMBLE.checked_add(blocks).filter(|at| *at <= len).ok_or_else(cut)?;
    let mut at = SECTION_PREAMBLE;
    while at < ops_start {
        at += record::length(&bytes[at..ops_start], record::BLOCK)?;
    }
    let ops_end = ops_start + record::length(&bytes[ops_start..], record::OPS)?;
    let origin = Origin { segment: Segment::Log(seq), off: tx.off };
    let ops = ops::decode(&bytes.slice(ops_start..ops_end), &origin)?;
    for op in ops.iter().flat_map(|unit| &unit.ops) {
        if let crate::OpRecord::Put(_, _, row) = op {
            row.content.blocks().iter().try_for_each(|at| check_ref(at, seq, body))?;
        }
    }
    read_pages(body, seq, start + ops_end..end, |kind| kind == TreeKind::Table, refs)?;
    Ok(ops)
}

/// Checks the pages that fill `range` and notes where they lie.
fn read_pages(
    body: &Bytes,
    seq: Seq,
    range: std::ops::Range<usize>,
    belongs: impl Fn(TreeKind) -> bool,
    refs: &mut Vec<Ref>,
) -> Result<()> {
    let mut off = range.start;
    while off < range.end {
        let rest = body.get(off..range.end).ok_or_else(|| damaged("the pages of an entry are cut off"))?;
        let len = record::length(rest, record::PAGE)?;
        let at = Ref {
            segment: Segment::Log(seq),
            off: off as u64,
            len: u32::try_from(len).map_err(|_| damaged("a page is too long"))?,
        };
        let page = Page::decode(&body.slice(off..off + len), &at)?;
        if !belongs(page.kind) {
            return Err(damaged("a page lies where none of its tree can"));
        }
        for (key, value) in &page.rows {
            let target = if page.level == 0 { check_row(page.kind, key, value)? } else { value.at };
            target.iter().try_for_each(|target| check_ref(target, seq, body))?;
        }
        refs.push(at);
        off += len;
    }
    Ok(())
}

/// A reference of the entry `seq` may point at what was there before it, or into itself.
fn check_ref(at: &Ref, seq: Seq, body: &Bytes) -> Result<()> {
    let ok = match at.segment {
        Segment::Log(slot) if slot == seq => {
            at.off.checked_add(u64::from(at.len)).is_some_and(|end| end <= body.len() as u64)
        }
        Segment::Log(slot) => slot < seq,
        Segment::Pack(..) => true,
    };
    if ok { Ok(()) } else { Err(damaged("a reference leads out of the log")) }
}
