//! Contents: where new ones go, and how stored ones are read.
//!
//! A block is a record of neighbouring small contents, at most 64 KiB together, or of one larger content, or of a part of
//! one that is larger than `part`.

use std::collections::HashMap;

use bytes::Bytes;
use peat_types::{Hash, LedgerId, PackId, Result, Seq};

use super::damaged;
use super::packer::{BLOCK_TARGET, Packed, Packer, after, put_block};
use super::record;
use super::refs::own;
use super::row::TINY;
use crate::model::{Content, ContentRef, FileRow, NewPack, Params, Part};

/// Unpacks the record of a block.
///
/// # Errors
/// `Damaged` or `Unsupported`.
pub fn open_block(record: &Bytes) -> Result<Bytes> {
    record::open(record, record::BLOCK)
}

/// The content of `row` in its unpacked block, verified against its hash.
///
/// # Errors
/// `Damaged`.
pub fn content_in(block: &Bytes, row: &FileRow) -> Result<Bytes> {
    let bytes = match &row.content {
        Content::Tiny(bytes) => bytes.clone(),
        Content::At(at) => {
            let start = u64::from(at.sub);
            let end = start.checked_add(row.size).filter(|end| *end <= block.len() as u64);
            let (Some(end), Ok(start)) = (end.and_then(|end| usize::try_from(end).ok()), usize::try_from(start)) else {
                return Err(damaged("a content lies outside its block"));
            };
            block.slice(start..end)
        }
        Content::Parts(_) => return Err(damaged("a content in parts is not in one block")),
    };
    verify(&bytes, row.size, row.hash)?;
    Ok(bytes)
}

/// A part of a content, all of its unpacked block, verified against its hash.
///
/// # Errors
/// `Damaged`.
pub fn part_in(block: &Bytes, part: &Part) -> Result<Bytes> {
    verify(block, part.size, part.hash)?;
    Ok(block.clone())
}

fn verify(bytes: &[u8], size: u64, hash: Hash) -> Result<()> {
    if bytes.len() as u64 != size || Hash::of(bytes) != hash {
        return Err(damaged(format!("a content does not match its hash {hash}")));
    }
    Ok(())
}

/// The pieces in which a content of `size` bytes is stored: offset and length of each. One, unless it is larger than
/// `part` bytes.
pub fn cuts(size: u64, part: u64) -> impl Iterator<Item = (u64, u64)> + Clone {
    let part = part.max(1);
    (0..size.div_ceil(part).max(1)).map(move |n| (n * part, part.min(size - n * part)))
}

/// What a content lies in that was stored in these pieces, in order.
pub(crate) fn content_of(pieces: &[(ContentRef, u64, Hash)]) -> Option<Content> {
    match pieces {
        [] => None,
        [(at, ..)] => Some(Content::At(*at)),
        many => Some(Content::Parts(
            many.iter().map(|(at, size, hash)| Part { block: at.block, size: *size, hash: *hash }).collect(),
        )),
    }
}

/// Where contents went.
pub(crate) struct Placed {
    /// In the order given.
    pub(crate) contents: Vec<Content>,
    /// Packs that were needed.
    pub(crate) packs: Vec<(NewPack, Bytes)>,
}

/// Where new contents may go.
pub(crate) struct Room<'a> {
    pub(crate) params: &'a Params,
    pub(crate) ledger: LedgerId,
    /// Slot that packs are uploaded for.
    pub(crate) base: Seq,
    /// Whether nothing may travel in the entry.
    pub(crate) packs_only: bool,
}

/// Places new contents, given in the order in which they should be neighbours: tiny ones for their row, the others as
/// blocks appended to the section `out` or, above the limits, in packs.
pub(crate) fn place(
    contents: &[Bytes],
    room: &Room<'_>,
    pack_id: &mut (dyn FnMut() -> PackId + Send),
    out: &mut Vec<u8>,
) -> Result<Placed> {
    let params = room.params;
    // Equal contents of one transaction are stored once; each of their rows still says its own.
    let hashes: Vec<Hash> = contents.iter().map(|content| Hash::of(content)).collect();
    let mut first = HashMap::new();
    let same: Vec<usize> = hashes.iter().enumerate().map(|(i, hash)| *first.entry(*hash).or_insert(i)).collect();
    let stored = || (0..contents.len()).filter(|i| same[*i] == *i && contents[*i].len() as u64 > TINY);
    let fits = |i: &usize| contents[*i].len() as u64 <= params.inline_file;
    let small: u64 = stored().filter(fits).map(|i| contents[i].len() as u64).sum();
    let inline = |i: &usize| !room.packs_only && small <= params.inline_tx && fits(i);

    let mut pieces: Vec<Vec<(ContentRef, u64, Hash)>> = vec![Vec::new(); contents.len()];
    for group in groups(contents, stored().filter(inline)) {
        let raw: Vec<&[u8]> = group.iter().map(|i| &contents[*i][..]).collect();
        let (off, len) = put_block(out, &raw)?;
        let block = own(i64::try_from(off).map_err(|_| damaged("a section is too long"))?, len);
        let mut sub = 0;
        for i in group {
            pieces[i].push((ContentRef { block, sub }, contents[i].len() as u64, hashes[i]));
            sub = after(sub, contents[i].len());
        }
    }
    let mut packs = Vec::new();
    let mut take = |packed: Packed<usize>| {
        for piece in packed.pieces {
            pieces[piece.key].push((piece.at, piece.size, piece.hash));
        }
        packs.push((packed.pack, packed.body));
    };
    let mut packer = Packer::new(room.ledger, room.base, params.pack_target, pack_id);
    for i in stored().filter(|i| !inline(i)) {
        let whole = contents[i].len() as u64;
        for (off, len) in cuts(whole, params.part) {
            let range = usize::try_from(off).ok().zip(usize::try_from(off + len).ok());
            let (from, to) = range.ok_or_else(|| damaged("a content is too long"))?;
            let piece = contents[i].slice(from..to);
            let hash = if len == whole { hashes[i] } else { Hash::of(&piece) };
            packer.add(i, piece, hash, len < whole)?.map(&mut take);
        }
    }
    packer.finish()?.map(&mut take);

    let content = |i: usize| content_of(&pieces[same[i]]).unwrap_or_else(|| Content::Tiny(contents[i].clone()));
    Ok(Placed { contents: (0..contents.len()).map(content).collect(), packs })
}

/// Groups of neighbours that share a block.
fn groups(contents: &[Bytes], which: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
    let mut out: Vec<Vec<usize>> = Vec::new();
    let mut size = usize::MAX;
    for i in which {
        let len = contents[i].len();
        match out.last_mut() {
            Some(group) if size.saturating_add(len) <= BLOCK_TARGET => {
                group.push(i);
                size += len;
            }
            _ => {
                out.push(vec![i]);
                size = len;
            }
        }
    }
    out
}
