//! `clone.json`: who this clone is and what it is a clone of.

use std::path::{Path, PathBuf};

use peat_ledger::NsInfo;
use peat_objects::StoreUrl;
use peat_types::{CloneId, Env, Error, Kind, Namespace, Result};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::{Durability, Options};

const VERSION: u32 = 1;

/// Content of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    version: u32,
    pub(crate) clone: CloneId,
    /// See [`place`].
    url: String,
    namespace: Namespace,
    repo_id: String,
    /// Device and inode of the folder: another pair means that the folder was copied (or restored), and two folders must
    /// not act under one identity.
    folder: Option<(u64, u64)>,
    /// Whether that happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) copied: bool,
    /// The namespace's `ns.json`, which never changes; absent until it was read.
    pub(crate) info: Option<NsInfo>,
}

/// What the file said.
pub(crate) struct Found {
    pub(crate) identity: Identity,
    /// Whether the clone got its id just now although it had one before.
    pub(crate) reminted: bool,
}

/// Reads or makes the identity of the folder. The caller holds the folder's lock and saves what it got.
pub(crate) fn find(env: &Env, options: &Options) -> Result<Found> {
    let path = options.dir.join("clone.json");
    let folder = files::folder_id(&options.dir)?;
    let Some(bytes) = files::read(&path)? else {
        let identity = Identity {
            version: VERSION,
            clone: CloneId::random(env),
            url: place(options),
            namespace: options.namespace.clone(),
            repo_id: options.repo_id.clone(),
            folder,
            copied: false,
            info: None,
        };
        return Ok(Found { identity, reminted: false });
    };
    let mut identity: Identity = serde_json::from_slice(&bytes).map_err(|e| {
        Error::damaged(format!("{} cannot be read", path.display()))
            .with_hint("remove the file: the clone gets a new identity, pending changes are kept")
            .with_source(e)
    })?;
    if identity.version > VERSION {
        return Err(Error::new(Kind::Unsupported, format!("{} was written by a newer version", path.display()))
            .with_code("unsupported_version")
            .with_hint("upgrade peat"));
    }
    if identity.url != place(options) || identity.namespace != options.namespace {
        return Err(Error::invalid(format!(
            "{} is a clone of namespace {} in {}, not of {} in {}",
            options.dir.display(),
            identity.namespace,
            identity.url,
            options.namespace,
            options.url
        ))
        .with_hint("use another folder for another store or namespace"));
    }
    let reminted = identity.folder.is_some() && folder.is_some() && identity.folder != folder;
    if reminted {
        identity.clone = CloneId::random(env);
        identity.copied = true;
    }
    identity.folder = folder;
    Ok(Found { identity, reminted })
}

/// The store as `clone.json` names it: its URL, or the path to it from the clone when it lies inside the clone's folder, so
/// that both can be moved together.
fn place(options: &Options) -> String {
    inside(options).map_or_else(|| options.url.clone(), |path| format!("./{}", path.display()))
}

/// Path of a store that lies inside the clone's folder, however both are spelled.
fn inside(options: &Options) -> Option<PathBuf> {
    let StoreUrl::File { root } = options.url.parse().ok()? else { return None };
    let dir = options.dir.canonicalize().ok()?;
    Some(root.parent()?.canonicalize().ok()?.strip_prefix(dir).ok()?.join(root.file_name()?))
}

impl Identity {
    /// Whether this clone has seen a ledger.
    pub(crate) fn knows_a_ledger(dir: &Path) -> bool {
        let bytes = files::read(&dir.join("clone.json")).ok().flatten();
        bytes.and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok()).is_some_and(|known| known.info.is_some())
    }

    pub(crate) fn save(&self, env: &Env, options: &Options) -> Result<()> {
        let path = options.dir.join("clone.json");
        let mut text =
            serde_json::to_vec_pretty(self).map_err(|e| Error::internal("cannot write JSON").with_source(e))?;
        text.push(b'\n');
        if files::read(&path)?.is_some_and(|known| known == text) {
            return Ok(());
        }
        files::write_atomic(
            env,
            &options.dir.join(files::TEMP),
            &path,
            &[&text],
            options.durability == Durability::Synced,
            false,
        )
    }
}
