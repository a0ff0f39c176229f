//! Records: every part of every segment.
//!
//! ```text
//! record := codec:u8 (0 raw, 1 zstd)  key_id:varint (0)  raw_len:varint  stored_len:varint  bytes  crc32c:u32le
//! ```
//! The CRC covers all before it.

use std::cell::RefCell;
use std::io::Read;

use bytes::Bytes;
use peat_types::{Error, Result};
use zstd::stream::read::Decoder;
use zstd::zstd_safe::DCtx;

use super::varint::{Reader, put_varint};
use super::{damaged, unsupported};

/// Largest unpacked header.
pub(crate) const HEADER: u64 = 8 << 20;
/// Largest unpacked ring: 1,024 tags of three bytes and 512 counts, with room.
pub(crate) const RING: u64 = 16 << 10;
/// Largest unpacked tree page.
pub(crate) const PAGE: u64 = 64 << 10;
/// Largest unpacked list of operations: hashes do not compress, so this is more than a full entry holds.
pub(crate) const OPS: u64 = 32 << 20;
/// Largest unpacked pack index.
pub(crate) const INDEX: u64 = 64 << 20;
/// Largest content, and so the largest unpacked block.
pub(crate) const BLOCK: u64 = 1 << 30;

const RAW: u8 = 0;
const ZSTD: u8 = 1;
/// Largest zstd window a reader has to hold: 2^23 bytes. Levels up to 9 stay below.
const WINDOW_LOG: u32 = 23;
/// Pages, headers and single contents are small: a higher level costs microseconds and gives a few per cent. Blocks in
/// bulk are not: there it would cost more than the network.
const SMALL_LEVEL: i32 = 12;
const LEVEL: i32 = 3;

/// Whether a record may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pack {
    /// When that makes it smaller.
    Zstd,
    /// Never: the bytes must not depend on the version of a compressor.
    Raw,
}

/// Appends `raw` as a record.
pub(crate) fn put(out: &mut Vec<u8>, raw: &[u8], pack: Pack, limit: u64) -> Result<()> {
    if raw.len() as u64 > limit {
        return Err(Error::invalid(format!("a part of {} bytes exceeds the limit of {limit} bytes", raw.len())));
    }
    let start = out.len();
    let small = if limit == BLOCK { 16 << 10 } else { 256 << 10 };
    let level = if raw.len() <= small { SMALL_LEVEL } else { LEVEL };
    let packed = match pack {
        Pack::Raw => None,
        Pack::Zstd => Some(zstd::bulk::compress(raw, level).map_err(|e| Error::internal("zstd").with_source(e))?),
    };
    let (codec, stored) = match &packed {
        Some(packed) if packed.len() < raw.len() => (ZSTD, packed.as_slice()),
        _ => (RAW, raw),
    };
    out.push(codec);
    put_varint(out, 0);
    put_varint(out, raw.len() as u64);
    put_varint(out, stored.len() as u64);
    out.extend_from_slice(stored);
    let crc = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// [`put`] into a vector of its own.
pub(crate) fn encode(raw: &[u8], pack: Pack, limit: u64) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(raw.len() + 16);
    put(&mut out, raw, pack, limit)?;
    Ok(out)
}

struct Parts {
    codec: u8,
    raw_len: u64,
    /// Where the stored bytes lie in the record.
    stored: std::ops::Range<usize>,
    len: usize,
}

fn parts(bytes: &[u8], limit: u64) -> Result<Parts> {
    let mut r = Reader::new(bytes);
    let codec = r.u8()?;
    let key = r.varint()?;
    let raw_len = r.varint()?;
    let len = r.count()?;
    let start = r.pos();
    r.take(len)?;
    let crc = crc32c::crc32c(&bytes[..r.pos()]);
    if r.u32le()? != crc {
        return Err(damaged("a record does not match its checksum"));
    }
    if codec > ZSTD {
        return Err(unsupported(format!("record codec {codec}")));
    }
    if key != 0 {
        return Err(unsupported(format!("an encrypted record (key {key})")));
    }
    if raw_len > limit {
        return Err(damaged(format!("a record of {raw_len} bytes exceeds the limit of {limit} bytes")));
    }
    Ok(Parts { codec, raw_len, stored: start..start + len, len: r.pos() })
}

/// Length of the record at the start of `bytes`, its checksum verified.
pub(crate) fn length(bytes: &[u8], limit: u64) -> Result<usize> {
    Ok(parts(bytes, limit)?.len)
}

/// Unpacks a record that fills `bytes` exactly.
pub(crate) fn open(bytes: &Bytes, limit: u64) -> Result<Bytes> {
    let parts = parts(bytes, limit)?;
    if parts.len != bytes.len() {
        return Err(damaged("a record is shorter than its reference says"));
    }
    let stored = bytes.slice(parts.stored);
    if parts.codec == RAW {
        if stored.len() as u64 != parts.raw_len {
            return Err(damaged("a raw record has two lengths"));
        }
        return Ok(stored);
    }
    let unpacked = if parts.raw_len <= PAGE {
        CONTEXT.with_borrow_mut(|context| unpack(Decoder::with_context(&stored[..], context), parts.raw_len))
    } else {
        Decoder::with_buffer(&stored[..]).and_then(|decoder| unpack(decoder, parts.raw_len))
    };
    let raw = unpacked.map_err(|e| damaged("a record does not unpack").with_source(e))?;
    if raw.len() as u64 != parts.raw_len {
        return Err(damaged("a record unpacks to another length than it says"));
    }
    Ok(raw.into())
}

thread_local! {
    /// Making a context takes several times as long as unpacking a page with it.
    static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// At most one byte more than there should be.
fn unpack(decoder: Decoder<'_, &[u8]>, raw_len: u64) -> std::io::Result<Vec<u8>> {
    let mut decoder = decoder.single_frame();
    decoder.window_log_max(WINDOW_LOG)?;
    // Grown while reading: the raw length is a claim until the bytes are there.
    let mut raw = Vec::with_capacity(usize::try_from(raw_len.min(256 << 10)).unwrap_or(0));
    decoder.take(raw_len + 1).read_to_end(&mut raw)?;
    Ok(raw)
}
