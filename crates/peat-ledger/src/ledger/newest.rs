//! Where the log ends, by LIST, and what it means when that does not fit what was seen before (A8).

use std::sync::atomic::Ordering;

use peat_objects::{List, Pages, Range};
use peat_types::{Error, Mutation, Result, Seq};

use super::{Ledger, key};

/// Keys that a listing may give at once.
const LISTED: u16 = 1000;

impl Ledger {
    /// The newest entry by LIST; `None` when the log is empty.
    pub(super) async fn list_head(&self) -> Result<Option<Seq>> {
        Ok(self.list_newest(2).await?.first().copied())
    }

    /// The newest entries by LIST, `keys` at most; none when the log is empty. Two keys are asked for at least, so that a
    /// store that does not keep the order is noticed: an old entry taken for the head could be one whose successors were
    /// collected.
    async fn list_newest(&self, keys: u16) -> Result<Vec<Seq>> {
        let list = List { prefix: key::LOG.to_owned(), max_keys: Some(keys.max(2)), ..List::default() };
        let mut pages = Pages::in_order(&*self.store, list);
        while let Some(page) = pages.next().await? {
            let newest: Vec<Seq> = page.keys.iter().filter_map(|listed| key::log_seq(&listed.key)).collect();
            // From here on in larger pages: something else may lie in the folder.
            pages.widen();
            if let Some(head) = newest.first() {
                if newest.get(1).is_some_and(|second| second.next() != *head) {
                    // Below the floor slots may be missing; else they come in no order, and the rest shows it.
                    while pages.next().await?.is_some() {}
                }
                return Ok(newest);
            }
        }
        Ok(Vec::new())
    }

    /// The highest entry known before a request is issued. Only a head below *this* went back (A8): an older reply that
    /// arrives after a newer one is no news.
    pub(super) fn known(&self, seq: Seq) -> Seq {
        seq.max(Seq(self.seen.load(Ordering::Relaxed)))
    }

    /// Remembers that an entry exists.
    pub(super) fn saw(&self, seq: Seq) {
        self.seen.fetch_max(seq.0, Ordering::Relaxed);
    }

    /// The head by LIST, not below what was known before it was asked for.
    pub(super) async fn listed(&self, known: Seq) -> Result<Seq> {
        let shown = Seq(self.shown.load(Ordering::Relaxed));
        // So many keys that the entry that was shown last is among them, unless others wrote meanwhile. What this clone
        // wrote itself shows nothing: it may stand in a store that was emptied before.
        let since = if shown == Seq::ZERO { 0 } else { self.known(known).0.saturating_sub(shown.0) };
        let keys = u16::try_from(since).unwrap_or(LISTED).saturating_add(2).min(LISTED);
        let newest = self.list_newest(keys).await?;
        let Some(head) = newest.first().copied() else { return Err(self.emptied(known)) };
        let hasty = self.env.mutated(Mutation::OlderReplyIsRollback);
        let bar = if hasty { self.known(known) } else { known };
        if head < bar {
            // A listing may lag behind; the slot itself does not.
            let probe = Range::Part { offset: 0, len: 1 };
            if hasty || self.store.get(&key::log(bar), probe).await?.is_none() {
                return Err(self.went_back(bar, head));
            }
            return Ok(bar);
        }
        let is_due = shown > Seq::ZERO && head.0.saturating_sub(shown.0) < u64::from(keys);
        if is_due && newest.last().is_some_and(|last| *last > shown) && !self.still_kept(shown).await? {
            return Err(Error::damaged(format!(
                "the log in {} was emptied: entry {shown} is gone, and those up to {head} were written since",
                self.store
            ))
            .with_code("rollback")
            .with_hint("the bucket was emptied or replaced: stop all writers, restore it, then compare"));
        }
        self.shown.fetch_max(head.0, Ordering::Relaxed);
        self.saw(head);
        Ok(head)
    }

    /// Whether an entry that a listing did not show is there, or was let go of. What is removed was given up before by an
    /// entry that a later listing shows.
    async fn still_kept(&self, seq: Seq) -> Result<bool> {
        if self.store.get(&key::log(seq), Range::Part { offset: 0, len: 1 }).await?.is_some() {
            return Ok(true);
        }
        let Some(head) = self.list_head().await? else { return Ok(false) };
        // One that is gone by now is not the head any more, and the next look will tell.
        Ok(self.glance(head).await?.is_none_or(|head| head.state.root.keep > seq))
    }

    /// The error of a log without entries, told to whoever knows the entry `known`.
    pub(super) fn emptied(&self, known: Seq) -> Error {
        let known = self.known(known);
        if known == Seq::ZERO {
            return self.empty_log();
        }
        Error::damaged(format!("the log in {} is empty, and it held entry {known}", self.store))
            .with_code("rollback")
            .with_hint("the bucket was emptied or replaced: stop all writers, and restore it from a backup")
    }

    fn went_back(&self, from: Seq, to: Seq) -> Error {
        Error::damaged(format!("the log in {} went back from entry {from} to entry {to}", self.store))
            .with_code("rollback")
            .with_hint("the bucket was set back or an old copy is being read: stop all writers, then compare")
    }

    pub(super) fn empty_log(&self) -> Error {
        Error::damaged(format!("{} has an {} but no entry", self.store, key::NS))
            .with_hint("if its creation was interrupted just now, run 'peat datastore setup <url>' again to finish it")
    }
}
