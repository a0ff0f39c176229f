//! Runs: what happens under a lease.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use peat_ledger::Guard;
use peat_types::{Error, Kind, Result, RunNonce, Unit};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::commit::{How, LEASE_LOST, NOBODY, Outcome};
use crate::files::Lock;
use crate::handle::Inner;
use crate::journal::Role;
use crate::sync::Look;
use crate::{Committed, NewChange};

/// How long a begin waits for a lease unless told otherwise.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// A run to be started.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Committed together with taking the leases of its units. Its `capability`, when set, is the lease of a parent
    /// process: units that lie under it are not leased again, others are taken only if they are free at once.
    pub start: NewChange,
    /// Whether leases are taken.
    pub lease: LeaseMode,
    /// How long to wait for somebody else's lease.
    pub wait: Duration,
}

impl NewRun {
    /// A leased run that waits a minute.
    pub fn new(start: NewChange) -> Self {
        Self { start, lease: LeaseMode::Leased, wait: WAIT }
    }
}

/// Whether a run takes leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseMode {
    /// The start is committed before the run begins.
    #[default]
    Leased,
    /// Nothing is committed at the start; the end adds new versions that are marked unleased. Works offline.
    Unleased,
}

/// One held lease: what a guard checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// What is held.
    pub unit: Unit,
    /// Record, generation and run.
    pub guard: Guard,
}

/// Held leases, as text that a parent process hands to its children: a child that passes it in works under the
/// parent's lease. Proves nothing by itself; the guards are checked in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    grants: Vec<Grant>,
}

impl Capability {
    /// The leases, one per unit.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    pub(crate) fn new(grants: Vec<Grant>) -> Self {
        Self { grants }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&self.grants).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Capability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let grants = serde_json::from_str(text)
            .map_err(|e| Error::invalid("the lease handed down by the parent process cannot be read").with_source(e))?;
        Ok(Self { grants })
    }
}

/// A run that has begun. Dropping it without [`end`](Self::end) leaves the lease to be found dead.
pub struct Run {
    pub(super) inner: Arc<Inner>,
    pub(super) started: Option<Committed>,
    pub(super) nonce: RunNonce,
    /// All leases it works under: those it took, and those of its parent.
    pub(super) grants: Vec<Grant>,
    /// The units it took leases of.
    pub(super) own: Vec<Unit>,
    pub(super) mode: LeaseMode,
    /// When the start was committed, on the monotonic clock.
    pub(super) begun: Duration,
    pub(super) ttl: Duration,
    /// Why the leases are lost.
    pub(super) lost: watch::Sender<Option<String>>,
    pub(super) silent: watch::Sender<bool>,
    /// Whether it may beat; held while it does, so that no beat comes after the last one.
    pub(super) beating: tokio::sync::Mutex<bool>,
    #[allow(dead_code)] // held
    pub(super) alive: Option<Lock>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("nonce", &self.nonce).field("grants", &self.grants).finish_non_exhaustive()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.inner.runs.leave(self.nonce);
    }
}

impl Run {
    /// Identity of the run; also in the lease record.
    pub fn nonce(&self) -> RunNonce {
        self.nonce
    }

    /// The committed start; `None` for an unleased run.
    pub fn started(&self) -> Option<&Committed> {
        self.started.as_ref()
    }

    /// What child processes need to work under this run's lease; `None` for an unleased run.
    pub fn capability(&self) -> Option<Capability> {
        (!self.grants.is_empty()).then(|| Capability::new(self.grants.clone()))
    }

    /// Commits a change under the lease of this run.
    pub async fn commit(&self, change: NewChange) -> Result<Committed> {
        let unleased = self.mode == LeaseMode::Unleased;
        Box::pin(self.inner.commit_as(change, Role::Change, self.grants.clone(), unleased)).await
    }

    /// Commits the results and frees the leases at once. When the lease was lost the results are parked and the error
    /// (kind `Conflict`, code `lease_lost`) names the change. With code `commit_pending` or `outcome_unknown` they are
    /// in the journal, the lease goes with them. After an error of this machine (say a full disk, before anything was
    /// journalled) it can be called again.
    pub async fn end(&self, change: NewChange) -> Result<Committed> {
        if self.own.is_empty() {
            return self.commit(change).await;
        }
        Box::pin(self.end_leased(change)).await
    }

    async fn end_leased(&self, change: NewChange) -> Result<Committed> {
        let inner = &self.inner;
        let on_refusal = change.on_refusal;
        let deadline = inner.env.monotonic() + change.patience;
        let role = Role::End { free: self.own.clone() };
        let mut locked = inner.journal_change(change, role, self.grants.clone(), false)?;
        inner.env.step("end.journalled").await;
        // This clone wrote the head when the run began; if others committed since, the create tells.
        let how = How { look: Look::IfOld, deadline, dead: &NOBODY };
        match Box::pin(inner.work(&mut locked, how)).await? {
            Outcome::Committed(committed, _) => {
                self.over().await;
                Ok(*committed)
            }
            Outcome::Refused(error) => {
                // What it still holds nobody will free with these results: all of its leases or, when only that of a
                // parent is lost, its own.
                let refused = inner.refused(&mut locked, error, on_refusal);
                self.give_back("its results were refused").await;
                self.over().await;
                refused
            }
            Outcome::Later(error) => Err(error),
            Outcome::Held(..) => Err(Error::internal("an end takes no lease")),
        }
    }

    /// Frees the leases of a run that will not be [ended](Self::end), because its results could not even be journalled.
    /// Best effort: what fails (the disk may be too full for that as well) is left to the next settling.
    pub async fn give_up(&self) {
        Box::pin(self.give_back("its results could not be kept")).await;
        self.over().await;
    }

    /// Frees what the run holds without results; whatever fails is left to the next settling.
    async fn give_back(&self, why: &str) {
        for unit in &self.own {
            let released = async {
                match self.inner.lease(unit).await? {
                    Some(lease) if lease.held && lease.nonce == self.nonce => {
                        self.inner.release(unit, &lease, why.to_owned()).await.map(drop)
                    }
                    _ => Ok(()),
                }
            };
            if let Err(error) = Box::pin(released).await {
                tracing::warn!(%error, %unit, "a lease could not be freed");
            }
        }
    }

    async fn over(&self) {
        *self.beating.lock().await = false;
        let runs = &self.inner.runs;
        runs.retire(self.nonce);
        if runs.last_beat().is_some() {
            self.inner.ledger.beat_end(runs.base(), &runs.live()).await;
        }
    }

    /// Beats, and watches the guards, until dropped; never resolves. To be polled beside the method, and beside
    /// [`end`](Self::end): what is large takes longer to be sent than a lease lives.
    pub async fn beat(&self) {
        Box::pin(self.keep_beating()).await;
    }

    /// Resolves once somebody else was seen to have taken over: the method must be cancelled. Needs
    /// [`beat`](Self::beat) to be polled.
    pub async fn lost(&self) -> Error {
        let mut lost = self.lost.subscribe();
        // Copied out of its lock at once: a guard across the await below would make this future stay on one thread.
        let seen = lost.wait_for(Option::is_some).await.map(|why| why.clone().unwrap_or_default());
        // The sender is in `self`, so it cannot be gone.
        let Ok(why) = seen else { return std::future::pending().await };
        Error::new(Kind::Conflict, why).with_code(LEASE_LOST)
    }

    /// Resolves once no beat got through for two thirds of the time-to-live: a method that is not safe to run twice
    /// should be cancelled. Needs [`beat`](Self::beat) to be polled.
    pub async fn silent(&self) {
        let gone = self.silent.subscribe().wait_for(|silent| *silent).await.is_err();
        if gone {
            std::future::pending::<()>().await;
        }
    }
}
