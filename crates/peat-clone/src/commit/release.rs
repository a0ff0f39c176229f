//! Undoing what dead processes left: attempts that must not land any more, and leases nobody holds.

use std::time::Duration;

use peat_ledger::{Commit, Draft, DraftUnit, Guard, Lease, TxKind};
use peat_types::{ChangeId, Error, Kind, Result, RunNonce, Seq, TxId, Unit};

use super::NOBODY;
use super::draft::lease_path;
use super::send::{How, Outcome};
use crate::db::{self, Moment};
use crate::handle::Inner;
use crate::journal::{Header, Locked, ROW_VERSION, Role};
use crate::sync::Look;
use crate::{Committed, Grant};

/// How a start that was left behind came out.
pub(crate) enum Start {
    /// It is in the log: its leases are held, by nobody.
    Committed(Seq),
    /// It is not in the log and never will be.
    Aborted,
}

impl Inner {
    /// Finds out what became of a start, and makes sure that it stays so. Never sends it. The row is removed.
    pub(crate) async fn resolve_start(&self, locked: &mut Locked, deadline: Duration) -> Result<Start> {
        let units = locked.units();
        let mut look = Look::Now;
        loop {
            // Nothing was sent before the first state was written.
            let sent = locked.state().tx.is_some();
            // A copy of a clone leaves the starts of the original to the original.
            let foreign = matches!(locked.row.header.role, Role::Start { .. }) && locked.row.header.clone != self.id;
            if !sent || foreign {
                locked.remove()?;
                return Ok(Start::Aborted);
            }
            let base = Box::pin(self.base(&units, look)).await?;
            look = Look::IfOld;
            let Some(unit) = units.first() else { return Err(Error::internal("a start without units")) };
            let since = locked.state().since;
            let found = match self.ledger.find_change(&base.state, unit, since, locked.id(), &self.db).await {
                // So long ago that the log does not tell: its lease, if it is still held, says all that matters, and is
                // released with the run.
                Err(error) if error.code() == "history_gone" => None,
                found => found?,
            };
            if let Some((seq, _)) = found {
                self.env.step("start.found").await;
                locked.remove()?;
                return Ok(Start::Committed(seq));
            }
            if self.unit_seqs(&units)? != locked.state().expected {
                locked.remove()?;
                return Ok(Start::Aborted);
            }
            if self.env.monotonic() >= deadline {
                return Err(Error::new(Kind::Contended, "others were faster each time until the time was over"));
            }
            self.env.step("start.abort").await;
            // Whether the abort or the start came first is seen in the next round.
            Box::pin(self.abort(locked, unit, deadline)).await?;
        }
    }

    /// Commits nothing to a unit of a row, so that what was planned on it before can never land (R7).
    pub(crate) async fn abort(&self, locked: &Locked, unit: &Unit, deadline: Duration) -> Result<()> {
        let planned_on = locked.state().expected.get(unit).copied().flatten();
        loop {
            let base = Box::pin(self.base(std::slice::from_ref(unit), Look::IfOld)).await?;
            let expected = self.db.read(|tx| db::known(tx, unit))?.0;
            if expected != planned_on {
                return Ok(());
            }
            let draft = Draft {
                tx: TxId::random(&self.env),
                change: ChangeId::random(&self.env),
                kind: TxKind::Abort,
                author: self.author(),
                message: format!("give up {}", locked.id()),
                time: self.env.now(),
                guard: None,
                units: vec![DraftUnit { unit: unit.clone(), expected, ops: Vec::new() }],
            };
            let at = Moment::now(&self.env);
            let patience = deadline.saturating_sub(self.env.monotonic());
            let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            let sent = Box::pin(self.ledger.commit(&base.state, base.read_at, &draft, &self.db, patience)).await?;
            match sent {
                Commit::Committed { mut passed, entry } => {
                    let mine = entry.state.writer == self.instance;
                    passed.push(*entry);
                    self.apply(&passed, at, false, mine).await?;
                    return Ok(());
                }
                Commit::Lost { passed, .. } => {
                    let void = passed.is_empty();
                    self.step_over(&passed, at).await?;
                    if void {
                        self.look(Look::List).await?;
                    }
                }
                Commit::Unknown { passed, error } | Commit::Refused { passed, error } => {
                    self.step_over(&passed, at).await?;
                    return Err(error);
                }
            }
            if self.env.monotonic() >= deadline {
                return Err(Error::new(Kind::Contended, "others were faster each time until the time was over"));
            }
        }
    }

    /// Frees the lease of a run that is over without having ended, and marks what it left as interrupted. `None` when
    /// somebody else did so first.
    pub(crate) async fn release(&self, unit: &Unit, lease: &Lease, message: String) -> Result<Option<Committed>> {
        let header = Header {
            version: ROW_VERSION,
            id: ChangeId::random(&self.env),
            clone: self.id,
            role: Role::Release,
            kind: "interrupt".to_owned(),
            payload: serde_json::Value::Null,
            units: vec![unit.clone()],
            message,
            author: self.author(),
            time: self.env.now(),
            unleased: false,
            grants: vec![grant(unit, lease)?],
        };
        let mut locked = self.journal.add(&self.env, &header, &[])?;
        let deadline = self.env.monotonic() + crate::change::PATIENCE;
        let how = How { look: Look::IfOld, deadline, dead: &NOBODY };
        match Box::pin(self.work(&mut locked, how)).await? {
            Outcome::Committed(committed, _) => Ok(Some(*committed)),
            Outcome::Refused(error) => {
                locked.remove()?;
                if error.code() == super::draft::LEASE_LOST { Ok(None) } else { Err(error) }
            }
            Outcome::Later(error) => Err(error),
            Outcome::Held(..) => Err(Error::internal("a release takes no lease")),
        }
    }

    /// The leases that a run holds in the state known now.
    pub(crate) async fn grants_of(&self, units: &[Unit], nonce: RunNonce) -> Result<Vec<Grant>> {
        let mut grants = Vec::new();
        for unit in units {
            if let Some(lease) = self.lease(unit).await?.filter(|lease| lease.held && lease.nonce == nonce) {
                grants.push(grant(unit, &lease)?);
            }
        }
        Ok(grants)
    }

    pub(crate) fn author(&self) -> String {
        format!("{}@{}", self.options.user, self.options.host)
    }
}

fn grant(unit: &Unit, lease: &Lease) -> Result<Grant> {
    let guard = Guard { path: lease_path(unit)?, generation: lease.generation, nonce: lease.nonce };
    Ok(Grant { unit: unit.clone(), guard })
}
