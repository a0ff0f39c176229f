//! Putting a clone in order: what the doctor showed, and nothing else.

use std::path::{Component, Path};

use peat_types::{Error, ItemPath, Result};

use crate::db;
use crate::files;
use crate::handle::Inner;
use crate::sync::LOST;
use crate::tree::Glance;
use crate::{Item, Local, Repair};

impl Inner {
    /// What was done, one line each. Whatever was put right meanwhile is left alone.
    pub(crate) async fn carry_out(&self, repairs: &[Repair]) -> Result<Vec<String>> {
        let mut done = Vec::new();
        for repair in repairs {
            match repair {
                Repair::Tree { missing, altered, foreign } => {
                    // First, for they may lie where an item belongs.
                    let (moved, behind) = self.move_aside(foreign)?;
                    done.extend(moved);
                    done.extend(self.write_again(missing.iter().chain(altered).chain(&behind)).await?);
                }
                Repair::Settle => {
                    let settled = self.settle().await?;
                    let (sent, freed) = (settled.committed.len(), settled.interrupted.len());
                    if sent > 0 {
                        done.push(format!("committed {}", many(sent, "change")));
                    }
                    if freed > 0 {
                        done.push(format!("ended {} of processes that are gone", many(freed, "run")));
                    }
                }
            }
        }
        Ok(done)
    }

    async fn write_again(&self, wrong: impl Iterator<Item = &Item>) -> Result<Option<String>> {
        let mut written = 0_usize;
        for item in wrong {
            // It moved on, or somebody read it, since the doctor looked.
            if self.is_current(item)? && !self.tree.matches(item)? {
                match self.file(item).await {
                    // Named by what was found in the store; nothing can be done about it here.
                    Err(error) if error.code() == LOST => continue,
                    file => file?,
                };
                written += 1;
            }
        }
        Ok((written > 0).then(|| format!("wrote {} again", many(written, "file"))))
    }

    /// Gives what was done, and the items whose files were seen behind something that was moved, a link to a folder: they
    /// are missing now, and nobody removed them.
    fn move_aside(&self, foreign: &[String]) -> Result<(Option<String>, Vec<Item>)> {
        let folder = self.aside_folder();
        let (mut moved, mut behind) = (0_usize, Vec::new());
        for name in foreign {
            let relative = Path::new(name);
            let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
            let item = name.parse::<ItemPath>().ok();
            let claimed = match &item {
                Some(path) => self.db.read(|tx| db::claimant(tx, path))?.is_some(),
                None => false,
            };
            if plain && !claimed {
                moved += usize::from(move_file(self.tree.root(), &folder, relative)?);
                self.db.read(|tx| {
                    for item in db::below(tx, name)? {
                        if db::is_placed(tx, item.path.as_str())? {
                            behind.push(item);
                        }
                    }
                    Ok(())
                })?;
            }
        }
        let files = many(moved, "file");
        Ok(((moved > 0).then(|| format!("moved {files} out of the tree, to {}", folder.display())), behind))
    }

    /// How much is here, by names and sizes.
    pub(crate) fn local_share(&self) -> Result<Local> {
        let mut sum = Local::default();
        for unit in self.db.units()? {
            for item in
                self.db.read(|tx| db::items(tx, &unit.unit, ""))?.iter().filter(|item| !db::is_lease(&item.path))
            {
                sum.items += 1;
                sum.bytes += item.row.size;
                if matches!(item.row.content, peat_ledger::Content::Tiny(_))
                    || self.tree.glance(item)? == Glance::SameSize
                {
                    sum.local_items += 1;
                    sum.local_bytes += item.row.size;
                }
            }
        }
        Ok(sum)
    }
}

/// So many of something, in words.
pub(crate) fn many(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Moves a file of the tree to another folder, and removes the folders it was in as far as they are empty now. Whether it
/// was still there.
pub(crate) fn move_file(root: &Path, aside: &Path, relative: &Path) -> Result<bool> {
    let (from, to) = (root.join(relative), aside.join(relative));
    let folder = to.parent().unwrap_or(aside);
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    match std::fs::rename(&from, &to) {
        Ok(()) => {}
        Err(e) if files::absent(&e) => return Ok(false),
        Err(e) => return Err(Error::io("move", &from, e)),
    }
    let mut dir = from.parent();
    while let Some(at) = dir.filter(|dir| *dir != root && std::fs::remove_dir(dir).is_ok()) {
        dir = at.parent();
    }
    Ok(true)
}
