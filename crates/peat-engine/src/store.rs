//! Opening stores.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use peat_objects::{Durability, FileStore, MemoryStore, Meter, Metered, PrefixStore, Store, StoreUrl};
use peat_types::{Env, Error, Kind, Result};
use serde_json::Value;

use crate::Datastore;

/// A store as opened: its root, not narrowed to a namespace.
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

impl Opened {
    /// The store narrowed to a namespace.
    pub fn within(&self, namespace: &str) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(PrefixStore::new(self.store.clone(), namespace)?))
    }

    /// Makes the folder of a `file` store, as setup does.
    pub fn init(&self) -> Result<()> {
        match &self.folder {
            Some(folder) => {
                std::fs::create_dir_all(folder).map_err(|e| Error::io("make the folder of the store", folder, e))
            }
            None => Ok(()),
        }
    }
}

/// Opens stores. Tests put one in memory here.
#[async_trait]
pub trait Opener: Send + Sync {
    /// Opens the store a datastore setting describes. Nothing is requested of it.
    fn open(&self, settings: &Datastore, env: &Env) -> Result<Opened>;

    /// Tries whether the store keeps what a ledger needs: the verdict, or the error that names what it cannot do.
    async fn probe(&self, opened: &Opened, env: &Env) -> Result<Value>;
}

/// Real stores.
#[derive(Clone, Debug, Default)]
pub struct Real {
    /// Counts requests.
    pub meter: Option<Meter>,
    /// How sure a write to a folder is when it returns.
    pub durability: Durability,
}

#[async_trait]
impl Opener for Real {
    fn open(&self, settings: &Datastore, env: &Env) -> Result<Opened> {
        let url: StoreUrl = settings.url.parse()?;
        let (store, kind, folder): (Arc<dyn Store>, _, _) = match &url {
            StoreUrl::File { root } => {
                (Arc::new(FileStore::new(root, self.durability, env)), "file", Some(root.clone()))
            }
            StoreUrl::Memory => (Arc::new(MemoryStore::with_clock(env)), "memory", None),
            StoreUrl::S3 { .. } => {
                return Err(Error::new(Kind::Unsupported, "buckets are not in this build"));
            }
        };
        let store = match &self.meter {
            Some(meter) => Arc::new(Metered::with_meter(store, meter.clone())),
            None => store,
        };
        Ok(Opened { store, url: url.to_string(), kind, folder })
    }

    async fn probe(&self, opened: &Opened, env: &Env) -> Result<Value> {
        let _ = (opened, env);
        Ok(Value::Null)
    }
}
