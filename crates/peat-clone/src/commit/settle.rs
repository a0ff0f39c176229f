//! What earlier invocations left behind, one row after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use peat_types::{Kind, Mutation, Result, RunNonce, Unit};

use super::NOBODY;
use super::release::Start;
use super::send::{How, Outcome};
use crate::handle::Inner;
use crate::journal::{Claim, Locked, Role};
use crate::sync::Look;
use crate::{Event, NOTHING_LEFT, Pending, PendingStatus, Settled};

/// How long one row is worked on.
const PATIENCE: Duration = Duration::from_secs(30);

impl Inner {
    pub(crate) async fn settle(&self) -> Result<Settled> {
        self.settle_units(None).await
    }

    /// Settles the rows that touch `only` (all when `None`), then the runs whose processes are gone.
    pub(crate) async fn settle_units(&self, only: Option<&[Unit]>) -> Result<Settled> {
        self.journal.sweep()?;
        let mut settled = Settled::default();
        let mut rows: Vec<Pending> = self.pending()?;
        rows.retain(|row| row.status != PendingStatus::Parked);
        rows.retain(|row| only.is_none_or(|only| row.units.iter().any(|unit| only.contains(unit))));
        // Starts first: they say whether there is a lease that an end may still be guarded by.
        rows.sort_by_key(|row| row.status != PendingStatus::Starting);
        let mut look = Look::Now;
        let mut offline = false;
        for row in rows {
            if offline {
                settled.unknown.push(row);
                continue;
            }
            match self.journal.claim(row.change)? {
                Claim::Gone => {}
                Claim::Busy => settled.busy.push(row),
                Claim::Mine(mut locked) => {
                    self.env.step("settle.claimed").await;
                    offline = Box::pin(self.settle_row(&mut locked, look, &mut settled)).await?;
                    look = Look::IfOld;
                }
            }
        }
        if !offline {
            Box::pin(self.bury(only, &mut settled)).await?;
        }
        Ok(settled)
    }

    /// Gives whether the store cannot be reached, so that the other rows need not be tried.
    async fn settle_row(&self, locked: &mut Locked, look: Look, settled: &mut Settled) -> Result<bool> {
        let deadline = self.env.monotonic() + PATIENCE;
        if matches!(locked.row.header.role, Role::Start { .. }) && !self.env.mutated(Mutation::ResubmitStart) {
            match Box::pin(self.resolve_start(locked, deadline)).await {
                Ok(Start::Committed(_)) => {} // its run is buried below
                Ok(Start::Aborted) => settled.aborted.push(locked.id()),
                Err(error) => {
                    tracing::warn!(%error, change = %locked.id(), "a start is not resolved yet");
                    settled.unknown.push(locked.pending());
                    return Ok(error.kind() == Kind::Offline);
                }
            }
            return Ok(false);
        }
        let how = How { look, deadline, dead: &NOBODY };
        match Box::pin(self.work(locked, how)).await? {
            Outcome::Committed(committed, _) => settled.committed.push(*committed),
            // Somebody else released it.
            Outcome::Refused(_) if locked.row.header.role == Role::Release => locked.remove()?,
            Outcome::Refused(error) if error.code() == NOTHING_LEFT => locked.remove()?,
            Outcome::Refused(error) => {
                self.park(locked, &error)?;
                // (Who made a change that is refused at once hears of it as its error.)
                let why = error.to_string();
                self.options.reporter.report(Event::Parked { change: locked.id(), why: &why });
                settled.parked.push(locked.pending());
            }
            Outcome::Held(..) => locked.remove()?,
            Outcome::Later(error) => {
                settled.unknown.push(locked.pending());
                return Ok(error.kind() == Kind::Offline);
            }
        }
        Ok(false)
    }

    /// Releases what runs of this clone hold whose processes are gone.
    async fn bury(&self, only: Option<&[Unit]>, settled: &mut Settled) -> Result<()> {
        for dead in self.runs.dead()? {
            if only.is_some_and(|only| !dead.units.iter().any(|unit| only.contains(unit))) {
                continue;
            }
            // Its end may still get through; releasing the lease would refuse it.
            if self.awaited()?.contains(&dead.nonce) {
                continue;
            }
            Box::pin(self.base(&dead.units, Look::IfOld)).await?;
            let mut released = false;
            for unit in &dead.units {
                let Some(lease) = self.lease(unit).await? else { continue };
                if lease.held && lease.nonce == dead.nonce && lease.clone == self.id {
                    let message = "its process is gone: the run was interrupted".to_owned();
                    released |= Box::pin(self.release(unit, &lease, message)).await?.is_some();
                }
            }
            if released {
                settled.interrupted.push(dead.start);
            }
            self.runs.forget(&dead)?;
        }
        Ok(())
    }

    /// Runs that a row of the journal would still do something for: resolve its start or commit under its leases.
    fn awaited(&self) -> Result<BTreeSet<RunNonce>> {
        let mut out = BTreeSet::new();
        for id in self.journal.ids()? {
            if let Ok(Some((row, state))) = self.journal.read(id)
                && !state.parked
            {
                out.extend(row.header.grants.iter().map(|grant| grant.guard.nonce));
                if let Role::Start { nonce, .. } = row.header.role {
                    out.insert(nonce);
                }
            }
        }
        Ok(out)
    }
}
