//! Where a ledger came from, remembered on the machine that moved it, for the cleanup.

use std::path::PathBuf;
use std::sync::Arc;

use peat_clone::LocalClone;
use peat_types::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::planner::DomainPlanner;
use crate::repo::{Datastore, Place, options, place};
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

impl Previous {
    pub fn place(&self, repo: &Repo) -> Result<Place> {
        place(repo.host(), &self.root, &repo.marker().repo_id, self.datastore.as_ref())
    }
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

/// The clone before, when the tree of the one in use is still there.
pub(super) async fn clone_of(repo: &Repo, now: &Place, shared: &LocalClone) -> Result<Option<LocalClone>> {
    let Some(previous) = read(now)? else { return Ok(None) };
    let before = previous.place(repo)?;
    if before.dir == now.dir || !shared.has_its_tree_in(&before.dir)? {
        return Ok(None);
    }
    open(repo, &before).await.map(Some)
}

/// The clone of a place that was left.
pub(super) async fn open(repo: &Repo, before: &Place) -> Result<LocalClone> {
    let host = repo.host();
    let planner = Arc::new(DomainPlanner::of(repo.root()));
    LocalClone::open(options(host, before, &repo.marker().repo_id)?, host.env.clone(), planner).await
}

/// Forgets it.
pub(super) fn forget(place: &Place) -> Result<()> {
    let path = place.dir.join(FILE);
    std::fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))
}
