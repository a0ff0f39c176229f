//! Packs: contents that do not travel in an entry, and tree pages that moved out of the log.
//!
//! ```text
//! pack := preamble (kind 3)  header record  block record*  page record*  index record  index_len:u32le  "PEATEND1"
//! ```
//! Header: 0 base · 1 id · 2 ledger · 3 min reader. Index: 0 blocks `[off, len, [[sub, size, hash], …]]` · 1 bytes of
//! the pages. Own references of pages count from the start of the object. A pack is never read through its index in normal work (rows refer to blocks); the index lets a check or a repair find contents
//! by hash without any table.

use bytes::Bytes;
use minicbor::Decoder;
use peat_types::{Hash, LedgerId, PackId, Result, Seq};

use super::cbor::{self, Fields, bad};
use super::header::{KIND_PACK, PREAMBLE, header_len, preamble};
use super::page::{Page, PageOut, PageSink};
use super::record::{self, Pack};
use super::row::check_row;
use super::varint::Reader;
use super::{VERSION, damaged, unsupported};
use crate::model::{Ref, Segment};

const END: &[u8; 8] = b"PEATEND1";
/// Bytes after the index: its length, and the end mark.
pub(crate) const TRAILER: u32 = 12;

/// A block of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackBlock {
    /// First byte of its record.
    pub off: u64,
    /// Bytes of its record.
    pub len: u32,
    /// Contents in it: offset in the unpacked block, size, hash.
    pub contents: Vec<(u32, u64, Hash)>,
}

/// What a pack says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackIndex {
    /// The slot it was uploaded for.
    pub base: Seq,
    /// Its id.
    pub id: PackId,
    /// The ledger it belongs to.
    pub ledger: LedgerId,
    /// Its blocks.
    pub blocks: Vec<PackBlock>,
    /// Where its tree pages lie.
    pub pages: Vec<Ref>,
}

impl PageOut for PackWriter {
    fn page(&mut self, page: &Page) -> Result<Ref> {
        self.put_page(page)
    }
}

/// Length of the index record, from the trailer.
pub(crate) fn index_len(trailer: &[u8]) -> Result<u64> {
    let mut r = Reader::new(trailer);
    let len = r.u32le()?;
    if r.array::<8>()? != *END {
        return Err(damaged("a pack is cut off"));
    }
    Ok(u64::from(len))
}

pub(crate) struct PackWriter {
    base: Seq,
    id: PackId,
    pub(crate) body: Vec<u8>,
    pub(crate) blocks: Vec<PackBlock>,
    /// Where the pages begin, once there are any. Blocks come before.
    pages: Option<u64>,
}

impl PackWriter {
    /// A pack of contents.
    pub(crate) fn new(ledger: LedgerId, base: Seq, id: PackId) -> Result<Self> {
        Self::open(ledger, base, id, 1)
    }

    /// A pack of tree pages.
    pub(crate) fn metadata(ledger: LedgerId, base: Seq, id: PackId) -> Result<Self> {
        Self::open(ledger, base, id, VERSION)
    }

    fn open(ledger: LedgerId, base: Seq, id: PackId, min_reader: u32) -> Result<Self> {
        let mut f = Fields::new();
        f.key(0).uint(base.0);
        f.key(1).bytes(id.as_bytes());
        f.key(2).bytes(ledger.as_bytes());
        f.key(3).uint(u64::from(min_reader));
        let header = record::encode(&f.into_bytes(), Pack::Zstd, record::HEADER)?;
        let mut body = preamble(KIND_PACK, header.len())?;
        body.extend_from_slice(&header);
        Ok(Self { base, id, body, blocks: Vec::new(), pages: None })
    }

    pub(crate) fn segment(&self) -> Segment {
        Segment::Pack(self.base, self.id)
    }

    /// Appends a block that is a record already, and holds these contents.
    pub(crate) fn block(&mut self, record: &[u8], contents: Vec<(u32, u64, Hash)>) -> Result<Ref> {
        let off = self.body.len() as u64;
        let len = u32::try_from(record.len()).map_err(|_| damaged("a block is too long"))?;
        self.body.extend_from_slice(record);
        self.blocks.push(PackBlock { off, len, contents });
        Ok(Ref { segment: self.segment(), off, len })
    }

    /// Appends a page. References into this very pack become own ones, which are shorter.
    pub(crate) fn put_page(&mut self, page: &Page) -> Result<Ref> {
        let segment = self.segment();
        let mut page = page.clone();
        for at in page.rows.iter_mut().filter_map(|(_, value)| value.at.as_mut()) {
            if at.segment == segment {
                at.segment = Segment::OWN;
            }
        }
        self.pages.get_or_insert(self.body.len() as u64);
        let mut sink = PageSink::append(std::mem::take(&mut self.body));
        let written = sink.write(&page);
        if let PageSink::Append { out, .. } = sink {
            self.body = out;
        }
        Ok(Ref { segment, ..written? })
    }

    /// The pages written so far, as one range.
    pub(crate) fn pages(&self) -> Option<Ref> {
        let off = self.pages?;
        let len = u32::try_from(self.body.len() as u64 - off).ok()?;
        Some(Ref { segment: self.segment(), off, len })
    }

    pub(crate) fn finish(self) -> Result<(Seq, PackId, Bytes)> {
        let Self { base, id, mut body, blocks, pages } = self;
        let mut f = Fields::new();
        let list = f.key(0).array(blocks.len());
        for block in &blocks {
            list.array(3).uint(block.off).uint(u64::from(block.len)).array(block.contents.len());
            for (sub, size, hash) in &block.contents {
                list.array(3).uint(u64::from(*sub)).uint(*size).bytes(hash.as_bytes());
            }
        }
        if let Some(off) = pages {
            f.key(1).uint(body.len() as u64 - off);
        }
        let index = record::encode(&f.into_bytes(), Pack::Zstd, record::INDEX)?;
        let len = u32::try_from(index.len()).map_err(|_| damaged("a pack index is too long"))?;
        body.extend_from_slice(&index);
        body.extend_from_slice(&len.to_le_bytes());
        body.extend_from_slice(END);
        Ok((base, id, body.into()))
    }
}

/// Reads a whole pack: header, index, the checksum of every block, and every page.
///
/// # Errors
/// `Damaged`; `Unsupported` for a newer format.
pub fn decode_pack(body: &Bytes) -> Result<PackIndex> {
    let len = header_len(body, KIND_PACK)?.ok_or_else(|| damaged("a pack is cut off"))?;
    let cut = || damaged("a pack is cut off");
    let start = PREAMBLE + len;
    let index_end = body.len().checked_sub(TRAILER as usize).filter(|at| *at >= start).ok_or_else(cut)?;
    let (base, id, ledger) = decode_header(&body.slice(PREAMBLE..start))?;
    let index_len = usize::try_from(index_len(&body[index_end..])?).map_err(|_| cut())?;
    let index_start = index_end.checked_sub(index_len).filter(|at| *at >= start).ok_or_else(cut)?;
    let index = record::open(&body.slice(index_start..index_end), record::INDEX)?;

    let (blocks, pages_len) = decode_index(&index)?;
    let pages_len = usize::try_from(pages_len).map_err(|_| cut())?;
    let pages_start = index_start.checked_sub(pages_len).filter(|at| *at >= start).ok_or_else(cut)?;
    // The blocks fill the object without a gap, so the index can be checked against the records themselves.
    let mut off = start;
    for block in &blocks {
        let found = record::length(&body[off..pages_start], record::BLOCK)?;
        if block.off != off as u64 || block.len as usize != found {
            return Err(damaged("a pack index does not match its blocks"));
        }
        off += found;
    }
    if off != pages_start {
        return Err(damaged("a pack index does not match its blocks"));
    }
    let pages = read_pages(body, Segment::Pack(base, id), pages_start..index_start)?;
    Ok(PackIndex { base, id, ledger, blocks, pages })
}

/// What the header record of a pack says.
fn decode_header(record: &Bytes) -> Result<(Seq, PackId, LedgerId)> {
    let header = record::open(record, record::HEADER)?;
    let (mut base, mut id, mut ledger) = (None, None, None);
    cbor::map(&mut Decoder::new(&header), |key, d| {
        match key {
            0 => base = Some(Seq(d.u64().map_err(bad)?)),
            1 => id = Some(PackId::from_bytes(cbor::fixed(d)?)),
            2 => ledger = Some(LedgerId::from_bytes(cbor::fixed(d)?)),
            3 => {
                let version = d.u32().map_err(bad)?;
                if version > VERSION {
                    return Err(unsupported(format!("a pack for readers of version {version}")));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let missing = || damaged("a pack header is not complete");
    Ok((base.ok_or_else(missing)?, id.ok_or_else(missing)?, ledger.ok_or_else(missing)?))
}

/// Checks header and index of a pack of `size` bytes, which no row refers to, by its first bytes and its last: whose pack it
/// is. `Err` with so many last bytes as are needed when these were too few.
pub(crate) fn decode_ends(first: &Bytes, last: &Bytes, size: u64) -> Result<Result<(Seq, PackId), u64>> {
    let cut = || damaged("a pack is cut off");
    let start = PREAMBLE + header_len(first, KIND_PACK)?.ok_or_else(cut)?;
    if first.len() < start || last.len() < TRAILER as usize {
        return Err(cut());
    }
    let (base, id, _) = decode_header(&first.slice(PREAMBLE..start))?;
    let trailer = last.len() - TRAILER as usize;
    let index_len = index_len(&last[trailer..])?;
    let needed = index_len.saturating_add(u64::from(TRAILER));
    let room = size.checked_sub(needed).filter(|room| *room >= start as u64).ok_or_else(cut)?;
    let Some(at) = usize::try_from(index_len).ok().and_then(|len| trailer.checked_sub(len)) else {
        return Ok(Err(needed));
    };
    let (blocks, pages) = decode_index(&record::open(&last.slice(at..trailer), record::INDEX)?)?;
    let mut off = start as u64;
    for block in &blocks {
        if block.off != off {
            return Err(damaged("a pack index names blocks that do not follow one another"));
        }
        off = off.saturating_add(u64::from(block.len));
    }
    if off.saturating_add(pages) != room {
        return Err(damaged("a pack index does not match the length of its pack"));
    }
    Ok(Ok((base, id)))
}

/// Blocks of a pack, from its index record alone.
pub(crate) fn indexed_blocks(record: &Bytes) -> Result<Vec<PackBlock>> {
    Ok(decode_index(&record::open(record, record::INDEX)?)?.0)
}

/// Blocks, and bytes of the pages.
fn decode_index(index: &[u8]) -> Result<(Vec<PackBlock>, u64)> {
    let (mut blocks, mut pages_len) = (Vec::new(), 0);
    cbor::map(&mut Decoder::new(index), |key, d| {
        match key {
            0 => blocks = cbor::list(d, read_block)?,
            1 => pages_len = d.u64().map_err(bad)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((blocks, pages_len))
}

/// Checks the pages that fill `range`.
fn read_pages(body: &Bytes, segment: Segment, range: std::ops::Range<usize>) -> Result<Vec<Ref>> {
    let mut pages = Vec::new();
    let mut off = range.start;
    while off < range.end {
        let len = record::length(&body[off..range.end], record::PAGE)?;
        let short = u32::try_from(len).map_err(|_| damaged("a page is too long"))?;
        let at = Ref { segment, off: off as u64, len: short };
        let page = Page::decode(&body.slice(off..off + len), &at)?;
        for (key, value) in page.rows.iter().filter(|_| page.level == 0) {
            check_row(page.kind, key, value)?;
        }
        pages.push(at);
        off += len;
    }
    Ok(pages)
}

fn read_block(d: &mut Decoder<'_>) -> Result<PackBlock> {
    let more = cbor::tuple(d, 3)?;
    let (off, len) = (d.u64().map_err(bad)?, d.u32().map_err(bad)?);
    let contents = cbor::list(d, |d| {
        let more = cbor::tuple(d, 3)?;
        let content = (d.u32().map_err(bad)?, d.u64().map_err(bad)?, Hash::from_bytes(cbor::fixed(d)?));
        cbor::skip(d, more)?;
        Ok(content)
    })?;
    cbor::skip(d, more)?;
    Ok(PackBlock { off, len, contents })
}
