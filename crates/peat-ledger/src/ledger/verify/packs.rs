//! Packs that are read whole, and the ends of packs: header and index, which no row refers to. Reading goes on without
//! them; a repair does not.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use peat_objects::Range;
use peat_types::{Error, Kind, Result};

use super::Check;
use super::flaw::{Flaw, RESTORE};
use super::names::{InTable, PackTable};
use crate::format::decode_ends;
use crate::ledger::whole::Room;
use crate::ledger::{Ledger, key};
use crate::model::Segment;

/// Bytes that hold the header.
const FIRST: u64 = 4 << 10;
/// Bytes that hold the index, as a rule.
const LAST: u64 = 64 << 10;
/// Packs looked at together.
const PARALLEL: usize = 8;
/// Packs that are read whole at once, and how many MiB of them.
const WHOLE: usize = 32;
const IN_FLIGHT: u32 = 48;

/// A pack that was read whole; `None` when it is not there.
pub(super) type Whole = (Segment, Result<Option<Bytes>>);

impl<'a> Check<'a> {
    /// Packs of pages that are read whole, and kept: of a copy, all of which is read, as many as there is room for; else all or
    /// none.
    fn held(&self, table: &PackTable) -> BTreeSet<Segment> {
        let live = table.rows.iter().filter(|pack| pack.row.metadata && !pack.dropped).map(InTable::segment);
        let mut pages: BTreeSet<Segment> = live.filter(|at| self.sizes.contains_key(at)).collect();
        let (all, mut bytes) = (pages.len(), 0_u64);
        pages.retain(|at| {
            bytes = bytes.saturating_add(self.sizes.get(at).copied().unwrap_or_default());
            bytes <= self.room as u64
        });
        if self.prints.is_none() && pages.len() < all { BTreeSet::new() } else { pages }
    }

    /// Reads packs of pages whole, and begins to read all others of a copy: those are compared with what was copied, or decoded
    /// where that is not known. They come while the pages are gone through.
    pub(super) async fn whole(&mut self, table: &PackTable) -> Result<impl Future<Output = Vec<Whole>> + use<'a>> {
        let held = self.held(table);
        let packs = self.sizes.keys().filter(|at| matches!(at, Segment::Pack(..)) && !held.contains(at)).copied();
        let others = self.read(if self.prints.is_some() { packs.collect() } else { Vec::new() }, false);
        for (at, read) in self.read(held.into_iter().collect(), true).await {
            if let Some(bytes) = self.is_sound(at, read)? {
                self.hold(at, &bytes);
            }
        }
        Ok(others)
    }

    /// Reads packs whole. What is not to be kept makes room.
    fn read(&self, packs: Vec<Segment>, keep: bool) -> impl Future<Output = Vec<Whole>> + use<'a> {
        let (ledger, prints) = (self.ledger, self.prints);
        let size = |at: &Segment| self.sizes.get(at).copied().unwrap_or_default();
        let packs: Vec<_> = packs.into_iter().map(|at| (at, size(&at))).collect();
        async move {
            let room = &Room::of(IN_FLIGHT);
            let reads: Vec<_> = packs
                .into_iter()
                .map(|(at, size)| async move {
                    let _room = room.take(size).await;
                    let print = prints.and_then(|prints| prints.get(&at));
                    let read = ledger.read_whole(&key::segment(at), print).await;
                    (at, read.map(|read| read.map(|(bytes, _)| if keep { bytes } else { Bytes::new() })))
                })
                .collect();
            stream::iter(reads).buffered(WHOLE).collect().await
        }
    }

    /// What was read, unless something is wrong with it.
    pub(super) fn is_sound(&mut self, at: Segment, read: Result<Option<Bytes>>) -> Result<Option<Bytes>> {
        let copy = self.prints.is_some();
        match read {
            Ok(Some(bytes)) => return Ok(Some(bytes)),
            // Removed by a collector since it was listed; of a copy, by somebody else.
            Ok(None) if !copy => {}
            Ok(None) => self.find(key::segment(at), "is missing", RESTORE),
            // Whoever needs a page of it is named with it.
            Err(error) if !copy && matches!(error.kind(), Kind::Damaged | Kind::Unsupported) => {
                tracing::debug!(%error, "its pages are read one by one");
            }
            Err(error) => self.note(Flaw::new(key::segment(at), "", RESTORE), error)?,
        }
        Ok(None)
    }

    /// Looks at both ends of all packs of the table that are as long as it says.
    pub(super) async fn ends(&mut self, table: &[InTable]) -> Result<()> {
        let whole = table.iter().filter(|pack| self.sizes.get(&pack.segment()) == Some(&pack.row.size));
        let ledger = self.ledger;
        let reads: Vec<_> = whole.map(|pack| async move { (pack, ends(ledger, pack).await) }).collect();
        let read: Vec<_> = stream::iter(reads).buffered(PARALLEL).boxed().collect().await;
        for (pack, end) in read {
            let Err(error) = end else { continue };
            let flaw = Flaw::new(key::pack(pack.base, pack.id), "", RESTORE);
            let said = self.out.findings.len();
            self.note(Flaw { past: pack.dropped, ..flaw }, error)?;
            for flaw in self.out.findings.iter_mut().skip(said) {
                flaw.what.push_str("; what it holds is read without that, and found by a repair with it");
            }
        }
        Ok(())
    }
}

async fn ends(ledger: &Ledger, pack: &InTable) -> Result<()> {
    let (key, size) = (key::pack(pack.base, pack.id), pack.row.size);
    let gone = || Error::damaged("it went away while it was looked at");
    let first = ledger.store.get(&key, Range::Part { offset: 0, len: FIRST }).await?.ok_or_else(gone)?.bytes;
    let mut len = LAST.min(size);
    loop {
        let last = ledger.store.get(&key, Range::Last { len }).await?.ok_or_else(gone)?.bytes;
        match decode_ends(&first, &last, size).map_err(|e| e.context("its header or its index is damaged"))? {
            Ok(named) if named == (pack.base, pack.id) => return Ok(()),
            Ok((base, id)) => return Err(Error::damaged(format!("it says that it is {}", key::pack(base, id)))),
            Err(needed) if needed > len && needed <= size => len = needed,
            Err(_) => return Err(Error::new(Kind::Damaged, "its index is longer than it")),
        }
    }
}
