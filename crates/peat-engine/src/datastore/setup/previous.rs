//! Where a ledger came from, remembered on the machine that moved it, for the cleanup.

use std::path::PathBuf;

use peat_types::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::repo::{Datastore, Place};
use crate::{Repo, files};

const FILE: &str = "previous.json";

/// The datastore that a repository used before.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Previous {
    /// The work tree, which a private datastore lies in.
    pub root: PathBuf,
    /// Absent for the private one.
    pub datastore: Option<Datastore>,
}

/// Notes what the repository uses now beside the clone it will use.
pub(super) fn remember(repo: &Repo, target: &Place) -> Result<()> {
    let previous = Previous { root: repo.root().to_owned(), datastore: repo.marker().datastore.clone() };
    let text = serde_json::to_vec_pretty(&previous).map_err(|e| Error::internal("a place").with_source(e))?;
    files::write(&repo.host().env, &target.dir.join(FILE), &text)
}

/// What was noted; `None` when there is nothing to clean up.
pub(super) fn read(place: &Place) -> Result<Option<Previous>> {
    let path = place.dir.join(FILE);
    let Some(text) = files::read(&path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|e| {
        Error::damaged(format!("{} cannot be read", path.display()))
            .with_hint("remove the file and the old store by hand")
            .with_source(e)
    })
}

/// Forgets it.
pub(super) fn forget(place: &Place) -> Result<()> {
    let path = place.dir.join(FILE);
    std::fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))
}
