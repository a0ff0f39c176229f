//! What opening finds in the tree: a new index knows nothing of the files that lie there.

use peat_types::{ItemPath, Result};

use super::heads::{get_json, set_json};
use super::{Db, note, sql};
use crate::files;
use crate::tree::Tree;

/// Device and inode of the tree when it was looked at; none on systems without them.
type Root = Option<(u64, u64)>;

const ROOT: &str = "tree";

impl Db {
    /// Notes in a new index every file of the tree. The next pull of everything compares them. The caller holds the
    /// lock of the folder.
    pub(super) fn meet(&self, tree: &Tree) -> Result<()> {
        let now: Root = files::folder_id(tree.root())?;
        match self.read(|tx| get_json::<Root>(tx, ROOT))? {
            Some(_) => Ok(()),
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

    /// Whether files lie in the tree that were there before the index was, and that no pull has compared with it yet.
    pub(crate) fn is_unread(&self) -> Result<bool> {
        self.read(|tx| {
            tx.query_row("SELECT EXISTS(SELECT 1 FROM todo WHERE unit IS NULL)", [], |row| row.get(0)).map_err(sql)
        })
    }
}
