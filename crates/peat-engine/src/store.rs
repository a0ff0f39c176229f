//! Opening stores.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use peat_objects::{OpenOptions, PrefixStore, Store, StoreUrl, open, probe};
use peat_types::{Env, Error, Result};
use serde_json::Value;

use crate::Datastore;

/// A store as opened: its root, not narrowed to a namespace.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its canonical URL.
    pub url: String,
    /// Scheme of the URL.
    pub kind: &'static str,
    /// The folder of a `file` store.
    pub folder: Option<PathBuf>,
    /// The address that the settings name, when they do.
    pub endpoint: Option<String>,
}

impl Opened {
    /// The command that sets up a namespace of this store, as it can be typed.
    pub fn setup(&self, namespace: impl std::fmt::Display) -> String {
        format!("{} --namespace {namespace}", self.setup_at(""))
    }

    /// The command that sets up a store in a folder of this one; `below` is empty or begins with a slash.
    pub fn setup_at(&self, below: &str) -> String {
        let endpoint = self.endpoint.as_ref().map(|endpoint| format!(" --endpoint {endpoint}")).unwrap_or_default();
        // (The root of a file system ends in the slash that `below` begins with.)
        let url = if below.is_empty() { &self.url } else { self.url.strip_suffix('/').unwrap_or(&self.url) };
        format!("peat datastore setup {url}{below}{endpoint}")
    }

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

    /// Tries whether a store, narrowed to the namespace to be, keeps what a ledger needs: the verdict, or the error that
    /// names what it cannot do. Nothing outside the namespace is touched, so rights to that are enough.
    async fn probe(&self, store: &Arc<dyn Store>, env: &Env) -> Result<Value>;
}

/// Real stores.
#[derive(Clone, Debug, Default)]
pub struct Real {
    /// Settings that are the same for every store: time-outs, durability, meter. Address, region, profile and path style
    /// come from the datastore setting where it has them.
    pub options: OpenOptions,
}

#[async_trait]
impl Opener for Real {
    fn open(&self, settings: &Datastore, env: &Env) -> Result<Opened> {
        let url: StoreUrl = settings.url.parse()?;
        let base = self.options.clone();
        let options = OpenOptions {
            endpoint: settings.endpoint.clone().or(base.endpoint),
            region: settings.region.clone().or(base.region),
            profile: settings.profile.clone().or(base.profile),
            path_style: settings.path_style.or(base.path_style),
            ..base
        };
        let folder = if let StoreUrl::File { root } = &url { Some(root.clone()) } else { None };
        let endpoint = settings.endpoint.clone();
        Ok(Opened { store: open(&url, &options, env)?, url: url.to_string(), kind: url.scheme(), folder, endpoint })
    }

    async fn probe(&self, store: &Arc<dyn Store>, env: &Env) -> Result<Value> {
        let verdict = probe(&**store, env).await?;
        serde_json::to_value(verdict).map_err(|e| Error::internal("the verdict of the probe").with_source(e))
    }
}
