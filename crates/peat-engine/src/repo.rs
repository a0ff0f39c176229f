//! A repository: its marker, its definitions, its clone.

mod find;
mod init;
mod marker;
mod open;
mod salvage;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peat_clone::LocalClone;
use peat_types::{Error, Namespace, Result, in_span, step};
use tokio::sync::OnceCell;

use crate::definition::{Definition, Library};
use crate::report::InitReport;
use crate::{Host, foreign};

pub use find::LOCAL;
pub use init::InitRequest;
pub(crate) use marker::with_datastore;
pub use marker::{Datastore, DeleteLimit, MARKER, Marker, Retention, Upkeep};
pub(crate) use open::{Place, options, place, private_left};

/// A repository. Cheap to clone; its clone is opened when it is first needed.
#[derive(Clone, Debug)]
pub struct Repo(Arc<Inner>);

struct Inner {
    host: Host,
    root: PathBuf,
    marker: Marker,
    clone: OnceCell<(LocalClone, Place)>,
    /// The models of another namespace, when this is a view of one.
    foreign: Option<Vec<Definition>>,
    /// The namespace by which it was named, when this is a view of `namespace:model`.
    via: Option<Namespace>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Repo {
    /// The repository the caller means: `host.repo_dir`, else the nearest above the current folder. No store is opened.
    ///
    /// # Errors
    /// Codes `not_a_repo`, `half_initialised`, `unsupported_version` (a newer marker).
    pub fn find(host: Host) -> Result<Self> {
        let root = find::root(&host)?;
        let marker = Marker::read(&root, &host.version)?
            .ok_or_else(|| Error::not_found(format!("{MARKER} went away")).with_code("not_a_repo"))?;
        Ok(Self(Arc::new(Inner { host, root, marker, clone: OnceCell::new(), foreign: None, via: None })))
    }

    /// Like [`Self::find`], for commands that must work when something is broken: of a marker that cannot be read whole
    /// what can be is used. An id that is missing is read from the store.
    ///
    /// # Errors
    /// Those of [`Self::find`] when too little can be read.
    pub async fn find_damaged(host: Host) -> Result<Self> {
        let error = match Self::find(host.clone()) {
            Ok(repo) => return Ok(repo),
            Err(error) => error,
        };
        let Ok(root) = find::root(&host) else { return Err(error) };
        let Some(mut marker) = Marker::salvage(&root, &error) else { return Err(error) };
        if marker.repo_id.is_empty() {
            let owner = match &marker.datastore {
                Some(datastore) => open::owner(&host, datastore).await?,
                None => open::private_owner(&host, &root).await,
            };
            marker.repo_id = owner.ok_or(error)?;
        }
        Ok(Self(Arc::new(Inner { host, root, marker, clone: OnceCell::new(), foreign: None, via: None })))
    }

    /// Makes a repository: marker, `models/`, ignore section, and the private ledger in `.peat/store`.
    ///
    /// # Errors
    /// `AlreadyExists` when there is one and `force` is not set; `half_initialised`; `unsupported_version`.
    pub async fn init(host: Host, request: &InitRequest) -> Result<InitReport> {
        let root = init::root_of(&host, request);
        let owner = open::private_owner(&host, &root).await;
        let report = init::files_of(&host, request, owner)?;
        let marker = Marker::read(&root, &host.version)?
            .ok_or_else(|| Error::not_found(format!("{MARKER} went away")).with_code("not_a_repo"))?;
        if marker.datastore.is_none() {
            open::create_private(&host, &root, &marker).await?;
        }
        Ok(report)
    }

    /// The machine.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// Root folder.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// The marker as it was when the repository was found.
    pub fn marker(&self) -> &Marker {
        &self.0.marker
    }

    /// The clone, opened when it is first asked for.
    ///
    /// # Errors
    /// `Conflict` with code `owned_by_another` for a namespace of another repository that is not merely viewed.
    pub async fn clone_of(&self) -> Result<&LocalClone> {
        Ok(&self.opened().await?.0)
    }

    pub(crate) async fn opened(&self) -> Result<&(LocalClone, Place)> {
        let Inner { host, root, marker, .. } = &*self.0;
        let open = async {
            let opened = open::open(host, root, marker, self.is_foreign()).await?;
            if !self.is_foreign() {
                open::own(&opened, &marker.repo_id)?;
            }
            Ok(opened)
        };
        self.0.clone.get_or_try_init(|| in_span(step!("clone.open"), open)).await
    }

    /// The clone, when it is open already.
    pub(crate) fn opened_now(&self) -> Option<&(LocalClone, Place)> {
        self.0.clone.get()
    }

    /// The same work tree, with another datastore to read from.
    pub(crate) fn seen_from(&self, namespace: &Namespace, datastore: Datastore) -> Self {
        let Inner { host, root, marker, .. } = &*self.0;
        let marker = Marker { datastore: Some(datastore), ..marker.clone() };
        let (host, root) = (host.clone(), root.clone());
        let via = Some(namespace.clone());
        Self(Arc::new(Inner { host, root, marker, clone: OnceCell::new(), foreign: Some(Vec::new()), via }))
    }

    /// A view of another namespace, whose models are known now.
    pub(crate) fn with_models(self, models: Vec<Definition>) -> Self {
        let Inner { host, root, marker, clone, via, .. } = &*self.0;
        let (host, root, marker, via) = (host.clone(), root.clone(), marker.clone(), via.clone());
        Self(Arc::new(Inner { host, root, marker, clone: clone.clone(), foreign: Some(models), via }))
    }

    /// The namespace by which this was named, when it is a view of `namespace:model`.
    pub(crate) fn via(&self) -> Option<&Namespace> {
        self.0.via.as_ref()
    }

    /// How a model of this is named on the command line.
    pub(crate) fn reference(&self, model: &str) -> String {
        self.via().map_or_else(|| model.to_owned(), |namespace| format!("{namespace}:{model}"))
    }

    /// Whether this is a view of another namespace.
    pub(crate) fn is_foreign(&self) -> bool {
        self.0.foreign.is_some()
    }

    /// The models of the namespace that this is a view of.
    pub(crate) fn foreign_models(&self) -> Option<&[Definition]> {
        self.0.foreign.as_deref()
    }

    pub(crate) fn library(&self) -> Library<'_> {
        Library::new(&self.0.root)
    }

    /// A definition by name, id or beginning of an id.
    ///
    /// # Errors
    /// `NotFound` with code `model_not_found`; `Invalid` with code `ambiguous`, listing the candidates.
    pub fn definition(&self, wanted: &str) -> Result<Definition> {
        match self.foreign_models() {
            Some(models) => foreign::find(models, wanted, self.via()),
            None => self.library().find(wanted),
        }
    }
}
