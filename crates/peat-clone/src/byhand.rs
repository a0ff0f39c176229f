//! What people changed in the tree by hand. It is found by content, and stays theirs: nothing of it is committed unless they
//! ask, and a pull puts aside what it would overwrite.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use peat_types::{Error, Hash, ItemPath, Result, Seq, Unit};

use crate::db;
use crate::handle::Inner;
use crate::sync::WINDOW;
use crate::{Aside, Event, Hydration, Item, LocalClone, journal, repair};

/// Folder for what has to give way, and for what the doctor found in the tree that belongs to no item.
const ASIDE: &str = "aside";
/// A file that was written so lately could be written again without its time showing it.
const RACY_MS: i64 = 2_000;

/// What people did to the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByHand {
    /// Files that were changed or added, by path.
    pub changed: Vec<HandFile>,
    /// Items whose file this clone had put there, and somebody removed, by path. What was never put there is not among them:
    /// that it is not there says nothing.
    pub missing: Vec<Item>,
}

/// A file of the tree that is not what the index says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandFile {
    /// Its path in the tree. Not every name of a file can be an item.
    pub path: String,
    /// The item it was, unless it is new.
    pub item: Option<Item>,
    /// Its size in bytes.
    pub size: u64,
}

/// What changes of the journal were made from, read when it is asked for: a change stays there until its files were seen to.
#[derive(Default)]
pub(crate) struct Sent(OnceCell<BTreeMap<ItemPath, Vec<Option<Hash>>>>);

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
    /// Other files that would be brought (back) into the tree, as their number and bytes.
    pub restores: (u64, u64),
}

impl LocalClone {
    /// What was changed, added and removed in the tree by hand. None of it is a change of the ledger by itself. No request.
    pub fn by_hand(&self) -> Result<ByHand> {
        self.0.by_hand()
    }

    /// What of that is still so: what was committed meanwhile, put aside or brought back is not. Looks only at what is named.
    /// No request.
    ///
    /// # Errors
    /// Those of reading files and the index.
    pub fn still_by_hand(&self, before: &ByHand) -> Result<ByHand> {
        let paths: Vec<String> = before.changed.iter().map(|file| file.path.clone()).collect();
        let changed = self.0.changed_among(&paths)?;
        let missing = before.missing.iter().map(|item| self.0.removed(item.path.as_str(), item.row.hash));
        Ok(ByHand { changed, missing: missing.filter_map(Result::transpose).collect::<Result<_>>()? })
    }

    /// Whether the file of an item is not here, and this clone never put it here: a lazy one has not read it.
    ///
    /// # Errors
    /// Those of reading folders and the index.
    pub fn was_never_here(&self, item: &Item) -> Result<bool> {
        let placed = self.0.db.read(|tx| db::is_placed(tx, item.path.as_str()))?;
        Ok(!placed && self.0.removed(item.path.as_str(), item.row.hash)?.is_some())
    }

    /// Whether files lie in the tree that were there before `state.db` was built anew, and that no pull has compared with
    /// the ledger yet. What they are is not known: [`by_hand`](Self::by_hand) leaves them out.
    pub fn is_unread(&self) -> Result<bool> {
        self.0.db.is_unread()
    }

    /// Whether files that this clone had put into the tree went away with its folder, and no pull has brought them back
    /// yet. That they are not there says nothing.
    pub fn is_lost(&self) -> Result<bool> {
        self.0.db.is_lost()
    }

    /// The folder in which files are kept that had to give way, or that the doctor moved out of the tree; `None` when there
    /// are none.
    pub fn kept_aside(&self) -> Option<PathBuf> {
        let dir = self.0.options.dir.join(ASIDE);
        fs::read_dir(&dir).is_ok_and(|mut names| names.next().is_some()).then_some(dir)
    }

    /// What was put aside since this was asked last, because it was changed by hand and in the ledger: paths in the tree, and
    /// where the contents are.
    pub fn take_aside(&self) -> Vec<(String, PathBuf)> {
        std::mem::take(&mut *self.0.aside.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// What others changed that came to this process without being pulled, as items and bytes that became local: settling
    /// looks at the head, too.
    pub fn arrived(&self) -> (u64, u64) {
        *self.0.arrived.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What a pull of everything would do now. Reads the store, and changes nothing.
    pub async fn preview(&self) -> Result<Preview> {
        Box::pin(self.0.preview()).await
    }
}

impl Inner {
    fn by_hand(&self) -> Result<ByHand> {
        let paths = self.tree.walk()?;
        let changed = self.changed_among(&paths)?;
        let mut removed = Vec::new();
        self.db.read(|tx| {
            db::all_placed(tx, &mut |path, hash| {
                if paths.binary_search_by(|other| other.as_str().cmp(path)).is_err() {
                    removed.push((path.to_owned(), hash));
                }
            })
        })?;
        let missing = removed.into_iter().map(|(path, hash)| self.removed(&path, hash));
        Ok(ByHand { changed, missing: missing.filter_map(Result::transpose).collect::<Result<_>>()? })
    }

    /// Which of these files are not what the index says. Size and time only save reading them again.
    fn changed_among(&self, paths: &[String]) -> Result<Vec<HandFile>> {
        let now = self.env.now();
        let (mut changed, mut unsure) = (Vec::new(), Vec::new());
        self.db.read(|tx| {
            for path in paths {
                let Ok(meta) = fs::symlink_metadata(self.tree.root().join(path)) else { continue };
                let (mut item, size) = (None, meta.len());
                if let Ok(path) = path.parse::<ItemPath>() {
                    // What a pull has not caught up with yet is not somebody's work.
                    if db::is_noted(tx, &path)? {
                        continue;
                    }
                    item = db::claimant(tx, &path)?;
                }
                let same = item.as_ref().filter(|item| meta.is_file() && size == item.row.size);
                let Some(same) = same else {
                    changed.push(HandFile { path: path.clone(), item, size });
                    continue;
                };
                let nanos = nanos(&meta);
                let seen = nanos.map(|nanos| db::was_checked(tx, same, nanos)).transpose()?;
                if seen != Some(true) {
                    unsure.push((same.clone(), nanos));
                }
            }
            Ok(())
        })?;
        let mut right = Vec::new();
        for (item, nanos) in unsure {
            if !self.tree.matches(&item)? {
                let size = item.row.size;
                changed.push(HandFile { path: item.path.to_string(), item: Some(item), size });
            } else if let Some(nanos) = nanos.filter(|nanos| now.as_millis() - nanos / 1_000_000 > RACY_MS) {
                right.push((item, nanos));
            }
        }
        changed.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        if !right.is_empty() {
            self.db.write(|tx| right.iter().try_for_each(|(item, nanos)| db::checked(tx, item, *nanos)))?;
        }
        Ok(changed)
    }

    /// The item whose file was put at `path` with this hash and certainly is not there any more.
    fn removed(&self, path: &str, hash: Hash) -> Result<Option<Item>> {
        let Ok(path) = path.parse::<ItemPath>() else { return Ok(None) };
        let item = self.db.read(|tx| {
            let noted = db::is_noted(tx, &path)?;
            Ok(db::claimant(tx, &path)?.filter(|item| !noted && item.row.hash == hash))
        })?;
        let Some(item) = item else { return Ok(None) };
        let at = self.tree.at(&path);
        match fs::symlink_metadata(&at) {
            // Only a definite answer says that it is gone.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Some(item)),
            Err(e) if e.kind() != ErrorKind::NotADirectory => Err(Error::io("read", &at, e)),
            _ => Ok(None),
        }
    }

    /// Puts aside what lies where a file is to be written or removed, unless it is what was there before or what is to come.
    /// Gives whether the place is free: what was made from the state that is to come is newer than that, and stays.
    pub(crate) fn make_way(&self, todo: &db::Todo, next: Option<&Item>, sent: &Sent) -> Result<bool> {
        if db::is_lease(&todo.path) {
            return Ok(true);
        }
        if self.tree.obstacle(&todo.path).is_some() {
            return if next.is_some() { self.clear_way(&todo.path).map(|()| true) } else { Ok(true) };
        }
        let next = next.map(|next| next.row.hash);
        match self.tree.hash(&todo.path)? {
            None => Ok(true),
            found if found == todo.was || found == next => Ok(true),
            Some(_) if self.is_newer(&todo.path, next, sent) => Ok(false),
            Some(_) => {
                let why = if todo.was.is_some() { Aside::Changed } else { Aside::Unknown };
                self.put_aside(&todo.path, why).map(|()| true)
            }
        }
    }

    /// Whether the file of a path was changed again after a change of this machine had been made from it that the ledger
    /// holds now.
    fn is_newer(&self, path: &ItemPath, next: Option<Hash>, sent: &Sent) -> bool {
        let sent = sent.0.get_or_init(|| {
            let mut sent: BTreeMap<ItemPath, Vec<Option<Hash>>> = BTreeMap::new();
            let rows = self.journal.ids().unwrap_or_default().into_iter();
            for (row, state) in rows.filter_map(|id| self.journal.read(id).ok().flatten()) {
                for (path, held) in self.planner.made_from(&journal::change(&row, &state)) {
                    sent.entry(path).or_default().push(held);
                }
            }
            sent
        });
        sent.get(path).is_some_and(|held| held.contains(&next))
    }

    /// Puts aside what is no folder and stands where one of a file has to be, and a link in the place of the file.
    pub(crate) fn clear_way(&self, path: &ItemPath) -> Result<()> {
        while let Some(name) = self.tree.obstacle(path) {
            if !self.set_aside(&name, Aside::Unknown)? {
                break;
            }
        }
        Ok(())
    }

    /// Moves a file of the tree out of the way, and tells where it is.
    pub(crate) fn put_aside(&self, path: &ItemPath, why: Aside) -> Result<()> {
        if !fs::symlink_metadata(self.tree.at(path)).is_ok_and(|meta| meta.is_file()) {
            return Ok(());
        }
        self.set_aside(path.as_str(), why).map(drop)
    }

    /// Gives whether it was there.
    fn set_aside(&self, name: &str, why: Aside) -> Result<bool> {
        let folder = self.aside_folder();
        if !repair::move_file(self.tree.root(), &folder, Path::new(name))? {
            return Ok(false);
        }
        let to = folder.join(name);
        self.options.reporter.report(Event::PutAside { why, path: name, to: &to });
        let mut aside = self.aside.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        aside.push((name.to_owned(), to));
        Ok(true)
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
        preview.restores = self.left_out(&preview)?;
        Ok(preview)
    }

    /// Files that are noted and not here, besides those that a pull would set or remove anyway.
    fn left_out(&self, preview: &Preview) -> Result<(u64, u64)> {
        if self.options.hydration == Hydration::Lazy {
            return Ok((0, 0));
        }
        let set = preview.puts.iter().map(|(_, path, _)| path);
        let changed: BTreeSet<&ItemPath> = set.chain(preview.deletes.iter().map(|(_, path)| path)).collect();
        let (mut files, mut bytes) = (0, 0);
        for ids in self.db.todo_by_place(None, 0)?.chunks(WINDOW) {
            for todo in self.db.todo(ids)? {
                let item = self.db.read(|tx| db::claimant(tx, &todo.path))?;
                let counts = |item: &Item| !db::is_lease(&item.path) && !changed.contains(&item.path);
                if let Some(item) = item.filter(counts)
                    && !self.is_here(&item)?
                {
                    (files, bytes) = (files + 1, bytes + item.row.size);
                }
            }
        }
        Ok((files, bytes))
    }
}

/// When a file was written, in nanoseconds since 1970.
fn nanos(meta: &fs::Metadata) -> Option<i64> {
    let written = meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    written.and_then(|written| i64::try_from(written.as_nanos()).ok())
}
