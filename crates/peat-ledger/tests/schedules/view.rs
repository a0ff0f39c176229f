//! All units as somebody has read them: the simplest thing that operations can be applied to.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher};

use bytes::Bytes;
use peat_ledger::{Entry, FileRow, OpRecord, Rank, UnitOps, format};
use peat_types::{Hash, ItemPath, Unit};
use setsum::Setsum;

/// A file as replayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct File {
    pub rank: Rank,
    pub size: u64,
    pub hash: Hash,
    pub executable: bool,
}

impl File {
    pub fn of(rank: Rank, row: &FileRow) -> Self {
        Self { rank, size: row.size, hash: row.hash, executable: row.executable }
    }

    pub fn setsum(&self, unit: &Unit, path: &ItemPath) -> Setsum {
        let content = peat_ledger::Content::Tiny(Bytes::new());
        format::setsum_of(
            unit,
            path,
            &FileRow { executable: self.executable, size: self.size, hash: self.hash, content },
        )
    }
}

/// Files of one unit.
pub type Files = BTreeMap<ItemPath, File>;

/// All units, as far as somebody has read.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub units: BTreeMap<Unit, Files>,
}

/// What a row replaced, and what it is now.
pub type Changed<'a> = (&'a Unit, ItemPath, Option<File>, Option<File>);

impl View {
    pub fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        entry.ops.iter().flatten().try_for_each(|unit| self.apply_unit(unit, &mut |_| Ok(())))
    }

    pub fn apply_unit<'a>(
        &mut self,
        changed: &'a UnitOps,
        see: &mut dyn FnMut(Changed<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        let files = self.units.entry(changed.unit.clone()).or_default();
        for op in &changed.ops {
            let (path, before, after) = match op {
                OpRecord::Put(path, rank, row) => {
                    let file = File::of(*rank, row);
                    (path, files.insert(path.clone(), file.clone()), Some(file))
                }
                OpRecord::Delete(path) => {
                    let file = files.remove(path).ok_or_else(|| format!("A4: {path} is deleted but was not there"))?;
                    (path, Some(file), None)
                }
                OpRecord::Rank(path, rank) => {
                    let file = files.get_mut(path).ok_or_else(|| format!("A4: {path} is ranked but was not there"))?;
                    let before = file.clone();
                    file.rank = *rank;
                    (path, Some(before), Some(file.clone()))
                }
            };
            see((&changed.unit, path.clone(), before, after))?;
        }
        Ok(())
    }

    pub fn digest(&self) -> u64 {
        let parts = self.units.iter().map(|(unit, files)| part_digest(unit, files_digest(files), files.is_empty()));
        parts.fold(0, u64::wrapping_add)
    }
}

pub fn files_digest(files: &Files) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, file) in files {
        (path.as_str(), file).hash(&mut hasher);
    }
    hasher.finish()
}

/// What one unit adds to the digest of a view.
pub fn part_digest(unit: &Unit, files: u64, empty: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    (unit.as_str(), files).hash(&mut hasher);
    if empty { 0 } else { hasher.finish() }
}
