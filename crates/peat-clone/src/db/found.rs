//! What opening finds in the tree. A new index knows nothing of the files that lie there, and a folder that was removed,
//! replaced or not mounted holds none of those that the index knows: neither is what somebody did to them.

use std::fs;

use peat_types::{ItemPath, Result};
use rusqlite::Transaction;

use super::heads::{clear, get_json, set_json};
use super::{Db, all_placed, claimant, is_lease, items, not_placed, note, sql, units};
use crate::files;
use crate::tree::Tree;
use crate::{Hydration, UnitInfo};

/// Device, inode and birth of the tree when it was looked at; none on systems without them.
type Root = (Option<(u64, u64)>, Option<u64>);

const ROOT: &str = "tree_folder";
const LOST: &str = "tree_lost";
const LAZY: &str = "lazy";

/// The tree is the folder that is there now: it was brought.
pub(super) fn is_here(tx: &Transaction<'_>, tree: &Tree) -> Result<()> {
    set_json(tx, ROOT, &root(tree)?)
}

fn root(tree: &Tree) -> Result<Root> {
    Ok((files::folder_id(tree.root())?, files::folder_born(tree.root())))
}

impl Db {
    /// Notes what was found: in a new index every file of the tree, and in another folder than the one that is known those
    /// files that are not there. The next pull of everything compares them. The caller holds the lock of the folder.
    pub(super) fn meet(&self, tree: &Tree) -> Result<()> {
        let now = root(tree)?;
        match self.read(|tx| get_json::<Root>(tx, ROOT))? {
            Some(known) if known == now => Ok(()),
            Some(_) => self.write(|tx| {
                let mut gone = Vec::new();
                all_placed(tx, &mut |path, _| gone.push(path.to_owned()))?;
                let mut lost = false;
                for path in gone {
                    let Ok(path) = path.parse::<ItemPath>() else { continue };
                    if fs::symlink_metadata(tree.at(&path)).is_ok() {
                        continue;
                    }
                    if let Some(item) = claimant(tx, &path)? {
                        note(tx, Some(&item.unit), &path, None)?;
                    }
                    not_placed(tx, path.as_str())?;
                    lost = true;
                }
                if lost {
                    set_json(tx, LOST, &true)?;
                }
                set_json(tx, ROOT, &now)
            }),
            None => {
                let paths = tree.walk()?;
                self.write(|tx| {
                    // What cannot be an item was not put there by this clone.
                    let mut items = paths.iter().filter_map(|path| path.parse::<ItemPath>().ok());
                    items.try_for_each(|path| note(tx, None, &path, None))?;
                    set_json(tx, ROOT, &now)
                })
            }
        }
    }

    /// Notes what a clone that was lazy until now has not fetched: the next pull of everything does. The caller holds the lock
    /// of the folder.
    pub(super) fn keeps(&self, tree: &Tree, hydration: Hydration) -> Result<()> {
        let lazy = hydration == Hydration::Lazy;
        let was_lazy = self.read(|tx| get_json::<bool>(tx, LAZY))?;
        if was_lazy == Some(lazy) {
            return Ok(());
        }
        self.write(|tx| {
            for UnitInfo { unit, .. } in if was_lazy == Some(true) { units(tx)? } else { Vec::new() } {
                for item in items(tx, &unit, "")? {
                    if !is_lease(&item.path) && fs::symlink_metadata(tree.at(&item.path)).is_err() {
                        note(tx, Some(&unit), &item.path, None)?;
                    }
                }
            }
            set_json(tx, LAZY, &lazy)
        })
    }

    /// Whether files lie in the tree that were there before the index was, and that no pull has compared with it yet.
    pub(crate) fn is_unread(&self) -> Result<bool> {
        self.read(|tx| {
            tx.query_row("SELECT EXISTS(SELECT 1 FROM todo WHERE unit IS NULL)", [], |row| row.get(0)).map_err(sql)
        })
    }

    /// Whether files that this clone had put into the tree went away with the folder, and no pull has brought them back yet.
    pub(crate) fn is_lost(&self) -> Result<bool> {
        self.read(|tx| Ok(get_json(tx, LOST)?.unwrap_or_default()))
    }

    /// The tree was compared with all of the index.
    pub(crate) fn compared(&self) -> Result<()> {
        if self.is_lost()? { self.write(|tx| clear(tx, LOST)) } else { Ok(()) }
    }
}
