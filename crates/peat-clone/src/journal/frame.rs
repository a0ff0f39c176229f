//! Bytes of a `.change` file: magic, contents one after another, head (JSON), its length as u32le, its BLAKE3. The head
//! says size and hash of each content, so any of them can be read alone, and is last because these are known only when
//! the contents were read. Contents in files are copied: who edits the file later does not change the change.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use peat_types::{Error, Hash, Hasher, Result};
use serde::{Deserialize, Serialize};

use super::brought::{Body, Brought};
use super::{Header, Row};
use crate::Source;
use crate::files;

const MAGIC: &[u8; 8] = b"PEATCHG2";
const HASH: usize = 32;
/// Length and hash of the head.
const TAIL: u64 = 4 + HASH as u64;
/// Bytes copied at once.
const BUFFER: usize = 256 << 10;

#[derive(Serialize, Deserialize)]
struct Head {
    #[serde(flatten)]
    header: Header,
    /// Size of a part of a large content.
    part: u64,
    contents: Vec<Content>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    size: u64,
    hash: Hash,
    /// Hashes of its parts, when it is larger than one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Hash>,
}

/// Sizes that hold for the contents of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Larger ones are hashed in parts of this size, too.
    pub(super) part: u64,
    /// No content is larger.
    pub(super) largest: u64,
}

/// Why a content is not taken.
pub(crate) fn too_large(what: impl std::fmt::Display, size: u64, largest: u64) -> Error {
    Error::invalid(format!("{what} has {size} bytes, and a content may have {largest} at most"))
        .with_code("content_too_large")
        .with_hint("cut it into several that are smaller, and add each as data of its own")
}

/// Writes all of a row.
pub(super) fn write(file: &mut File, path: &Path, header: &Header, contents: &[Source], sizes: Sizes) -> Result<()> {
    let fail = |e| Error::io("write", path, e);
    let Sizes { part, largest } = sizes;
    // Before anything is copied.
    for source in contents {
        if let Source::File(from) = source {
            let size = std::fs::metadata(from).map_err(|e| Error::io("read", from, e))?.len();
            within(from, size, largest)?;
        }
    }
    let mut out = BufWriter::with_capacity(BUFFER, file);
    out.write_all(MAGIC).map_err(fail)?;
    let mut known = Vec::with_capacity(contents.len());
    for source in contents {
        let mut content =
            Hashing { whole: Hasher::default(), part: Hasher::default(), size: 0, parts: Vec::new(), limit: part };
        match source {
            Source::Bytes(bytes) => {
                content.add(bytes);
                out.write_all(bytes).map_err(fail)?;
            }
            Source::File(from) => copy(from, &mut |bytes| {
                content.add(bytes);
                // It may grow while it is read.
                within(from, content.size, largest)?;
                out.write_all(bytes).map_err(fail)
            })?,
        }
        known.push(content.done());
    }
    let head = Head { header: header.clone(), part, contents: known };
    let json = serde_json::to_vec(&head).map_err(|e| Error::invalid("the change is not JSON").with_source(e))?;
    let len = u32::try_from(json.len()).map_err(|_| Error::invalid("the payload of the change is too large"))?;
    for bytes in [&json[..], &len.to_le_bytes(), Hash::of(&json).as_bytes()] {
        out.write_all(bytes).map_err(fail)?;
    }
    out.flush().map_err(fail)
}

fn within(from: &Path, size: u64, largest: u64) -> Result<()> {
    if size > largest { Err(too_large(from.display(), size, largest)) } else { Ok(()) }
}

fn copy(from: &Path, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let fail = |e| Error::io("read", from, e);
    let mut file = File::open(from).map_err(fail)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer).map_err(fail)? {
            0 => return Ok(()),
            len => take(buffer.get(..len).unwrap_or_default())?,
        }
    }
}

/// Hashes of a content and of its parts.
struct Hashing {
    whole: Hasher,
    part: Hasher,
    size: u64,
    parts: Vec<Hash>,
    limit: u64,
}

impl Hashing {
    fn add(&mut self, mut bytes: &[u8]) {
        self.whole.update(bytes);
        while !bytes.is_empty() {
            if self.size > 0 && self.size.is_multiple_of(self.limit) {
                self.parts.push(std::mem::take(&mut self.part).finish());
            }
            let room = usize::try_from(self.limit - self.size % self.limit).unwrap_or(usize::MAX);
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.part.update(now);
            self.size += now.len() as u64;
            bytes = rest;
        }
    }

    fn done(mut self) -> Content {
        if self.size > self.limit {
            self.parts.push(self.part.finish());
        }
        Content { size: self.size, hash: self.whole.finish(), parts: self.parts }
    }
}

/// Reads the head of a row; `None` when there is no such file.
pub(super) fn open(path: &Path) -> Result<Option<Row>> {
    let fail = |e| Error::io("read", path, e);
    let damaged = || Error::damaged("the file is cut off or altered");
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if files::absent(&e) => return Ok(None),
        Err(e) => return Err(fail(e)),
    };
    let size = file.metadata().map_err(fail)?.len();
    let end = size.checked_sub(TAIL).ok_or_else(damaged)?;
    let tail = read(&mut file, end, TAIL).map_err(fail)?;
    let (len, hash) = tail.split_first_chunk::<4>().ok_or_else(damaged)?;
    let len = u64::from(u32::from_le_bytes(*len));
    let start = end.checked_sub(len).ok_or_else(damaged)?;
    let json = read(&mut file, start, len).map_err(fail)?;
    if Hash::of(&json).as_bytes() != hash || read(&mut file, 0, MAGIC.len() as u64).map_err(fail)?[..] != MAGIC[..] {
        return Err(damaged());
    }
    let Head { header, part, contents } = serde_json::from_slice(&json).map_err(|e| damaged().with_source(e))?;
    let body = Arc::new(Body::new(path.to_owned(), file, part));
    let mut offset = MAGIC.len() as u64;
    let mut kept = Vec::with_capacity(contents.len());
    for Content { size, hash, parts } in contents {
        kept.push(Brought::at(&body, offset, size, hash, parts));
        offset = offset.checked_add(size).filter(|end| *end <= start).ok_or_else(damaged)?;
    }
    if offset != start {
        return Err(damaged());
    }
    Ok(Some(Row { header, contents: kept.into() }))
}

fn read(file: &mut File, offset: u64, len: u64) -> std::io::Result<Bytes> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}
