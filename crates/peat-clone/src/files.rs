//! Files: complete or not there, and locks that die with their process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use peat_types::{Env, Error, Kind, Result, Timestamp};

/// Longest pause between two tries of a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Name of the folder for temporary files, in the clone's own, so that what a kill leaves behind is found again.
pub(crate) const TEMP: &str = "tmp";
/// Age from which a temporary file that nobody has locked is left over. Only covers the moment between making it and
/// locking it.
const LEFT_OVER_MS: u64 = 600_000;

/// Writes `bytes` under `path` so that a reader sees the old file or the whole new one: temporary file in the folder
/// `temps`, then rename. With `sync` it also survives a power cut.
pub(crate) fn write_atomic(
    env: &Env,
    temps: &Path,
    path: &Path,
    chunks: &[&[u8]],
    sync: bool,
    executable: bool,
) -> Result<()> {
    fill_atomic(env, temps, path, &mut write_chunks(path, chunks), sync, executable)
}

/// As [`write_atomic`], of what `fill` writes.
pub(crate) fn fill_atomic(
    env: &Env,
    temps: &Path,
    path: &Path,
    fill: &mut dyn FnMut(&mut File) -> Result<()>,
    sync: bool,
    executable: bool,
) -> Result<()> {
    write_and_rename(env, temps, path, fill, sync, executable)?;
    if sync { sync_dir(path.parent().unwrap_or(path)) } else { Ok(()) }
}

fn write_chunks(path: &Path, chunks: &[&[u8]]) -> impl FnMut(&mut File) -> Result<()> {
    |file| chunks.iter().try_for_each(|chunk| file.write_all(chunk)).map_err(|e| Error::io("write", path, e))
}

/// As [`write_atomic`], without syncing; the file stays locked until the lock is dropped or the process ends.
pub(crate) fn write_locked(env: &Env, temps: &Path, path: &Path, bytes: &[u8]) -> Result<Lock> {
    write_and_rename(env, temps, path, &mut write_chunks(path, &[bytes]), false, false).map(Lock)
}

fn write_and_rename(
    env: &Env,
    temps: &Path,
    path: &Path,
    fill: &mut dyn FnMut(&mut File) -> Result<()>,
    sync: bool,
    executable: bool,
) -> Result<File> {
    let temp = temp_name(env, temps);
    let written = write_temp(&temp, fill, sync, executable)
        .and_then(|locked| fs::rename(&temp, path).map(|()| locked).map_err(|e| Error::io("write", path, e)));
    if written.is_err() {
        // Half a file is of no use to anybody; when even this fails the doctor finds it.
        let _ = fs::remove_file(&temp);
    }
    written
}

fn write_temp(
    temp: &Path,
    fill: &mut dyn FnMut(&mut File) -> Result<()>,
    sync: bool,
    executable: bool,
) -> Result<File> {
    let fail = |e| Error::io("write", temp, e);
    let mut file = open_temp(temp)?;
    fill(&mut file)?;
    if executable {
        make_executable(&file).map_err(fail)?;
    }
    if sync {
        file.sync_all().map_err(fail)?;
    }
    Ok(file)
}

fn temp_name(env: &Env, temps: &Path) -> PathBuf {
    temps.join(format!("{:016x}", u64::from_le_bytes(env.random_bytes())))
}

fn open_temp(temp: &Path) -> Result<File> {
    let open = || OpenOptions::new().read(true).write(true).create_new(true).open(temp);
    let file = match open() {
        // Somebody cleaned up.
        Err(e) if absent(&e) => temp.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| open()),
        other => other,
    }
    .map_err(|e| Error::io("write", temp, e))?;
    // Where locks do not work the age alone has to tell.
    let _ = file.try_lock();
    Ok(file)
}

/// A temporary file to be filled piece by piece, locked as long as it is open.
pub(crate) fn temp(env: &Env, temps: &Path) -> Result<(File, PathBuf)> {
    let path = temp_name(env, temps);
    Ok((open_temp(&path)?, path))
}

/// Moves a temporary file to its place.
pub(crate) fn settle_temp(file: &File, temp: &Path, path: &Path, executable: bool) -> Result<()> {
    if executable {
        make_executable(file).map_err(|e| Error::io("write", temp, e))?;
    }
    fs::rename(temp, path).map_err(|e| Error::io("write", path, e))
}

/// Removes the temporary files of processes that were killed. What cannot be removed now stays for the next time.
pub(crate) fn sweep(env: &Env, temps: &Path) {
    for path in fs::read_dir(temps).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let Ok(Some(written)) = written(&path) else { continue };
        let age = env.now().as_millis().abs_diff(written.as_millis());
        if age > LEFT_OVER_MS && matches!(Lock::try_existing(&path), Ok(Some(_))) {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(unix)]
fn make_executable(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata()?.permissions().mode();
    file.set_permissions(fs::Permissions::from_mode(mode | ((mode & 0o444) >> 2)))
}

#[cfg(not(unix))]
fn make_executable(_: &File) -> std::io::Result<()> {
    Ok(())
}

/// Device and inode of a folder, where there are such.
#[cfg(unix)]
pub(crate) fn folder_id(dir: &Path) -> Result<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(dir).map_err(|e| Error::io("read", dir, e))?;
    Ok(Some((meta.dev(), meta.ino())))
}

#[cfg(not(unix))]
pub(crate) fn folder_id(_: &Path) -> Result<Option<(u64, u64)>> {
    Ok(None)
}

/// When a folder was made, in nanoseconds since 1970, where the file system says so. The inode of one that was removed may be
/// given to the next.
pub(crate) fn folder_born(dir: &Path) -> Option<u64> {
    let born = fs::metadata(dir).and_then(|meta| meta.created()).ok()?;
    born.duration_since(std::time::UNIX_EPOCH).ok().and_then(|since| u64::try_from(since.as_nanos()).ok())
}

/// Makes a folder, and those above it.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|e| Error::io("create", dir, e))
}

/// Makes names in a folder survive a power cut.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| Error::io("sync", dir, e))?;
    }
    Ok(())
}

/// The bytes of a file; `None` when there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if absent(&e) => Ok(None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}

/// When a file was written, as the file system tells; `None` when it does not. For housekeeping only.
pub(crate) fn written(path: &Path) -> Result<Option<Timestamp>> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if absent(&e) => return Ok(None),
        Err(e) => return Err(Error::io("read", path, e)),
    };
    let since = meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    Ok(since.and_then(|since| i64::try_from(since.as_millis()).ok()).map(Timestamp::from_millis))
}

/// Removes a file; a missing one is fine.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if !absent(&e) => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// Whether an error says that there is no such file (a parent that is a file counts).
pub(crate) fn absent(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Names in a folder that end in `suffix`, without it, sorted.
pub(crate) fn names(dir: &Path, suffix: &str) -> Result<Vec<String>> {
    let fail = |e| Error::io("list", dir, e);
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        if let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(suffix)) {
            out.push(stem.to_owned());
        }
    }
    out.sort_unstable();
    Ok(out)
}

/// A lock of the operating system on a file of ours, released when it is dropped or its process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock(#[allow(dead_code)] File);

impl Lock {
    /// Takes the lock on `path` (created when missing) if it is free now.
    pub(crate) fn try_new(path: &Path) -> Result<Option<Self>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| Error::io("open", path, e))?;
        Self::take(file, path)
    }

    /// Takes the lock on an existing file if it is free now; `None` also when there is no such file.
    pub(crate) fn try_existing(path: &Path) -> Result<Option<Self>> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => Self::take(file, path),
            Err(e) if absent(&e) => Ok(None),
            Err(e) => Err(Error::io("open", path, e)),
        }
    }

    fn take(file: File, path: &Path) -> Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(Error::io("lock", path, e)),
        }
    }

    /// Takes the lock, waiting for at most `limit`. Never blocks the thread.
    pub(crate) async fn wait(env: &Env, path: &Path, limit: Duration) -> Result<Self> {
        let start = env.monotonic();
        loop {
            if let Some(lock) = Self::try_new(path)? {
                return Ok(lock);
            }
            if env.monotonic().saturating_sub(start) >= limit {
                return Err(Error::new(
                    Kind::Contended,
                    format!("another process works on {} for longer than {} s", path.display(), limit.as_secs()),
                ));
            }
            env.sleep(LOCK_PAUSE / 4 + env.jitter(LOCK_PAUSE)).await;
        }
    }
}
