//! Contents: where new ones go, and how stored ones are read.
//!
//! A block is a record of neighbouring small contents, at most 64 KiB together, or of one larger content.

use std::collections::HashMap;

use bytes::Bytes;
use peat_types::{Hash, LedgerId, PackId, Result, Seq};

use super::damaged;
use super::pack::{PackBlock, PackWriter};
use super::record::{self, Pack};
use super::refs::own;
use super::row::TINY;
use crate::model::{Content, ContentRef, FileRow, Params, Ref};

/// Small contents share a block up to this size.
const BLOCK_TARGET: usize = 64 << 10;

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
    };
    if bytes.len() as u64 != row.size || Hash::of(&bytes) != row.hash {
        return Err(damaged(format!("a content does not match its hash {}", row.hash)));
    }
    Ok(bytes)
}

/// Where contents went.
pub(crate) struct Placed {
    /// In the order given.
    pub(crate) contents: Vec<Content>,
    /// Packs that were needed.
    pub(crate) packs: Vec<(Seq, PackId, Bytes)>,
}

/// Places new contents, given in the order in which they should be neighbours: tiny ones for their row, the others as
/// blocks appended to the section `out` or, above the limits, in packs of `base`.
pub(crate) fn place(
    contents: &[Bytes],
    params: &Params,
    ledger: LedgerId,
    base: Seq,
    pack_id: &mut (dyn FnMut() -> PackId + Send),
    out: &mut Vec<u8>,
) -> Result<Placed> {
    // Equal contents of one transaction are stored once; each of their rows still says its own.
    let mut first = HashMap::new();
    let same: Vec<usize> = contents.iter().enumerate().map(|(i, c)| *first.entry(Hash::of(c)).or_insert(i)).collect();
    let stored = || (0..contents.len()).filter(|i| same[*i] == *i && contents[*i].len() as u64 > TINY);
    let fits = |i: &usize| contents[*i].len() as u64 <= params.inline_file;
    let small: u64 = stored().filter(fits).map(|i| contents[i].len() as u64).sum();
    let inline = |i: &usize| small <= params.inline_tx && fits(i);

    let mut places: Vec<Option<ContentRef>> = vec![None; contents.len()];
    for group in groups(contents, stored().filter(inline)) {
        let (off, len) = put_block(out, contents, &group)?;
        let off = i64::try_from(off).map_err(|_| damaged("a section is too long"))?;
        set_places(&mut places, contents, &group, own(off, len));
    }
    let mut packs = Vec::new();
    let mut open: Option<PackWriter> = None;
    for group in groups(contents, stored().filter(|i| !inline(i))) {
        let mut pack = match open.take() {
            Some(pack) => pack,
            None => PackWriter::new(ledger, base, pack_id())?,
        };
        let (off, len) = put_block(&mut pack.body, contents, &group)?;
        set_places(&mut places, contents, &group, Ref { segment: pack.segment(), off, len });
        let members =
            group.iter().filter_map(|i| Some((places[*i]?.sub, contents[*i].len() as u64, Hash::of(&contents[*i]))));
        let members = members.collect();
        pack.blocks.push(PackBlock { off, len, contents: members });
        if (pack.body.len() as u64) < params.pack_target {
            open = Some(pack);
        } else {
            packs.push(pack.finish()?);
        }
    }
    packs.extend(open.map(PackWriter::finish).transpose()?);

    let content = |i: usize| match places[same[i]] {
        Some(at) => Content::At(at),
        None => Content::Tiny(contents[i].clone()),
    };
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

fn put_block(out: &mut Vec<u8>, contents: &[Bytes], group: &[usize]) -> Result<(u64, u32)> {
    let off = out.len();
    match group {
        [one] => record::put(out, &contents[*one], Pack::Zstd, record::BLOCK)?,
        many => {
            let raw: Vec<&[u8]> = many.iter().map(|i| &contents[*i][..]).collect();
            record::put(out, &raw.concat(), Pack::Zstd, record::BLOCK)?;
        }
    }
    let len = u32::try_from(out.len() - off).map_err(|_| peat_types::Error::invalid("a content is too long"))?;
    Ok((off as u64, len))
}

fn set_places(places: &mut [Option<ContentRef>], contents: &[Bytes], group: &[usize], block: Ref) {
    let mut sub = 0;
    for i in group {
        places[*i] = Some(ContentRef { block, sub });
        // A group of several stays below 64 KiB, and the offset after a single one is not used.
        sub = sub.saturating_add(u32::try_from(contents[*i].len()).unwrap_or(u32::MAX));
    }
}
