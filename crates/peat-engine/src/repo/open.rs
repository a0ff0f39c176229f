//! From a marker to a clone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use peat_clone::{Hydration, LocalClone, NewNamespace, NsInfo, Options, Standing, Together};
use peat_objects::{Durability, FileStore, Range, Store};
use peat_types::{Error, Hash, Kind, Namespace, Result};
use serde_json::json;

use super::find::LOCAL;
use super::marker::{Datastore, MARKER, Marker};
use crate::planner::DomainPlanner;
use crate::store::Opened;
use crate::{Host, files, swamp};

/// Where a repository keeps its records.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The store.
    pub opened: Opened,
    /// The namespace.
    pub namespace: Namespace,
    /// Folder of the clone.
    pub dir: PathBuf,
    /// Whether the store is the private one.
    pub private: bool,
    /// Which contents are kept here.
    pub hydration: Hydration,
    /// Whether the private ledger was made by this checkout rather than by `init`: runs of other checkouts are elsewhere.
    pub second_checkout: bool,
}

impl Place {
    /// Makes the folder of a store that is one, unless a ledger was in it once: then its disk is not there, or it is lost.
    pub fn make_folder(&self) -> Result<()> {
        if LocalClone::has_seen_a_ledger(&self.dir) { Ok(()) } else { self.opened.init() }
    }

    /// `full` or `lazy`.
    pub const fn hydration_name(&self) -> &'static str {
        match self.hydration {
            Hydration::Full => "full",
            Hydration::Lazy => "lazy",
        }
    }
}

/// Tells that the private ledger was made by opening, not by `init`.
const CHECKOUT: &str = "checkout";

/// The private datastore of a repository.
fn private(root: &Path) -> Result<Datastore> {
    let folder = root.join(LOCAL).join("store");
    let folder = std::path::absolute(&folder).map_err(|e| Error::io("find", &folder, e))?;
    Ok(Datastore { url: file_url(&folder)?, ..Datastore::default() })
}

/// `file:///…` of an absolute folder.
pub(crate) fn file_url(folder: &Path) -> Result<String> {
    let Some(text) = folder.to_str() else {
        return Err(Error::invalid(format!("the folder {} has a name that is not UTF-8", folder.display())));
    };
    let mut url = String::from("file://");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(url)
}

/// Opens the place a marker names, without touching it.
pub(crate) fn place(host: &Host, root: &Path, repo_id: &str, datastore: Option<&Datastore>) -> Result<Place> {
    let local = root.join(LOCAL);
    let own = private(root)?;
    let settings = datastore.unwrap_or(&own);
    let opened = host.stores.open(settings, &host.env)?;
    let namespace = settings.namespace()?;
    let private = datastore.is_none();
    let dir = if private {
        local.clone()
    } else {
        let home = host.peat_home.as_ref().ok_or_else(|| {
            Error::invalid("there is no folder for local copies: neither PEAT_HOME nor HOME is set to an absolute path")
                .with_hint("set PEAT_HOME to a folder that only you can write to")
        })?;
        home.join("clones").join(clone_name(&opened.url, &namespace, repo_id))
    };
    let second_checkout = private && local.join(CHECKOUT).exists();
    Ok(Place { opened, namespace, dir, private, hydration: settings.hydration()?, second_checkout })
}

/// Folder of a clone: what it is a clone of, and nothing else, so that two work trees share it.
fn clone_name(url: &str, namespace: &Namespace, repo_id: &str) -> String {
    let mut name = Hash::of(format!("{url}\n{namespace}\n{repo_id}").as_bytes()).to_string();
    name.truncate(32);
    name
}

/// The options of a place's clone.
pub(crate) fn options(host: &Host, place: &Place, repo_id: &str) -> Result<Options> {
    Ok(Options {
        store: place.opened.within(place.namespace.as_str())?,
        folder: place.opened.folder.as_ref().map(|folder| folder.join(place.namespace.as_str())),
        url: place.opened.url.clone(),
        namespace: place.namespace.clone(),
        dir: place.dir.clone(),
        repo_id: repo_id.to_owned(),
        hydration: place.hydration,
        durability: host.durability,
        together: Together::default(),
        user: host.user.clone(),
        host: host.hostname.clone(),
        reporter: host.reporter.clone(),
    })
}

/// `viewed`: to read another namespace than one's own.
pub(super) async fn open(host: &Host, root: &Path, marker: &Marker, viewed: bool) -> Result<(LocalClone, Place)> {
    let mut place = place(host, root, &marker.repo_id, marker.datastore.as_ref())?;
    let planner = Arc::new(DomainPlanner::of(root));
    // What this clone knows of the private ledger came from it: when it is not there now, it is lost, and another one in
    // its place would take the numbers of its entries again.
    let known = place.private && LocalClone::has_seen_a_ledger(&place.dir);
    let fresh = place.private && !known && !root.join(LOCAL).join("store").is_dir();
    if fresh {
        // A second checkout, or one whose ignored files were cleaned away: it gets a ledger of its own, and says so.
        place.second_checkout = true;
        let local = root.join(LOCAL);
        files::write(&host.env, &local.join(CHECKOUT), host.env.now().to_string().as_bytes())?;
        return Ok((create(host, root, &place, &marker.repo_id).await?, place));
    }
    let opened = LocalClone::open(options(host, &place, &marker.repo_id)?, host.env.clone(), planner).await;
    match opened {
        Ok(clone) => {
            if place.private && !known {
                Box::pin(clone.finish_creation()).await?;
            }
            Ok((clone, place))
        }
        Err(error) if error.has_code("namespace_missing") && place.private && !known => {
            Ok((create(host, root, &place, &marker.repo_id).await?, place))
        }
        Err(error) if error.has_code("namespace_missing") && !place.private => {
            Box::pin(swamp::refuse(&place.opened, &place.namespace, true)).await?;
            if viewed {
                let message = format!("there is no namespace '{}' in {}", place.namespace, place.opened.url);
                return Err(Error::not_found(message)
                    .with_code("namespace_missing")
                    .with_hint("'peat datastore namespace list' shows those that are there"));
            }
            Err(error.with_hint(format!("or make it with '{}'", place.opened.setup(&place.namespace))))
        }
        Err(error) => Err(error),
    }
}

/// Whether the ledger belongs to the repository. Only that one writes to it, and each command may be the first to write.
pub(super) fn own((clone, place): &(LocalClone, Place), repo_id: &str) -> Result<()> {
    let owner = &clone.info().owner;
    if owner == repo_id {
        return Ok(());
    }
    let (url, namespace) = (&place.opened.url, &place.namespace);
    let error = Error::new(
        Kind::Conflict,
        format!("namespace '{namespace}' of {url} belongs to repository {owner}, and this one is {repo_id}"),
    )
    .with_code("owned_by_another")
    .with_hint(format!("if repoId in {MARKER} was changed by mistake, restore the file from git"));
    if place.private {
        return Err(error);
    }
    Err(error.with_hint(format!(
        "use a namespace of its own: '{} --skip-migration'; what others have there is read as {namespace}:<model>",
        place.opened.setup("NAME")
    )))
}

async fn create(host: &Host, root: &Path, place: &Place, repo_id: &str) -> Result<LocalClone> {
    place.make_folder()?;
    let new = NewNamespace { params: host.params.clone(), probe: json!({"private": true}) };
    let planner = Arc::new(DomainPlanner::of(root));
    LocalClone::create(options(host, place, repo_id)?, host.env.clone(), planner, new).await
}

/// Makes the private ledger.
pub(super) async fn create_private(host: &Host, root: &Path, marker: &Marker) -> Result<()> {
    let place = place(host, root, &marker.repo_id, None)?;
    create(host, root, &place, &marker.repo_id).await.map(drop)
}

/// The repository a private ledger in this folder belongs to, when there is one that can be read.
pub(super) async fn private_owner(host: &Host, root: &Path) -> Option<String> {
    if !root.join(LOCAL).join("store").is_dir() {
        return None;
    }
    owner(host, &private(root).ok()?).await.ok()?
}

/// How many items the private ledger holds that went nowhere, while the repository uses `shared`: a teammate's marker that
/// came by git puts a datastore before it without a question. `None` when there are none, or that cannot be told.
pub(crate) async fn private_left(host: &Host, root: &Path, shared: &NsInfo) -> Option<u64> {
    // Straight from the folder: these are no requests to the datastore in use.
    let folder = root.join(LOCAL).join("store").join(Namespace::default().as_str());
    if !folder.is_dir() {
        return None;
    }
    let store: Arc<dyn Store> = Arc::new(FileStore::new(folder, Durability::Full, &host.env));
    let info = store.get("ns.json", Range::All).await.ok()??;
    let info: NsInfo = serde_json::from_slice(&info.bytes).ok()?;
    if info.ledger == shared.ledger || shared.comes_from(info.ledger) {
        return None;
    }
    let (standing, gone) = Standing::of(store, &host.env, info).await.ok()?;
    (gone.is_none() && standing.items > 0).then_some(standing.items)
}

/// The repository that a namespace belongs to, when there is one that can be read.
pub(super) async fn owner(host: &Host, datastore: &Datastore) -> Result<Option<String>> {
    let opened = host.stores.open(datastore, &host.env)?;
    let store = opened.within(datastore.namespace()?.as_str())?;
    let Some(info) = store.get("ns.json", Range::All).await? else { return Ok(None) };
    Ok(serde_json::from_slice::<NsInfo>(&info.bytes).ok().map(|info| info.owner))
}
