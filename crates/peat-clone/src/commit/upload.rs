//! Contents first (A5): what does not fit an entry is in the store, and known to be, before the change is planned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{
    Again, Content, ContentRef, FileRow, NewContent, NewPack, Part, Pieces, State, Stored, StoredPiece, format,
};
use peat_types::{Hash, Result};

use crate::db;
use crate::handle::Inner;
use crate::history::past_unread;
use crate::journal::{Brought, Locked};
use crate::{Event, Item};

/// What a change brings and lies in the store.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// Its contents, by their index.
    pub(crate) brought: BTreeMap<usize, NewContent>,
    /// Contents that were stored again.
    pub(crate) again: Again,
}

/// The journal as the uploader reads it.
struct Journalled(Arc<[Brought]>);

impl Pieces for Journalled {
    fn piece(&self, content: usize, piece: u32) -> Result<(Bytes, Hash, bool)> {
        let kept = self.0.get(content).ok_or_else(|| peat_types::Error::internal("a change has no such content"))?;
        let (bytes, hash) = kept.piece(piece)?;
        Ok((bytes, hash, !kept.parts().is_empty()))
    }
}

impl Inner {
    /// Uploads what a row brings and an entry would not hold, unless it is in the store already: sent by an earlier
    /// invocation, or known from another item (A11; not when such a reference turned out to `avoid`). A store that does not
    /// answer is asked again for as long as `patience`, for each pack.
    pub(crate) async fn upload(
        &self,
        locked: &mut Locked,
        base: &State,
        avoid: bool,
        patience: Duration,
    ) -> Result<Placed> {
        let params = &self.ledger.info().params;
        let contents = locked.row.contents.clone();
        let inline = |kept: &&Brought| kept.size() <= params.inline_file && kept.size() > format::TINY;
        let all: u64 = contents.iter().filter(inline).map(Brought::size).sum();
        // R2: what was uploaded too long ago may be gone, and is never introduced.
        locked.forget(&self.env, |pack| pack.pack.base <= base.root.horizon)?;
        let mut placed = Placed { brought: BTreeMap::new(), again: Again::of(locked.stored()) };
        let mut wanted = Vec::new();
        for (i, kept) in contents.iter().enumerate() {
            if kept.size() <= format::TINY || kept.size() <= params.inline_file && all <= params.inline_tx {
                continue;
            }
            if !avoid
                && kept.size() > params.inline_file
                && let Some(row) = self.db.read(|tx| db::in_pack(tx, kept.hash(), kept.size()))?
            {
                placed.brought.insert(i, NewContent::Known(row));
                continue;
            }
            wanted.push(i);
        }
        if wanted.is_empty() {
            return Ok(placed);
        }
        // Equal contents are sent once.
        let mut first: BTreeMap<Hash, usize> = BTreeMap::new();
        for i in &wanted {
            first.entry(contents[*i].hash()).or_insert(*i);
        }
        let there: BTreeSet<(usize, u32)> =
            indexed(locked.stored()).map(|(_, piece)| (piece.content, piece.piece)).collect();
        let mut missing: Vec<(usize, u32)> = Vec::new();
        for i in wanted.iter().copied().filter(|i| first.get(&contents[*i].hash()) == Some(i)) {
            let pieces = u32::try_from(contents[i].parts().len().max(1)).unwrap_or(u32::MAX);
            missing.extend((0..pieces).map(|n| (i, n)).filter(|key| !there.contains(key)));
        }
        self.send_pieces(locked, base, &contents, missing, patience).await?;
        let places = places(locked.stored());
        for i in wanted {
            let Some(same) = first.get(&contents[i].hash()) else { continue };
            if let Some(content) = content_of(&contents[*same], &places, *same) {
                placed.brought.insert(i, content);
            }
        }
        Ok(placed)
    }

    /// Stores contents again whose places are no longer ones to refer to: from the tree where it has them, else from where
    /// some kept state has them. Noted like any other upload.
    pub(crate) async fn store_again(
        &self,
        locked: &mut Locked,
        base: &State,
        items: &[Item],
        patience: Duration,
    ) -> Result<()> {
        let of: u64 = items.iter().map(Item::size).sum();
        let rows: Vec<&FileRow> = items.iter().map(|item| &item.row).collect();
        let mut known = Again::of(locked.stored());
        let here = |row: usize, offset: u64, len: u64| match items.get(row) {
            Some(item) if !db::is_lease(&item.path) => self.tree.slice(item, offset, len),
            _ => Ok(None),
        };
        let mut done = 0;
        let mut stored = |pack: Stored| {
            done += pack.pack.size;
            self.options.reporter.report(Event::Uploading { done: done.min(of), of });
            locked.uploaded(pack)
        };
        let base = base.seq.next();
        let stored = self.ledger.store_again(base, &rows, &mut known, &here, patience, &mut stored).await;
        self.options.reporter.report(Event::Uploading { done: of, of });
        stored.map_err(past_unread)
    }

    async fn send_pieces(
        &self,
        locked: &mut Locked,
        base: &State,
        contents: &Arc<[Brought]>,
        missing: Vec<(usize, u32)>,
        patience: Duration,
    ) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let of: u64 = locked.row.contents.iter().map(Brought::size).sum();
        let from = Journalled(contents.clone());
        let size = |pack: &Stored| pack.pack.size;
        let mut done: u64 = locked.stored().iter().map(size).sum();
        let mut stored = |pack: &Stored| {
            done += size(pack);
            self.options.reporter.report(Event::Uploading { done: done.min(of), of });
            locked.uploaded(pack.clone())
        };
        let base = base.seq.next();
        let uploaded = self.ledger.upload(base, missing.into_iter(), &from, patience, &mut stored).await;
        self.options.reporter.report(Event::Uploading { done: of, of });
        uploaded
    }
}

type Places = BTreeMap<(usize, u32), (ContentRef, NewPack)>;

/// Pieces of contents that have an index.
fn indexed(stored: &[Stored]) -> impl Iterator<Item = (&Stored, &StoredPiece)> {
    let pieces = stored.iter().flat_map(|pack| pack.pieces.iter().map(move |piece| (pack, piece)));
    pieces.filter(|(_, piece)| piece.again.is_none())
}

fn places(stored: &[Stored]) -> Places {
    indexed(stored).map(|(pack, piece)| ((piece.content, piece.piece), (pack.place(piece), pack.pack))).collect()
}

/// A content of which all pieces are in the store.
fn content_of(kept: &Brought, places: &Places, i: usize) -> Option<NewContent> {
    let (mut packs, mut parts) = (Vec::new(), Vec::new());
    let mut rest = kept.size();
    let row = |content| FileRow { executable: false, size: kept.size(), hash: kept.hash(), content };
    if kept.parts().is_empty() {
        let (at, pack) = places.get(&(i, 0))?;
        return Some(NewContent::Uploaded(row(Content::At(*at)), [*pack].into()));
    }
    for (n, (hash, size)) in (0..).zip(kept.parts().iter().zip(kept.part_sizes())) {
        let (at, pack) = places.get(&(i, n))?;
        parts.push(Part { block: at.block, size, hash: *hash });
        rest -= size;
        if packs.last() != Some(pack) {
            packs.push(*pack);
        }
    }
    (rest == 0).then(|| NewContent::Uploaded(row(Content::Parts(parts.into())), packs.into()))
}
