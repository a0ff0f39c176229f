//! Packs being filled with new contents, one after another: only the one that is open is in memory.

use bytes::Bytes;
use peat_types::{Hash, LedgerId, PackId, Result, Seq};

use super::pack::{PackBlock, PackWriter};
use super::record::{self, Pack};
use crate::model::{ContentRef, NewPack, Ref};

/// Small contents share a block up to this size.
pub(crate) const BLOCK_TARGET: usize = 64 << 10;

/// A pack that is full. `K` is how the caller knows a piece.
pub(crate) struct Packed<K> {
    pub(crate) pack: NewPack,
    pub(crate) body: Bytes,
    /// In the order in which they were added.
    pub(crate) pieces: Vec<Packing<K>>,
}

/// A piece of a content, and where it lies.
pub(crate) struct Packing<K> {
    pub(crate) key: K,
    pub(crate) at: ContentRef,
    pub(crate) size: u64,
    pub(crate) hash: Hash,
}

/// Fills packs of one base. Pieces come in the order in which they should be neighbours.
pub(crate) struct Packer<'a, K> {
    ledger: LedgerId,
    base: Seq,
    target: u64,
    id: &'a mut (dyn FnMut() -> PackId + Send),
    open: Option<(PackWriter, Vec<Packing<K>>)>,
    /// The block that is being filled.
    group: Vec<(K, Bytes, Hash)>,
    /// What it takes until it is closed: nothing more, when a part is in it.
    room: usize,
}

impl<'a, K: Copy> Packer<'a, K> {
    pub(crate) fn new(ledger: LedgerId, base: Seq, target: u64, id: &'a mut (dyn FnMut() -> PackId + Send)) -> Self {
        Self { ledger, base, target, id, open: None, group: Vec::new(), room: BLOCK_TARGET }
    }

    /// Adds a piece; gives the pack that became full by what was added before. A part of a content is `alone` in its
    /// block.
    pub(crate) fn add(&mut self, key: K, bytes: Bytes, hash: Hash, alone: bool) -> Result<Option<Packed<K>>> {
        let full = if alone || bytes.len() > self.room { self.close_block()? } else { None };
        self.room = if alone { 0 } else { self.room.saturating_sub(bytes.len()) };
        self.group.push((key, bytes, hash));
        Ok(full)
    }

    /// The last pack.
    pub(crate) fn finish(mut self) -> Result<Option<Packed<K>>> {
        match self.close_block()? {
            Some(full) => Ok(Some(full)),
            None => self.open.take().map(|(pack, pieces)| close(pack, pieces)).transpose(),
        }
    }

    fn close_block(&mut self) -> Result<Option<Packed<K>>> {
        self.room = BLOCK_TARGET;
        let group = std::mem::take(&mut self.group);
        if group.is_empty() {
            return Ok(None);
        }
        let (mut pack, mut pieces) = match self.open.take() {
            Some(open) => open,
            None => (PackWriter::new(self.ledger, self.base, (self.id)())?, Vec::new()),
        };
        let contents: Vec<&[u8]> = group.iter().map(|(_, bytes, _)| &bytes[..]).collect();
        let (off, len) = put_block(&mut pack.body, &contents)?;
        let block = Ref { segment: pack.segment(), off, len };
        let mut members = Vec::with_capacity(group.len());
        let mut sub = 0;
        for (key, bytes, hash) in group {
            let size = bytes.len() as u64;
            members.push((sub, size, hash));
            pieces.push(Packing { key, at: ContentRef { block, sub }, size, hash });
            sub = after(sub, bytes.len());
        }
        pack.blocks.push(PackBlock { off, len, contents: members });
        if (pack.body.len() as u64) < self.target {
            self.open = Some((pack, pieces));
            return Ok(None);
        }
        close(pack, pieces).map(Some)
    }
}

fn close<K>(pack: PackWriter, pieces: Vec<Packing<K>>) -> Result<Packed<K>> {
    let (base, id, body) = pack.finish()?;
    Ok(Packed { pack: NewPack { base, id, size: body.len() as u64, pages: false }, body, pieces })
}

/// Offset of the next content of a block. A group of several stays below 64 KiB, and what comes after a single one is
/// not used.
pub(crate) fn after(sub: u32, len: usize) -> u32 {
    sub.saturating_add(u32::try_from(len).unwrap_or(u32::MAX))
}

/// Appends a block of contents; gives its offset and length.
pub(crate) fn put_block(out: &mut Vec<u8>, contents: &[&[u8]]) -> Result<(u64, u32)> {
    let off = out.len();
    match contents {
        [one] => record::put(out, one, Pack::Zstd, record::BLOCK)?,
        many => record::put(out, &many.concat(), Pack::Zstd, record::BLOCK)?,
    }
    let len = u32::try_from(out.len() - off).map_err(|_| peat_types::Error::invalid("a content is too long"))?;
    Ok((off as u64, len))
}
