//! Keys and values of the three trees, as `value` fields behind flags and reference (see `refs`).
//!
//! ```text
//! directory   unit                                  → [ref: root of its table]  last_seq files bytes
//! unit table  00 path | 01 inverted n:u64be path    → [ref: block]  size hash:32B  (sub:varint | bytes, ≤ 64)
//! pack table  0|1 base:u64be id:16B                 → size live seq (introduced, or dropped)
//! ```

use bytes::Bytes;
use peat_types::{Hash, ItemPath, PackId, Result, Seq, Unit};
use setsum::Setsum;

use super::damaged;
use super::refs::{EXECUTABLE, METADATA, Origin, Value};
use super::varint::{Reader, put_varint};
use crate::model::{Content, ContentRef, FileRow, Rank, Ref, UnitRow};

/// Contents up to this size stand in their row.
pub(crate) const TINY: u64 = 64;

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

pub(crate) fn read_table_key(key: &[u8]) -> Result<(Rank, ItemPath)> {
    let mut r = Reader::new(key);
    let rank = match r.u8()? {
        0 => Rank::Current,
        1 => Rank::History(!u64::from_be_bytes(r.array()?)),
        _ => return Err(damaged("a row has an unknown rank")),
    };
    Ok((rank, checked_path(utf8(r.rest())?)?))
}

/// Value of a file row; `kept` are bytes of a newer version behind its fields.
pub(crate) fn file_value(row: &FileRow) -> Value {
    let mut rest = Vec::with_capacity(48);
    put_varint(&mut rest, row.size);
    rest.extend_from_slice(row.hash.as_bytes());
    let at = match &row.content {
        Content::Tiny(bytes) => {
            rest.extend_from_slice(bytes);
            None
        }
        Content::At(at) => {
            put_varint(&mut rest, u64::from(at.sub));
            Some(at.block)
        }
    };
    Value { flags: if row.executable { EXECUTABLE } else { 0 }, at, rest }
}

pub(crate) fn read_file_value(value: &Value) -> Result<FileRow> {
    let mut r = Reader::new(&value.rest);
    let size = r.varint()?;
    let hash = Hash::from_bytes(r.array()?);
    let content = match value.at {
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
    file_value(row).encode()
}

/// Reads back [`encode_row`].
///
/// # Errors
/// `Damaged`; `Unsupported` for critical flags of a newer version.
pub fn decode_row(bytes: &[u8]) -> Result<FileRow> {
    read_file_value(&Value::decode(bytes, None)?)
}

/// A file row whose own references count from `origin`.
pub(crate) fn decode_row_at(bytes: &[u8], origin: &Origin) -> Result<FileRow> {
    read_file_value(&Value::decode(bytes, Some(origin))?)
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
