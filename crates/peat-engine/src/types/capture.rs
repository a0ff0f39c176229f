//! What a program prints. The beginning is kept in memory; what is longer goes to a file, for it may be larger than memory.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::Produced;
use crate::definition::hex;

/// Bytes of each stream that are kept in memory.
pub(super) const KEEP: usize = 8 << 20;
/// Bytes of each stream that are cut into lines.
const HEARD: u64 = 32 << 20;
/// Bytes of each stream that are kept at all.
const MOST: u64 = 5 << 30;
/// Bytes of a line, at most: a longer one is given in pieces.
const LINE: usize = 1 << 20;
/// Bytes copied at once.
const BUFFER: usize = 64 << 10;

/// Output of one stream.
pub(super) struct Captured {
    /// What the log says before it.
    header: &'static [u8],
    path: PathBuf,
    /// Its beginning.
    begin: Vec<u8>,
    /// All of it, once it is longer than that.
    spool: Option<Spool>,
    /// Bytes that came.
    total: u64,
    /// Bytes of them that are nowhere, and why.
    lost: Option<(u64, String)>,
    line: Vec<u8>,
}

impl Captured {
    /// A stream that goes to `path` when it is long.
    pub(super) fn new(path: PathBuf, header: &'static [u8]) -> Self {
        Self { header, path, begin: Vec::new(), spool: None, total: 0, lost: None, line: Vec::new() }
    }

    pub(super) fn add(&mut self, chunk: &[u8], hear: &mut dyn FnMut(&str)) {
        let (now, later) = chunk.split_at((KEEP - self.begin.len()).min(chunk.len()));
        self.begin.extend_from_slice(now);
        if !later.is_empty() {
            self.keep(later);
        }
        let heard = usize::try_from(HEARD.saturating_sub(self.total)).unwrap_or(usize::MAX).min(chunk.len());
        self.total += chunk.len() as u64;
        for piece in chunk[..heard].split_inclusive(|b| *b == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LINE {
                self.flush(hear);
            }
        }
    }

    /// What does not belong to the beginning.
    fn keep(&mut self, bytes: &[u8]) {
        let gone = bytes.len() as u64;
        if let Some((lost, _)) = &mut self.lost {
            *lost += gone;
            return;
        }
        if self.total >= MOST {
            self.lost = Some((gone, format!("no more than {} GiB are kept", MOST >> 30)));
            return;
        }
        if let Err(error) = self.spooled().and_then(|spool| spool.write(bytes)) {
            // Nobody knows how much of it is in the file.
            self.spool = None;
            let before = self.total.saturating_sub(KEEP as u64);
            self.lost = Some((before + gone, format!("cannot write {}: {error}", self.path.display())));
        }
    }

    /// The file, with the beginning in it.
    fn spooled(&mut self) -> io::Result<&mut Spool> {
        let spool = match self.spool.take() {
            Some(spool) => spool,
            None => {
                let mut spool = Spool::new(&self.path)?;
                spool.write(self.header)?;
                spool.write(&self.begin)?;
                spool
            }
        };
        Ok(self.spool.insert(spool))
    }

    pub(super) fn flush(&mut self, hear: &mut dyn FnMut(&str)) {
        if !self.line.is_empty() {
            let line = String::from_utf8_lossy(&self.line);
            hear(line.trim_end_matches(['\n', '\r']));
            self.line.clear();
        }
    }

    /// The beginning, without one final newline.
    pub(super) fn content(&self) -> &[u8] {
        self.begin.strip_suffix(b"\n").unwrap_or(&self.begin)
    }

    /// Bytes that are not in the beginning.
    pub(super) fn beyond(&self) -> u64 {
        self.total - self.begin.len() as u64
    }

    /// Why some of them are nowhere, and how many.
    pub(super) fn lost(&self) -> Option<(u64, &str)> {
        self.lost.as_ref().map(|(bytes, why)| (*bytes, why.as_str()))
    }
}

/// Both streams, one after the other, each without its final newline; `note` stands for an empty second one.
pub(super) fn log(out: &mut Captured, err: &mut Captured, note: &str) -> io::Result<Produced> {
    let before: &[u8] = if out.content().is_empty() { b"[stderr]\n" } else { b"\n[stderr]\n" };
    if out.spool.is_none() && err.spool.is_none() {
        let mut log = out.header.to_vec();
        log.extend_from_slice(out.content());
        log.extend_from_slice(before);
        log.extend_from_slice(if err.content().is_empty() { note.as_bytes() } else { err.content() });
        log.push(b'\n');
        return Ok(Produced::Bytes(Bytes::from(log)));
    }
    let blank = out.begin.is_empty();
    let spool = out.spooled()?;
    if blank {
        spool.release()?;
    }
    spool.held = false;
    spool.write(before)?;
    match err.spool.take() {
        Some(second) => {
            let path = second.path.clone();
            second.done()?;
            let (mut from, mut buffer) = (File::open(path)?, vec![0; BUFFER]);
            loop {
                match from.read(&mut buffer)? {
                    0 => break,
                    len => spool.write(buffer.get(..len).unwrap_or_default())?,
                }
            }
        }
        None if err.content().is_empty() => spool.write(note.as_bytes())?,
        None => spool.write(err.content())?,
    }
    spool.write(b"\n")?;
    spool.release()?;
    match out.spool.take() {
        Some(spool) => spool.done(),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// A file that is written once from its beginning to its end.
struct Spool {
    path: PathBuf,
    file: BufWriter<File>,
    size: u64,
    sha256: Sha256,
    /// Whether a newline came last. It is written when something follows.
    held: bool,
}

impl Spool {
    fn new(path: &Path) -> io::Result<Self> {
        let file = BufWriter::with_capacity(BUFFER, File::create(path)?);
        Ok(Self { path: path.to_owned(), file, size: 0, sha256: Sha256::new(), held: false })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some((last, before)) = bytes.split_last() else { return Ok(()) };
        self.release()?;
        self.held = *last == b'\n';
        self.put(if self.held { before } else { bytes })
    }

    fn release(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.held) { self.put(b"\n") } else { Ok(()) }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.sha256.update(bytes);
        self.size += bytes.len() as u64;
        Ok(())
    }

    fn done(mut self) -> io::Result<Produced> {
        self.file.flush()?;
        Ok(Produced::File { path: self.path, size: self.size, sha256: hex(&self.sha256.finalize()) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    fn bytes_of(log: Produced) -> Vec<u8> {
        match log {
            Produced::Bytes(bytes) => bytes.to_vec(),
            Produced::File { path, size, sha256 } => {
                let bytes = std::fs::read(path).unwrap();
                assert_eq!((bytes.len() as u64, hex(&Sha256::digest(&bytes))), (size, sha256));
                bytes
            }
        }
    }

    /// However long the streams are, and whatever they end in, the log is the same text.
    #[test]
    fn a_long_output_makes_the_log_that_a_short_one_would() {
        let dir = tempfile::tempdir().unwrap();
        let short: [&[u8]; 6] = [b"", b"\n", b"\n\n", b"a", b"a\n", b"a\n\nb\n\n"];
        let strip = |bytes: &[u8]| bytes.strip_suffix(b"\n").unwrap_or(bytes).to_vec();
        for (n, tail) in short.iter().enumerate() {
            for (m, other) in short.iter().enumerate() {
                for (long_out, long_err) in [(false, false), (true, false), (false, true)] {
                    // What is long takes its time.
                    if long_out && m != 4 || long_err && n > 1 {
                        continue;
                    }
                    let whole = |long: bool, tail: &[u8]| {
                        [if long { vec![b'x'; KEEP + 3] } else { Vec::new() }, tail.to_vec()].concat()
                    };
                    let (text, errors) = (whole(long_out, tail), whole(long_err, other));
                    let mut out = Captured::new(dir.path().join("out"), b"[stdout]\n");
                    let mut err = Captured::new(dir.path().join("err"), b"");
                    text.chunks(1 << 20).for_each(|chunk| out.add(chunk, &mut |_| {}));
                    errors.chunks(1 << 20).for_each(|chunk| err.add(chunk, &mut |_| {}));
                    let (text, errors) = (strip(&text), strip(&errors));
                    let between: &[u8] = if text.is_empty() { b"[stderr]\n" } else { b"\n[stderr]\n" };
                    let errors = if errors.is_empty() { b"note".to_vec() } else { errors };
                    let expected = [b"[stdout]\n", &text[..], between, &errors[..], b"\n"].concat();
                    let log = bytes_of(log(&mut out, &mut err, "note").unwrap());
                    assert!(log == expected, "{n} {m} {long_out} {long_err}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_kept_is_counted_and_the_beginning_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut out = Captured::new(dir.path().join("no/folder"), b"[stdout]\n");
        let mut err = Captured::new(dir.path().join("err"), b"");
        for _ in 0..9 {
            out.add(&vec![b'x'; 1 << 20], &mut |_| {});
        }
        assert_eq!((out.beyond(), out.lost().unwrap().0), (1 << 20, 1 << 20));
        assert!(out.lost().unwrap().1.contains("no/folder"));
        assert_eq!(bytes_of(log(&mut out, &mut err, "").unwrap()).len(), KEEP + 20);
    }
}
