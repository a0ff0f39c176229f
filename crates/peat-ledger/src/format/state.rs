//! The bytes under which a clone keeps a state. Local only, but as careful as everything else: they decide what is built
//! upon.
//!
//! CBOR map: 0 version · 1 ledger · 2 seq · 3 entry id · 4 hash · 5 writer · 6 root · 7 ring record · 8 min writer · 9 clone.

use bytes::Bytes;
use minicbor::Decoder;
use peat_types::{CloneId, EntryId, InstanceId, LedgerId, Result, Seq};

use super::cbor::{self, Fields, bad};
use super::header::{decode_root, encode_root};
use super::record::Pack;
use super::{VERSION, damaged, ring, unsupported};
use crate::model::State;

/// The bytes under which a clone keeps a state.
pub fn encode_state(state: &State) -> Vec<u8> {
    let mut f = Fields::new();
    f.key(0).uint(u64::from(VERSION));
    f.key(1).bytes(state.ledger.as_bytes());
    f.key(2).uint(state.seq.0);
    f.key(3).bytes(state.entry.as_bytes());
    f.key(4).bytes(&state.hash);
    f.key(5).bytes(state.writer.as_bytes());
    f.key(6).raw(&encode_root(&state.root));
    // A ring that came from an entry is within its limit; a larger one would be worth nothing, and is left out.
    if let Ok(ring) = ring::encode(&state.ring, Pack::Zstd) {
        f.key(7).bytes(&ring);
    }
    f.key(8).uint(u64::from(state.min_writer));
    f.key(9).bytes(state.clone.as_bytes());
    f.into_bytes()
}

/// Reads back [`encode_state`].
///
/// # Errors
/// `Damaged`; `Unsupported` when a newer version wrote it.
pub fn decode_state(bytes: &[u8]) -> Result<State> {
    let mut d = Decoder::new(bytes);
    let (mut ledger, mut seq, mut entry, mut hash, mut writer) = (None, None, None, None, None);
    let (mut root, mut ring, mut min_writer, mut clone) = (None, None, None, [0; 16]);
    cbor::map(&mut d, |key, d| {
        match key {
            0 => {
                let version = d.u32().map_err(bad)?;
                if version > VERSION {
                    return Err(unsupported(format!("a state of version {version}")));
                }
            }
            1 => ledger = Some(LedgerId::from_bytes(cbor::fixed(d)?)),
            2 => seq = Some(Seq(d.u64().map_err(bad)?)),
            3 => entry = Some(EntryId::from_bytes(cbor::fixed(d)?)),
            4 => hash = Some(cbor::fixed(d)?),
            5 => writer = Some(InstanceId::from_bytes(cbor::fixed(d)?)),
            6 => root = Some(decode_root(d, None)?),
            7 => ring = Some(ring::decode(&Bytes::copy_from_slice(d.bytes().map_err(bad)?))?),
            8 => min_writer = Some(d.u32().map_err(bad)?),
            9 => clone = cbor::fixed(d)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if d.position() != bytes.len() {
        return Err(damaged("bytes follow a state"));
    }
    let missing = || damaged("a state is not complete");
    Ok(State {
        ledger: ledger.ok_or_else(missing)?,
        seq: seq.ok_or_else(missing)?,
        entry: entry.ok_or_else(missing)?,
        hash: hash.ok_or_else(missing)?,
        clone: CloneId::from_bytes(clone),
        writer: writer.ok_or_else(missing)?,
        root: root.ok_or_else(missing)?,
        ring: ring.unwrap_or_default(),
        min_writer: min_writer.ok_or_else(missing)?,
    })
}
