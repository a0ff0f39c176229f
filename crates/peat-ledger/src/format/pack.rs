//! Packs: contents that do not travel in an entry.
//!
//! ```text
//! pack := preamble (kind 3)  header record  block record*  index record  index_len:u32le  "PEATEND1"
//! ```
//! Header: 0 base · 1 id · 2 ledger · 3 min reader. Index: 0 blocks `[off, len, [[sub, size, hash], …]]`. A pack is
//! never read through its index in normal work (rows refer to blocks); the index lets a check or a repair find contents
//! by hash without any table.

use bytes::Bytes;
use minicbor::Decoder;
use peat_types::{Hash, LedgerId, PackId, Result, Seq};

use super::cbor::{self, Fields, bad};
use super::header::{KIND_PACK, PREAMBLE, header_len, preamble};
use super::record::{self, Pack};
use super::varint::Reader;
use super::{VERSION, damaged, unsupported};
use crate::model::Segment;

const END: &[u8; 8] = b"PEATEND1";
const TRAILER: usize = 12;

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
}

pub(crate) struct PackWriter {
    base: Seq,
    id: PackId,
    pub(crate) body: Vec<u8>,
    pub(crate) blocks: Vec<PackBlock>,
}

impl PackWriter {
    pub(crate) fn new(ledger: LedgerId, base: Seq, id: PackId) -> Result<Self> {
        let mut f = Fields::new();
        f.key(0).uint(base.0);
        f.key(1).bytes(id.as_bytes());
        f.key(2).bytes(ledger.as_bytes());
        f.key(3).uint(u64::from(VERSION));
        let header = record::encode(&f.into_bytes(), Pack::Zstd, record::HEADER)?;
        let mut body = preamble(KIND_PACK, header.len())?;
        body.extend_from_slice(&header);
        Ok(Self { base, id, body, blocks: Vec::new() })
    }

    pub(crate) fn segment(&self) -> Segment {
        Segment::Pack(self.base, self.id)
    }

    pub(crate) fn finish(self) -> Result<(Seq, PackId, Bytes)> {
        let Self { base, id, mut body, blocks } = self;
        let mut f = Fields::new();
        let list = f.key(0).array(blocks.len());
        for block in &blocks {
            list.array(3).uint(block.off).uint(u64::from(block.len)).array(block.contents.len());
            for (sub, size, hash) in &block.contents {
                list.array(3).uint(u64::from(*sub)).uint(*size).bytes(hash.as_bytes());
            }
        }
        let index = record::encode(&f.into_bytes(), Pack::Zstd, record::INDEX)?;
        let len = u32::try_from(index.len()).map_err(|_| damaged("a pack index is too long"))?;
        body.extend_from_slice(&index);
        body.extend_from_slice(&len.to_le_bytes());
        body.extend_from_slice(END);
        Ok((base, id, body.into()))
    }
}

/// Reads a whole pack: header, index, and the checksum of every block.
///
/// # Errors
/// `Damaged`; `Unsupported` for a newer format.
pub fn decode_pack(body: &Bytes) -> Result<PackIndex> {
    let len = header_len(body, KIND_PACK)?.ok_or_else(|| damaged("a pack is cut off"))?;
    let cut = || damaged("a pack is cut off");
    let start = PREAMBLE + len;
    if body.len() < start + TRAILER {
        return Err(cut());
    }
    let header = record::open(&body.slice(PREAMBLE..start), record::HEADER)?;
    let mut trailer = Reader::new(&body[body.len() - TRAILER..]);
    let index_len = usize::try_from(trailer.u32le()?).map_err(|_| cut())?;
    if trailer.array::<8>()? != *END {
        return Err(cut());
    }
    let index_end = body.len() - TRAILER;
    let index_start = index_end.checked_sub(index_len).filter(|at| *at >= start).ok_or_else(cut)?;
    let index = record::open(&body.slice(index_start..index_end), record::INDEX)?;

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
    let mut blocks = Vec::new();
    cbor::map(&mut Decoder::new(&index), |key, d| {
        if key == 0 {
            blocks = cbor::list(d, read_block)?;
        }
        Ok(key == 0)
    })?;
    // The blocks fill the object without a gap, so the index can be checked against the records themselves.
    let mut off = start;
    for block in &blocks {
        let found = record::length(&body[off..index_start], record::BLOCK)?;
        if block.off != off as u64 || block.len as usize != found {
            return Err(damaged("a pack index does not match its blocks"));
        }
        off += found;
    }
    if off != index_start {
        return Err(damaged("a pack index does not match its blocks"));
    }
    let missing = || damaged("a pack header is not complete");
    Ok(PackIndex {
        base: base.ok_or_else(missing)?,
        id: id.ok_or_else(missing)?,
        ledger: ledger.ok_or_else(missing)?,
        blocks,
    })
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
