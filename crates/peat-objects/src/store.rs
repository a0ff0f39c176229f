//! The seam itself. What a key or a body means is not known here.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{Result, Timestamp};

/// Which bytes of an object are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// The whole object.
    All,
    /// `len` bytes from `offset`; fewer when the object ends before.
    Part {
        /// First byte.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u64,
    },
    /// The last `len` bytes, or all when the object is shorter.
    Last {
        /// Number of bytes, at least 1.
        len: u64,
    },
}

/// What a reply says about time and identity. Informational.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The server's clock when it answered.
    pub date: Option<Timestamp>,
    /// The server's idea of when the object was written.
    pub last_modified: Option<Timestamp>,
}

/// Bytes of an object as read.
#[derive(Clone, Debug)]
pub struct Object {
    /// The bytes of the range asked for.
    pub bytes: Bytes,
    /// Size of the whole object.
    pub size: u64,
    /// Times of the reply.
    pub meta: Meta,
}

/// Answer to a create-if-absent.
///
/// Only `Created` proves anything. Everything else, [`Created::Exists`] and every error alike, means *unknown*: the
/// caller reads the key and compares (invariant A3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The store confirmed that this request made the object.
    Created(Meta),
    /// The store answered that the object was there, or that the condition failed.
    Exists,
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys, relative to the store's root, in the order the server gave.
    pub keys: Vec<Listed>,
    /// With a delimiter: the common prefixes, ending in `/`, in any order. Some servers still name a folder whose
    /// objects were all deleted.
    pub prefixes: Vec<String>,
    /// Present when there is more. An empty page with a token is not an end.
    pub token: Option<String>,
}

/// One listed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Key relative to the store's root.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// The server's idea of when it was written.
    pub last_modified: Option<Timestamp>,
}

/// What to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Folder prefix ending in `/`, or empty for the root.
    pub prefix: String,
    /// Stop at the next `/` and report what lies below it as prefixes.
    pub delimiter: bool,
    /// At most this many keys and prefixes in the page (1 to 1000).
    pub max_keys: Option<u16>,
    /// Where the previous page ended.
    pub token: Option<String>,
}

/// An object store. Keys are relative paths of `[a-z0-9.-/]`; overwrites are atomic for readers.
///
/// Errors name operation, store, key, status, request id and cause. Kinds: `Offline` for everything that leaves the
/// outcome unknown (time-outs, resets, 429, 5xx), `Denied` for 401 and 403, `Unsupported` when the store says it cannot,
/// `Invalid` for a wrong bucket, region or endpoint, `Damaged` for a reply that contradicts itself. A missing *object* is
/// never an error, and nothing else is ever reported as missing (invariant A7).
#[async_trait]
pub trait Store: fmt::Debug + fmt::Display + Send + Sync {
    /// Reads an object. `None` only when the store definitely said that this key does not exist.
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>>;

    /// Writes an object only if there is none under `key`. Never retried inside.
    async fn create(&self, key: &str, body: Bytes) -> Result<Created>;

    /// Writes an object under a key that only this caller ever writes.
    async fn put(&self, key: &str, body: Bytes) -> Result<Meta>;

    /// One page of keys under a prefix. Order is whatever the server gives; within one folder the probe has checked
    /// that it is the byte order.
    async fn list(&self, list: &List) -> Result<Page>;

    /// Removes an object; removing a missing one succeeds.
    async fn delete(&self, key: &str) -> Result<()>;
}
