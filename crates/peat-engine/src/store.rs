//! Opening stores.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use peat_objects::Store;
use peat_types::{Env, Result};
use serde_json::Value;

use crate::Datastore;

/// A store as opened: its root, not prefixed to a namespace.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its canonical URL.
    pub url: String,
    /// `file`, `s3` or `memory`.
    pub kind: &'static str,
    /// The folder of a `file` store.
    pub folder: Option<PathBuf>,
}

/// Opens stores. Tests put one in memory here.
#[async_trait]
pub trait Opener: Send + Sync {
    /// Opens the store a datastore setting describes. Nothing is requested of it.
    async fn open(&self, settings: &Datastore, env: &Env) -> Result<Opened>;

    /// Makes the folder of a `file` store, as setup does.
    fn init(&self, opened: &Opened) -> Result<()>;

    /// Narrows a store to a namespace.
    fn prefixed(&self, store: &Arc<dyn Store>, namespace: &str) -> Arc<dyn Store>;

    /// Tries whether the store keeps what a ledger needs; the verdict, or the error that names what it cannot do.
    async fn probe(&self, opened: &Opened, env: &Env) -> Result<Value>;
}

/// Real stores.
#[derive(Clone, Copy, Debug)]
pub struct Real;
