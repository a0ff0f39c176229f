//! Objects that are read whole, and checked.

use bytes::Bytes;
use peat_objects::Range;
use peat_types::{Error, Kind, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::aside::aside;
use super::{Ledger, key};
use crate::format;
use crate::model::Segment;

/// First bytes of the BLAKE3 of an object: for an entry, what the next one calls it.
pub(super) type Print = [u8; 16];

/// How many MiB of objects are in memory at once.
pub(super) struct Room {
    mebibytes: u32,
    free: Semaphore,
}

impl Room {
    pub(super) fn of(mebibytes: u32) -> Self {
        Self { mebibytes, free: Semaphore::new(mebibytes as usize) }
    }

    /// Waits until there is room for an object of `size` bytes; one that is larger than all of it has it to itself.
    pub(super) async fn take(&self, size: u64) -> Option<SemaphorePermit<'_>> {
        let weight = u32::try_from(size >> 20).unwrap_or(u32::MAX).saturating_add(1).min(self.mebibytes);
        // (It is never closed.)
        self.free.acquire_many(weight).await.ok()
    }
}

impl Ledger {
    /// An entry or a pack, whole, and its print; `None` when it is not there. It must have the print that is `known`, or else
    /// decode as what its name says. Damaged bytes are fetched once more before they are believed.
    pub(super) async fn read_whole(&self, name: &str, known: Option<Print>) -> Result<Option<(Bytes, Print)>> {
        let mut again = true;
        loop {
            let Some(object) = self.store.get(name, Range::All).await? else { return Ok(None) };
            let print = match known {
                Some(known) => same(&object.bytes, known).await,
                None => self.sound(name, &object.bytes).await,
            };
            match print {
                Ok(print) => return Ok(Some((object.bytes, print))),
                Err(error) if again && error.kind() == Kind::Damaged => again = false,
                Err(error) => return Err(self.unreadable(name, error)),
            }
        }
    }

    /// The print of an object that is what its name says.
    pub(super) async fn sound(&self, name: &str, bytes: &Bytes) -> Result<Print> {
        let body = bytes.clone();
        if let Some(seq) = key::log_seq(name) {
            let mut entry = aside(body.len(), move || format::decode_entry(seq, &body)).await??;
            self.adopt(&mut entry.state)?;
            return Ok(entry.state.hash);
        }
        let decode = move || Ok::<_, Error>((format::decode_pack(&body)?, format::hash16(&body)));
        let (pack, print) = aside(bytes.len(), decode).await??;
        if key::pack_segment(name) != Some(Segment::Pack(pack.base, pack.id)) {
            return Err(Error::damaged("it is another pack"));
        }
        Ok(print)
    }
}

/// Whether bytes have the print of what was copied.
async fn same(bytes: &Bytes, known: Print) -> Result<Print> {
    let body = bytes.clone();
    let print = aside(body.len(), move || format::hash16(&body)).await?;
    if print == known { Ok(print) } else { Err(Error::damaged("it is not what was copied")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn objects_wait_for_room_and_one_that_is_larger_has_it_to_itself() {
        let room = Room::of(4);
        let one = room.take(3 << 20).await;
        assert!(one.is_some() && room.free.available_permits() == 0, "a part of a MiB counts as one");
        let mut large = Box::pin(room.take(100 << 20));
        assert!(futures::poll!(&mut large).is_pending());
        let mut small = Box::pin(room.take(1));
        assert!(futures::poll!(&mut small).is_pending(), "nobody overtakes");
        drop(one);
        let large = large.await;
        assert!(large.is_some() && futures::poll!(&mut small).is_pending());
        drop(large);
        let small = small.await;
        assert!(small.is_some() && room.free.available_permits() == 3);
    }
}
