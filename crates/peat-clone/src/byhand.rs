//! What people changed in the tree by hand. It is found by content, and stays theirs: nothing of it is committed unless they
//! ask, and a pull puts aside what it would overwrite.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use peat_types::{Error, Hash, ItemPath, Result, Seq, Timestamp, Unit};
use rusqlite::{OptionalExtension, Transaction};

use crate::db::{self, sql};
use crate::handle::Inner;
use crate::{Event, Item, LocalClone, files, repair};

/// Folder for what has to give way, and for what the doctor found in the tree that belongs to no item.
const ASIDE: &str = "aside";
/// A file that was written so lately could be written again without its time showing it.
const RACY_MS: i64 = 2_000;

/// A file of the tree that is not what the index says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHand {
    /// Its path in the tree. Not every name of a file can be an item.
    pub path: String,
    /// The item it was, unless it is new.
    pub item: Option<Item>,
    /// Its size in bytes.
    pub size: u64,
}

/// What the next pull of everything would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// Where the clone stands.
    pub from: Option<Seq>,
    /// Where it would stand.
    pub to: Seq,
    /// Whether what lies between can be told; else the clone is so far behind that directories are compared.
    pub exact: bool,
    /// Items that would be set, with their units and sizes.
    pub puts: Vec<(Unit, ItemPath, u64)>,
    /// Items that would be removed.
    pub deletes: Vec<(Unit, ItemPath)>,
}

impl LocalClone {
    /// Files of the tree that were changed or added by hand, by path. A file that is missing is no change: absence means
    /// nothing. No request.
    pub fn by_hand(&self) -> Result<Vec<ByHand>> {
        self.0.by_hand()
    }

    /// The bytes of such a file as they are now.
    pub fn by_hand_content(&self, found: &ByHand) -> Result<Bytes> {
        let path = self.0.tree.root().join(&found.path);
        let bytes = files::read(&path)?;
        bytes.map(Bytes::from).ok_or_else(|| Error::not_found(format!("{} went away", path.display())))
    }

    /// What was put aside since this was asked last, because it was changed by hand and in the ledger: paths in the tree, and
    /// where the contents are.
    pub fn take_aside(&self) -> Vec<(String, PathBuf)> {
        std::mem::take(&mut *self.0.aside.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// What a pull of everything would do now. Reads the store, and changes nothing.
    pub async fn preview(&self) -> Result<Preview> {
        Box::pin(self.0.preview()).await
    }
}

impl Inner {
    fn by_hand(&self) -> Result<Vec<ByHand>> {
        let now = self.env.now();
        let mut found = Vec::new();
        for path in self.tree.walk()? {
            let at = self.tree.root().join(&path);
            let Ok(meta) = fs::symlink_metadata(&at) else { continue };
            let parsed = path.parse::<ItemPath>().ok();
            let (item, noted) = match &parsed {
                Some(path) => self.db.read(|tx| Ok((db::claimant(tx, path)?, is_noted(tx, path)?)))?,
                None => (None, false),
            };
            // What a pull has not caught up with yet is not somebody's work.
            if noted {
                continue;
            }
            if let Some(item) = &item
                && meta.is_file()
                && meta.len() == item.row.size
                && self.is_as_recorded(item, &meta, now)?
            {
                continue;
            }
            found.push(ByHand { path, item, size: meta.len() });
        }
        Ok(found)
    }

    /// Whether a file of the right size has the recorded content. Size and time only save reading it again.
    fn is_as_recorded(&self, item: &Item, meta: &fs::Metadata, now: Timestamp) -> Result<bool> {
        let written = meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let nanos = written.and_then(|written| i64::try_from(written.as_nanos()).ok());
        let path = item.path.as_str();
        if let Some(nanos) = nanos
            && self.db.read(|tx| was_checked(tx, path, nanos, &item.row.hash))?
        {
            return Ok(true);
        }
        if !self.tree.matches(item)? {
            return Ok(false);
        }
        if let Some(nanos) = nanos.filter(|nanos| now.as_millis() - nanos / 1_000_000 > RACY_MS) {
            self.db.write(|tx| checked(tx, path, nanos, &item.row.hash))?;
        }
        Ok(true)
    }

    /// Puts aside what lies where a file is to be written or removed, unless it is what was there before or what is to come.
    pub(crate) fn make_way(&self, todo: &db::Todo, next: Option<&Item>) -> Result<()> {
        if db::is_lease(&todo.path) {
            return Ok(());
        }
        match self.tree.hash(&todo.path)? {
            None => Ok(()),
            Some(found) if Some(found) == todo.was || next.is_some_and(|next| next.row.hash == found) => Ok(()),
            Some(_) => self.put_aside(&todo.path),
        }
    }

    /// Moves a file of the tree out of the way, and tells where it is.
    pub(crate) fn put_aside(&self, path: &ItemPath) -> Result<()> {
        let from = self.tree.at(path);
        if !fs::symlink_metadata(&from).is_ok_and(|meta| meta.is_file()) {
            return Ok(());
        }
        let folder = self.aside_folder();
        if !repair::move_file(self.tree.root(), &folder, Path::new(path.as_str()))? {
            return Ok(());
        }
        let to = folder.join(path.as_str());
        self.options.reporter.report(Event::PutAside { path: path.as_str(), to: &to });
        let mut aside = self.aside.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        aside.push((path.to_string(), to));
        Ok(())
    }

    /// A folder that nobody has used, for what is to be put aside.
    pub(crate) fn aside_folder(&self) -> PathBuf {
        let number = u32::from_le_bytes(self.env.random_bytes());
        self.options.dir.join(ASIDE).join(format!("{}-{number:08x}", self.env.now().as_millis()))
    }

    async fn preview(&self) -> Result<Preview> {
        let heads = self.db.heads()?;
        let from = heads.position_seq();
        let Some(position) = &heads.position else {
            return Ok(Preview { from, to: self.ledger.head().await?.state.seq, ..Preview::default() });
        };
        let mut preview = Preview { from, to: position.seq, exact: true, ..Preview::default() };
        match self.ledger.follow(position, self.list_due(&heads)).await? {
            peat_ledger::Follow::Unchanged => {}
            peat_ledger::Follow::Jump(state) => preview = Preview { to: state.seq, exact: false, ..preview },
            peat_ledger::Follow::Entries(entries) => {
                let mut last: BTreeMap<(Unit, ItemPath), Option<u64>> = BTreeMap::new();
                for ops in entries.iter().flat_map(|entry| entry.ops.iter().flatten()) {
                    for op in &ops.ops {
                        let (path, size) = match op {
                            peat_ledger::OpRecord::Put(path, _, row) => (path, Some(row.size)),
                            peat_ledger::OpRecord::Delete(path) => (path, None),
                            peat_ledger::OpRecord::Rank(..) => continue,
                        };
                        if !db::is_lease(path) {
                            last.insert((ops.unit.clone(), path.clone()), size);
                        }
                    }
                }
                preview.to = entries.last().map_or(preview.to, |entry| entry.state.seq);
                for ((unit, path), size) in last {
                    match size {
                        Some(size) => preview.puts.push((unit, path, size)),
                        None => preview.deletes.push((unit, path)),
                    }
                }
            }
        }
        Ok(preview)
    }
}

fn was_checked(tx: &Transaction<'_>, path: &str, nanos: i64, hash: &Hash) -> Result<bool> {
    let mut statement =
        tx.prepare_cached("SELECT 1 FROM checked WHERE path = ?1 AND nanos = ?2 AND hash = ?3").map_err(sql)?;
    let found = statement.query_row(rusqlite::params![path, nanos, hash.as_bytes()], |_| Ok(())).optional();
    Ok(found.map_err(sql)?.is_some())
}

fn checked(tx: &Transaction<'_>, path: &str, nanos: i64, hash: &Hash) -> Result<()> {
    let mut statement =
        tx.prepare_cached("INSERT OR REPLACE INTO checked(path, nanos, hash) VALUES (?1, ?2, ?3)").map_err(sql)?;
    statement.execute(rusqlite::params![path, nanos, hash.as_bytes()]).map(drop).map_err(sql)
}

fn is_noted(tx: &Transaction<'_>, path: &ItemPath) -> Result<bool> {
    let mut statement = tx.prepare_cached("SELECT 1 FROM todo WHERE path = ?1").map_err(sql)?;
    Ok(statement.query_row([path.as_str()], |_| Ok(())).optional().map_err(sql)?.is_some())
}
