//! Packs being filled and sent.

use std::time::Duration;

use bytes::Bytes;
use peat_types::{Kind, PackId, Result, Seq};

use super::enter::pause;
use crate::format::pack::PackWriter;
use crate::format::relocate::Contents;
use crate::ledger::{Ledger, key};
use crate::model::{NewPack, Ref, Segment};

/// A pack that is in the store.
pub(super) struct Stored {
    pub(super) base: Seq,
    pub(super) id: PackId,
    pub(super) size: u64,
    pub(super) metadata: bool,
}

impl Stored {
    /// As the head of a transaction names it.
    pub(super) fn named(&self) -> NewPack {
        NewPack { base: self.base, id: self.id, size: self.size, pages: self.metadata }
    }
}

/// One pack for contents and one for pages, replaced by new ones when they are full.
pub(super) struct Shelf<'a> {
    ledger: &'a Ledger,
    base: Seq,
    give_up: Duration,
    contents: Option<PackWriter>,
    pub(super) pages: PackWriter,
    pub(super) stored: Vec<Stored>,
    /// Where the newest pages lie.
    pub(super) newest: Option<Ref>,
    /// The last metadata pack: the directory is read from it at once.
    pub(super) last: Option<(Segment, Bytes)>,
    pub(super) content_bytes: u64,
    pub(super) page_bytes: u64,
}

impl<'a> Shelf<'a> {
    pub(super) fn new(ledger: &'a Ledger, base: Seq, give_up: Duration) -> Result<Self> {
        let pages = PackWriter::metadata(ledger.info.ledger, base, PackId::random(&ledger.env))?;
        Ok(Self {
            ledger,
            base,
            give_up,
            contents: None,
            pages,
            stored: Vec::new(),
            newest: None,
            last: None,
            content_bytes: 0,
            page_bytes: 0,
        })
    }

    /// Adds a block, a record as it was stored elsewhere.
    pub(super) async fn block(&mut self, record: &Bytes, contents: Contents) -> Result<Ref> {
        let mut pack = match self.contents.take() {
            Some(pack) => pack,
            None => PackWriter::new(self.ledger.info.ledger, self.base, PackId::random(&self.ledger.env))?,
        };
        let at = pack.block(record, contents)?;
        self.content_bytes += u64::from(at.len);
        if (pack.body.len() as u64) < self.ledger.info.params.pack_target {
            self.contents = Some(pack);
        } else {
            self.send(pack, false).await?;
        }
        Ok(at)
    }

    /// Between two trees: a metadata pack that is full is sent.
    pub(super) async fn turn(&mut self) -> Result<()> {
        if self.pages.body.len() as u64 >= self.ledger.info.params.pack_target {
            self.send_pages().await?;
        }
        Ok(())
    }

    /// Sends what is left.
    pub(super) async fn finish(&mut self) -> Result<()> {
        if let Some(pack) = self.contents.take() {
            self.send(pack, false).await?;
        }
        self.send_pages().await
    }

    async fn send_pages(&mut self) -> Result<()> {
        let Some(range) = self.pages.pages() else { return Ok(()) };
        let fresh = PackWriter::metadata(self.ledger.info.ledger, self.base, PackId::random(&self.ledger.env))?;
        let full = std::mem::replace(&mut self.pages, fresh);
        self.page_bytes += u64::from(range.len);
        self.newest = Some(range);
        self.send(full, true).await
    }

    async fn send(&mut self, pack: PackWriter, metadata: bool) -> Result<()> {
        let segment = pack.segment();
        let (base, id, body) = pack.finish()?;
        let key = key::pack(base, id);
        let env = &self.ledger.env;
        let mut tries = 0;
        loop {
            env.step("maintain.pack").await;
            match self.ledger.store.put(&key, body.clone()).await {
                Ok(_) => break,
                Err(error) if error.kind() != Kind::Offline || env.monotonic() >= self.give_up => return Err(error),
                Err(_) => env.sleep(env.jitter(pause(tries))).await,
            }
            tries += 1;
        }
        self.stored.push(Stored { base, id, size: body.len() as u64, metadata });
        if metadata {
            self.last = Some((segment, body));
        }
        Ok(())
    }
}
