//! `<id>.packs`: what was uploaded for a change and is in no entry yet, one line of JSON for each pack. A line that was
//! cut off by a kill or a power cut is a pack that is uploaded again; the one before it lies in the store for nobody, and
//! garbage collection removes it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use peat_ledger::Stored;
use peat_types::{Error, Result};

use crate::files;

/// Adds a pack.
pub(super) fn add(path: &Path, pack: &Stored, sync: bool) -> Result<()> {
    let fail = |e| Error::io("write", path, e);
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(fail)?;
    file.write_all(&line(pack)?).map_err(fail)?;
    if sync { file.sync_data().map_err(fail) } else { Ok(()) }
}

/// All of them.
pub(super) fn lines<'a>(packs: impl IntoIterator<Item = &'a Stored>) -> Result<Vec<u8>> {
    packs.into_iter().map(line).collect::<Result<Vec<_>>>().map(|lines| lines.concat())
}

/// The packs that are known to be in the store.
pub(super) fn read(path: &Path) -> Result<Vec<Stored>> {
    let Some(bytes) = files::read(path)? else { return Ok(Vec::new()) };
    // What follows a line that cannot be read was written by somebody who could not read it either.
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

fn line(pack: &Stored) -> Result<Vec<u8>> {
    // Begins a line of its own even behind one that was cut off.
    let mut line = vec![b'\n'];
    serde_json::to_writer(&mut line, pack).map_err(|e| Error::internal("cannot write JSON").with_source(e))?;
    line.push(b'\n');
    Ok(line)
}
