//! Runs: what happens under a lease.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use peat_ledger::Guard;
use peat_types::{Error, Result, RunNonce, Unit};
use serde::{Deserialize, Serialize};

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

    #[allow(dead_code)]
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
#[derive(Debug)]
pub struct Run {
    started: Option<Committed>,
    nonce: RunNonce,
    grants: Vec<Grant>,
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
        (!self.grants.is_empty()).then(|| Capability { grants: self.grants.clone() })
    }

    /// Commits a change under the lease of this run.
    pub async fn commit(&self, change: NewChange) -> Result<Committed> {
        let _ = change;
        Err(Error::internal("not yet"))
    }

    /// Commits the results and frees the leases at once. When the lease was lost the results are parked and the error
    /// (kind `Conflict`, code `lease_lost`) names the change.
    pub async fn end(self, change: NewChange) -> Result<Committed> {
        let _ = change;
        Err(Error::internal("not yet"))
    }

    /// Beats, and watches the guards, until dropped; never resolves. To be polled beside the method.
    pub async fn beat(&self) {
        std::future::pending::<()>().await;
    }

    /// Resolves once somebody else was seen to have taken over: the method must be cancelled. Needs
    /// [`beat`](Self::beat) to be polled.
    pub async fn lost(&self) -> Error {
        std::future::pending().await
    }

    /// Resolves once no beat got through for two thirds of the time-to-live: a method that is not safe to run twice
    /// should be cancelled. Needs [`beat`](Self::beat) to be polled.
    pub async fn silent(&self) {
        std::future::pending::<()>().await;
    }
}
