//! The ring: tags of the units that the newest entries changed.
//!
//! ```text
//! ring := record of ( n:varint  count:varint × n  tag:5 half-bytes × sum of counts  [half-byte 0] )
//! ```
//! A tag has 20 bits: among 1,024 a unit that did not change is taken for one that did once in a thousand looks, which
//! costs a request. The ring is the largest part of most entries and does not compress, so bits count.
//!
//! A tag is dropped from an entry when a later one changed the unit again: readers only ask for the newest, and the
//! two entries of a run would otherwise fill the ring with the same tag twice.

use std::collections::HashSet;

use bytes::Bytes;
use peat_types::{Result, Seq, Unit};

use super::damaged;
use super::record::{self, Pack};
use super::varint::{Reader, put_varint};
use crate::model::Ring;

/// Most changes a ring remembers.
pub const RING_CHANGES: usize = 1024;
/// Most entries any ring remembers, whatever the parameters say.
const RING_ENTRIES: usize = 4096;

/// First 20 bits of the BLAKE3 of a unit's name, in three bytes that begin with four zero bits.
pub fn ring_tag(unit: &Unit) -> [u8; 3] {
    let hash = blake3::hash(unit.as_str().as_bytes());
    let [a, b, c, ..] = *hash.as_bytes();
    [a >> 4, a << 4 | b >> 4, b << 4 | c >> 4]
}

impl Ring {
    /// The ring with one more entry, which changed `units`; remembers at most `entries` entries and
    /// [`RING_CHANGES`] changes. An entry that changes more than that leaves it empty.
    #[must_use]
    pub fn push<'a>(&self, units: impl IntoIterator<Item = &'a Unit>, entries: u32) -> Self {
        let mut tags: Vec<_> = units.into_iter().map(ring_tag).collect();
        tags.sort_unstable();
        tags.dedup();
        let fresh: HashSet<_> = tags.iter().copied().collect();
        let mut all: Vec<Vec<[u8; 3]>> = self.entries.clone();
        for entry in &mut all {
            entry.retain(|tag| !fresh.contains(tag));
        }
        all.push(tags);
        let entries = usize::try_from(entries).unwrap_or(RING_ENTRIES).min(RING_ENTRIES);
        let mut changes = 0;
        let fits = |entry: &&Vec<[u8; 3]>| {
            changes += entry.len();
            changes <= RING_CHANGES
        };
        let keep = all.iter().rev().take(entries).take_while(fits).count();
        Self { entries: all.split_off(all.len() - keep) }
    }

    /// The newest entry that may have changed `unit`, for the ring of the entry `head`.
    pub fn newest(&self, head: Seq, unit: &Unit) -> Option<Seq> {
        let tag = ring_tag(unit);
        let back = self.entries.iter().rev().position(|entry| entry.contains(&tag))?;
        head.0.checked_sub(back as u64).map(Seq)
    }

    /// Whether the ring of the entry `head` tells of every entry after `since`.
    pub fn covers(&self, head: Seq, since: Seq) -> bool {
        head.0.saturating_sub(since.0) <= self.entries.len() as u64
    }
}

pub(crate) fn encode(ring: &Ring, pack: Pack) -> Result<Vec<u8>> {
    let mut raw = Vec::with_capacity(4096);
    put_varint(&mut raw, ring.entries.len() as u64);
    for entry in &ring.entries {
        put_varint(&mut raw, entry.len() as u64);
    }
    let halves: Vec<u8> =
        ring.entries.iter().flatten().flat_map(|[a, b, c]| [*a, b >> 4, b & 15, c >> 4, c & 15]).collect();
    raw.extend(halves.chunks(2).map(|pair| (pair[0] & 15) << 4 | pair.get(1).copied().unwrap_or(0)));
    record::encode(&raw, pack, record::RING)
}

pub(crate) fn decode(record: &Bytes) -> Result<Ring> {
    let raw = record::open(record, record::RING)?;
    let mut r = Reader::new(&raw);
    let n = r.count()?;
    let counts = (0..n).map(|_| r.count()).collect::<Result<Vec<_>>>()?;
    let mut halves = r.rest().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let mut tag = || -> Option<[u8; 3]> {
        let mut next = || halves.next();
        Some([next()?, next()? << 4 | next()?, next()? << 4 | next()?])
    };
    let cut = || damaged("a ring is cut off");
    let mut tags = |count: usize| (0..count).map(|_| tag().ok_or_else(cut)).collect::<Result<Vec<_>>>();
    Ok(Ring { entries: counts.into_iter().map(&mut tags).collect::<Result<_>>()? })
}
