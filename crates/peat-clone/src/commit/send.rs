//! Working on a row until it is in the log, put aside, or out of reach.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use peat_ledger::{Commit, Dead as Why, Entry, Ledger, OpRecord, TxHead};
use peat_types::{ChangeId, Error, Hash, Kind, Mutation, Result, Seq, TxId, failed, in_span, number, step};
use tracing::field::Empty;

use super::draft::{Dead, Unplanned};
use crate::db::{self, Applied, Moment};
use crate::handle::Inner;
use crate::journal::{Locked, Role, State};
use crate::sync::{AtHand, Base, Look, RECENT};
use crate::{Brought, Committed, Grant, Item};

/// Tries of what a shaky network denies, before a change is left for later.
const SHAKY: u32 = 3;
/// Pause between attempts, with full jitter, doubling.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What became of a row.
pub(crate) enum Outcome {
    /// It is in the log; the row is gone. With the leases that it took.
    Committed(Box<Committed>, Vec<Grant>),
    /// It is not in the log and no attempt can get there any more; the row is still there, unparked.
    Refused(Error),
    /// A start only: somebody holds a lease it needs. No attempt can get into the log.
    Held(peat_types::Unit, Box<peat_ledger::Lease>),
    /// Not now; the row stays. The error has code `commit_pending` or `outcome_unknown`.
    Later(Error),
}

/// How to work on a row.
pub(crate) struct How<'a> {
    /// How to look at the head first.
    pub(crate) look: Look,
    /// On the monotonic clock.
    pub(crate) deadline: Duration,
    pub(crate) dead: &'a Dead,
}

impl Inner {
    /// Tries to commit a row. Errors are those of this machine; what the store says is in the outcome.
    pub(crate) async fn work(&self, locked: &mut Locked, how: How<'_>) -> Result<Outcome> {
        let span = step!("clone.commit", peat.change = %locked.id(), peat.seq = Empty);
        let outcome = in_span(span.clone(), Box::pin(self.try_to_commit(locked, how))).await?;
        match &outcome {
            Outcome::Committed(committed, _) => {
                span.record("peat.seq", number(committed.seq.0));
            }
            Outcome::Refused(error) | Outcome::Later(error) => failed(&span, error),
            Outcome::Held(..) => {}
        }
        Ok(outcome)
    }

    async fn try_to_commit(&self, locked: &mut Locked, how: How<'_>) -> Result<Outcome> {
        let units = locked.units();
        let (mut look, mut avoid_known, mut tries, mut shaky) = (how.look, false, 0_u32, 0);
        let mut deadline = how.deadline;
        // No attempt is in an entry at or before this one.
        let mut searched = locked.state().since;
        let mut lost = false;
        loop {
            tries += 1;
            if tries > 1 {
                if self.env.monotonic() >= deadline {
                    let error = Error::new(Kind::Contended, "others were faster each time until the time was over");
                    return self.later(locked, error, false);
                }
                // Whoever ends a run goes first: everybody else on its unit can wait a little longer than it.
                if !matches!(locked.row.header.role, Role::End { .. }) {
                    self.env.sleep(self.env.jitter(pause(tries))).await;
                }
            }
            let base = match Box::pin(self.base(&units, look)).await {
                Ok(base) => base,
                Err(error) if error.kind() == Kind::Offline && shaky < SHAKY => {
                    shaky += 1;
                    continue;
                }
                Err(error) => return self.later(locked, error, locked.state().tx.is_some()),
            };
            look = Look::IfOld;
            if locked.state().attempts == 0 {
                searched = base.state.seq;
            }
            match self.find(locked, &base, searched).await {
                Ok(Some((seq, tx))) => return self.found(locked, seq, tx).await,
                Ok(None) => searched = base.state.seq,
                // The log no longer tells. No attempt can land any more (R7: all units moved on), but one may have. Only a
                // person can say whether the change is still wanted; from here on it need not be looked for again.
                Err(error) if error.code() == "history_gone" => {
                    let since = base.state.seq;
                    locked.update(&self.env, State { tx: None, since, ..locked.state().clone() })?;
                    let id = locked.id();
                    return Ok(Outcome::Refused(error.with_hint(format!(
                        "look whether its effect is there: 'peat pending show {id}'; then 'peat pending drop {id}', or \
                         'peat pending adopt {id}' to commit it on top of what is there"
                    ))));
                }
                Err(error) => return self.later(locked, error, true),
            }
            let begun = self.env.monotonic();
            let patience = deadline.saturating_sub(begun);
            let placed = match Box::pin(self.upload(locked, &base.state, avoid_known, patience)).await {
                Ok(placed) => placed,
                Err(error) if error.kind() == Kind::Offline && shaky < SHAKY => {
                    shaky += 1;
                    continue;
                }
                Err(error) => return self.later(locked, error, locked.state().tx.is_some()),
            };
            let took = self.env.monotonic().saturating_sub(begun);
            // What takes as long as it is large does not use up anybody's patience.
            deadline += took;
            if took > RECENT {
                tries = 0;
                continue;
            }
            // R7: as long as no unit moved, the last attempt may still land. The same transaction again is harmless,
            // another one would not be.
            let still = !lost && self.unit_seqs(&units)? == locked.state().expected;
            let living = locked.state().tx.filter(|_| still);
            let tx = living.unwrap_or_else(|| TxId::random(&self.env));
            let planned = match Box::pin(self.plan(locked, tx, &placed, avoid_known, how.dead)).await {
                Ok(planned) => planned,
                Err(Unplanned::Away(items)) => {
                    let begun = self.env.monotonic();
                    let patience = deadline.saturating_sub(begun);
                    let stored = Box::pin(self.store_again(locked, &base.state, &items, patience)).await;
                    deadline += self.env.monotonic().saturating_sub(begun);
                    tries = 0;
                    match stored {
                        Ok(()) => {}
                        Err(error) if error.kind() == Kind::Offline && shaky < SHAKY => shaky += 1,
                        Err(error) => return self.later(locked, error, living.is_some()),
                    }
                    continue;
                }
                Err(Unplanned::Failed(error)) => {
                    if error.kind() == Kind::Offline && shaky < SHAKY {
                        shaky += 1;
                        continue;
                    }
                    return self.later(locked, error, living.is_some());
                }
                Err(Unplanned::Refused(error)) => {
                    if living.is_some() {
                        if let Some(error) = Box::pin(self.kill(locked, deadline)).await? {
                            return self.later(locked, error, true);
                        }
                        continue;
                    }
                    return Ok(Outcome::Refused(error));
                }
                Err(Unplanned::Held(unit, lease)) => {
                    if living.is_some() {
                        if let Some(error) = Box::pin(self.kill(locked, deadline)).await? {
                            return self.later(locked, error, true);
                        }
                        continue;
                    }
                    return Ok(Outcome::Held(unit, Box::new(lease)));
                }
            };
            if self.unit_seqs(&units)? != planned.expected || self.db.read(db::head_seq)? != Some(base.state.seq) {
                // Another process of this clone brought the units forward while they were planned on.
                continue;
            }
            // No attempt is in an entry up to here: that was looked for above.
            let since = base.state.seq;
            let state = State {
                tx: Some(tx),
                expected: planned.expected,
                answer: planned.answer,
                attempts: locked.state().attempts + 1,
                since,
                ..locked.state().clone()
            };
            locked.update(&self.env, state)?;
            lost = false;
            self.env.step("commit.planned").await;
            let at = Moment::now(&self.env);
            let patience = deadline.saturating_sub(self.env.monotonic());
            let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            let sent = self.ledger.commit(&base.state, base.read_at, &planned.draft, &self.db, patience);
            let outcome = Box::pin(sent).await;
            self.env.step("commit.sent").await;
            match outcome {
                Ok(Commit::Committed { passed, entry }) => {
                    let committed = self.landed(locked, passed, *entry, planned.contents, at).await;
                    return Ok(Outcome::Committed(Box::new(committed), planned.grants));
                }
                Ok(Commit::Lost { passed, why }) => {
                    if let Some((seq, tx)) = self.change_in(&passed, locked.id()) {
                        self.step_over(&passed, at).await?;
                        return self.found(locked, seq, tx).await;
                    }
                    lost = true;
                    // Time passed since the slot was lost; a look costs less than losing the next one as well.
                    look = Look::Now;
                    searched = passed.last().map_or(searched, |entry| entry.state.seq);
                    match why {
                        // Behind the floor, or a reference that was taken for a living one is not.
                        Why::Gone => {
                            avoid_known = true;
                            look = Look::List;
                        }
                        Why::Moved(_) | Why::Horizon => {}
                    }
                    self.step_over(&passed, at).await?;
                    if !how.dead.is_empty() {
                        // A proof of death is good for one attempt only.
                        let error = Error::new(Kind::Contended, "somebody else was faster");
                        return Ok(Outcome::Refused(error.with_code(AGAIN)));
                    }
                }
                Ok(Commit::Unknown { passed, error }) => {
                    self.step_over(&passed, at).await?;
                    return self.later(locked, error, true);
                }
                Ok(Commit::Refused { passed, error }) => {
                    self.step_over(&passed, at).await?;
                    // Nothing this call sent is or will be there; what an earlier one sent might.
                    if living.is_none() {
                        locked.update(&self.env, State { tx: None, ..locked.state().clone() })?;
                    }
                    return self.later(locked, error, living.is_some());
                }
                // Found before anything was sent.
                Err(error) if error.kind() == Kind::Invalid && living.is_none() => {
                    locked.update(&self.env, State { tx: None, ..locked.state().clone() })?;
                    return Ok(Outcome::Refused(error));
                }
                Err(error) if error.kind() == Kind::Conflict && shaky < SHAKY => {
                    // The plan does not fit the table: the index is behind in a way it does not know. Look again.
                    shaky += 1;
                    look = Look::Now;
                }
                Err(error) if Ledger::is_gone(&error) && shaky < SHAKY => {
                    shaky += 1;
                    avoid_known = true;
                    look = Look::List;
                }
                Err(error) => return self.later(locked, error, true),
            }
        }
    }

    /// Looks for the change in entries after `searched`.
    async fn find(&self, locked: &Locked, base: &Base, searched: Seq) -> Result<Option<(Seq, TxId)>> {
        if self.env.mutated(Mutation::ReplanNoChangeId) {
            return Ok(None);
        }
        let seqs = self.unit_seqs(&locked.units())?;
        // An attempt changes all of its units at once: one that did not move is proof enough.
        if seqs.values().any(|seq| seq.is_none_or(|seq| seq <= searched)) {
            return Ok(None);
        }
        let Some(unit) = seqs.keys().next() else { return Ok(None) };
        self.ledger.find_change(&base.state, unit, searched, locked.id(), &self.db).await
    }

    fn change_in(&self, passed: &[Entry], change: ChangeId) -> Option<(Seq, TxId)> {
        // (Looking for the change makes up for not having looked for the transaction, which a test must see.)
        if self.env.mutated(Mutation::ReplanNoChangeId) || self.env.mutated(Mutation::NoTxid) {
            return None;
        }
        passed
            .iter()
            .find_map(|entry| entry.txs.iter().find(|tx| tx.change == change).map(|tx| (entry.state.seq, tx.tx)))
    }

    /// Makes the last attempt of a row fail for ever. `Some` with the reason when that is not possible now.
    pub(crate) async fn kill(&self, locked: &Locked, deadline: Duration) -> Result<Option<Error>> {
        let units = locked.units();
        let Some(unit) = units.first() else { return Ok(None) };
        match Box::pin(self.abort(locked, unit, deadline)).await {
            Ok(()) => Ok(None),
            Err(error) => Ok(Some(error)),
        }
    }

    /// Takes entries that came first into the index.
    pub(crate) async fn step_over(&self, passed: &[Entry], at: Moment) -> Result<()> {
        if !passed.is_empty() {
            let applied = self.apply(passed, at, false, false).await?;
            self.hydrate_at_hand(applied, &AtHand::entries(passed.to_vec())).await;
        }
        Ok(())
    }

    /// The row's transaction is in `entry`. From here on nothing may fail: the change is in the log, and what this
    /// machine cannot note now the next pull and the next settling find out.
    async fn landed(
        &self,
        locked: &mut Locked,
        passed: Vec<Entry>,
        entry: Entry,
        contents: BTreeMap<Hash, Brought>,
        at: Moment,
    ) -> Committed {
        self.committed.store(true, Ordering::Relaxed);
        let seq = entry.state.seq;
        let mine = entry.state.writer == self.instance;
        let items = self.items_of(&entry, locked.id());
        let own = changed_by(&entry, locked.id());
        let mut entries = passed;
        entries.push(entry);
        let applied = self.apply(&entries, at, false, mine).await;
        self.env.step("commit.applied").await;
        match applied {
            Ok(applied) => {
                let others = Applied { items: applied.items.saturating_sub(own), ..applied };
                let at_hand = AtHand::entries(entries).with(contents);
                self.hydrate_at_hand(others, &at_hand).await;
                self.show_own(&items, &at_hand);
            }
            Err(error) => tracing::warn!(%error, %seq, "committed, but not yet in the index"),
        }
        let committed = Committed { seq, change: locked.id(), answer: locked.state().answer.clone(), items };
        if let Err(error) = locked.remove() {
            tracing::warn!(%error, %seq, "committed, but still in the journal");
        }
        self.env.step("commit.removed").await;
        committed
    }

    /// The change was found in the log.
    async fn found(&self, locked: &mut Locked, seq: Seq, tx: TxId) -> Result<Outcome> {
        let state = locked.state();
        let answer = if state.tx == Some(tx) { state.answer.clone() } else { serde_json::Value::Null };
        let committed = Committed { seq, change: locked.id(), answer, items: Vec::new() };
        let grants = match &locked.row.header.role {
            Role::Start { nonce, leases, .. } => self.grants_of(leases, *nonce).await?,
            _ => Vec::new(),
        };
        locked.remove()?;
        Ok(Outcome::Committed(Box::new(committed), grants))
    }

    /// Items that a change set in an entry.
    fn items_of(&self, entry: &Entry, change: ChangeId) -> Vec<Item> {
        let mine = |(tx, _): &(&TxHead, _)| tx.change == change;
        let ops = entry.txs.iter().zip(&entry.ops).filter(mine).flat_map(|(_, ops)| ops);
        ops.flat_map(|unit| {
            unit.ops.iter().filter_map(|op| match op {
                OpRecord::Put(path, rank, row) if !db::is_lease(path) => {
                    Some(Item { unit: unit.unit.clone(), path: path.clone(), rank: *rank, row: row.clone() })
                }
                _ => None,
            })
        })
        .collect()
    }

    fn later(&self, locked: &mut Locked, error: Error, sent: bool) -> Result<Outcome> {
        let reason = Some((error.code().to_owned(), error.chain().join(": ")));
        locked.update(&self.env, State { reason, ..locked.state().clone() })?;
        let id = locked.id();
        let (code, message) = if sent {
            ("outcome_unknown", format!("whether change {id} was committed is not known yet"))
        } else {
            ("commit_pending", format!("change {id} is not committed yet"))
        };
        let error = error.context(message).with_code(code);
        // A start is given up by whoever wrote it: nobody sends it again, and there is nothing to be shown.
        if matches!(locked.row.header.role, Role::Start { .. }) {
            return Ok(Outcome::Later(error));
        }
        Ok(Outcome::Later(error.with_hint(format!(
            "nothing was lost: 'peat datastore sync --push' tries again, 'peat pending show {id}' shows it"
        ))))
    }

    /// Puts a refused row aside.
    pub(crate) fn park(&self, locked: &mut Locked, error: &Error) -> Result<()> {
        let reason = Some((error.code().to_owned(), error.chain().join(": ")));
        let state = State { parked: true, tx: None, reason, ..locked.state().clone() };
        locked.update(&self.env, state)
    }
}

/// How many items a change sets or removes in an entry.
fn changed_by(entry: &Entry, change: ChangeId) -> u64 {
    let mine = entry.txs.iter().zip(&entry.ops).filter(|(tx, _)| tx.change == change);
    let ops = mine.flat_map(|(_, units)| units).flat_map(|unit| &unit.ops);
    let item = |op: &&OpRecord| matches!(op, OpRecord::Put(path, ..) | OpRecord::Delete(path) if !db::is_lease(path));
    ops.filter(item).count() as u64
}

/// Code of the refusal that only means: look at the lease again.
pub(crate) const AGAIN: &str = "again";

fn pause(tries: u32) -> Duration {
    PAUSE.saturating_mul(2_u32.saturating_pow(tries.saturating_sub(2))).min(PAUSE_MAX)
}
