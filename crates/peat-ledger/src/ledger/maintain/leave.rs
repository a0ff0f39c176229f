//! The last entries of a ledger that moves: where it goes, and, once nobody can be relying on it any more, that nothing
//! before counts.

use std::time::Duration;

use async_trait::async_trait;
use peat_types::{Error, Kind, Result, Seq};

use super::enter::{Build, Entered, Mark, enter};
use super::{Collected, Collecting, Doomed, GcPlan};
use crate::format::maintain::{Maintenance, section};
use crate::ledger::pages::{NoCache, Pages};
use crate::ledger::{Ledger, key, log};
use crate::model::{Entry, Moved, Root, State, TxKind};

/// How much longer than `fresh` everything stays after a move: who looked before it relies on slots that long.
const SLACK: u32 = 2;

impl Ledger {
    /// Says by an entry where the ledger goes. What an earlier one says, if there is one.
    pub(in crate::ledger) async fn leave(&self, to: &Moved, author: &str, patience: Duration) -> Result<Moved> {
        let give_up = self.env.monotonic() + patience;
        let mut last = Last { mark: Mark::new(self, author), to: Some(to), closing: None };
        loop {
            let head = self.head_entry(self.known(Seq::ZERO)).await?;
            if let Some(moved) = head.state.root.moved {
                return Ok(moved);
            }
            match self.last(head, &mut last, give_up).await? {
                Entered::Yes(_, head) => {
                    return head.state.root.moved.ok_or_else(|| Error::internal("a ledger did not move"));
                }
                // Somebody else was faster, or it was cleared away: the head tells.
                Entered::Void => {}
                Entered::Late(error) | Entered::Unknown(error) => return Err(error.context("the ledger did not move")),
            }
            if self.env.monotonic() >= give_up {
                return Err(Error::new(Kind::Contended, "others were faster each time until the time was over"));
            }
        }
    }

    async fn last(&self, head: Entry, last: &mut Last<'_>, give_up: Duration) -> Result<Entered> {
        let mut pages = Pages::new(self, &NoCache);
        pages.hold(head.state.seq, head.body);
        enter(self, head.state, pages, last, give_up).await
    }

    /// What is left of a ledger that moved to `successor`: all but its description and its newest entry may go.
    ///
    /// # Errors
    /// `Conflict` when it did not move there; `Contended` with code `too_early` as long as others may rely on it.
    pub async fn plan_clear(&self, successor: &crate::NsInfo) -> Result<GcPlan> {
        let newest = self.listed(self.known(Seq::ZERO)).await?;
        let (head, meta) = self.entry_seen(newest).await?.ok_or_else(|| self.missing(newest))?;
        let root = &head.state.root;
        let went = root.moved.as_ref().is_some_and(|moved| successor.comes_from(moved.ledger));
        if !went {
            let why = format!("the ledger in {} did not move to {}", self.store, successor.ledger);
            return Err(Error::new(Kind::Conflict, why).with_hint("nothing was removed: it is not a copy"));
        }
        let wait = Duration::from_millis(self.info.params.fresh_ms) * SLACK;
        let now = meta.date.map_or(self.env.now(), |date| date.min(self.env.now()));
        let written = meta.last_modified.unwrap_or(head.time).max(head.time);
        let age = u64::try_from(now.millis_since(written)).unwrap_or(0);
        let closed = root.keep == head.state.seq;
        if !closed && Duration::from_millis(age) < wait {
            let minutes = (wait - Duration::from_millis(age)).as_secs().div_ceil(60);
            return Err(Error::new(
                Kind::Contended,
                format!("the ledger moved a short time ago; other machines may rely on it for {minutes} more minutes"),
            )
            .with_code("too_early")
            .with_hint("run 'peat datastore setup --cleanup' again then: nothing was removed"));
        }
        let mut doomed = Vec::new();
        let mut retained = 0;
        for prefix in [key::PACK, key::TX, key::BEAT, key::PROBE, key::LOG] {
            for listed in log::list_all(self, prefix).await? {
                if key::log_seq(&listed.key).is_some_and(|seq| seq >= head.state.seq) {
                    retained += listed.size;
                } else {
                    doomed.push(Doomed::of(&listed));
                }
            }
        }
        let seq = if closed { head.state.seq } else { head.state.seq.next() };
        Ok(GcPlan {
            head: head.state.seq,
            floor: (root.floor, seq),
            horizon: (root.horizon, seq),
            keep: (root.keep, seq),
            pruned: 0,
            held_by: None,
            doomed,
            retained,
        })
    }

    /// Carries such a plan out: an entry makes every slot before it void, so that whoever still writes there is refused,
    /// then all but that entry goes.
    pub async fn clear(
        &self,
        plan: &GcPlan,
        how: &Collecting,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Collected> {
        let give_up = self.env.monotonic() + how.patience;
        let head = self.head_entry(self.known(plan.head)).await?;
        let mut keep = head.state.root.keep;
        let mut entry = None;
        if keep != head.state.seq {
            let mut last = Last { mark: Mark::new(self, &how.author), to: None, closing: Some(plan.head) };
            match self.last(head, &mut last, give_up).await? {
                Entered::Yes(made, head) => {
                    keep = head.state.root.keep;
                    entry = Some(made.state.seq);
                }
                Entered::Void => return Err(Error::new(Kind::Contended, "somebody else changed the ledger meanwhile")),
                Entered::Late(error) | Entered::Unknown(error) => return Err(error.context("nothing was removed")),
            }
        }
        self.env.step("clear.sweep").await;
        let mut out = Collected { entry, ..Collected::default() };
        let of = plan.doomed.len() as u64;
        let may_go = |name: &str| key::log_seq(name).is_none_or(|seq| seq < keep);
        super::sweep::delete(self, &plan.doomed, &may_go, give_up, &mut out, &|done| progress(done, of)).await?;
        if let (Some(_), true) = (entry, out.left.is_empty()) {
            // The entry that told of the move: the one after it tells, too.
            self.store.delete(&key::log(plan.head)).await?;
        }
        Ok(out)
    }
}

struct Last<'a> {
    mark: Mark,
    to: Option<&'a Moved>,
    /// The entry that told of the move, when everything before is to be void.
    closing: Option<Seq>,
}

#[async_trait]
impl Build for Last<'_> {
    fn pass(&mut self, _: &Entry) -> bool {
        // Where it goes does not depend on what is in it.
        true
    }

    fn closes(&self) -> bool {
        self.closing.is_some()
    }

    async fn build(&mut self, base: &State, _: &Pages<'_>) -> Result<Option<Maintenance>> {
        let seq = base.seq.next();
        let (root, message) = match (self.to, &base.root.moved) {
            (Some(to), None) => {
                let moved = Moved { upto: base.seq, ..to.clone() };
                let message = format!("moved to namespace {} of {}", moved.namespace, moved.url);
                (Root { moved: Some(moved), ..base.root.clone() }, message)
            }
            (None, Some(_)) if self.closing == Some(base.seq) => {
                let void = Root { horizon: seq, floor: seq, keep: seq, minlog: seq, ..base.root.clone() };
                (void, "what was before the move is removed".to_owned())
            }
            _ => return Ok(None),
        };
        Ok(Some(Maintenance {
            kind: TxKind::Moved,
            tx: self.mark.tx,
            change: self.mark.change,
            author: self.mark.author.clone(),
            message,
            root,
            directory: Vec::new(),
            packs: Vec::new(),
            introduced: Vec::new(),
            section: section()?,
        }))
    }
}
