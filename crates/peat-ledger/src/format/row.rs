//! Keys and values of the three trees, as `value` fields behind flags and reference (see `refs`).
//!
//! ```text
//! directory   unit                                  → [ref: root of its table]  last_seq files bytes
//! unit table  00 path | 01 inverted n:u64be path    → [ref: block]  size hash:32B  (sub:varint | bytes, ≤ 64)
//!             the same, 00, part:u32be              → ref: block    size hash:32B  00
//! pack table  0|1 base:u64be id:16B                 → size live seq (introduced, or dropped)
//! ```
//!
//! A content in parts has a row that says how many (`parts:varint` instead of `sub`, flag 256, no ref), followed by a row
//! for each: to whatever moves or counts blocks they are rows like any other. No path holds a NUL, so no other row comes
//! between. Outside of tables, in operations and in the index of a clone, the row itself lists `size hash:32B ref` of each
//! part.

use std::sync::Arc;

use bytes::Bytes;
use peat_types::{Hash, ItemPath, PackId, Result, Seq, Unit};
use setsum::Setsum;

use super::damaged;
use super::refs::{EXECUTABLE, METADATA, Origin, PARTED, Value, put_ref, read_ref};
use super::varint::{Reader, put_varint};
use crate::model::{Content, ContentRef, FileRow, Part, Rank, Ref, Segment, UnitRow};

/// Contents up to this size stand in their row.
pub const TINY: u64 = 64;
/// Most parts of a content.
pub(crate) const MAX_PARTS: u32 = 1 << 16;

/// Whether a path of the namespace's own (unit or item) obeys P.
pub(crate) fn checked_path(text: &str) -> Result<ItemPath> {
    text.parse().map_err(|e: peat_types::Error| damaged("a stored path is not allowed").with_source(e))
}

pub(crate) fn checked_unit(text: &str) -> Result<Unit> {
    text.parse().map_err(|e: peat_types::Error| damaged("a stored unit name is not allowed").with_source(e))
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| damaged("a name is not UTF-8").with_source(e))
}

/// Key of a file row.
pub(crate) fn table_key(rank: Rank, path: &ItemPath) -> Vec<u8> {
    let mut key = rank_prefix(rank);
    key.extend_from_slice(path.as_str().as_bytes());
    key
}

/// What the keys of all rows of a rank start with.
pub(crate) fn rank_prefix(rank: Rank) -> Vec<u8> {
    match rank {
        Rank::Current => vec![0],
        Rank::History(n) => [&[1][..], &(!n).to_be_bytes()].concat(),
    }
}

/// Key of the row of a part of the content whose own key is `key`.
pub(crate) fn part_key(key: &[u8], part: u32) -> Vec<u8> {
    [key, &[0], &part.to_be_bytes()].concat()
}

/// Rank and path of a row; for the row of a part also which one.
pub(crate) fn read_table_key(key: &[u8]) -> Result<(Rank, ItemPath, Option<u32>)> {
    let mut r = Reader::new(key);
    let rank = match r.u8()? {
        0 => Rank::Current,
        1 => Rank::History(!u64::from_be_bytes(r.array()?)),
        _ => return Err(damaged("a row has an unknown rank")),
    };
    let name = r.rest();
    let (path, part) = match name.iter().position(|byte| *byte == 0) {
        None => (name, None),
        Some(end) => {
            let part = name[end + 1..].try_into().map_err(|_| damaged("the key of a part has the wrong length"))?;
            (&name[..end], Some(u32::from_be_bytes(part)))
        }
    };
    Ok((rank, checked_path(utf8(path)?)?, part))
}

/// Value of a file row. Parts have rows of their own: [`part_value`].
pub(crate) fn file_value(row: &FileRow) -> Value {
    let mut rest = Vec::with_capacity(48);
    put_varint(&mut rest, row.size);
    rest.extend_from_slice(row.hash.as_bytes());
    let mut flags = if row.executable { EXECUTABLE } else { 0 };
    let at = match &row.content {
        Content::Tiny(bytes) => {
            rest.extend_from_slice(bytes);
            None
        }
        Content::At(at) => {
            put_varint(&mut rest, u64::from(at.sub));
            Some(at.block)
        }
        Content::Parts(parts) => {
            put_varint(&mut rest, parts.len() as u64);
            flags |= PARTED;
            None
        }
    };
    Value { flags, at, rest }
}

/// The rows of a file: its own, and those of its parts.
pub(crate) fn file_rows(rank: Rank, path: &ItemPath, row: &FileRow) -> Vec<(Vec<u8>, Value)> {
    let key = table_key(rank, path);
    let mut rows = vec![(key.clone(), file_value(row))];
    if let Content::Parts(parts) = &row.content {
        rows.extend((0..).zip(&**parts).map(|(n, part)| (part_key(&key, n), part_value(part))));
    }
    rows
}

/// Value of the row of a part: that of a content which is all of its block.
pub(crate) fn part_value(part: &Part) -> Value {
    let content = Content::At(ContentRef { block: part.block, sub: 0 });
    file_value(&FileRow { executable: false, size: part.size, hash: part.hash, content })
}

/// Reads back [`part_value`].
pub(crate) fn read_part_value(value: &Value) -> Result<Part> {
    let row = read_file_value(value)?;
    match row.content {
        Content::At(ContentRef { block, sub: 0 }) => Ok(Part { block, size: row.size, hash: row.hash }),
        _ => Err(damaged("the row of a part is not one of a block")),
    }
}

/// How many rows of parts follow a row.
pub(crate) fn parts_of(value: &Value) -> Result<u32> {
    if value.flags & PARTED == 0 {
        return Ok(0);
    }
    let mut r = Reader::new(&value.rest);
    r.varint()?;
    r.take(32)?;
    u32::try_from(r.varint()?)
        .ok()
        .filter(|parts| *parts <= MAX_PARTS)
        .ok_or_else(|| damaged("a content has too many parts"))
}

/// Whether parts add up to the content they are said to be.
pub(crate) fn checked_parts(size: u64, parts: &[Part]) -> Result<()> {
    let sum = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.size));
    if parts.len() > 1 && sum == Some(size) {
        Ok(())
    } else {
        Err(damaged("the parts of a content do not add up to it"))
    }
}

pub(crate) fn read_file_value(value: &Value) -> Result<FileRow> {
    let mut r = Reader::new(&value.rest);
    let size = r.varint()?;
    let hash = Hash::from_bytes(r.array()?);
    let content = match value.at {
        None if value.flags & PARTED != 0 => {
            parts_of(value)?;
            Content::Parts(Arc::default())
        }
        Some(block) => {
            let sub = u32::try_from(r.varint()?).map_err(|_| damaged("a content lies too far in its block"))?;
            Content::At(ContentRef { block, sub })
        }
        None if size > TINY => return Err(damaged("a content in a row is too long")),
        None => Content::Tiny(Bytes::copy_from_slice(r.take(usize::try_from(size).unwrap_or(usize::MAX))?)),
    };
    Ok(FileRow { executable: value.flags & EXECUTABLE != 0, size, hash, content })
}

/// The bytes of a file row, with every reference resolved.
pub fn encode_row(row: &FileRow) -> Vec<u8> {
    let mut value = file_value(row);
    if let Content::Parts(parts) = &row.content {
        for part in &**parts {
            put_varint(&mut value.rest, part.size);
            value.rest.extend_from_slice(part.hash.as_bytes());
            put_ref(&mut value.rest, &part.block);
        }
    }
    value.encode()
}

/// Reads back [`encode_row`].
///
/// # Errors
/// `Damaged`; `Unsupported` for critical flags of a newer version.
pub fn decode_row(bytes: &[u8]) -> Result<FileRow> {
    read_whole(&Value::decode(bytes, None)?)
}

/// A file row whose own references count from `origin`.
pub(crate) fn decode_row_at(bytes: &[u8], origin: &Origin) -> Result<FileRow> {
    read_whole(&Value::decode(bytes, Some(origin))?)
}

/// A row that lists its parts itself.
fn read_whole(value: &Value) -> Result<FileRow> {
    let row = read_file_value(value)?;
    let count = parts_of(value)?;
    if count == 0 {
        return Ok(row);
    }
    let mut r = Reader::new(&value.rest);
    r.varint()?;
    r.take(32)?;
    r.varint()?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let (size, hash) = (r.varint()?, Hash::from_bytes(r.array()?));
        // Parts lie in packs, so no reference is an own one.
        let block = read_ref(&mut r, None)?;
        if !matches!(block.segment, Segment::Pack(..)) {
            return Err(damaged("a part lies in no pack"));
        }
        parts.push(Part { block, size, hash });
    }
    checked_parts(row.size, &parts)?;
    Ok(FileRow { content: Content::Parts(parts.into()), ..row })
}

pub(crate) fn unit_value(row: &UnitRow, kept: Option<&Value>) -> Value {
    let mut rest = Vec::with_capacity(24);
    for field in [row.last_seq.0, row.files, row.bytes] {
        put_varint(&mut rest, field);
    }
    // What a newer version keeps with a unit stays with it.
    if let Some(kept) = kept {
        rest.extend_from_slice(unit_tail(kept));
    }
    Value { flags: kept.map_or(0, |kept| kept.flags), at: row.table, rest }
}

fn unit_tail(value: &Value) -> &[u8] {
    let mut r = Reader::new(&value.rest);
    for _ in 0..3 {
        if r.varint().is_err() {
            return &[];
        }
    }
    r.rest()
}

pub(crate) fn read_unit_value(value: &Value) -> Result<UnitRow> {
    let mut r = Reader::new(&value.rest);
    Ok(UnitRow { last_seq: Seq(r.varint()?), files: r.varint()?, bytes: r.varint()?, table: value.at })
}

/// A pack as the pack table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackRow {
    /// Bytes of the object.
    pub size: u64,
    /// Bytes of it that are still referred to; an estimate.
    pub live: u64,
    /// The entry that introduced it or, for a dropped one, dropped it.
    pub seq: Seq,
    /// Whether it holds tree pages, and nothing else.
    pub metadata: bool,
}

pub(crate) fn pack_key(dropped: bool, base: Seq, id: PackId) -> Vec<u8> {
    [&[u8::from(dropped)][..], &base.0.to_be_bytes(), id.as_bytes()].concat()
}

pub(crate) fn read_pack_key(key: &[u8]) -> Result<(bool, Seq, PackId)> {
    let mut r = Reader::new(key);
    let dropped = match r.u8()? {
        0 => false,
        1 => true,
        _ => return Err(damaged("a pack row has an unknown kind")),
    };
    let (base, id) = (Seq(u64::from_be_bytes(r.array()?)), PackId::from_bytes(r.array()?));
    if r.is_empty() { Ok((dropped, base, id)) } else { Err(damaged("the key of a pack row is too long")) }
}

pub(crate) fn pack_value(row: &PackRow) -> Value {
    let mut rest = Vec::with_capacity(16);
    for field in [row.size, row.live, row.seq.0] {
        put_varint(&mut rest, field);
    }
    Value { flags: if row.metadata { METADATA } else { 0 }, at: None, rest }
}

pub(crate) fn read_pack_value(value: &Value) -> Result<PackRow> {
    let mut r = Reader::new(&value.rest);
    let metadata = value.flags & METADATA != 0;
    Ok(PackRow { size: r.varint()?, live: r.varint()?, seq: Seq(r.varint()?), metadata })
}

/// The setsum of one file. The setsum of a state is the sum over all its files.
pub fn setsum_of(unit: &Unit, path: &ItemPath, row: &FileRow) -> Setsum {
    let (unit, path) = (unit.as_str().as_bytes(), path.as_str().as_bytes());
    let mut sum = Setsum::default();
    sum.insert_vectored(&[
        &(unit.len() as u64).to_le_bytes(),
        unit,
        &(path.len() as u64).to_le_bytes(),
        path,
        &row.size.to_le_bytes(),
        row.hash.as_bytes(),
        &[u8::from(row.executable)],
    ]);
    sum
}

/// A setsum from outside. Columns at or above their prime are refused: the arithmetic assumes reduced ones.
pub(crate) fn read_setsum(digest: [u8; 32]) -> Result<Setsum> {
    let sum = Setsum::from_digest(digest);
    if (sum + Setsum::default()).digest() == digest { Ok(sum) } else { Err(damaged("a setsum is not reduced")) }
}

/// Checks that a value of a tree page reads as what its tree holds.
pub(crate) fn check_row(kind: super::page::TreeKind, key: &[u8], value: &Value) -> Result<Option<Ref>> {
    use super::page::TreeKind;
    match kind {
        TreeKind::Directory => {
            checked_unit(utf8(key)?)?;
            read_unit_value(value)?;
        }
        TreeKind::Table => {
            read_table_key(key)?;
            read_file_value(value)?;
        }
        TreeKind::Packs => {
            read_pack_key(key)?;
            read_pack_value(value)?;
        }
    }
    Ok(value.at)
}

/// The unit a directory key names.
pub(crate) fn read_unit_key(key: &[u8]) -> Result<Unit> {
    checked_unit(utf8(key)?)
}
