//! A store in a folder, held to the ledger that this clone knows.
//!
//! An unmounted disk leaves an empty folder behind, and another disk may be mounted there. To a bucket Peat would have to
//! put the question; a folder answers it at no cost, so it is asked with every operation: is the `ns.json` there, and does
//! it name the ledger? What is there without it is no store, whatever could be written to it.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use peat_ledger::NsInfo;
use peat_objects::{Created, List, Meta, Object, Page, Range, Store};
use peat_types::{Error, Kind, LedgerId, Result};

/// Name of the object that makes a folder a namespace.
const NS: &str = "ns.json";

/// What tells whether a file is still the one that was read: inode, size and time of its last change in nanoseconds.
type Stamp = (u64, u64, i64, i64);

/// The store of a namespace in a folder, which is there only while that holds the ledger that is known.
#[derive(Debug)]
pub(crate) struct Anchored {
    inner: Arc<dyn Store>,
    /// Of the namespace.
    folder: PathBuf,
    ledger: LedgerId,
    /// The `ns.json` that was found to be right.
    right: Mutex<Option<Stamp>>,
}

impl Anchored {
    /// `folder` is that of the namespace, whose objects `inner` holds.
    pub(crate) fn new(inner: Arc<dyn Store>, folder: PathBuf, ledger: LedgerId) -> Self {
        Self { inner, folder, ledger, right: Mutex::default() }
    }

    fn check(&self) -> Result<()> {
        let path = self.folder.join(NS);
        let meta = match fs::metadata(&path) {
            Ok(meta) => meta,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                return Err(self.missing(&path));
            }
            Err(e) => return Err(Error::io("look at", &path, e)),
        };
        let stamp = (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        if *right == Some(stamp) {
            return Ok(());
        }
        // One that cannot be read names no other ledger. That it is damaged is for the doctor to say.
        let bytes = fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        if let Ok(info) = serde_json::from_slice::<NsInfo>(&bytes)
            && info.ledger != self.ledger
        {
            return Err(Error::damaged(format!(
                "{} is of ledger {}, this clone knows it as {}",
                path.display(),
                info.ledger,
                self.ledger
            ))
            .with_code("fork")
            .with_hint(
                "another disk or a replaced store: mount the right one, or clone this one into another folder",
            ));
        }
        *right = Some(stamp);
        Ok(())
    }

    fn missing(&self, path: &Path) -> Error {
        // Like a bucket that cannot be reached: most often its disk is not mounted.
        let error = Error::new(Kind::Offline, format!("the store {} is not there: it has no {NS}", self.inner))
            .with_code("store_missing")
            .with_hint("mount its disk, or restore it from a backup");
        if !path.with_file_name("log").is_dir() {
            return error;
        }
        error.with_hint("if nothing but that file was lost, 'peat doctor --repair' writes it again")
    }

    /// After a write: it may have gone to the folder below the place where the disk was.
    fn still(&self) -> Result<()> {
        self.check().map_err(|error| {
            let error = if error.kind() == Kind::Offline { error.with_code("offline") } else { error };
            error.context(format!("the store {} went away while it was written to", self.inner))
        })
    }
}

#[async_trait]
impl Store for Anchored {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        let object = self.inner.get(key, range).await?;
        self.check().map(|()| object)
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.check()?;
        let created = self.inner.create(key, body).await?;
        self.still().map(|()| created)
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.check()?;
        let meta = self.inner.put(key, body).await?;
        self.still().map(|()| meta)
    }

    async fn list(&self, list: &List) -> Result<Page> {
        let page = self.inner.list(list).await?;
        self.check().map(|()| page)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.check()?;
        self.inner.delete(key).await
    }
}

impl fmt::Display for Anchored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
