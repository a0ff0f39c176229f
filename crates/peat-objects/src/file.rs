//! Objects as files of one folder, safe between processes.
//!
//! A create writes a temporary file, syncs it and gives it its name by a hard link, which fails when the name is taken;
//! a put renames instead. Both then sync the folder. Whoever waits for the disk does so on a thread of its own, so that
//! many wait together: a disk makes thirty files durable in hardly more time than one. What is short blocks in line.

mod layout;
mod walk;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{Env, Error, Kind, Result, Timestamp};
use tokio::runtime::Handle;

use crate::key::{check_key, check_list};
use crate::{Created, List, Meta, Object, Page, Range, Store, StoreUrl};

/// How sure a write is when it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power failure.
    #[default]
    Full,
    /// It survives a crash of the process only. For tests and throw-away stores.
    Process,
}

/// A read of more bytes than this may take a while.
const LONG: u64 = 64 << 10;
/// Age of a temporary file that nobody writes any more.
const LEFT_OVER: Duration = Duration::from_secs(24 * 3600);

/// An object store in a folder. Fails when the folder is missing, because an unmounted disk must not look like an empty
/// store.
///
/// With [`Durability::Full`] a request whose future is dropped is carried out all the same, as one that is on its way to a
/// server: its outcome is unknown.
#[derive(Clone)]
pub struct FileStore {
    root: PathBuf,
    durability: Durability,
    env: Env,
    swept: Arc<AtomicBool>,
    /// Whether this file system has no hard links, so that names are given by renames.
    renames: Arc<AtomicBool>,
}

impl FileStore {
    /// The store in the folder `root`. Nothing is looked at or created yet.
    pub fn new(root: impl Into<PathBuf>, durability: Durability, env: &Env) -> Self {
        Self { root: root.into(), durability, env: env.clone(), swept: Arc::default(), renames: Arc::default() }
    }

    /// Makes the folder of the store, as setup does. It may exist.
    ///
    /// # Errors
    /// Those of [`Error::io`].
    pub fn init(&self) -> Result<()> {
        fs::create_dir_all(&self.root).map_err(|e| Error::io("make the folder of the store", &self.root, e))
    }

    /// Does what waits for the disk on another thread; what need not be durable hardly waits.
    async fn aside<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> Result<T> + Send + 'static) -> Result<T> {
        let (Durability::Full, Ok(runtime)) = (self.durability, Handle::try_current()) else { return work(self) };
        let store = self.clone();
        let done = runtime.spawn_blocking(move || work(&store)).await;
        done.map_err(|e| Error::internal("a thread of the store came to an end").with_source(e))?
    }

    fn path(&self, key: &str) -> Result<PathBuf> {
        check_key(key)?;
        Ok(self.root.join(layout::path_of(key)))
    }

    /// A missing file says something about a key only while the folder of the store is there.
    fn check_root(&self) -> Result<()> {
        match fs::metadata(&self.root) {
            Ok(meta) if meta.is_dir() => Ok(()),
            Ok(_) => Err(Error::invalid(format!("{self} is not a folder"))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // Like a bucket that cannot be reached: most often its disk is not mounted.
                Err(Error::new(Kind::Offline, format!("the folder of the store {self} does not exist"))
                    .with_code("store_missing")
                    .with_hint("mount its disk, or restore it from a backup"))
            }
            Err(e) => Err(Error::io("look at the folder of the store", &self.root, e)),
        }
    }

    /// Writes `body` to a fresh temporary file that no listing shows.
    fn write_temp(&self, body: &[u8]) -> Result<Temp> {
        self.check_root()?;
        let folder = self.root.join(layout::TEMP_FOLDER);
        let name = u128::from_le_bytes(self.env.random_bytes());
        let temp = Temp(folder.join(format!("{name:032x}")));
        let mut file = match File::create_new(&temp.0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.make_folders(&folder)?;
                File::create_new(&temp.0)
            }
            other => other,
        }
        .map_err(|e| Error::io("write", &temp.0, e))?;
        if !self.swept.swap(true, Ordering::Relaxed)
            && let Ok(now) = file.metadata().and_then(|meta| meta.modified())
        {
            sweep(&folder, now);
        }
        file.write_all(body).map_err(|e| Error::io("write", &temp.0, e))?;
        if self.durability == Durability::Full {
            file.sync_all().map_err(|e| Error::io("sync", &temp.0, e))?;
        }
        Ok(temp)
    }

    /// Makes a folder below the root and the missing ones above it, each durable before something is put into it.
    fn make_folders(&self, folder: &Path) -> Result<()> {
        match fs::create_dir(folder) {
            Ok(()) => self.sync_folder_of(folder),
            // Somebody else may have made it a moment ago without having synced it yet.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.sync_folder_of(folder),
            Err(e) if e.kind() == io::ErrorKind::NotFound && folder != self.root => {
                self.check_root()?;
                self.make_folders(folder.parent().unwrap_or(&self.root))?;
                self.make_folders(folder)
            }
            Err(e) => Err(Error::io("make the folder", folder, e)),
        }
    }

    fn sync_folder_of(&self, path: &Path) -> Result<()> {
        let Some(folder) = path.parent().filter(|_| self.durability == Durability::Full) else { return Ok(()) };
        File::open(folder).and_then(|f| f.sync_all()).map_err(|e| Error::io("sync the folder", folder, e))
    }

    /// Gives a temporary file its name with `step`, making the folder when it is missing.
    fn publish(&self, path: &Path, step: impl Fn() -> io::Result<()>) -> Result<io::Result<()>> {
        match step() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.make_folders(path.parent().unwrap_or(&self.root))?;
                Ok(step())
            }
            other => Ok(other),
        }
    }

    /// A link fails when the name exists. Where the file system has no hard links, a rename that does not replace is the
    /// same step.
    fn name_exclusively(&self, temp: &Path, path: &Path) -> io::Result<()> {
        let Err(e) = fs::hard_link(temp, path) else { return Ok(()) };
        let no_links = matches!(
            e.raw_os_error().map(rustix::io::Errno::from_raw_os_error),
            Some(rustix::io::Errno::PERM | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS)
        );
        if !no_links {
            return Err(e);
        }
        self.renames.store(true, Ordering::Relaxed);
        #[cfg(any(target_os = "linux", target_vendor = "apple"))]
        match rustix::fs::renameat_with(
            rustix::fs::CWD,
            temp,
            rustix::fs::CWD,
            path,
            rustix::fs::RenameFlags::NOREPLACE,
        ) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::EXIST) => return Err(rustix::io::Errno::EXIST.into()),
            Err(_) => {}
        }
        Err(e)
    }
}

/// A temporary file, removed at the end unless it was renamed away.
struct Temp(PathBuf);

impl Drop for Temp {
    fn drop(&mut self) {
        // What cannot be removed is a stray file that nobody reads.
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes the temporary files of writers that were killed long before `now`, by the clock of the file system. Should one
/// of them live after all, its write fails without having had an effect.
fn sweep(folder: &Path, now: SystemTime) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let written = entry.metadata().and_then(|meta| meta.modified()).ok();
        if written.and_then(|written| now.duration_since(written).ok()).is_some_and(|age| age > LEFT_OVER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether the system definitely said that there is no such file. A file in the place of a folder says so too.
fn absent(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
}

/// The disk keeps times of its own; there is no server whose clock could be compared with them.
fn meta_of(meta: &fs::Metadata) -> Meta {
    Meta { date: None, last_modified: meta.modified().ok().and_then(timestamp) }
}

fn read(path: &Path, range: Range) -> io::Result<Object> {
    let mut file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let span = range.resolve(meta.len());
    let wanted = span.end - span.start;
    let mut bytes = Vec::with_capacity(usize::try_from(wanted).unwrap_or(0));
    file.seek(SeekFrom::Start(span.start))?;
    file.take(wanted).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != wanted {
        // Objects never change under their name, so somebody else cut this file.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Object { bytes: bytes.into(), size: meta.len(), meta: meta_of(&meta) })
}

#[async_trait]
impl Store for FileStore {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        let path = self.path(key)?;
        let get = move |store: &Self| match read(&path, range) {
            Ok(object) => Ok(Some(object)),
            Err(e) if absent(&e) => store.check_root().map(|()| None),
            Err(e) => Err(Error::io("read", &path, e)),
        };
        match range {
            Range::Part { len, .. } | Range::Last { len } if len <= LONG => get(self),
            _ => self.aside(get).await,
        }
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        let path = self.path(key)?;
        self.aside(move |store| {
            // Whoever comes late need not write and sync what it cannot name. A rename is tried all the same: whether it
            // replaces is what the probe has to find out, and no system says so.
            if !store.renames.load(Ordering::Relaxed) && fs::symlink_metadata(&path).is_ok() {
                return Ok(Created::Exists);
            }
            let temp = store.write_temp(&body)?;
            match store.publish(&path, || store.name_exclusively(&temp.0, &path))? {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(Created::Exists),
                Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
                    return Err(Error::new(Kind::Unsupported, format!("cannot link {} into place", path.display()))
                        .with_hint("the file system of a store must support hard links: use another disk")
                        .with_source(e));
                }
                Err(e) => return Err(Error::io("create", &path, e)),
            }
            store.sync_folder_of(&path)?;
            Ok(Created::Created(Meta::default()))
        })
        .await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        let path = self.path(key)?;
        self.aside(move |store| {
            let temp = store.write_temp(&body)?;
            store.publish(&path, || fs::rename(&temp.0, &path))?.map_err(|e| Error::io("write", &path, e))?;
            store.sync_folder_of(&path)?;
            Ok(Meta::default())
        })
        .await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        check_list(list)?;
        let page = walk::page(&self.root, list)?;
        if page == Page::default() {
            self.check_root()?;
        }
        Ok(page)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        self.aside(move |store| match fs::remove_file(&path) {
            Ok(()) => store.sync_folder_of(&path),
            Err(e) if absent(&e) => store.check_root(),
            Err(e) => Err(Error::io("remove", &path, e)),
        })
        .await
    }
}

impl fmt::Display for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        StoreUrl::File { root: self.root.clone() }.fmt(f)
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore")
            .field("root", &self.root)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}
