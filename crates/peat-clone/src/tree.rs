//! The materialised tree: derived, readable with ordinary tools, never a source of truth. A file is there whole and with
//! the right content, or it is repaired when somebody asks for it.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use peat_types::{Env, Error, Hash, ItemPath, Result};

use crate::Item;
use crate::files;

/// The folder.
pub(crate) struct Tree {
    root: PathBuf,
}

/// What is at an item's place, judged without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Glance {
    Missing,
    OtherSize,
    SameSize,
}

impl Tree {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn at(&self, path: &ItemPath) -> PathBuf {
        // Segments hold no separator of any platform, no `..` and no drive (invariant P).
        path.segments().fold(self.root.clone(), |at, segment| at.join(segment))
    }

    /// The content of an item, if the file holds exactly that.
    pub(crate) fn read(&self, item: &Item) -> Result<Option<Bytes>> {
        if self.glance(item)? != Glance::SameSize {
            return Ok(None);
        }
        let bytes = files::read(&self.at(&item.path))?;
        Ok(bytes.filter(|bytes| Hash::of(bytes) == item.row.hash).map(Bytes::from))
    }

    pub(crate) fn glance(&self, item: &Item) -> Result<Glance> {
        let at = self.at(&item.path);
        match fs::symlink_metadata(&at) {
            Ok(meta) if meta.is_file() && meta.len() == item.row.size => Ok(Glance::SameSize),
            Ok(_) => Ok(Glance::OtherSize),
            Err(e) if files::absent(&e) => Ok(Glance::Missing),
            Err(e) => Err(Error::io("read", &at, e)),
        }
    }

    /// Makes the content visible. Verified first, whoever brought it.
    pub(crate) fn write(&self, env: &Env, item: &Item, bytes: &Bytes) -> Result<()> {
        if Hash::of(bytes) != item.row.hash {
            return Err(Error::damaged(format!("the content of {} does not have its recorded hash", item.path))
                .with_hint("run 'peat ledger verify --deep'"));
        }
        let at = self.at(&item.path);
        let dir = at.parent().unwrap_or(&self.root);
        match fs::symlink_metadata(&at) {
            // Foreign things in the way of an item lose against it, but a folder with files in it is not ours to remove.
            Ok(meta) if meta.is_dir() => fs::remove_dir(&at).map_err(|e| Error::io("replace", &at, e))?,
            Ok(_) => {}
            Err(_) => fs::create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?,
        }
        // No sync: after a power cut the file may be wrong, and then it is repaired like any other damage.
        files::write_atomic(env, &self.root.with_file_name(files::TEMP), &at, &[bytes], false, item.row.executable)
    }

    /// Removes the file of an item that was removed, and folders that are empty then.
    pub(crate) fn remove(&self, path: &ItemPath) -> Result<()> {
        let at = self.at(path);
        if fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir()) {
            return Ok(());
        }
        files::remove(&at)?;
        let mut dir = at.parent();
        while let Some(at) = dir.filter(|dir| *dir != self.root && fs::remove_dir(dir).is_ok()) {
            dir = at.parent();
        }
        Ok(())
    }

    /// Every file below the root as a path of the tree; names that are no item paths come as they are.
    pub(crate) fn walk(&self) -> Result<Vec<String>> {
        let mut out = Vec::new();
        let mut dirs = vec![(self.root.clone(), String::new())];
        while let Some((dir, prefix)) = dirs.pop() {
            let fail = |e| Error::io("list", &dir, e);
            for entry in fs::read_dir(&dir).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
                if entry.file_type().map_err(fail)?.is_dir() {
                    dirs.push((entry.path(), format!("{name}/")));
                } else {
                    out.push(name);
                }
            }
        }
        out.sort_unstable();
        Ok(out)
    }
}
