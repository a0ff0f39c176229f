//! Small files: whole reads with good errors, atomic writes.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use peat_types::{Env, Error, Result};

/// Text of a file; `None` when there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| Error::invalid(format!("{} is not text in UTF-8", path.display()))),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}

/// Age from which a temporary file has nobody any more who writes it.
const LEFT_OVER: Duration = Duration::from_secs(600);

/// Whether a temporary file was left by a process that was killed, `now` being the time of a file written just now: clocks
/// of a file system are only compared with themselves.
pub(crate) fn is_left_over(path: &Path, now: SystemTime) -> bool {
    let written = fs::metadata(path).and_then(|meta| meta.modified()).ok();
    written.and_then(|written| now.duration_since(written).ok()).is_some_and(|age| age > LEFT_OVER)
}

/// Writes a file so that a reader, and a crash, see the old bytes or the new ones and nothing between. Permissions of an
/// existing file are kept; a link is followed, so that it stays one.
pub(crate) fn write(env: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|e| Error::io("make the folder", folder, e))?;
    let temp = temp_in(env, folder);
    let result = write_temp(&temp, path, bytes);
    if result.is_err() {
        // The error is the news; a left-over temporary file is not.
        let _ = fs::remove_file(&temp);
    }
    result
}

/// Makes sure that [`write`] can write a file, and changes nothing.
pub(crate) fn check_writable(env: &Env, path: &Path) -> Result<()> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // It would be replaced all the same, but somebody has said that it shall stay.
    if fs::metadata(path).is_ok_and(|meta| meta.permissions().readonly()) {
        return Err(Error::io("write", path, ErrorKind::PermissionDenied.into()));
    }
    let temp = temp_in(env, path.parent().unwrap_or(Path::new(".")));
    File::create_new(&temp).map_err(|e| Error::io("write", path, e))?;
    fs::remove_file(&temp).map_err(|e| Error::io("remove", &temp, e))
}

/// Names of temporary files; nobody else's look like that.
const TEMP: (&str, &str) = (".peat-", ".tmp");

fn temp_in(env: &Env, folder: &Path) -> PathBuf {
    folder.join(format!("{}{:016x}{}", TEMP.0, u64::from_le_bytes(env.random_bytes()), TEMP.1))
}

/// Removes what killed processes left in a folder. `fresh` is a temporary file that was written just now.
fn sweep(fresh: &Path, folder: &Path) {
    let Ok(now) = fs::metadata(fresh).and_then(|meta| meta.modified()) else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|name| name.starts_with(TEMP.0) && name.ends_with(TEMP.1));
        if ours && is_left_over(&entry.path(), now) {
            // What cannot be removed now stays for the next time.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn write_temp(temp: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create_new(temp).map_err(|e| Error::io("write", path, e))?;
    file.write_all(bytes).map_err(|e| Error::io("write", temp, e))?;
    if let Ok(meta) = fs::metadata(path) {
        file.set_permissions(meta.permissions()).map_err(|e| Error::io("write", temp, e))?;
    }
    file.sync_all().map_err(|e| Error::io("write", temp, e))?;
    drop(file);
    sweep(temp, path.parent().unwrap_or(Path::new(".")));
    fs::rename(temp, path).map_err(|e| Error::io("write", path, e))
}

/// Writes a new file whole; `false` when there is one already.
pub(crate) fn create(env: &Env, path: &Path, bytes: &[u8]) -> Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|e| Error::io("make the folder", folder, e))?;
    let temp = temp_in(env, folder);
    let written = (|| {
        let mut file = File::create_new(&temp)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        sweep(&temp, folder);
        // A hard link fails when the name is taken, a rename would not.
        fs::hard_link(&temp, path)
    })();
    let _ = fs::remove_file(&temp);
    match written {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(Error::io("write", path, e)),
    }
}
