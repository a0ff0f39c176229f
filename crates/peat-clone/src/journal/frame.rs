//! Bytes of a `.change` file: magic, length of the head as u32le, head (JSON), contents one after another, BLAKE3 of the
//! hashes of head and contents: a checksum stronger than a CRC, and here already.

use bytes::Bytes;
use peat_types::{Error, Hash, Result};
use serde::{Deserialize, Serialize};

use super::{Header, Row};

const MAGIC: &[u8; 8] = b"PEATCHG1";
const HASH: usize = 32;

#[derive(Serialize, Deserialize)]
struct Head {
    #[serde(flatten)]
    header: Header,
    /// Lengths of the contents.
    contents: Vec<u64>,
}

/// Everything before the contents.
pub(super) fn head(header: &Header, contents: &[Bytes]) -> Result<Vec<u8>> {
    let head = Head { header: header.clone(), contents: contents.iter().map(|content| content.len() as u64).collect() };
    let json = serde_json::to_vec(&head).map_err(|e| Error::invalid("the change is not JSON").with_source(e))?;
    let len = u32::try_from(json.len()).map_err(|_| Error::invalid("the payload of the change is too large"))?;
    let mut out = Vec::with_capacity(MAGIC.len() + 4 + json.len());
    out.extend(MAGIC);
    out.extend(len.to_le_bytes());
    out.extend(json);
    Ok(out)
}

/// Everything after them.
pub(super) fn tail(head: &[u8], contents: &[Bytes]) -> [u8; HASH] {
    // One hash over the hashes: the parts are never put together in memory.
    let mut sum = Vec::with_capacity((contents.len() + 1) * HASH);
    sum.extend(Hash::of(head).as_bytes());
    for content in contents {
        sum.extend(Hash::of(content).as_bytes());
    }
    *Hash::of(&sum).as_bytes()
}

pub(super) fn decode(bytes: &Bytes) -> Result<Row> {
    let damaged = || Error::damaged("the file is cut off or altered");
    let json_start = MAGIC.len() + 4;
    let len = bytes.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(damaged)?;
    let json_end = json_start.checked_add(u32::from_le_bytes(*len) as usize).ok_or_else(damaged)?;
    let json = bytes.get(json_start..json_end).ok_or_else(damaged)?;
    let Head { header, contents: lens } = serde_json::from_slice(json).map_err(|e| damaged().with_source(e))?;
    let mut at = json_end;
    let mut contents = Vec::new();
    for len in lens {
        let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len)).ok_or_else(damaged)?;
        if end > bytes.len() {
            return Err(damaged());
        }
        contents.push(bytes.slice(at..end));
        at = end;
    }
    let sum = tail(bytes.get(..json_end).unwrap_or_default(), &contents);
    if bytes.get(at..) != Some(&sum[..]) {
        return Err(damaged());
    }
    Ok(Row { header, contents })
}
