//! Building an entry around sections.
//!
//! ```text
//! entry := preamble (kind 1)  header record  ring record  page record*  section*
//! ```
//! The pages are those of the directory and the pack table, the root first; sections follow in the order of the
//! transactions in the header, without gaps.

use std::collections::BTreeMap;

use bytes::Bytes;
use peat_types::{CloneId, EntryId, Error, InstanceId, Result, Seq, Timestamp, TxId};
use setsum::Setsum;

use super::decode::decode_prefix;
use super::header::{Header, KIND_ENTRY, preamble};
use super::page::{PageSink, TreeKind};
use super::record::{self, Pack};
use super::refs::{Value, own};
use super::row::{PackRow, pack_key, pack_value, read_setsum, read_unit_value, unit_value};
use super::tree::lookup;
use super::tree_write::{Edit, apply};
use super::{PageSource, Section, VERSION, Writer, check_writer, damaged, hash16, ring};
use crate::model::{NewPack, NsInfo, Params, Ring, Root, Segment, State, TxHead, TxKind, UnitRow};

/// Entry `state.seq + 1` carrying `sections` (which passed [`check`](fn@super::check), and of which no two touch one unit).
///
/// # Errors
/// `Invalid` when the entry would be larger than allowed, `Unsupported` when the ledger asks for newer writers, and
/// whatever `pages` reports.
pub async fn build_entry(
    state: &State,
    sections: &[Section],
    entry: EntryId,
    writer: Writer,
    params: &Params,
    pages: &dyn PageSource,
) -> Result<(Bytes, State)> {
    check_base(state)?;
    let seq = state.seq.next();
    let mut root = state.root.clone();
    let mut sink = PageSink::prepend();
    let edits = unit_edits(state, sections, seq, &mut root, pages).await?;
    root.directory = apply(root.directory, TreeKind::Directory, &edits, pages, &mut sink).await?;
    let introduced = sections.iter().flat_map(|section| &section.head.packs);
    let edits: BTreeMap<_, _> = introduced.map(|pack| introduction(pack, seq)).collect();
    let edits: Vec<Edit> = edits.into_iter().map(|(key, value)| Edit { key, value: Some(value) }).collect();
    root.packs = apply(root.packs, TreeKind::Packs, &edits, pages, &mut sink).await?;

    let mut setsum = read_setsum(root.setsum)?;
    for section in sections {
        setsum += read_setsum(section.head.setsum)?;
    }
    root.setsum = setsum.digest();
    root.tail = sections.iter().fold(root.tail, |sum, section| sum.saturating_add(section.bytes.len() as u64));
    let units = sections.iter().flat_map(|section| section.head.units.iter().map(|unit| &unit.unit));
    let ring = state.ring.push(units, params.ring);
    let bulk = sections.iter().any(|section| section.head.packs.iter().any(|pack| pack.pages));
    let min_reader = if bulk { VERSION } else { 1 };
    let txs = sections.iter().map(|section| section.head.clone()).collect();
    let sections = sections.iter().map(|section| section.bytes.clone()).collect();
    seal(
        state,
        params,
        Parts { header: header(state, entry, writer, min_reader, txs, root), ring, pages: sink, sections },
    )
}

/// The row of a pack that the entry `seq` introduces.
pub(crate) fn introduction(pack: &NewPack, seq: Seq) -> (Vec<u8>, Value) {
    let row = PackRow { size: pack.size, live: pack.size, seq, metadata: pack.pages };
    (pack_key(false, pack.base, pack.id), pack_value(&row))
}

/// Header of the entry after `state`.
pub(crate) fn header(
    state: &State,
    entry: EntryId,
    writer: Writer,
    min_reader: u32,
    txs: Vec<TxHead>,
    root: Root,
) -> Header {
    Header {
        seq: state.seq.next(),
        ledger: state.ledger,
        prev: state.hash,
        entry,
        clone: writer.clone,
        instance: writer.instance,
        time: writer.time,
        min_reader,
        min_writer: state.min_writer,
        ring_len: 0,
        pages_len: 0,
        txs,
        root,
    }
}

/// The bytes of the entry after `state`, and the state after it.
pub(crate) fn seal(state: &State, params: &Params, parts: Parts) -> Result<(Bytes, State)> {
    let body = parts.assemble(Pack::Zstd)?;
    if body.len() as u64 > params.entry_max {
        let (size, max) = (body.len(), params.entry_max);
        return Err(Error::invalid(format!("an entry of {size} bytes exceeds the limit of {max} bytes"))
            .with_hint("make the change in several smaller steps"));
    }
    finish(state.seq.next(), body)
}

/// Whether `state` may be built upon by this version, and is known well enough.
pub(crate) fn check_base(state: &State) -> Result<()> {
    check_writer(state)?;
    if state.hash == [0; 16] {
        return Err(Error::internal("an entry cannot be built on a state known from a prefix"));
    }
    Ok(())
}

/// Directory rows of the units the sections change; counts go to `root`.
async fn unit_edits(
    state: &State,
    sections: &[Section],
    seq: Seq,
    root: &mut Root,
    pages: &dyn PageSource,
) -> Result<Vec<Edit>> {
    let mut rows = BTreeMap::new();
    let mut start = 0i64;
    for section in sections {
        for unit in &section.head.units {
            let mut row = UnitRow { last_seq: seq, ..unit.row.clone() };
            if let Some(at) = row.table.as_mut().filter(|at| at.segment == Segment::OWN) {
                let off = start.checked_add(at.off.cast_signed()).ok_or_else(|| damaged("a section is too long"))?;
                *at = own(off, at.len);
            }
            if rows.insert(unit.unit.as_str().as_bytes(), row).is_some() {
                return Err(Error::internal(format!("two transactions of an entry change unit {}", unit.unit)));
            }
        }
        let len = i64::try_from(section.bytes.len()).ok().and_then(|len| start.checked_add(len));
        start = len.ok_or_else(|| Error::invalid("the sections of an entry are too long"))?;
    }
    let keys: Vec<&[u8]> = rows.keys().copied().collect();
    let old = lookup(state.root.directory.as_ref(), TreeKind::Directory, &keys, pages).await?;
    let mut edits = Vec::with_capacity(rows.len());
    for ((key, row), old) in rows.into_iter().zip(old) {
        let was = old.as_ref().map(read_unit_value).transpose()?;
        root.units = root.units.saturating_add(u64::from(was.is_none()));
        let (files, bytes) = was.map_or((0, 0), |was| (was.files, was.bytes));
        let count = |all: u64, was: u64, is: u64| {
            all.checked_sub(was).and_then(|all| all.checked_add(is)).ok_or_else(|| damaged("the counts are wrong"))
        };
        root.files = count(root.files, files, row.files)?;
        root.bytes = count(root.bytes, bytes, row.bytes)?;
        edits.push(Edit { key: key.to_vec(), value: Some(unit_value(&row, old.as_ref())) });
    }
    Ok(edits)
}

/// Everything an entry consists of; lengths in the header are filled in by [`Parts::assemble`].
pub(crate) struct Parts {
    pub(crate) header: Header,
    pub(crate) ring: Ring,
    pub(crate) pages: PageSink,
    pub(crate) sections: Vec<Bytes>,
}

impl Parts {
    pub(crate) fn assemble(mut self, pack: Pack) -> Result<Bytes> {
        let ring = ring::encode(&self.ring, pack)?;
        let pages = match self.pages {
            PageSink::Prepend { pages, .. } => pages,
            PageSink::Append { .. } => return Err(Error::internal("page sink")),
        };
        self.header.ring_len = ring.len() as u64;
        self.header.pages_len = pages.iter().map(|page| page.len() as u64).sum();
        let header = record::encode(&self.header.encode(), pack, record::HEADER)?;
        let mut out = preamble(KIND_ENTRY, header.len())?;
        out.extend_from_slice(&header);
        out.extend_from_slice(&ring);
        for page in pages.iter().rev() {
            out.extend_from_slice(page);
        }
        for section in &self.sections {
            out.extend_from_slice(section);
        }
        Ok(out.into())
    }
}

/// The state after an entry just built is what a reader makes of its bytes, so the two cannot differ.
fn finish(seq: Seq, body: Bytes) -> Result<(Bytes, State)> {
    let (mut state, ..) = decode_prefix(seq, &body, body.len() as u64)?
        .map_err(|needed| Error::internal(format!("an entry lacks bytes up to {needed}")))?;
    state.hash = hash16(&body);
    Ok((body, state))
}

/// Entry 0 of a ledger: a pure function of `ns.json`, so that anybody can finish an interrupted creation. Nothing in it
/// is compressed, because the output of a compressor changes with its version.
///
/// # Errors
/// `Internal` only.
pub fn genesis(info: &NsInfo) -> Result<(Bytes, State)> {
    let derive = |what: &str| {
        let mut id = [0; 16];
        let hash = blake3::derive_key(what, info.ledger.as_bytes());
        id.copy_from_slice(&hash[..16]);
        id
    };
    let mut section = vec![0; super::plan::SECTION_PREAMBLE];
    record::put(&mut section, &super::ops::encode(&[]), Pack::Raw, record::OPS)?;
    let section = Bytes::from(section);
    let setsum = Setsum::default().digest();
    let tx = TxHead {
        tx: TxId::from_bytes(derive("peat 2026 genesis transaction")),
        change: peat_types::ChangeId::from_bytes(derive("peat 2026 genesis change")),
        kind: TxKind::Genesis,
        author: info.owner.clone(),
        message: format!("ledger of namespace {} created", info.namespace),
        time: info.created,
        guard: None,
        units: Vec::new(),
        packs: Vec::new(),
        ext_log: None,
        ext_packs: Vec::new(),
        setsum,
        off: 0,
        len: section.len() as u64,
        hash: hash16(&section),
    };
    let root = Root {
        directory: None,
        packs: None,
        pins: Vec::new(),
        horizon: Seq::ZERO,
        floor: Seq::ZERO,
        keep: Seq::ZERO,
        minlog: Seq::ZERO,
        units: 0,
        files: 0,
        bytes: 0,
        setsum,
        checkpoint: None,
        checkpointed: None,
        collected: None,
        tail: 0,
        moved: None,
        unknown: Vec::new(),
    };
    let header = Header {
        seq: Seq::ZERO,
        ledger: info.ledger,
        prev: [0; 16],
        entry: EntryId::from_bytes(derive("peat 2026 genesis entry")),
        clone: CloneId::from_bytes([0; 16]),
        instance: InstanceId::from_bytes([0; 16]),
        time: Timestamp::from_millis(info.created.as_millis()),
        // What the ledger says, not what this version knows: the bytes must not depend on who finishes a creation.
        min_reader: info.format,
        min_writer: info.format,
        ring_len: 0,
        pages_len: 0,
        txs: vec![tx],
        root,
    };
    let ring = Ring::default().push([], info.params.ring);
    let body = Parts { header, ring, pages: PageSink::prepend(), sections: vec![section] }.assemble(Pack::Raw)?;
    finish(Seq::ZERO, body)
}
