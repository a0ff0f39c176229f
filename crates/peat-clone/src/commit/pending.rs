//! Ordinary changes, and what people do with those that are still in the journal.

use peat_types::{ChangeId, Error, Kind, Result, Timestamp};

use super::NOBODY;
use super::send::{How, Outcome};
use crate::handle::Inner;
use crate::journal::{self, Claim, Header, Locked, ROW_VERSION, Role, State};
use crate::sync::Look;
use crate::{Adopt, Change, Committed, Grant, NOTHING_LEFT, NewChange, OnRefusal, Pending, PendingStatus};

/// How long a person's command waits for another process to let go of a row.
const CLAIM: std::time::Duration = std::time::Duration::from_secs(5);

impl Inner {
    pub(crate) async fn commit(&self, change: NewChange) -> Result<Committed> {
        let grants = change.capability.as_ref().map(|held| held.grants().to_vec()).unwrap_or_default();
        Box::pin(self.commit_as(change, Role::Change, grants, false)).await
    }

    /// Journals a change and commits it.
    pub(crate) async fn commit_as(
        &self,
        change: NewChange,
        role: Role,
        grants: Vec<Grant>,
        unleased: bool,
    ) -> Result<Committed> {
        let (on_refusal, patience) = (change.on_refusal, change.patience);
        let deadline = self.env.monotonic() + patience;
        let mut locked = self.journal_change(change, role, grants, unleased)?;
        self.env.step("journal.added").await;
        let how = How { look: Look::IfOld, deadline, dead: &NOBODY };
        match Box::pin(self.work(&mut locked, how)).await? {
            Outcome::Committed(committed, _) => Ok(*committed),
            Outcome::Refused(error) => self.refused(&mut locked, error, on_refusal),
            Outcome::Later(error) => Err(error),
            Outcome::Held(..) => Err(Error::internal("an ordinary change takes no lease")),
        }
    }

    pub(crate) fn journal_change(
        &self,
        change: NewChange,
        role: Role,
        grants: Vec<Grant>,
        unleased: bool,
    ) -> Result<Locked> {
        let mut units = change.units;
        units.sort_unstable();
        units.dedup();
        if units.is_empty() && grants.is_empty() {
            return Err(Error::invalid(format!("a change ({}) must name a unit", change.kind)));
        }
        let header = Header {
            version: ROW_VERSION,
            id: ChangeId::random(&self.env),
            clone: self.id,
            role,
            kind: change.kind,
            payload: change.payload,
            units,
            message: change.message,
            author: change.author.unwrap_or_else(|| self.author()),
            time: self.env.now(),
            unleased,
            grants,
        };
        self.journal.add(&self.env, &header, &change.contents)
    }

    /// What the caller hears of a refused change.
    pub(crate) fn refused(&self, locked: &mut Locked, error: Error, on_refusal: OnRefusal) -> Result<Committed> {
        if on_refusal == OnRefusal::Drop || error.code() == NOTHING_LEFT {
            locked.remove()?;
            return Err(error);
        }
        self.park(locked, &error)?;
        let id = locked.id();
        Err(error.with_hint(format!(
            "what it holds is kept: 'peat pending show {id}' shows it, 'peat pending adopt {id}' commits it on its own, \
             'peat pending drop {id}' forgets it"
        )))
    }

    pub(crate) fn pending(&self) -> Result<Vec<Pending>> {
        let mut out = Vec::new();
        for id in self.journal.ids()? {
            match self.journal.read(id) {
                Ok(Some((row, state))) => out.push(journal::pending(&row, &state)),
                Ok(None) => {}
                Err(error) => out.push(unreadable(id, self.journal.written(id), &error)),
            }
        }
        out.sort_by_key(|row| (row.time, row.change));
        Ok(out)
    }

    pub(crate) fn pending_show(&self, change: ChangeId) -> Result<(Pending, Change)> {
        let (row, state) = self.journal.read(change)?.ok_or_else(|| unknown(change))?;
        Ok((journal::pending(&row, &state), journal::change(&row, &state)))
    }

    async fn claim(&self, change: ChangeId) -> Result<Box<Locked>> {
        match self.journal.claim_within(&self.env, change, CLAIM).await? {
            Claim::Mine(locked) => Ok(locked),
            Claim::Gone => Err(unknown(change)),
            Claim::Busy => Err(Error::new(Kind::Contended, format!("another process works on change {change}"))),
        }
    }

    pub(crate) async fn adopt(&self, change: ChangeId, how: Adopt) -> Result<Committed> {
        let mut locked = self.claim(change).await?;
        if matches!(locked.row.header.role, Role::Start { .. } | Role::Release) {
            return Err(Error::invalid(format!("change {change} only begins or releases a run"))
                .with_hint("run the method again"));
        }
        let adopted = how == Adopt::Unleased;
        let state = State { parked: false, adopted, reason: None, ..locked.state().clone() };
        locked.update(&self.env, state)?;
        self.env.step("pending.adopted").await;
        let deadline = self.env.monotonic() + crate::change::PATIENCE;
        let how = How { look: Look::IfOld, deadline, dead: &NOBODY };
        match Box::pin(self.work(&mut locked, how)).await? {
            Outcome::Committed(committed, _) => Ok(*committed),
            Outcome::Refused(error) => self.refused(&mut locked, error, OnRefusal::Park),
            Outcome::Later(error) => Err(error),
            Outcome::Held(..) => Err(Error::internal("an adopted change takes no lease")),
        }
    }

    pub(crate) async fn drop_change(&self, change: ChangeId) -> Result<()> {
        let mut locked = self.claim(change).await?;
        let deadline = self.env.monotonic() + crate::change::PATIENCE;
        // Parked rows have no living attempt; a row that was never sent has none either.
        if locked.state().tx.is_some() {
            if let super::release::Start::Committed(seq) = Box::pin(self.resolve_start(&mut locked, deadline)).await? {
                return Err(Error::new(Kind::AlreadyExists, format!("change {change} is in the log, in entry {seq}"))
                    .with_hint("it is not pending any more; to undo it, make another change"));
            }
            return Ok(());
        }
        locked.remove()
    }
}

fn unknown(change: ChangeId) -> Error {
    Error::not_found(format!("there is no pending change {change}")).with_hint("'peat pending list' shows all")
}

/// A row that cannot be read is shown, not hidden: its bytes may be all there is.
fn unreadable(change: ChangeId, time: Timestamp, error: &Error) -> Pending {
    Pending {
        change,
        kind: "unreadable".to_owned(),
        message: String::new(),
        author: String::new(),
        time,
        units: Vec::new(),
        contents: 0,
        bytes: 0,
        status: PendingStatus::Parked,
        attempts: 0,
        reason: Some((error.code().to_owned(), error.chain().join(": "))),
    }
}
