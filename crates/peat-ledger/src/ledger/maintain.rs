//! Checkpoint, compaction and garbage collection. See `docs/design/010-maintenance.md`.

mod checkpoint;
mod collect;
mod enter;
mod leave;
mod mend;
mod moved;
mod pin;
mod purge;
mod rebuild;
mod search;
mod shelf;
mod sweep;

use std::time::Duration;

use peat_objects::Listed;
use peat_types::{Kind, Result, Seq, TxId, in_span, number, step};
use tracing::field::Empty;

use super::{Ledger, Verified, key};
use crate::model::State;
pub use mend::{Copies, KnownUnit, MendPlan, Mended, Mending};
pub use pin::Pin;
pub use purge::{PurgePlan, Purged, Purging};
pub use rebuild::{Built, Rebuild};

/// Entries after which a checkpoint is due.
const DUE_ENTRIES: u64 = 128;
/// Bytes of sections after which a checkpoint is due.
const DUE_BYTES: u64 = 8 << 20;

/// What lies in the log since the last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Entries.
    pub entries: u64,
    /// Bytes of their sections.
    pub bytes: u64,
}

impl Tail {
    /// The tail of a state.
    pub fn of(state: &State) -> Self {
        Self { entries: (state.seq.0 + 1).saturating_sub(state.root.minlog.0), bytes: state.root.tail }
    }

    /// Whether a checkpoint is worth its requests.
    pub fn is_due(self) -> bool {
        self.entries >= DUE_ENTRIES || self.bytes >= DUE_BYTES
    }
}

/// How to go about a checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpointing {
    /// Who, for people: `user@host`.
    pub author: String,
    /// Make one even when none is due.
    pub force: bool,
    /// Rewrite all metadata and compact packs, even when the levels do not ask for it.
    pub full: bool,
    /// How long to try.
    pub patience: Duration,
}

/// What a checkpoint came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// None was due, or there was nothing to copy.
    NotDue(Tail),
    /// The log below `cut` is no longer needed for the state.
    Done {
        /// The entry.
        seq: Seq,
        /// The slot below which nothing is referred to.
        cut: Seq,
        /// Whether all metadata was rewritten and packs were compacted.
        full: bool,
        /// Bytes of pages that were written.
        pages: u64,
        /// Bytes of contents that were copied.
        contents: u64,
        /// Packs introduced.
        introduced: u64,
        /// Packs that nothing refers to any more.
        dropped: u64,
    },
    /// Others were faster, or the store did not answer. Nothing was lost; try again some time.
    Later(String),
}

/// How to collect garbage.
#[derive(Clone, Debug)]
pub struct Collecting {
    /// Who, for people: `user@host`.
    pub author: String,
    /// The state that was current so long ago, and all later ones, stay readable.
    pub keep: Duration,
    /// How long to try.
    pub patience: Duration,
}

/// Kinds of objects that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Entries of the log.
    Entry,
    /// Packs.
    Pack,
    /// Staged transactions.
    Staged,
    /// Heartbeats.
    Beat,
    /// What probes of the store left behind.
    Probe,
}

/// An object that no state that is kept refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doomed {
    /// Its key.
    pub key: String,
    /// What it is.
    pub kind: ObjectKind,
    /// Its size in bytes.
    pub size: u64,
}

impl Doomed {
    fn of(listed: &Listed) -> Self {
        let kind = match listed.key.split_once('/').map(|(folder, _)| folder) {
            Some("pack") => ObjectKind::Pack,
            Some("tx") => ObjectKind::Staged,
            Some("beat") => ObjectKind::Beat,
            Some("probe") => ObjectKind::Probe,
            _ => ObjectKind::Entry,
        };
        Self { key: listed.key.clone(), kind, size: listed.size }
    }
}

/// What a collection will do: the entry it makes, and the objects that may go once that is in the log. Each pair is
/// what holds now and what will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GcPlan {
    /// The entry it was made on.
    pub head: Seq,
    /// F: the oldest state that is kept.
    pub floor: (Seq, Seq),
    /// H: uploads for older slots are no longer introduced.
    pub horizon: (Seq, Seq),
    /// K: the first valid slot.
    pub keep: (Seq, Seq),
    /// Rows of dropped packs that are forgotten.
    pub pruned: u64,
    /// The pin that keeps the floor from rising further.
    pub held_by: Option<String>,
    /// Objects that may go.
    pub doomed: Vec<Doomed>,
    /// Bytes of all that stays.
    pub retained: u64,
}

impl GcPlan {
    /// Whether an entry is needed.
    pub fn raises(&self) -> bool {
        [self.floor, self.horizon, self.keep].iter().any(|(from, to)| from != to) || self.pruned > 0
    }
}

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The entry that raised the floors, if one was needed.
    pub entry: Option<Seq>,
    /// Objects that are gone.
    pub deleted: Vec<Doomed>,
    /// Objects that could be freed, and were not.
    pub left: Vec<Doomed>,
    /// What the store said when it refused a deletion.
    pub denied: Option<String>,
}

impl Ledger {
    /// What a collection would do now. Nothing is changed.
    ///
    /// # Errors
    /// `Invalid` when states are to be kept for less than clients rely on; what the store says.
    pub async fn plan_gc(&self, how: &Collecting) -> Result<GcPlan> {
        Box::pin(collect::plan(self, how)).await
    }

    /// Carries out a plan: raises the floors by an entry, then deletes what the plan names and the head of the log lets
    /// go. Interrupted anywhere, it may be planned and run again. `progress` is told how many of how many objects were
    /// looked at.
    ///
    /// # Errors
    /// What the store says. A store that refuses deletions is not an error.
    pub async fn gc(&self, plan: &GcPlan, how: &Collecting, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Collected> {
        let span = step!("ledger.gc", peat.namespace = %self.info.namespace, peat.objects = number(plan.doomed.len()));
        in_span(span, Box::pin(collect::run(self, plan, how, progress))).await
    }

    /// Whether the store lets this client delete. One request, for what nobody has.
    ///
    /// # Errors
    /// What the store says, but for a refusal.
    pub async fn may_delete(&self) -> Result<bool> {
        match self.store.delete(&key::tx(Seq::ZERO, TxId::random(&self.env))).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Kind::Denied => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What a purge would do now. Nothing is changed.
    ///
    /// # Errors
    /// `Invalid` for a lease; what the store says.
    pub async fn plan_purge(&self, what: &Purging) -> Result<PurgePlan> {
        Box::pin(purge::plan(self, what)).await
    }

    /// Removes an item from the present and from history: no object of the ledger holds it afterwards. Interrupted
    /// anywhere, it may be run again, and goes on. `progress` is told how many of how many objects were looked at in the
    /// last step.
    ///
    /// # Errors
    /// `Conflict` with code `pinned` while a pin keeps an older state; `Contended` when others were faster each time. A
    /// store that refuses to overwrite or to delete is not an error, but the report says what is left.
    pub async fn purge(&self, what: &Purging, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Purged> {
        let span = step!("ledger.purge", peat.namespace = %self.info.namespace);
        in_span(span, Box::pin(purge::run(self, what, progress))).await
    }

    /// What can be put right of what a verification found: pages that the log, older states or `copies` tell for sure, and
    /// contents that lie elsewhere in the ledger or that `copies` has. Nothing is changed by making one.
    ///
    /// # Errors
    /// What the store and `copies` say.
    pub async fn plan_mend(&self, found: &Verified, copies: &dyn Copies) -> Result<MendPlan> {
        Box::pin(mend::plan(self, found, copies)).await
    }

    /// Carries such a plan out: writes the pages anew, stores the contents again in new packs, and lets the newest state point
    /// there, by entries of the log. Nothing is removed but packs from the table that are not what it says and that nothing needs any more.
    /// Interrupted anywhere, it may be planned and run again.
    ///
    /// # Errors
    /// What the store and `copies` say; `Contended` when others were faster each time.
    pub async fn mend(&self, plan: &MendPlan, copies: &dyn Copies, how: &Mending) -> Result<Mended> {
        let span = step!("ledger.mend", peat.namespace = %self.info.namespace);
        in_span(span, Box::pin(mend::run(self, plan, copies, how))).await
    }

    /// The states that are kept under a name, by name.
    ///
    /// # Errors
    /// What the store says.
    pub async fn pins(&self) -> Result<Vec<Pin>> {
        pin::list(self).await
    }

    /// Keeps the state after entry `at` (the newest, when none is given) readable under `name`, until the pin is removed.
    /// Gives the entry that says so and the one that is pinned.
    ///
    /// # Errors
    /// `Invalid` for a bad name, an entry that is not there yet and one whose state is no longer kept (code `state_not_kept`),
    /// `AlreadyExists` for a name that is in use; `Contended` when others were faster for all of `patience`; `Offline` when
    /// nothing is known.
    pub async fn pin(&self, name: &str, at: Option<Seq>, author: &str, patience: Duration) -> Result<(Seq, Seq)> {
        Box::pin(pin::set(self, name, pin::Wish::Add(at), author, patience)).await
    }

    /// Removes a pin. Gives the entry that says so and the one that was pinned.
    ///
    /// # Errors
    /// `NotFound` when there is none of that name; as [`pin`](Self::pin).
    pub async fn unpin(&self, name: &str, author: &str, patience: Duration) -> Result<(Seq, Seq)> {
        Box::pin(pin::set(self, name, pin::Wish::Remove, author, patience)).await
    }

    /// Copies what states refer to in the log into packs, when that is due.
    ///
    /// # Errors
    /// What the store says; `Damaged` when what is to be copied is. Nothing is changed by a failure.
    pub async fn checkpoint(&self, how: &Checkpointing) -> Result<Checkpoint> {
        let span = step!("ledger.checkpoint", peat.namespace = %self.info.namespace, peat.seq = Empty);
        let made = in_span(span.clone(), Box::pin(checkpoint::checkpoint(self, how))).await?;
        if let Checkpoint::Done { seq, .. } = &made {
            span.record("peat.seq", number(seq.0));
        }
        Ok(made)
    }
}
