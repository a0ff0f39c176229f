//! Tree pages.
//!
//! ```text
//! page := record of ( kind:u8  level:u8  place:varint  n:varint  row* )
//! row  := shared:varint  suffix_len:varint  suffix  value_len:varint  value
//! kind := tree (0 directory, 1 unit table, 2 pack table) << 1 | anchor
//! ```
//! Keys are strictly ascending; `shared` counts the bytes shared with the key before. Level 0 holds the rows of the
//! tree; a row above maps the lowest key of a child to a reference to it.
//!
//! Own references count from the page's origin. In a section or pack that is the start of it, and pages are written
//! after what they refer to: `anchor` 0, `place` = start of the page minus origin. Directory and pack-table pages stand
//! in front of the sections they refer to, whose offsets depend on how long these pages are: so the origin is the first
//! section, pages are laid down backwards from there, and `anchor` 1 says `place` = origin minus *end* of the page,
//! which is known before the page is encoded. Either way a page fetched alone resolves its references.

use std::collections::BTreeSet;

use bytes::Bytes;
use peat_types::{Error, Result};

use super::record::{self, Pack};
use super::refs::{Origin, Value, own};
use super::varint::{Reader, put_bytes, put_varint};
use super::{damaged, unsupported};
use crate::model::{Ref, Segment};

/// Trees are at most this deep.
const MAX_LEVEL: u8 = 24;
/// Longest key: a rank, a path, and room.
const MAX_KEY: usize = 2048;

/// Which tree a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeKind {
    /// Unit → row.
    Directory,
    /// Rank and path → file row.
    Table,
    /// Pack → row.
    Packs,
}

impl TreeKind {
    fn code(self) -> u8 {
        match self {
            Self::Directory => 0,
            Self::Table => 1,
            Self::Packs => 2,
        }
    }

    /// Largest page before it is split, in bytes before compression. Every entry rewrites a path of the directory and
    /// of a table, so pages are small: `budget_tests` measures what that gives. A leaf of a table still holds all that
    /// is current of a unit (some thirty files), and a directory of 40,000 units is three levels deep.
    pub(crate) fn target(self, level: u8) -> usize {
        match (self, level) {
            (Self::Table, 0) => 2304,
            (_, 0) => 1280,
            (_, _) => 1024,
        }
    }

    /// Whether a page is better split between these neighbours than anywhere else: between what is current of a unit
    /// and its history, so that a scoped pull and most commits touch the first of the two only.
    pub(crate) fn parts_at(self, left: &[u8], right: &[u8]) -> bool {
        self == Self::Table && left.first() != right.first()
    }
}

pub(crate) type Row = (Vec<u8>, Value);

/// A page in memory, its references resolved.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) kind: TreeKind,
    pub(crate) level: u8,
    pub(crate) rows: Vec<Row>,
}

impl Page {
    /// Decodes the record found at `at`.
    pub(crate) fn decode(record: &Bytes, at: &Ref) -> Result<Self> {
        let raw = record::open(record, record::PAGE)?;
        let mut r = Reader::new(&raw);
        let code = r.u8()?;
        let kind = match code >> 1 {
            0 => TreeKind::Directory,
            1 => TreeKind::Table,
            2 => TreeKind::Packs,
            _ => return Err(unsupported(format!("page kind {code}"))),
        };
        let level = r.u8()?;
        if level > MAX_LEVEL {
            return Err(damaged("a tree is too deep"));
        }
        let place = r.varint()?;
        let off = match code & 1 {
            0 => at.off.checked_sub(place),
            _ => at.off.checked_add(u64::from(at.len)).and_then(|end| end.checked_add(place)),
        };
        let origin = Origin { segment: at.segment, off: off.ok_or_else(|| damaged("a page lies at another place"))? };
        let count = r.count()?;
        let mut rows: Vec<Row> = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            let shared = r.varint()?;
            let last = rows.last().map_or(&[][..], |(key, _)| key.as_slice());
            let shared = usize::try_from(shared).ok().and_then(|n| last.get(..n));
            let mut key = shared.ok_or_else(|| damaged("a key shares more than there is"))?.to_vec();
            key.extend_from_slice(r.bytes()?);
            if key.len() > MAX_KEY {
                return Err(damaged("a key is too long"));
            }
            if !rows.is_empty() && key.as_slice() <= last {
                return Err(damaged("the keys of a page are not in order"));
            }
            let value = Value::decode(r.bytes()?, Some(&origin))?;
            if level > 0 && value.at.is_none() {
                return Err(damaged("an inner row refers to nothing"));
            }
            rows.push((key, value));
        }
        if !r.is_empty() {
            return Err(damaged("bytes follow the last row of a page"));
        }
        if rows.is_empty() {
            return Err(damaged("a page is empty"));
        }
        Ok(Self { kind, level, rows })
    }
}

/// Bytes of each row in the payload of a page.
pub(crate) fn costs(rows: &[Row]) -> Vec<usize> {
    let mut last: &[u8] = &[];
    let mut costs = Vec::with_capacity(rows.len());
    for (key, value) in rows {
        costs.push(key.len() - shared(last, key) + value.encode().len() + 3);
        last = key;
    }
    costs
}

/// Bytes two keys have in common at their start.
pub(crate) fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Where new pages go.
#[derive(Debug)]
pub(crate) enum PageSink {
    /// Behind `out`, whose first byte is the origin. `outside` gathers the objects their rows refer to (R3).
    Append { out: Vec<u8>, outside: BTreeSet<Segment> },
    /// In front of the origin; the last one comes first.
    Prepend { pages: Vec<Vec<u8>>, total: u64 },
}

impl PageSink {
    /// Behind `out`, which holds whatever comes before.
    pub(crate) fn append(out: Vec<u8>) -> Self {
        Self::Append { out, outside: BTreeSet::new() }
    }

    pub(crate) fn prepend() -> Self {
        Self::Prepend { pages: Vec::new(), total: 0 }
    }

    /// Writes a page and returns an own reference to it.
    pub(crate) fn write(&mut self, page: &Page) -> Result<Ref> {
        let mut raw = Vec::with_capacity(4096);
        let (anchor, place) = match self {
            Self::Append { out, outside } => {
                let refs = page.rows.iter().filter_map(|(_, value)| value.at);
                outside.extend(refs.map(|at| at.segment).filter(|segment| *segment != Segment::OWN));
                (0, out.len() as u64)
            }
            Self::Prepend { total, .. } => (1, *total),
        };
        raw.push(page.kind.code() << 1 | anchor);
        raw.push(page.level);
        put_varint(&mut raw, place);
        put_varint(&mut raw, page.rows.len() as u64);
        let mut last: &[u8] = &[];
        for (key, value) in &page.rows {
            if key.len() > MAX_KEY {
                return Err(Error::invalid("a key is too long"));
            }
            let common = shared(last, key);
            put_varint(&mut raw, common as u64);
            put_bytes(&mut raw, &key[common..]);
            put_bytes(&mut raw, &value.encode());
            last = key;
        }
        let record = record::encode(&raw, Pack::Zstd, record::PAGE)?;
        let too_long = || Error::invalid("a part is too long");
        let len = u32::try_from(record.len()).map_err(|_| too_long())?;
        match self {
            Self::Append { out, .. } => {
                let off = i64::try_from(out.len()).map_err(|_| too_long())?;
                out.extend_from_slice(&record);
                Ok(own(off, len))
            }
            Self::Prepend { pages, total } => {
                *total += u64::from(len);
                pages.push(record);
                Ok(own(-i64::try_from(*total).map_err(|_| too_long())?, len))
            }
        }
    }
}

/// Where the pages of a tree are written.
pub(crate) trait PageOut: Send {
    /// Writes a page and returns a reference to it.
    fn page(&mut self, page: &Page) -> Result<Ref>;
}

impl PageOut for PageSink {
    fn page(&mut self, page: &Page) -> Result<Ref> {
        self.write(page)
    }
}

/// References of a page to its children (none for a leaf), for whoever wants to fetch a level at once.
///
/// # Errors
/// `Damaged` or `Unsupported`.
pub fn page_children(record: &Bytes, at: &Ref) -> Result<Vec<Ref>> {
    let page = Page::decode(record, at)?;
    if page.level == 0 {
        return Ok(Vec::new());
    }
    Ok(page.rows.iter().filter_map(|(_, value)| value.at).filter(|at| at.segment != Segment::OWN).collect())
}
