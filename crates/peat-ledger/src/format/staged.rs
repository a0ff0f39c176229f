//! Staged transactions: what a writer that lost a slot leaves for whoever writes next.
//!
//! ```text
//! staged := preamble (kind 2)  header record  section
//! group  := staged+
//! ```
//! An object holds a group: what waits in one process, first the one that gives it its name. Each stands for itself.
//!
//! Header: 0 base · 1 ledger · 2 min reader · 3 transaction head, in the bytes an entry would carry.

use bytes::Bytes;
use minicbor::Decoder;
use peat_types::{LedgerId, Result, Seq};

use super::cbor::{self, Fields, bad};
use super::decode::section_alone;
use super::header::{KIND_STAGED, PREAMBLE, decode_tx, encode_tx, header_len, preamble};
use super::record::{self, Pack};
use super::{Section, VERSION, damaged, unsupported};
use crate::model::{OWN_SEQ, TxKind, UnitOps};

/// A transaction that waits under `tx/`.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The slot it was planned for: one more than the entry it was planned on.
    pub base: Seq,
    /// The ledger it belongs to.
    pub ledger: LedgerId,
    /// The transaction, ready to be carried. Its packs are durable already (A5), so none are listed with their bodies.
    pub section: Section,
    /// Its operations, for people.
    pub ops: Vec<UnitOps>,
}

/// The bytes under which a section is staged.
///
/// # Errors
/// `Invalid` when its head is too long.
pub fn encode_staged(ledger: LedgerId, base: Seq, section: &Section) -> Result<Bytes> {
    let mut f = Fields::new();
    f.key(0).uint(base.0);
    f.key(1).bytes(ledger.as_bytes());
    // Nothing in it is newer than the first version.
    f.key(2).uint(1);
    f.key(3).raw(&encode_tx(&section.head));
    let header = record::encode(&f.into_bytes(), Pack::Zstd, record::HEADER)?;
    let mut out = preamble(KIND_STAGED, header.len())?;
    out.extend_from_slice(&header);
    out.extend_from_slice(&section.bytes);
    Ok(out.into())
}

/// Reads one staged transaction. Checks every CRC, hash, bound and path, as in an entry: what is carried is vouched for.
///
/// # Errors
/// `Damaged`; `Unsupported` for a newer format, and for a head that this version could not write again byte for byte.
pub fn decode_staged(body: &Bytes) -> Result<Staged> {
    let mut group = decode_group(body)?;
    match group.pop() {
        Some(staged) if group.is_empty() => Ok(staged),
        _ => Err(damaged("more than one staged transaction")),
    }
}

/// Reads all transactions staged in one object, at least one.
///
/// # Errors
/// As [`decode_staged`], whichever of them it is about.
pub fn decode_group(body: &Bytes) -> Result<Vec<Staged>> {
    let mut rest = body.clone();
    let mut group = Vec::new();
    while group.is_empty() || !rest.is_empty() {
        let (staged, len) = decode_first(&rest)?;
        rest = rest.slice(len..);
        group.push(staged);
    }
    Ok(group)
}

/// The first one, and how long it is.
fn decode_first(body: &Bytes) -> Result<(Staged, usize)> {
    let cut = || damaged("a staged transaction is cut off");
    let len = header_len(body, KIND_STAGED)?.ok_or_else(cut)?;
    let start = PREAMBLE.checked_add(len).filter(|start| *start <= body.len()).ok_or_else(cut)?;
    let raw = record::open(&body.slice(PREAMBLE..start), record::HEADER)?;
    let mut d = Decoder::new(&raw);
    let (mut base, mut ledger, mut version, mut head) = (None, None, None, None);
    cbor::map(&mut d, |key, d| {
        match key {
            0 => base = Some(Seq(d.u64().map_err(bad)?)),
            1 => ledger = Some(LedgerId::from_bytes(cbor::fixed(d)?)),
            2 => {
                let found = d.u32().map_err(bad)?;
                if found > VERSION {
                    return Err(unsupported(format!("a staged transaction for readers of version {found}")));
                }
                version = Some(found);
            }
            3 => {
                let from = d.position();
                let tx = decode_tx(d, OWN_SEQ, 0)?;
                // A field that this version does not know would be lost on the way into the entry.
                if raw.get(from..d.position()) != Some(encode_tx(&tx).as_slice()) {
                    return Err(unsupported("all fields of a staged transaction"));
                }
                head = Some(tx);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if d.position() != raw.len() {
        return Err(damaged("bytes follow a header"));
    }
    let missing = || damaged("the header of a staged transaction is not complete");
    let (head, _) = head.zip(version).ok_or_else(missing)?;
    let len = usize::try_from(head.len).ok().and_then(|len| start.checked_add(len));
    let end = len.filter(|end| *end <= body.len()).ok_or_else(cut)?;
    // R1 is what lets a transaction into the log only once, and it speaks of units.
    if head.units.is_empty() || head.kind == TxKind::Genesis || head.kind.is_maintenance() {
        return Err(damaged("a staged transaction changes no unit"));
    }
    let bytes = body.slice(start..end);
    let ops = section_alone(&bytes, &head)?;
    let staged = Staged {
        base: base.ok_or_else(missing)?,
        ledger: ledger.ok_or_else(missing)?,
        section: Section { head, bytes, packs: Vec::new() },
        ops,
    };
    Ok((staged, end))
}
