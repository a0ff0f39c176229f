//! The cursor: a small file of its own in the clone's folder, replaced whole, so that it survives a rebuilt `state.db`.

use std::path::PathBuf;

use peat_ledger::Mark;
use peat_types::{Error, Kind, LedgerId, Result, Seq};
use serde::{Deserialize, Serialize};

use crate::Durability;
use crate::files::{self, Lock};
use crate::handle::Inner;

/// Name of the folder.
const DIR: &str = "watch";
const VERSION: u32 = 1;

/// Where somebody who follows the log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// Everything up to here is done.
    pub mark: Mark,
    /// So many changes of the next entry are done too.
    pub within: usize,
}

impl Cursor {
    pub fn new(mark: Mark) -> Self {
        Self { mark, within: 0 }
    }
}

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    ledger: LedgerId,
    /// The last entry that is done, and the beginning of its hash in hex; zeros when that is not known.
    seq: Seq,
    hash: String,
    /// Changes of the entry after it that are done.
    within: usize,
}

/// The file of one name, locked.
pub(super) struct Stored {
    path: PathBuf,
    last: Option<Cursor>,
    _lock: Lock,
}

impl Stored {
    /// Takes the name for this process.
    pub fn lock(inner: &Inner, name: &str) -> Result<Self> {
        check(name)?;
        let dir = inner.options.dir.join(DIR);
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
        let lock = Lock::try_new(&dir.join(format!("{name}.lock")))?.ok_or_else(|| {
            Error::new(Kind::Contended, format!("another process follows this namespace under the name '{name}'"))
                .with_code("watch_taken")
                .with_hint("end it, or follow under a name of your own: 'peat datastore watch --name <name>'")
        })?;
        Ok(Self { path: dir.join(format!("{name}.json")), last: None, _lock: lock })
    }

    /// What the file says; `None` when there is none.
    pub fn read(&self, ledger: LedgerId) -> Result<Option<Cursor>> {
        let Some(bytes) = files::read(&self.path)? else { return Ok(None) };
        let shown = self.path.display();
        let remedy = "remove the file and say --since <entry>, or follow under another name";
        let damaged = || Error::damaged(format!("{shown} cannot be read")).with_hint(remedy);
        let file: File = serde_json::from_slice(&bytes).map_err(|e| damaged().with_source(e))?;
        if file.version > VERSION {
            return Err(Error::new(Kind::Unsupported, format!("{shown} was written by a newer version"))
                .with_code("unsupported_version")
                .with_hint("upgrade peat"));
        }
        if file.ledger != ledger {
            return Err(Error::damaged(format!("{shown} follows ledger {}, not {ledger}", file.ledger))
                .with_code("fork")
                .with_hint(remedy));
        }
        let mut hash = [0; 16];
        hex::decode_to_slice(&file.hash, &mut hash).map_err(|e| damaged().with_source(e))?;
        Ok(Some(Cursor { mark: Mark { seq: file.seq, hash }, within: file.within }))
    }

    /// Replaces the file, durably, unless it says so already.
    pub fn write(&mut self, inner: &Inner, cursor: &Cursor) -> Result<()> {
        if self.last.as_ref() == Some(cursor) {
            return Ok(());
        }
        let file = File {
            version: VERSION,
            ledger: inner.ledger.info().ledger,
            seq: cursor.mark.seq,
            hash: hex::encode(cursor.mark.hash),
            within: cursor.within,
        };
        let mut text = serde_json::to_vec(&file).map_err(|e| Error::internal("cannot write JSON").with_source(e))?;
        text.push(b'\n');
        let temps = inner.options.dir.join(files::TEMP);
        let sync = inner.options.durability == Durability::Synced;
        files::write_atomic(&inner.env, &temps, &self.path, &[&text], sync, false)
            .map_err(|e| e.context("cannot remember how far the namespace was followed"))?;
        self.last = Some(*cursor);
        Ok(())
    }
}

fn check(name: &str) -> Result<()> {
    let slug = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=63).contains(&name.len()) && name.bytes().all(slug) && !name.starts_with('-') {
        return Ok(());
    }
    Err(Error::invalid(format!("'{name}' is not a name to follow under"))
        .with_hint("use 1 to 63 lower-case letters, digits and hyphens, not starting with a hyphen, such as 'deploy'"))
}
