//! Moving the base forward over what others committed.

use std::time::Duration;

use peat_types::{Kind, Mutation, Result, Seq};

use super::{Attempt, holds, void};
use crate::ledger::read::Stop;
use crate::ledger::{Commit, Follow};
use crate::model::Entry;

/// Slots read at once together with a listing.
const AHEAD: u64 = 4;
/// Slots read at once when all of these were taken.
const FURTHER: u64 = 8;

impl Attempt<'_> {
    /// Whether slots at and after `slot` are valid. Within `fresh` of a look at the head they are: nothing that young is
    /// ever removed. Later, the head is asked (R6).
    pub(super) async fn valid(&self, slot: Seq) -> Result<bool> {
        let age = self.ledger.env.monotonic().saturating_sub(self.read_at);
        let fresh = age < Duration::from_millis(self.ledger.info.params.fresh_ms);
        if fresh || self.ledger.env.mutated(Mutation::NoFloorCheck) {
            return Ok(true);
        }
        let head = self.ledger.glance_head(self.ledger.known(self.base.seq)).await?;
        Ok(head.state.root.keep <= slot)
    }

    /// The entries after the base. What could not be read is left out: the next create is a probe as well. `None` when
    /// the base lies behind the floor.
    pub(super) async fn ahead(&self) -> Result<Option<Vec<Entry>>> {
        let mut entries = Vec::new();
        for width in [AHEAD, FURTHER, FURTHER] {
            match self.ledger.extend(&self.base, &mut entries, width).await {
                Ok(Stop::Full) => {}
                Ok(Stop::End) => return Ok(Some(entries)),
                Ok(Stop::Behind) => return Ok(None),
                Err(error) if matches!(error.kind(), Kind::Offline | Kind::Denied) => return Ok(Some(entries)),
                Err(error) => return Err(error),
            }
        }
        match self.ledger.follow_listed(&self.base, entries.clone()).await {
            Ok(Follow::Entries(all)) => Ok(Some(all)),
            Ok(Follow::Unchanged | Follow::Jump(_)) => Ok(None),
            Err(error) if matches!(error.kind(), Kind::Offline | Kind::Denied) => Ok(Some(entries)),
            Err(error) => Err(error),
        }
    }

    /// Moves the base over entries that came first. `Some` when that ends the attempt: an earlier process sent it, a
    /// peer carried it along, or the base lies behind the floor.
    pub(super) async fn absorb(&mut self, entries: Vec<Entry>) -> Result<Option<Commit>> {
        let Some(first) = entries.first() else { return Ok(None) };
        let sound = match self.ledger.follows(&self.base, first).await {
            Ok(Stop::Behind) => Ok(false),
            Ok(_) => self.valid(first.state.seq).await,
            Err(error) => Err(error),
        };
        match sound {
            Ok(true) => {}
            Ok(false) => return Ok(Some(void())),
            Err(error) if matches!(error.kind(), Kind::Offline | Kind::Denied) => {
                return Ok(Some(Commit::Unknown { passed: std::mem::take(&mut self.passed), error }));
            }
            Err(error) => return Err(error),
        }
        for entry in entries {
            self.ledger.saw(entry.state.seq);
            self.ledger.local.publish(&entry);
            if holds(self.ledger, &entry, self.draft) {
                let passed = std::mem::take(&mut self.passed);
                return Ok(Some(Commit::Committed { passed, entry: Box::new(entry) }));
            }
            self.pages.hold(entry.state.seq, entry.body.clone());
            self.base = entry.state.clone();
            self.passed.push(entry);
        }
        Ok(None)
    }
}
