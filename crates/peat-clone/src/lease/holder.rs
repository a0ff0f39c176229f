//! Who holds what.

use peat_ledger::Lease;
use peat_types::{Error, Result, Unit};

use crate::db;
use crate::handle::Inner;
use crate::sync::Look;
use crate::{Committed, Holder, LeaseInfo};

impl Holder {
    pub(super) fn of(unit: &Unit, lease: &Lease) -> Self {
        Self { unit: unit.clone(), user: lease.user.clone(), host: lease.host.clone(), since: lease.since }
    }
}

impl Inner {
    pub(crate) fn leases(&self) -> Result<Vec<LeaseInfo>> {
        let mut out = Vec::new();
        for item in self.db.read(db::leases)? {
            let Some(bytes) = self.local(&item)? else { continue };
            let lease: Lease = serde_json::from_slice(&bytes)
                .map_err(|e| Error::damaged(format!("the lease record {} cannot be read", item.path)).with_source(e))?;
            let alive_here = lease.held && lease.clone == self.id && self.runs.is_alive(lease.nonce)?;
            out.push(LeaseInfo { unit: item.unit, lease, alive_here });
        }
        Ok(out)
    }

    /// Fetches the lease records that are not here, which a lazy clone leaves out otherwise.
    pub(crate) async fn read_leases(&self) -> Result<()> {
        let mut missing = Vec::new();
        for item in self.db.read(db::leases)? {
            if self.local(&item)?.is_none() {
                missing.push(item);
            }
        }
        let rows: Vec<_> = missing.iter().map(|item| &item.row).collect();
        let contents = self.ledger.contents(&rows, &[]).await?;
        missing.iter().zip(&contents).try_for_each(|(item, bytes)| self.db.keep_bytes(item, bytes))
    }

    pub(crate) async fn force_release(&self, unit: &Unit) -> Result<Option<Committed>> {
        Box::pin(self.base(std::slice::from_ref(unit), Look::Now)).await?;
        match self.lease(unit).await? {
            Some(lease) if lease.held => {
                let message = format!("released by {}", self.author());
                Box::pin(self.release(unit, &lease, message)).await
            }
            _ => Ok(None),
        }
    }
}
