//! Deterministic CBOR (RFC 8949 4.2) with integer keys, on top of `minicbor`.
//!
//! A map may hold keys this version does not know: below 32768 they may be ignored (in the root they are carried
//! forward byte for byte), from there on the reader must refuse.

use minicbor::{Decoder, Encoder};
use peat_types::{Error, PackId, Result, Seq};

use super::refs::{Origin, log_seq};
use super::{damaged, unsupported};
use crate::model::{Ref, Segment};

/// First critical key.
pub(crate) const CRITICAL: u32 = 1 << 15;

/// Writes CBOR into memory, which cannot fail.
#[derive(Debug)]
pub(crate) struct Out(Encoder<Vec<u8>>);

impl Out {
    pub(crate) fn new() -> Self {
        Self(Encoder::new(Vec::new()))
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_writer()
    }

    pub(crate) fn uint(&mut self, value: u64) -> &mut Self {
        let _ = self.0.u64(value);
        self
    }

    pub(crate) fn int(&mut self, value: i64) -> &mut Self {
        let _ = self.0.i64(value);
        self
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        let _ = self.0.bytes(value);
        self
    }

    pub(crate) fn str(&mut self, value: &str) -> &mut Self {
        let _ = self.0.str(value);
        self
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        let _ = self.0.null();
        self
    }

    pub(crate) fn array(&mut self, len: usize) -> &mut Self {
        let _ = self.0.array(len as u64);
        self
    }

    /// Bytes that are CBOR already.
    pub(crate) fn raw(&mut self, cbor: &[u8]) -> &mut Self {
        self.0.writer_mut().extend_from_slice(cbor);
        self
    }

    pub(crate) fn seq(&mut self, seq: Option<Seq>) -> &mut Self {
        match seq {
            Some(seq) => self.uint(seq.0),
            None => self.null(),
        }
    }

    /// `[off, len]` (own), `[seq, off, len]`, `[base, id, off, len]` or null.
    pub(crate) fn reference(&mut self, at: Option<&Ref>) -> &mut Self {
        let Some(at) = at else { return self.null() };
        match at.segment {
            Segment::OWN => self.array(2).int(at.off.cast_signed()),
            Segment::Log(seq) => self.array(3).uint(seq.0).uint(at.off),
            Segment::Pack(base, id) => self.array(4).uint(base.0).bytes(id.as_bytes()).uint(at.off),
        };
        self.uint(u64::from(at.len))
    }
}

/// Collects the fields of a map, whose number must be known first. Keys are added in ascending order.
#[derive(Debug)]
pub(crate) struct Fields {
    count: u64,
    out: Out,
}

impl Fields {
    pub(crate) fn new() -> Self {
        Self { count: 0, out: Out::new() }
    }

    /// Starts a field; its value is to follow.
    pub(crate) fn key(&mut self, key: u32) -> &mut Out {
        self.count += 1;
        self.out.uint(u64::from(key))
    }

    /// The map.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let mut map = Out::new();
        let _ = map.0.map(self.count);
        map.raw(&self.out.into_bytes());
        map.into_bytes()
    }
}

/// Turns an error of the decoder into damage.
pub(crate) fn bad(error: minicbor::decode::Error) -> Error {
    damaged("a header does not read").with_source(error)
}

/// Reads a map: `field` takes the value of a key it knows and answers true.
pub(crate) fn map<'b>(d: &mut Decoder<'b>, mut field: impl FnMut(u32, &mut Decoder<'b>) -> Result<bool>) -> Result<()> {
    let count = d.map().map_err(bad)?.ok_or_else(|| damaged("a map has no length"))?;
    let mut last = None;
    for _ in 0..count {
        let key = d.u32().map_err(bad)?;
        if last.is_some_and(|last| last >= key) {
            return Err(damaged("the keys of a map are not in order"));
        }
        last = Some(key);
        if !field(key, d)? {
            if key >= CRITICAL {
                return Err(unsupported(format!("header field {key}")));
            }
            d.skip().map_err(bad)?;
        }
    }
    Ok(())
}

/// Reads an array of anything: `item` reads one.
pub(crate) fn list<'b, T>(d: &mut Decoder<'b>, mut item: impl FnMut(&mut Decoder<'b>) -> Result<T>) -> Result<Vec<T>> {
    let count = d.array().map_err(bad)?.ok_or_else(|| damaged("an array has no length"))?;
    // Not reserved ahead: the count is a claim. Every item takes at least a byte, so a false one ends early.
    let mut out = Vec::new();
    for _ in 0..count {
        out.push(item(d)?);
    }
    Ok(out)
}

/// Starts an array of at least `least` items; the answer is how many more there are, to be given to [`skip`].
pub(crate) fn tuple(d: &mut Decoder<'_>, least: u64) -> Result<u64> {
    let count = d.array().map_err(bad)?.ok_or_else(|| damaged("an array has no length"))?;
    count.checked_sub(least).ok_or_else(|| damaged("an array is too short"))
}

/// Passes over items that a newer version added.
pub(crate) fn skip(d: &mut Decoder<'_>, count: u64) -> Result<()> {
    (0..count).try_for_each(|_| d.skip().map_err(bad))
}

pub(crate) fn fixed<const N: usize>(d: &mut Decoder<'_>) -> Result<[u8; N]> {
    d.bytes().map_err(bad)?.try_into().map_err(|_| damaged("an id has the wrong length"))
}

pub(crate) fn is_null(d: &mut Decoder<'_>) -> Result<bool> {
    if d.datatype().map_err(bad)? != minicbor::data::Type::Null {
        return Ok(false);
    }
    d.null().map_err(bad)?;
    Ok(true)
}

pub(crate) fn seq(d: &mut Decoder<'_>) -> Result<Option<Seq>> {
    if is_null(d)? { Ok(None) } else { Ok(Some(Seq(d.u64().map_err(bad)?))) }
}

/// Reads [`Out::reference`]; own references count from `origin`.
pub(crate) fn reference(d: &mut Decoder<'_>, origin: Option<&Origin>) -> Result<Option<Ref>> {
    if is_null(d)? {
        return Ok(None);
    }
    let count = d.array().map_err(bad)?;
    let (segment, off) = match (count, origin) {
        (Some(2), Some(_)) => (Segment::OWN, d.i64().map_err(bad)?.cast_unsigned()),
        (Some(3), _) => (Segment::Log(log_seq(d.u64().map_err(bad)?)?), d.u64().map_err(bad)?),
        (Some(4), _) => {
            let segment = Segment::Pack(Seq(d.u64().map_err(bad)?), PackId::from_bytes(fixed(d)?));
            (segment, d.u64().map_err(bad)?)
        }
        _ => return Err(damaged("a reference has the wrong length")),
    };
    let at = Ref { segment, off, len: d.u32().map_err(bad)? };
    if segment != Segment::OWN && off.checked_add(u64::from(at.len)).is_none() {
        return Err(damaged("a reference leaves its object"));
    }
    origin.map_or(Ok(at), |origin| origin.resolve(at)).map(Some)
}
