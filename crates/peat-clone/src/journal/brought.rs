//! Contents of a journalled change. They lie in its file, and only what is asked for comes into memory.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use peat_types::{Error, Hash, Result};

/// A content that a change brings.
#[derive(Clone, Debug)]
pub struct Brought {
    size: u64,
    hash: Hash,
    from: From,
}

#[derive(Clone)]
enum From {
    Memory(Bytes),
    Journal {
        body: Arc<Body>,
        offset: u64,
        /// Hashes of its parts, when it is stored in parts.
        parts: Arc<[Hash]>,
    },
}

impl fmt::Debug for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Journal { .. } => "Journal",
        })
    }
}

/// The file of a change.
pub(super) struct Body {
    path: PathBuf,
    file: Mutex<File>,
    /// Size of a part.
    part: u64,
}

impl Body {
    pub(super) fn new(path: PathBuf, file: File, part: u64) -> Self {
        Self { path, file: Mutex::new(file), part }
    }

    fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        let fail = |e| Error::io("read", &self.path, e);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset)).map_err(fail)?;
        let mut bytes = Vec::new();
        (&mut *file).take(len).read_to_end(&mut bytes).map_err(fail)?;
        Ok(bytes.into())
    }

    fn verified(&self, offset: u64, len: u64, hash: Hash) -> Result<Bytes> {
        let bytes = self.read(offset, len)?;
        if bytes.len() as u64 == len && Hash::of(&bytes) == hash {
            return Ok(bytes);
        }
        Err(Error::damaged(format!("a content in {} is cut off or altered", self.path.display()))
            .with_hint("'peat pending list' names the change; make it again, then 'peat pending drop CHANGE'"))
    }
}

impl std::convert::From<Bytes> for Brought {
    fn from(bytes: Bytes) -> Self {
        Self { size: bytes.len() as u64, hash: Hash::of(&bytes), from: From::Memory(bytes) }
    }
}

impl Brought {
    pub(super) fn at(body: &Arc<Body>, offset: u64, size: u64, hash: Hash, parts: Vec<Hash>) -> Self {
        Self { size, hash, from: From::Journal { body: body.clone(), offset, parts: parts.into() } }
    }

    /// Bytes it has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Their hash.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// All of it, verified, in memory.
    ///
    /// # Errors
    /// `Damaged` when the journal was altered.
    pub fn read(&self) -> Result<Bytes> {
        match &self.from {
            From::Memory(bytes) => Ok(bytes.clone()),
            From::Journal { body, offset, .. } => body.verified(*offset, self.size, self.hash),
        }
    }

    /// The piece with this index and its hash, verified.
    pub(crate) fn piece(&self, n: u32) -> Result<(Bytes, Hash)> {
        let From::Journal { body, offset, parts } = &self.from else { return Ok((self.read()?, self.hash)) };
        match parts.get(n as usize) {
            None => Ok((self.read()?, self.hash)),
            Some(hash) => {
                let from = u64::from(n) * body.part;
                let len = body.part.min(self.size.saturating_sub(from));
                Ok((body.verified(offset + from, len, *hash)?, *hash))
            }
        }
    }

    /// Hashes of its parts; empty when it has none.
    pub(crate) fn parts(&self) -> &[Hash] {
        match &self.from {
            From::Memory(_) => &[],
            From::Journal { parts, .. } => parts,
        }
    }

    /// Sizes of its parts.
    pub(crate) fn part_sizes(&self) -> impl Iterator<Item = u64> {
        let part = match &self.from {
            From::Memory(_) => self.size,
            From::Journal { body, .. } => body.part,
        };
        peat_ledger::format::cuts(self.size, part).map(|(_, len)| len)
    }

    /// Writes all of it, piece by piece.
    pub(crate) fn copy_to(&self, out: &mut dyn Write) -> Result<()> {
        for n in 0..self.parts().len().max(1) {
            let (bytes, _) = self.piece(u32::try_from(n).unwrap_or(u32::MAX))?;
            out.write_all(&bytes).map_err(|e| Error::internal("cannot write a content").with_source(e))?;
        }
        Ok(())
    }
}
