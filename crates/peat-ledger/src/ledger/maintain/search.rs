//! Where a content still is, besides where it should lie.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use peat_types::{Error, Hash, Kind, Result, Seq};

use super::mend::{PARALLEL, is};
use crate::format::open_block;
use crate::format::pack::{TRAILER, index_len, indexed_blocks};
use crate::ledger::pages::fetch;
use crate::ledger::{Broken, Ledger, key, log};
use crate::model::{Content, ContentRef, OpRecord, Part, Ref, Segment};

/// Where contents are said to lie, by hash.
pub(super) type Candidates = BTreeMap<Hash, BTreeSet<(Ref, u32)>>;

/// Where the ledger says that contents with the hashes of `wanted` lie: in packs, dropped ones and those that no entry
/// names among them, and in entries that are valid.
pub(super) async fn search(ledger: &Ledger, wanted: &[Broken]) -> Result<Candidates> {
    let hashes: BTreeSet<Hash> = wanted.iter().map(|broken| broken.hash).collect();
    let mut out = Candidates::new();
    let mut note = |hash: Hash, block: Ref, sub: u32| {
        if hashes.contains(&hash) {
            out.entry(hash).or_default().insert((block, sub));
        }
    };
    let packs = log::list_all(ledger, key::PACK).await?;
    let packs = packs.iter().filter_map(|listed| Some((key::pack_segment(&listed.key)?, listed.size)));
    let indices = packs.map(|(segment, size)| async move { (segment, index(ledger, segment, size).await) });
    let mut indices = stream::iter(indices).buffered(PARALLEL).boxed();
    while let Some((segment, blocks)) = indices.next().await {
        for block in readable_or_none(blocks)?.into_iter().flatten() {
            let at = Ref { segment, off: block.off, len: block.len };
            block.contents.iter().for_each(|(sub, _, hash)| note(*hash, at, *sub));
        }
    }
    let keep = ledger.head_entry(ledger.known(Seq::ZERO)).await?.state.root.keep;
    let slots = log::list_all(ledger, key::LOG).await?;
    let slots = slots.iter().filter_map(|listed| key::log_seq(&listed.key)).filter(|seq| *seq >= keep);
    let mut entries = stream::iter(slots.map(|seq| ledger.entry(seq))).buffered(PARALLEL).boxed();
    while let Some(entry) = entries.next().await {
        let Some(entry) = readable_or_none(entry)?.flatten() else { continue };
        for op in entry.ops.iter().flatten().flat_map(|unit| &unit.ops) {
            let OpRecord::Put(_, _, row) = op else { continue };
            match &row.content {
                Content::Tiny(_) => {}
                Content::At(at) => note(row.hash, at.block, at.sub),
                Content::Parts(parts) => {
                    parts.iter().for_each(|Part { block, hash, .. }| note(*hash, *block, 0));
                }
            }
        }
    }
    Ok(out)
}

/// What can be read; what is damaged or gone is nothing, a store that does not answer is an error.
pub(super) fn readable_or_none<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.kind(), Kind::Damaged | Kind::NotFound | Kind::Unsupported) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Blocks of a pack as its index names them.
async fn index(ledger: &Ledger, segment: Segment, size: u64) -> Result<Vec<crate::format::PackBlock>> {
    let short = || Error::damaged(format!("{} is cut off", key::segment(segment)));
    let read = |off: u64, len: u32| async move {
        let at = Ref { segment, off, len };
        fetch(ledger, BTreeSet::from([at])).await?.remove(&at).ok_or_else(|| ledger.gone(&at))
    };
    let end = size.checked_sub(u64::from(TRAILER)).ok_or_else(short)?;
    let len = index_len(&read(end, TRAILER).await?)?;
    let off = end.checked_sub(len).ok_or_else(short)?;
    indexed_blocks(&read(off, u32::try_from(len).map_err(|_| short())?).await?)
}

/// The first of these places where the content really is.
pub(super) async fn readable(
    ledger: &Ledger,
    broken: &Broken,
    places: Option<&BTreeSet<(Ref, u32)>>,
) -> Result<Option<ContentRef>> {
    for (block, sub) in places.into_iter().flatten() {
        let at = ContentRef { block: *block, sub: *sub };
        if at != broken.at && elsewhere(ledger, broken, at).await?.is_some() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// The content, as it lies at another place.
pub(super) async fn elsewhere(ledger: &Ledger, broken: &Broken, at: ContentRef) -> Result<Option<Bytes>> {
    // (A part is all of its block where it stands in a row, but need not be where it is copied from.)
    let fetched = readable_or_none(fetch(ledger, BTreeSet::from([at.block])).await)?;
    let block = fetched.and_then(|mut records| open_block(&records.remove(&at.block)?).ok());
    let from = usize::try_from(at.sub).ok();
    let to = from.and_then(|from| from.checked_add(usize::try_from(broken.size).ok()?));
    let bytes =
        block.zip(from.zip(to)).and_then(|(block, (from, to))| (to <= block.len()).then(|| block.slice(from..to)));
    Ok(bytes.filter(|bytes| is(bytes, broken)))
}
