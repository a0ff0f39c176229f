//! Whether all of the present datastore can be taken along, and what of this machine's stays behind.

use peat_clone::{LocalClone, Scope};
use peat_types::{Error, Kind, Result};

use super::plan::{Action, Plan};
use crate::Repo;
use crate::repo::{Place, options, place};

/// How many of them a sentence names.
const NAMED: usize = 3;

impl Repo {
    /// Whether nothing is under way in a ledger, so that all of it can be taken along.
    pub(super) async fn at_rest(&self, clone: &LocalClone, target: &Place) -> Result<()> {
        clone.pull(&Scope::All).await?;
        let pending = clone.pending()?;
        if !pending.is_empty() {
            let named = pending.iter().map(|p| format!("{} ({})", p.change, p.message));
            return Err(Error::new(
                Kind::Conflict,
                format!(
                    "{} changes of this machine are not in the datastore yet, so it cannot be copied whole: {}",
                    pending.len(),
                    some(named)
                ),
            )
            .with_hint("settle them with 'peat datastore sync --push', or decide about them: 'peat pending list'"));
        }
        let edited = self.edited(clone)?;
        if !edited.is_empty() && !self.tree_can_go(clone, target)? {
            let tree = clone.tree();
            return Err(Error::new(
                Kind::Conflict,
                format!(
                    "files were changed by hand, and would stay behind in {}, for the tree cannot go along to {}: {}",
                    tree.display(),
                    target.dir.display(),
                    some(edited.iter())
                ),
            )
            .with_code("changed_by_hand")
            .with_hint(
                "commit them with 'peat datastore sync --push', or put back what they held: 'peat doctor --deep --repair'",
            ));
        }
        if let Some(info) = clone.leases()?.into_iter().find(|info| info.lease.held) {
            return Err(Error::new(
                Kind::Contended,
                format!("a run by {}@{} is in progress since {}", info.lease.user, info.lease.host, info.lease.since),
            )
            .with_hint("wait for its end, or end it with 'peat model cancel --all', then run the command again"));
        }
        Ok(())
    }

    /// What of this machine is in no datastore, and what becomes of it: in words, and files whose tree is to go along.
    ///
    /// # Errors
    /// Those of [`at_rest`](Self::at_rest) for a ledger that is still to be closed.
    pub(super) async fn left_over(&self, plan: &Plan<'_>) -> Result<(Option<String>, Vec<String>)> {
        match (&plan.action, &plan.source) {
            // The journal is taken along, and the tree if it can be.
            (Action::Move(_) | Action::Follow(_), Some(source)) => {
                if matches!(plan.action, Action::Move(_)) && source.standing.moved.is_none() {
                    self.at_rest(source.clone, &plan.target).await?;
                }
                let edited = self.edited(source.clone)?;
                if edited.is_empty() {
                    return Ok((None, edited));
                }
                if self.tree_can_go(source.clone, &plan.target)? {
                    return Ok((Some(goes_along(&edited)), edited));
                }
                Ok((Some(stays(source.clone, &edited)), Vec::new()))
            }
            (_, Some(source)) => Ok((self.only_here(source.clone)?, Vec::new())),
            (_, None) => {
                let Some(clone) = self.clone_that_is_left(plan).await else { return Ok((None, Vec::new())) };
                // It may be left because it is broken.
                Ok((self.only_here(clone).unwrap_or_default(), Vec::new()))
            }
        }
    }

    fn tree_can_go(&self, clone: &LocalClone, target: &Place) -> Result<bool> {
        clone.tree_can_go(&options(self.host(), target, &self.marker().repo_id)?)
    }

    /// What a clone has that is nowhere else, in words.
    fn only_here(&self, clone: &LocalClone) -> Result<Option<String>> {
        let pending = clone.pending()?.len();
        let edited = self.edited(clone)?;
        let mut what = Vec::new();
        if pending > 0 {
            what.push(format!("changes that are not in the datastore yet: {pending} ('peat pending list' shows them)"));
        }
        if !edited.is_empty() {
            what.push(format!("files changed by hand in {}: {}", clone.tree().display(), some(edited.iter())));
        }
        if what.is_empty() {
            return Ok(None);
        }
        let what = what.join(", and ");
        Ok(Some(format!("stays behind, and 'peat datastore sync --push' would commit it before that: {what}")))
    }

    /// The clone that is in use now and will not be, if this machine has one. What cannot be opened is left in peace.
    async fn clone_that_is_left(&self, plan: &Plan<'_>) -> Option<&LocalClone> {
        let now = place(self.host(), self.root(), &self.marker().repo_id, self.marker().datastore.as_ref()).ok()?;
        if now.dir == plan.target.dir || !LocalClone::has_seen_a_ledger(&now.dir) {
            return None;
        }
        self.clone_of().await.ok()
    }

    /// Files of the tree that somebody changed or added, and that are not in the datastore.
    pub(super) fn edited(&self, clone: &LocalClone) -> Result<Vec<String>> {
        let hand = self.hand(clone, clone.by_hand()?, &[]);
        Ok(hand.files.into_iter().map(|file| file.path.to_string()).collect())
    }
}

pub(super) fn goes_along(edited: &[String]) -> String {
    format!("files changed by hand go along as they are: {}", some(edited.iter()))
}

pub(super) fn stays(clone: &LocalClone, edited: &[String]) -> String {
    format!(
        "files changed by hand stay in {}, to be copied into the new tree, which 'peat status' names: {}",
        clone.tree().display(),
        some(edited.iter())
    )
}

fn some(mut names: impl ExactSizeIterator<Item = impl ToString>) -> String {
    let more = if names.len() > NAMED { ", …" } else { "" };
    let shown: Vec<String> = names.by_ref().take(NAMED).map(|name| name.to_string()).collect();
    format!("{}{more}", shown.join(", "))
}
