//! Contents: the tree follows the index, and whoever asks for a content gets the right one or an error.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use peat_ledger::{Content, Entry, Ledger, Segment};
use peat_types::{Error, Hash, Kind, Result, Unit};

use crate::db::{self, Todo};
use crate::handle::Inner;
use crate::tree::Glance;
use crate::{Event, Hydration, Item, Scope};

/// Paths looked at in one go.
const BATCH: u32 = 256;
/// Bytes fetched in one go.
const BATCH_BYTES: u64 = 8 << 20;

/// Bytes that are here already.
#[derive(Default)]
pub(crate) struct AtHand {
    entries: Vec<Entry>,
    contents: BTreeMap<Hash, Bytes>,
}

impl AtHand {
    pub(crate) fn entries(entries: Vec<Entry>) -> Self {
        Self { entries, contents: BTreeMap::new() }
    }

    pub(crate) fn with(mut self, contents: BTreeMap<Hash, Bytes>) -> Self {
        self.contents = contents;
        self
    }

    fn has(&self, item: &Item) -> bool {
        match &item.row.content {
            Content::Tiny(_) => true,
            Content::At(at) => self.entries.iter().any(|entry| at.block.segment == Segment::Log(entry.state.seq)),
        }
    }
}

impl Inner {
    /// Makes the tree what the index says, for some units or all. Gives the bytes that became local.
    pub(crate) async fn hydrate(&self, only: Option<&[Unit]>, at_hand: &AtHand) -> Result<u64> {
        let fetch = self.options.hydration == Hydration::Full;
        let Some(units) = only else { return self.hydrate_with(None, 0, at_hand, fetch).await };
        let mut bytes = 0;
        for unit in units {
            bytes += self.hydrate_with(Some(unit), 0, at_hand, fetch).await?;
        }
        Ok(bytes)
    }

    /// Makes visible what was noted after `noted` and is at hand, without any request: others' contents must not hold up
    /// a commit. The rest stays noted for the next pull.
    pub(crate) async fn hydrate_at_hand(&self, noted: i64, at_hand: &AtHand) {
        if let Err(error) = Box::pin(self.hydrate_with(None, noted, at_hand, false)).await {
            tracing::warn!(%error, "the tree is completed later");
        }
    }

    async fn hydrate_with(&self, unit: Option<&Unit>, after: i64, at_hand: &AtHand, fetch: bool) -> Result<u64> {
        let (mut after, mut bytes, mut done) = (after, 0, 0);
        let of = self.db.todo_count()?;
        loop {
            let batch = self.db.todo(unit, after, BATCH)?;
            let Some(last) = batch.last() else { return Ok(bytes) };
            after = last.id;
            bytes += self.hydrate_batch(&batch, at_hand, fetch).await?;
            done += batch.len() as u64;
            if of > u64::from(BATCH) {
                self.options.reporter.report(Event::Hydrating { done: done.min(of), of });
            }
            self.env.step("pull.tree").await;
        }
    }

    async fn hydrate_batch(&self, batch: &[Todo], at_hand: &AtHand, fetch: bool) -> Result<u64> {
        let mut wanted: Vec<(&Todo, Item)> = Vec::new();
        let mut shown: Vec<(&Todo, Option<Item>)> = Vec::new();
        for todo in batch {
            let Some(item) = self.db.read(|tx| db::claimant(tx, &todo.path))? else {
                if !db::is_lease(&todo.path) {
                    self.tree.remove(&todo.path)?;
                }
                shown.push((todo, None));
                continue;
            };
            if let Some(bytes) = at_hand.contents.get(&item.row.hash) {
                self.show(&item, bytes)?;
                shown.push((todo, Some(item)));
            } else if self.local(&item)?.is_some() {
                shown.push((todo, Some(item)));
            } else if fetch || at_hand.has(&item) {
                wanted.push((todo, item));
            } else {
                // Whatever is there is not this content: better nothing than something stale.
                if !db::is_lease(&item.path) {
                    self.tree.remove(&todo.path)?;
                }
                if self.options.hydration == Hydration::Lazy {
                    shown.push((todo, Some(item)));
                }
            }
        }
        let mut bytes = 0;
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            let mut sum = 0;
            let fits = rest.iter().take_while(|(_, item)| {
                sum += item.row.size;
                sum <= BATCH_BYTES
            });
            let (now, after) = rest.split_at(fits.count().max(1));
            rest = after;
            let rows: Vec<_> = now.iter().map(|(_, item)| &item.row).collect();
            let contents = self.ledger.contents(&rows, &at_hand.entries).await?;
            for ((todo, item), content) in now.iter().zip(contents) {
                self.show(item, &content)?;
                shown.push((todo, Some(item.clone())));
                bytes += item.row.size;
            }
        }
        self.done(&shown)?;
        Ok(bytes)
    }

    /// Makes visible what this task brought along and nobody else had: another one may have taken the entry in before,
    /// with only what is in it.
    pub(crate) fn show_own(&self, items: &[Item], at_hand: &AtHand) {
        for item in items.iter().filter(|item| !at_hand.has(item)) {
            let Some(bytes) = at_hand.contents.get(&item.row.hash) else { continue };
            let shown = self.db.read(|tx| db::claimant(tx, &item.path)).and_then(|now| {
                let named = now.is_some_and(|now| now.row.hash == item.row.hash);
                if named && self.tree.glance(item)? == Glance::Missing { self.show(item, bytes) } else { Ok(()) }
            });
            if let Err(error) = shown {
                tracing::warn!(%error, path = %item.path, "the tree is completed later");
            }
        }
    }

    /// Writes a file of the tree. A folder in the way (two items of which one's path is the other's folder) is the
    /// doctor's business; the content is still to be had.
    fn show(&self, item: &Item, bytes: &Bytes) -> Result<()> {
        if db::is_lease(&item.path) {
            return self.db.keep_bytes(item, bytes);
        }
        match self.tree.write(&self.env, item, bytes) {
            Err(error) if error.kind() == Kind::Internal || error.kind() == Kind::NotFound => {
                tracing::warn!(%error, path = %item.path, "not materialised");
                Ok(())
            }
            written => written,
        }
    }

    /// Forgets notes of files that are what the index says *now*.
    fn done(&self, shown: &[(&Todo, Option<Item>)]) -> Result<()> {
        self.db.write(|tx| {
            for (todo, shown) in shown {
                let now = db::claimant(tx, &todo.path)?;
                let same = match (&now, shown) {
                    (None, None) => true,
                    (Some(now), Some(shown)) => {
                        now.row.hash == shown.row.hash && now.row.executable == shown.row.executable
                    }
                    _ => false,
                };
                if same { db::todo_done(tx, todo.id)? } else { db::note(tx, &todo.unit, &todo.path)? }
            }
            Ok(())
        })
    }

    /// The content of an item, if it is here and right; no request.
    pub(crate) fn content_here(&self, item: &Item) -> Result<Option<Bytes>> {
        match &item.row.content {
            Content::Tiny(bytes) => Ok(Some(bytes.clone())),
            Content::At(_) => self.local(item),
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
            self.show(item, bytes)?;
        }
        Ok(())
    }

    pub(crate) async fn file(&self, item: &Item) -> Result<PathBuf> {
        if db::is_lease(&item.path) {
            return Err(Error::invalid(format!("{} is a record, not a file", item.path)));
        }
        let bytes = self.content(item).await?;
        if self.tree.read(item)?.is_none() {
            let current = self.db.read(|tx| db::claimant(tx, &item.path))?;
            if current.is_none_or(|now| now.row.hash != item.row.hash) {
                return Err(Error::not_found(format!("{} has another content by now", item.path))
                    .with_hint("look the item up again"));
            }
            self.tree.write(&self.env, item, &bytes)?;
        }
        Ok(self.tree.at(&item.path))
    }

    async fn fetch(&self, item: &Item) -> Result<Bytes> {
        let error = match self.contents_of(item).await {
            Ok(bytes) => return Ok(bytes),
            Err(error) if Ledger::is_gone(&error) => error,
            Err(error) => return Err(error),
        };
        // The item was read before its content was moved elsewhere: the newest row of it knows where.
        self.find_places(std::slice::from_ref(&item.unit)).await?;
        Box::pin(self.pull(&Scope::Units(vec![item.unit.clone()]))).await?;
        match self.db.read(|tx| db::get(tx, &item.unit, &item.path))? {
            Some(now) if now.row.hash == item.row.hash && now.row.content != item.row.content => {
                self.contents_of(&now).await
            }
            _ => Err(error),
        }
    }

    async fn contents_of(&self, item: &Item) -> Result<Bytes> {
        let mut contents = self.ledger.contents(&[&item.row], &[]).await.map_err(|e| match e.kind() {
            Kind::Offline => e
                .context(format!("the content of {} is not on this machine, and the store cannot be asked", item.path))
                .with_code("not_local")
                .with_hint("run the command again when the store answers: what it reads is kept from then on"),
            _ => e,
        })?;
        contents.pop().ok_or_else(|| Error::internal("no content for one row"))
    }
}
