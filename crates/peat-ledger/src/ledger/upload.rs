//! Contents of a large change, on their way into packs: several at a time, and never more than these in memory.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use peat_types::{Hash, PackId, Result, Seq};
use serde::{Deserialize, Serialize};

use super::{Ledger, key};
use crate::format::packer::{Packed, Packer};
use crate::model::{ContentRef, NewPack, Ref};

/// Packs in flight at once.
pub(super) const PARALLEL: usize = 4;

/// Where the bytes of new contents come from, piece by piece (see [`cuts`](crate::format::cuts)). What it gives is what
/// will be stored: verify it.
pub trait Pieces: Send + Sync {
    /// The bytes and the hash of a piece of a content, and whether it is but a part of it.
    ///
    /// # Errors
    /// Whatever reading them runs into; the upload ends with it.
    fn piece(&self, content: usize, piece: u32) -> Result<(Bytes, Hash, bool)>;
}

/// A pack that is in the store, but in no entry yet. To be kept by whoever does not want to upload it again: as long as
/// its base lies above the horizon a change may introduce it (R2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The pack.
    pub pack: NewPack,
    /// What it holds.
    pub pieces: Vec<StoredPiece>,
}

/// A piece of a content, and where it lies in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPiece {
    /// Index of the content.
    pub content: usize,
    /// Index of the piece in it.
    pub piece: u32,
    /// Offset of the block in the pack.
    pub off: u64,
    /// Bytes of the block.
    pub len: u32,
    /// Offset of the piece in the unpacked block.
    pub sub: u32,
    /// Of a piece that was [stored again](Ledger::store_again), which no index names: its hash, and whether it is but a part
    /// of a content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<(Hash, bool)>,
}

impl Stored {
    /// Where a piece of it lies.
    pub fn place(&self, piece: &StoredPiece) -> ContentRef {
        let block = Ref { segment: self.pack.segment(), off: piece.off, len: piece.len };
        ContentRef { block, sub: piece.sub }
    }
}

impl Ledger {
    /// Puts pieces of contents into packs for the slot `base` and uploads these, several at once. `wanted` names content
    /// and piece, in the order in which they should be neighbours. Each pack is tried for as long as `patience`, and told to
    /// `stored` as soon as it is there.
    ///
    /// # Errors
    /// What `from`, `stored` and the store say. Packs that were told of before are there all the same.
    pub async fn upload(
        &self,
        base: Seq,
        wanted: impl Iterator<Item = (usize, u32)> + Send,
        from: &dyn Pieces,
        patience: Duration,
        stored: &mut (dyn FnMut(&Stored) -> Result<()> + Send),
    ) -> Result<()> {
        let mut id = || PackId::random(&self.env);
        let packer = Packer::new(self.info.ledger, base, self.info.params.pack_target, &mut id);
        let packs = Packs { packer: Some(packer), wanted, from };
        let puts = packs.map(|packed| async move {
            let Packed { pack, body, pieces } = packed?;
            put(self, &pack, &body, self.env.monotonic() + patience).await?;
            let pieces = pieces.into_iter().map(|piece| StoredPiece {
                content: piece.key.0,
                piece: piece.key.1,
                off: piece.at.block.off,
                len: piece.at.block.len,
                sub: piece.at.sub,
                again: None,
            });
            Ok(Stored { pack, pieces: pieces.collect() })
        });
        let mut done = stream::iter(puts).buffer_unordered(PARALLEL).boxed();
        while let Some(pack) = done.next().await {
            stored(&pack?)?;
        }
        Ok(())
    }
}

/// Makes one pack after the other, when it is asked for.
struct Packs<'a, W> {
    packer: Option<Packer<'a, (usize, u32)>>,
    wanted: W,
    from: &'a dyn Pieces,
}

impl<W: Iterator<Item = (usize, u32)>> Iterator for Packs<'_, W> {
    type Item = Result<Packed<(usize, u32)>>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(packer) = &mut self.packer {
            let full = match self.wanted.next() {
                Some(key) => {
                    let read = self.from.piece(key.0, key.1);
                    read.and_then(|(bytes, hash, part)| packer.add(key, bytes, hash, part))
                }
                None => self.packer.take().map_or(Ok(None), Packer::finish),
            };
            match full.transpose() {
                None => {}
                Some(Err(error)) => {
                    self.packer = None;
                    return Some(Err(error));
                }
                full => return full,
            }
        }
        None
    }
}

/// Writes a pack; its name is nobody else's, so it can be sent again.
pub(super) async fn put(ledger: &Ledger, pack: &NewPack, body: &Bytes, give_up: Duration) -> Result<()> {
    let env = &ledger.env;
    let key = key::pack(pack.base, pack.id);
    let mut tries = 0;
    loop {
        env.step("commit.pack").await;
        let Err(error) = ledger.store.put(&key, body.clone()).await else { return Ok(()) };
        let Some(pause) = ledger.pause_for(&error, tries, give_up) else { return Err(error) };
        env.sleep(pause).await;
        tries += 1;
    }
}
