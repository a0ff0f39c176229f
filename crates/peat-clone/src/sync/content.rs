//! One content, for whoever asks: the right one, or an error.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use peat_ledger::{Content, ContentRef, FileRow, Ledger};
use peat_types::{Error, Hash, Kind, Result};

use crate::db;
use crate::handle::Inner;
use crate::history::past_unread;
use crate::tree::Glance;
use crate::{Aside, Event, Hydration, Item, Scope};

/// Parts of a content that are read ahead while one is given.
const AHEAD: usize = 3;

impl Inner {
    /// The content of an item, if it is here and right; no request.
    pub(crate) fn content_here(&self, item: &Item) -> Result<Option<Bytes>> {
        match &item.row.content {
            Content::Tiny(bytes) => Ok(Some(bytes.clone())),
            Content::At(_) | Content::Parts(_) => self.local(item),
        }
    }

    /// The content of an item that is in no row, if it is here and right.
    pub(crate) fn local(&self, item: &Item) -> Result<Option<Bytes>> {
        if db::is_lease(&item.path) {
            let kept = self.db.read(|tx| db::bytes(tx, &item.unit, &item.path))?;
            return Ok(kept.filter(|bytes| Hash::of(bytes) == item.row.hash));
        }
        self.tree.read(item)
    }

    /// Whether the content of an item is here and right.
    pub(crate) fn is_here(&self, item: &Item) -> Result<bool> {
        if db::is_lease(&item.path) { Ok(self.local(item)?.is_some()) } else { self.tree.matches(item) }
    }

    pub(crate) async fn content(&self, item: &Item) -> Result<Bytes> {
        if let Some(bytes) = self.content_here(item)? {
            return Ok(bytes);
        }
        if db::is_lease(&item.path) {
            let bytes = self.fetch(item).await?;
            self.db.keep_bytes(item, &bytes)?;
            return Ok(bytes);
        }
        let glance = self.tree.glance(item)?;
        let bytes = self.fetch(item).await?;
        self.repair(item, &bytes, glance)?;
        Ok(bytes)
    }

    /// Puts a content that was asked for where it belongs, if it still belongs there.
    fn repair(&self, item: &Item, bytes: &Bytes, found: Glance) -> Result<()> {
        let current = self.db.read(|tx| db::claimant(tx, &item.path))?;
        if current.is_some_and(|now| now.row.hash == item.row.hash) {
            if found != Glance::Missing || self.options.hydration == Hydration::Full {
                self.options.reporter.report(Event::Repaired { path: item.path.as_str() });
            }
            self.clear_way(&item.path)?;
            if found != Glance::Missing {
                self.put_aside(&item.path, Aside::Wanted)?;
            }
            self.show(item, bytes)?;
            self.note_placed(item)?;
        }
        Ok(())
    }

    /// Remembers that the file of an item is in the tree now.
    pub(super) fn note_placed(&self, item: &Item) -> Result<()> {
        if self.tree.glance(item)? == Glance::SameSize { self.db.write(|tx| db::placed(tx, item)) } else { Ok(()) }
    }

    pub(crate) async fn file(&self, item: &Item) -> Result<PathBuf> {
        if db::is_lease(&item.path) {
            return Err(Error::invalid(format!("{} is a record, not a file", item.path)));
        }
        if self.tree.matches(item)? {
            return Ok(self.tree.at(&item.path));
        }
        if !self.is_current(item)? {
            return Err(Error::not_found(format!("{} has another content by now", item.path))
                .with_hint("look the item up again"));
        }
        self.clear_way(&item.path)?;
        if self.tree.glance(item)? != Glance::Missing {
            self.put_aside(&item.path, Aside::Wanted)?;
        }
        match &item.row.content {
            Content::Parts(_) => self.download(item).await?,
            _ => {
                let bytes = self.content(item).await?;
                self.tree.write(&self.env, item, &bytes)?;
                self.note_placed(item)?;
            }
        }
        Ok(self.tree.at(&item.path))
    }

    /// The content of an item, piece by piece, each verified before it is given. A large one is downloaded to its place
    /// first, if it is not there, unless that belongs to another content by now.
    pub(crate) async fn stream(&self, item: &Item, take: &mut (dyn FnMut(&[u8]) -> Result<()> + Send)) -> Result<()> {
        let Content::Parts(parts) = &item.row.content else { return take(&self.content(item).await?) };
        // The file of another version is not worth reading.
        let in_tree = self.is_current(item)?;
        if in_tree && self.tree.glance(item)? != Glance::SameSize {
            self.download(item).await?;
        }
        let offsets = parts.iter().scan(0, |end, part| {
            *end += part.size;
            Some(*end - part.size)
        });
        let wanted: Vec<(usize, u64)> = offsets.enumerate().collect();
        let reads = wanted.into_iter().map(|(n, offset)| async move {
            let Some(part) = parts.get(n) else { return Ok(Bytes::new()) };
            let here = if in_tree { self.tree.slice(item, offset, part.size)? } else { None };
            match here.filter(|bytes| Hash::of(bytes) == part.hash) {
                Some(bytes) => Ok(bytes),
                None => self.fetch_part(item, n).await,
            }
        });
        let mut reads = stream::iter(reads).buffered(AHEAD).boxed();
        while let Some(bytes) = reads.next().await {
            take(&bytes?)?;
        }
        Ok(())
    }

    pub(crate) fn is_current(&self, item: &Item) -> Result<bool> {
        let current = self.db.read(|tx| db::claimant(tx, &item.path))?;
        Ok(current.is_some_and(|now| now.row.hash == item.row.hash))
    }

    /// Fetches a content to its place, never all of it in memory.
    async fn download(&self, item: &Item) -> Result<()> {
        match self.pieces_to_tree(item).await {
            Err(error) if Ledger::is_lost(&error) => {
                let Some(now) = self.moved(item).await? else { return Err(self.unread(item, error)?) };
                self.pieces_to_tree(&now).await
            }
            done => done,
        }
    }

    async fn pieces_to_tree(&self, item: &Item) -> Result<()> {
        let rows = [&item.row];
        let mut pieces = self.ledger.pieces(&rows, &[]);
        let mut partials = BTreeMap::new();
        while let Some(piece) = pieces.next().await {
            self.show_piece(item, &piece.map_err(|error| not_local(item, error))?, &mut partials)?;
        }
        self.note_placed(item)
    }

    async fn fetch(&self, item: &Item) -> Result<Bytes> {
        match self.contents_of(item, &item.row).await {
            Err(error) if Ledger::is_lost(&error) => {
                let Some(now) = self.moved(item).await? else { return Err(self.unread(item, error)?) };
                self.contents_of(&now, &now.row).await
            }
            read => read,
        }
    }

    async fn fetch_part(&self, item: &Item, n: usize) -> Result<Bytes> {
        let row = |item: &Item| match &item.row.content {
            Content::Parts(parts) => parts.get(n).map(|part| FileRow {
                executable: false,
                size: part.size,
                hash: part.hash,
                content: Content::At(ContentRef { block: part.block, sub: 0 }),
            }),
            _ => None,
        };
        let none = || Error::internal("a content has fewer parts than it had");
        match self.contents_of(item, &row(item).ok_or_else(none)?).await {
            Err(error) if Ledger::is_lost(&error) => {
                let Some(now) = self.moved(item).await? else { return Err(self.unread(item, error)?) };
                self.contents_of(&now, &row(&now).ok_or_else(none)?).await
            }
            read => read,
        }
    }

    /// Why a content is nowhere. One that is not current any more may have been let go of since the item was read.
    fn unread(&self, item: &Item, error: Error) -> Result<Error> {
        Ok(if self.is_current(item)? { lost_content(item.path.as_str(), error) } else { past_unread(error) })
    }

    /// An item that was read before its content was moved elsewhere: the newest row of it knows where.
    async fn moved(&self, item: &Item) -> Result<Option<Item>> {
        self.find_places(std::slice::from_ref(&item.unit)).await?;
        Box::pin(self.pull(&Scope::Units(vec![item.unit.clone()]))).await?;
        let now = self.db.read(|tx| db::get(tx, &item.unit, &item.path))?;
        Ok(now.filter(|now| now.row.hash == item.row.hash && now.row.content != item.row.content))
    }

    async fn contents_of(&self, item: &Item, row: &FileRow) -> Result<Bytes> {
        let mut contents = self.ledger.contents(&[row], &[]).await.map_err(|error| not_local(item, error))?;
        contents.pop().ok_or_else(|| Error::internal("no content for one row"))
    }
}

/// Code of the error that says: the store does not have a content where it should lie.
pub(crate) const LOST: &str = "content_lost";

pub(super) fn lost_content(path: &str, error: Error) -> Error {
    Error::damaged(format!("the store does not have the content of {path} where it should lie"))
        .with_code(LOST)
        .with_hint(
            "'peat doctor --repair' on a machine that has the file puts it back; 'peat ledger verify --deep' names all that \
             is missing",
        )
        .with_source(error)
}

fn not_local(item: &Item, error: Error) -> Error {
    if error.kind() != Kind::Offline {
        return error;
    }
    error
        .context(format!("the content of {} is not on this machine, and the store cannot be asked", item.path))
        .with_code("not_local")
        .with_hint("run the command again when the store answers: what it reads is kept from then on")
}

/// A folder in the way of a file (two items of which one's path is the other's folder) is the doctor's business; the
/// content is still to be had.
pub(super) fn not_in_the_way(item: &Item, written: Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == Kind::Internal || error.kind() == Kind::NotFound => {
            tracing::warn!(%error, path = %item.path, "not materialised");
            Ok(())
        }
        written => written,
    }
}
