//! The materialised tree: derived, readable with ordinary tools, never a source of truth. A file is there whole and with
//! the right content, or it is repaired when somebody asks for it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use peat_types::{Env, Error, Hash, Hasher, ItemPath, Result};

use crate::Item;
use crate::files;

/// Bytes of a file that are in memory at once, at most, while it is hashed.
const BUFFER: usize = 64 << 10;

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

    /// The hash of what the file at a path holds; `None` when there is none.
    pub(crate) fn hash(&self, path: &ItemPath) -> Result<Option<Hash>> {
        let at = self.at(path);
        if !fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_file()) {
            return Ok(None);
        }
        match File::open(&at) {
            Ok(mut file) => hash_of(&mut file, &at, BUFFER as u64).map(Some),
            Err(e) if files::absent(&e) => Ok(None),
            Err(e) => Err(Error::io("read", &at, e)),
        }
    }

    /// Whether the file of an item holds exactly its content. Never all of it in memory.
    pub(crate) fn matches(&self, item: &Item) -> Result<bool> {
        if self.glance(item)? != Glance::SameSize {
            return Ok(false);
        }
        let at = self.at(&item.path);
        match File::open(&at) {
            Ok(mut file) => Ok(hash_of(&mut file, &at, item.row.size)? == item.row.hash),
            Err(e) if files::absent(&e) => Ok(false),
            Err(e) => Err(Error::io("read", &at, e)),
        }
    }

    /// Some bytes of the file of an item, if it has so many.
    pub(crate) fn slice(&self, item: &Item, offset: u64, len: u64) -> Result<Option<Bytes>> {
        let at = self.at(&item.path);
        let mut file = match File::open(&at) {
            Ok(file) => file,
            Err(e) if files::absent(&e) => return Ok(None),
            Err(e) => return Err(Error::io("read", &at, e)),
        };
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.take(len).read_to_end(&mut bytes));
        read.map_err(|e| Error::io("read", &at, e))?;
        Ok((bytes.len() as u64 == len).then(|| bytes.into()))
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

    /// Whether there is anything at a path. In doubt there is.
    pub(crate) fn holds(&self, path: &ItemPath) -> bool {
        !fs::symlink_metadata(self.at(path)).is_err_and(|e| files::absent(&e))
    }

    /// Makes the content visible. Verified first, whoever brought it.
    pub(crate) fn write(&self, env: &Env, item: &Item, bytes: &Bytes) -> Result<()> {
        if Hash::of(bytes) != item.row.hash {
            return Err(wrong(item));
        }
        let at = self.make_room(item)?;
        // No sync: after a power cut the file may be wrong, and then it is repaired like any other damage.
        files::write_atomic(env, &self.temps(), &at, &[bytes], false, item.row.executable)
    }

    /// Makes a content visible that `fill` writes, verified before it is.
    pub(crate) fn write_from(
        &self,
        env: &Env,
        item: &Item,
        fill: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let at = self.make_room(item)?;
        let mut fill = |file: &mut File| {
            let mut out = Hashing(file, Hasher::default());
            fill(&mut out)?;
            if out.1.finish() == item.row.hash { Ok(()) } else { Err(wrong(item)) }
        };
        files::fill_atomic(env, &self.temps(), &at, &mut fill, false, item.row.executable)
    }

    /// Begins a file whose pieces come in any order.
    pub(crate) fn begin(&self, env: &Env, item: &Item) -> Result<Partial> {
        let (file, path) = files::temp(env, &self.temps())?;
        Ok(Partial { file, path, left: item.row.size })
    }

    /// Makes a file visible that has all of its pieces. The whole is verified once more.
    pub(crate) fn finish(&self, item: &Item, partial: &mut Partial) -> Result<()> {
        let fail = |e| Error::io("read", &partial.path, e);
        partial.file.seek(SeekFrom::Start(0)).map_err(fail)?;
        if hash_of(&mut partial.file, &partial.path, item.row.size)? != item.row.hash {
            return Err(wrong(item));
        }
        let at = self.make_room(item)?;
        files::settle_temp(&partial.file, &partial.path, &at, item.row.executable)
    }

    fn temps(&self) -> PathBuf {
        self.root.with_file_name(files::TEMP)
    }

    /// What stands where a folder of a path has to be and is none, or is a link in its place: no link is followed out of the
    /// tree.
    pub(crate) fn obstacle(&self, path: &ItemPath) -> Option<String> {
        let mut at = self.root.clone();
        let mut name = String::new();
        for segment in path.segments() {
            at.push(segment);
            if !name.is_empty() {
                name.push('/');
            }
            name.push_str(segment);
            let meta = fs::symlink_metadata(&at).ok()?;
            if !meta.is_dir() && (name != path.as_str() || !meta.is_file()) {
                return Some(name);
            }
        }
        None
    }

    /// The place of an item, with its folder and nothing that could not be replaced by a file.
    fn make_room(&self, item: &Item) -> Result<PathBuf> {
        let at = self.at(&item.path);
        let dir = at.parent().unwrap_or(&self.root);
        match fs::symlink_metadata(&at) {
            // Foreign things in the way of an item lose against it, but a folder with files in it is not ours to remove.
            Ok(meta) if meta.is_dir() => fs::remove_dir(&at).map_err(|e| Error::io("replace", &at, e))?,
            Ok(_) => {}
            Err(_) => fs::create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?,
        }
        Ok(at)
    }

    /// Removes the file of an item that was removed, and folders that are empty then.
    pub(crate) fn remove(&self, path: &ItemPath) -> Result<()> {
        let at = self.at(path);
        // What lies behind a link is not ours.
        if self.obstacle(path).is_some() || fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir()) {
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

/// A file that is being put together.
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
    /// Bytes that are still missing.
    left: u64,
}

impl Partial {
    /// Bytes that are still missing.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Adds a piece; gives whether it was the last one.
    pub(crate) fn add(&mut self, offset: u64, bytes: &[u8]) -> Result<bool> {
        let written = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|e| Error::io("write", &self.path, e))?;
        self.left = self.left.saturating_sub(bytes.len() as u64);
        Ok(self.left == 0)
    }

    /// All of it.
    pub(crate) fn read(&mut self) -> Result<Bytes> {
        let mut bytes = Vec::new();
        let read = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.read_to_end(&mut bytes));
        read.map_err(|e| Error::io("read", &self.path, e))?;
        Ok(bytes.into())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Moved to its place already, or of no use to anybody.
        let _ = fs::remove_file(&self.path);
    }
}

/// Hashes what passes.
struct Hashing<'a>(&'a mut File, Hasher);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let len = self.0.write(bytes)?;
        self.1.update(bytes.get(..len).unwrap_or_default());
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// The hash of a file of about so many bytes.
fn hash_of(file: &mut File, path: &Path, size: u64) -> Result<Hash> {
    let buffer = usize::try_from(size).unwrap_or(BUFFER).clamp(1 << 10, BUFFER);
    let (mut hasher, mut buffer) = (Hasher::default(), vec![0; buffer]);
    loop {
        match file.read(&mut buffer).map_err(|e| Error::io("read", path, e))? {
            0 => return Ok(hasher.finish()),
            len => hasher.update(buffer.get(..len).unwrap_or_default()),
        }
    }
}

fn wrong(item: &Item) -> Error {
    Error::damaged(format!("the content of {} does not have its recorded hash", item.path))
        .with_hint("run 'peat ledger verify --deep'")
}
