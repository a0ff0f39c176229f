//! Whether all of the present datastore can be taken along, and what of this machine's stays behind.

use peat_clone::{LocalClone, Scope};
use peat_types::{Error, Kind, Result};

use super::plan::{Action, Plan};
use crate::Repo;
use crate::repo::place;

/// How many of them a sentence names.
const NAMED: usize = 3;

impl Repo {
    /// Whether nothing is under way in a ledger, so that all of it can be taken along.
    pub(super) async fn at_rest(&self, clone: &LocalClone) -> Result<()> {
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
        if !edited.is_empty() {
            return Err(Error::new(
                Kind::Conflict,
                format!("files of the tree were changed by hand, and would stay behind: {}", some(edited.into_iter())),
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

    /// What only this machine has, and will not have where it goes.
    ///
    /// # Errors
    /// Those of [`at_rest`](Self::at_rest) for a ledger that is still to be closed.
    pub(super) async fn stays_behind(&self, plan: &Plan<'_>) -> Result<Option<String>> {
        let source = plan.source.as_ref();
        // A move or a follower takes the journal along.
        let (clone, takes) = match (&plan.action, source) {
            (Action::Move(_), Some(source)) if source.standing.moved.is_none() => {
                self.at_rest(source.clone).await?;
                return Ok(None);
            }
            (Action::Move(_) | Action::Follow(_), Some(source)) => (source.clone, true),
            (_, Some(source)) => (source.clone, false),
            (_, None) => {
                let Some(clone) = self.clone_that_is_left(plan).await else { return Ok(None) };
                // It may be left because it is broken.
                return Ok(self.only_here(clone, false).unwrap_or_default());
            }
        };
        self.only_here(clone, takes)
    }

    /// What a clone has that is nowhere else, in words; without the journal when that is taken along.
    fn only_here(&self, clone: &LocalClone, takes: bool) -> Result<Option<String>> {
        let pending = if takes { 0 } else { clone.pending()?.len() };
        let edited = self.edited(clone)?;
        let mut what = Vec::new();
        if pending > 0 {
            what.push(format!("changes that are not in the datastore yet: {pending} ('peat pending list' shows them)"));
        }
        if !edited.is_empty() {
            what.push(format!("files changed by hand in {}: {}", clone.tree().display(), some(edited.into_iter())));
        }
        if what.is_empty() {
            return Ok(None);
        }
        let what = what.join(", and ");
        Ok(Some(if takes {
            format!("what does not go along by itself is to be copied over ('peat status' shows what did): {what}")
        } else {
            format!("stays behind, and 'peat datastore sync --push' would commit it before that: {what}")
        }))
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
    fn edited(&self, clone: &LocalClone) -> Result<Vec<String>> {
        let hand = self.hand(clone, clone.by_hand()?, &[]);
        Ok(hand.files.into_iter().map(|file| file.path.to_string()).collect())
    }
}

fn some(mut names: impl ExactSizeIterator<Item = String>) -> String {
    let more = if names.len() > NAMED { ", …" } else { "" };
    let shown: Vec<String> = names.by_ref().take(NAMED).collect();
    format!("{}{more}", shown.join(", "))
}
