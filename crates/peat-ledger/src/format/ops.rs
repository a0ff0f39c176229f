//! The operations of a transaction, as a record of
//!
//! ```text
//! ops  := units:varint  ( unit:bytes  n:varint  op × n ) × units
//! op   := 1 path:bytes rank value:bytes   (put; value as in the unit table, see `row`)
//!       | 2 path:bytes                    (delete)
//!       | 3 path:bytes rank               (move to another rank)
//! rank := 0 | 1 n:varint
//! ```
//! where `bytes` is a length and so many bytes. Deletes are said, never implied.

use bytes::Bytes;
use peat_types::Result;

use super::record;
use super::refs::Origin;
use super::row::{checked_path, checked_unit, decode_row_at, encode_row};
use super::varint::{Reader, put_bytes, put_varint};
use super::{damaged, unsupported};
use crate::model::{OpRecord, Rank, UnitOps};

/// Most operations of a transaction: in memory they are much larger than in bytes.
pub(crate) const MAX_OPS: usize = 1 << 19;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const RANK: u8 = 3;

/// The payload of an ops record.
pub(crate) fn encode(units: &[UnitOps]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, units.len() as u64);
    for UnitOps { unit, ops } in units {
        put_bytes(&mut out, unit.as_str().as_bytes());
        put_varint(&mut out, ops.len() as u64);
        for op in ops {
            let (code, path) = match op {
                OpRecord::Put(path, ..) => (PUT, path),
                OpRecord::Delete(path) => (DELETE, path),
                OpRecord::Rank(path, _) => (RANK, path),
            };
            out.push(code);
            put_bytes(&mut out, path.as_str().as_bytes());
            if let OpRecord::Put(_, rank, _) | OpRecord::Rank(_, rank) = op {
                put_rank(&mut out, *rank);
            }
            if let OpRecord::Put(_, _, row) = op {
                put_bytes(&mut out, &encode_row(row));
            }
        }
    }
    out
}

/// Reads an ops record whose own references count from `origin`.
pub(crate) fn decode(record: &Bytes, origin: &Origin) -> Result<Vec<UnitOps>> {
    let raw = record::open(record, record::OPS)?;
    let mut r = Reader::new(&raw);
    let mut units = Vec::new();
    let mut room = MAX_OPS;
    for _ in 0..r.count()? {
        let unit = checked_unit(r.str()?)?;
        let mut ops = Vec::new();
        let count = r.count()?;
        room = room.checked_sub(count).ok_or_else(|| damaged("a transaction has too many operations"))?;
        for _ in 0..count {
            let code = r.u8()?;
            if !(PUT..=RANK).contains(&code) {
                return Err(unsupported(format!("operation {code}")));
            }
            let path = checked_path(r.str()?)?;
            ops.push(match code {
                PUT => {
                    let rank = read_rank(&mut r)?;
                    OpRecord::Put(path, rank, decode_row_at(r.bytes()?, origin)?)
                }
                DELETE => OpRecord::Delete(path),
                _ => OpRecord::Rank(path, read_rank(&mut r)?),
            });
        }
        units.push(UnitOps { unit, ops });
    }
    if r.is_empty() { Ok(units) } else { Err(damaged("bytes follow the last operation")) }
}

fn put_rank(out: &mut Vec<u8>, rank: Rank) {
    match rank {
        Rank::Current => put_varint(out, 0),
        Rank::History(n) => {
            put_varint(out, 1);
            put_varint(out, n);
        }
    }
}

fn read_rank(r: &mut Reader<'_>) -> Result<Rank> {
    match r.varint()? {
        0 => Ok(Rank::Current),
        1 => Ok(Rank::History(r.varint()?)),
        other => Err(unsupported(format!("rank {other}"))),
    }
}
