//! Contents that lie where nobody may refer to any more, stored once more: piece by piece, never all of one in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peat_types::{Error, Hash, Result, Seq};

use super::{Ledger, Pieces, Stored};
use crate::model::{Content, ContentRef, FileRow, NewContent, NewPack, Part};

/// Bytes read before they are sent: two packs.
const WINDOW: u64 = 32 << 20;

/// Pieces that were stored again: where each lies, by its hash and whether it is but a part of a content.
#[derive(Clone, Debug, Default)]
pub struct Again(BTreeMap<(Hash, bool), (ContentRef, NewPack)>);

impl Again {
    /// Pieces in these packs that were stored again.
    pub fn of(packs: &[Stored]) -> Self {
        let mut again = Self::default();
        packs.iter().for_each(|pack| again.note(pack));
        again
    }

    fn note(&mut self, pack: &Stored) {
        let known = pack.pieces.iter().filter_map(|piece| Some((piece.again?, (pack.place(piece), pack.pack))));
        self.0.extend(known);
    }

    /// A content of which all pieces were stored again; one that is kept in its row needs none.
    pub fn content(&self, row: &FileRow) -> Option<NewContent> {
        let mut packs: Vec<NewPack> = Vec::new();
        let mut find = |hash: Hash, part: bool| {
            let (at, pack) = self.0.get(&(hash, part))?;
            if packs.last() != Some(pack) {
                packs.push(*pack);
            }
            Some(*at)
        };
        let content = match &row.content {
            Content::Tiny(bytes) => return Some(NewContent::Bytes(bytes.clone())),
            Content::At(_) => Content::At(find(row.hash, false)?),
            Content::Parts(parts) => {
                let part = |part: &Part| Some(Part { block: find(part.hash, true)?.block, ..*part });
                Content::Parts(parts.iter().map(part).collect::<Option<Vec<_>>>()?.into())
            }
        };
        Some(NewContent::Uploaded(FileRow { content, ..row.clone() }, Arc::from(packs)))
    }
}

/// A piece as it lies now.
struct Old {
    row: usize,
    offset: u64,
    part: bool,
    at: FileRow,
}

fn pieces(rows: &[&FileRow]) -> Vec<Old> {
    let mut out = Vec::new();
    for (row, file) in rows.iter().enumerate() {
        match &file.content {
            Content::Tiny(_) => {}
            Content::At(_) => out.push(Old { row, offset: 0, part: false, at: (*file).clone() }),
            Content::Parts(parts) => {
                let mut offset = 0;
                for part in &**parts {
                    let content = Content::At(ContentRef { block: part.block, sub: 0 });
                    let at = FileRow { executable: false, size: part.size, hash: part.hash, content };
                    out.push(Old { row, offset, part: true, at });
                    offset += part.size;
                }
            }
        }
    }
    out
}

/// Pieces that are in memory, on their way into packs.
pub(super) struct Batch(pub(super) Vec<(Bytes, Hash, bool)>);

impl Pieces for Batch {
    fn piece(&self, content: usize, _: u32) -> Result<(Bytes, Hash, bool)> {
        self.0.get(content).cloned().ok_or_else(|| Error::internal("there is no such content"))
    }
}

impl Ledger {
    /// Stores contents of rows again, in packs for the slot `base`, but for what `known` has. `here` gives bytes of a row
    /// (its index, an offset, a length) that are at hand; they are verified, and what is not at hand is read from where it
    /// lies. Each pack is tried for as long as `patience`, and told to `stored` as soon as it is there.
    ///
    /// # Errors
    /// What `here`, `stored` and the store say.
    pub async fn store_again(
        &self,
        base: Seq,
        rows: &[&FileRow],
        known: &mut Again,
        here: &(dyn Fn(usize, u64, u64) -> Result<Option<Bytes>> + Sync),
        patience: Duration,
        stored: &mut (dyn FnMut(Stored) -> Result<()> + Send),
    ) -> Result<()> {
        let mut wanted = pieces(rows);
        wanted.retain(|old| !known.0.contains_key(&(old.at.hash, old.part)));
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let full = rest.iter().position(|old| {
                bytes += old.at.size;
                bytes >= WINDOW
            });
            let (window, after) = rest.split_at(full.map_or(rest.len(), |at| at + 1));
            rest = after;
            let batch = Batch(self.read_pieces(window, here).await?);
            let keys: Vec<(Hash, bool)> = batch.0.iter().map(|(_, hash, part)| (*hash, *part)).collect();
            let all = (0..batch.0.len()).map(|at| (at, 0));
            self.upload(base, all, &batch, patience, &mut |pack| {
                let mut pack = pack.clone();
                for piece in &mut pack.pieces {
                    piece.again = keys.get(piece.content).copied();
                }
                known.note(&pack);
                stored(pack)
            })
            .await?;
        }
        Ok(())
    }

    async fn read_pieces(
        &self,
        window: &[Old],
        here: &(dyn Fn(usize, u64, u64) -> Result<Option<Bytes>> + Sync),
    ) -> Result<Vec<(Bytes, Hash, bool)>> {
        let mut found = Vec::with_capacity(window.len());
        for old in window {
            let bytes = here(old.row, old.offset, old.at.size)?;
            found.push(bytes.filter(|bytes| bytes.len() as u64 == old.at.size && Hash::of(bytes) == old.at.hash));
        }
        let away: Vec<&FileRow> =
            window.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(old, _)| &old.at).collect();
        let mut away = if away.is_empty() { Vec::new() } else { self.contents(&away, &[]).await? }.into_iter();
        let mut out = Vec::with_capacity(window.len());
        for (old, bytes) in window.iter().zip(found) {
            let bytes = bytes.or_else(|| away.next()).ok_or_else(|| Error::internal("fewer contents than rows"))?;
            out.push((bytes, old.at.hash, old.part));
        }
        Ok(out)
    }
}
