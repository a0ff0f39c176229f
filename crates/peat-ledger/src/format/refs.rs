//! References and the values of tree rows.
//!
//! ```text
//! ref   := tag:varint (0 own | 1 log seq:varint | 2 pack base:varint id:16B)  off:varint  len:varint
//! value := flags:varint  [ref]  rest
//! ```
//! An own reference counts from the origin of its page (see `page`) and is zigzag. Bit 0 of `flags` says that a ref
//! follows, in every tree: so rows can be moved between pages without knowing what else they hold, and unknown bytes
//! at their end survive. Bits 2 to 7 may be ignored by who does not know them; from bit 8 on an unknown bit refuses.

use peat_types::{PackId, Result, Seq};

use super::varint::{Reader, put_varint, unzigzag, zigzag};
use super::{damaged, unsupported};
use crate::model::{Ref, Segment};

/// Flag: a reference follows.
pub(crate) const HAS_REF: u32 = 1;
/// Flag of file rows: the file is executable.
pub(crate) const EXECUTABLE: u32 = 2;
/// Flag of pack rows: the pack holds tree pages.
pub(crate) const METADATA: u32 = 4;
/// Flag of file rows: the content lies in parts, which have rows of their own (see `row`).
pub(crate) const PARTED: u32 = 1 << 8;
/// Flags from here on must be known.
const CRITICAL: u64 = 1 << 8;

/// What own references count from: an object and an offset in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) segment: Segment,
    pub(crate) off: u64,
}

impl Origin {
    /// The place of an own reference.
    pub(crate) fn resolve(&self, at: Ref) -> Result<Ref> {
        if at.segment != Segment::OWN {
            return Ok(at);
        }
        let off = self.off.checked_add_signed(at.off.cast_signed());
        let off = off.filter(|off| off.checked_add(u64::from(at.len)).is_some());
        Ok(Ref { segment: self.segment, off: off.ok_or_else(|| damaged("a reference leaves its object"))?, ..at })
    }
}

/// An own reference `off` bytes after (or before) the origin.
pub(crate) fn own(off: i64, len: u32) -> Ref {
    Ref { segment: Segment::OWN, off: off.cast_unsigned(), len }
}

pub(crate) fn put_ref(out: &mut Vec<u8>, at: &Ref) {
    match at.segment {
        Segment::OWN => {
            put_varint(out, 0);
            put_varint(out, zigzag(at.off.cast_signed()));
        }
        Segment::Log(seq) => {
            put_varint(out, 1);
            put_varint(out, seq.0);
            put_varint(out, at.off);
        }
        Segment::Pack(base, id) => {
            put_varint(out, 2);
            put_varint(out, base.0);
            out.extend_from_slice(id.as_bytes());
            put_varint(out, at.off);
        }
    }
    put_varint(out, u64::from(at.len));
}

/// Reads a reference; an own one is refused without an origin.
pub(crate) fn read_ref(r: &mut Reader<'_>, origin: Option<&Origin>) -> Result<Ref> {
    let tag = r.varint()?;
    let segment = match tag {
        0 => Segment::OWN,
        1 => Segment::Log(log_seq(r.varint()?)?),
        2 => Segment::Pack(Seq(r.varint()?), PackId::from_bytes(r.array()?)),
        _ => return Err(unsupported(format!("reference kind {tag}"))),
    };
    let off = r.varint()?;
    let off = if tag == 0 { unzigzag(off).cast_unsigned() } else { off };
    let len = u32::try_from(r.varint()?).map_err(|_| damaged("a reference is too long"))?;
    if tag != 0 && off.checked_add(u64::from(len)).is_none() {
        return Err(damaged("a reference leaves its object"));
    }
    let at = Ref { segment, off, len };
    match origin {
        Some(origin) => origin.resolve(at),
        None if tag == 0 => Err(damaged("an own reference stands where none can")),
        None => Ok(at),
    }
}

/// A slot number; the last one is not a slot but stands for [`Segment::OWN`].
pub(crate) fn log_seq(seq: u64) -> Result<Seq> {
    if seq == u64::MAX { Err(damaged("a slot number is out of range")) } else { Ok(Seq(seq)) }
}

/// Value of a tree row, its reference resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    /// Without [`HAS_REF`], which follows from `at`.
    pub(crate) flags: u32,
    pub(crate) at: Option<Ref>,
    /// Fields of the tree, then what a newer version may have added.
    pub(crate) rest: Vec<u8>,
}

impl Value {
    pub(crate) fn of_ref(at: Ref) -> Self {
        Self { flags: 0, at: Some(at), rest: Vec::new() }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let has_ref = if self.at.is_some() { HAS_REF } else { 0 };
        put_varint(out, u64::from(self.flags | has_ref));
        if let Some(at) = &self.at {
            put_ref(out, at);
        }
        out.extend_from_slice(&self.rest);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.rest.len() + 16);
        self.put(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8], origin: Option<&Origin>) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let flags = r.varint()?;
        if flags & !u64::from(PARTED) >= CRITICAL {
            return Err(unsupported(format!("row flags {flags:#x}")));
        }
        let flags = u32::try_from(flags).unwrap_or(0);
        let at = if flags & HAS_REF == 0 { None } else { Some(read_ref(&mut r, origin)?) };
        Ok(Self { flags: flags & !HAS_REF, at, rest: r.rest().to_vec() })
    }
}
