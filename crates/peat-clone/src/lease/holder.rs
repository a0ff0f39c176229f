//! Who holds what.

use bytes::Bytes;
use peat_ledger::{Lease, Ledger};
use peat_types::{Error, Result, Unit};

use crate::db;
use crate::handle::Inner;
use crate::sync::Look;
use crate::{Committed, Holder, Item, LeaseInfo};

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
        let mut missing = self.missing_leases()?;
        let read = self.lease_contents(&missing).await;
        let contents = match read {
            // What a checkpoint moved, or a purge stored elsewhere, is where the newest table says.
            Err(error) if Ledger::is_gone(&error) || Ledger::is_lost(&error) => {
                let mut units: Vec<_> = missing.iter().map(|item| item.unit.clone()).collect();
                units.dedup();
                self.find_places(&units).await?;
                missing = self.missing_leases()?;
                self.lease_contents(&missing).await?
            }
            read => read?,
        };
        missing.iter().zip(&contents).try_for_each(|(item, bytes)| self.db.keep_bytes(item, bytes))
    }

    fn missing_leases(&self) -> Result<Vec<Item>> {
        let mut missing = Vec::new();
        for item in self.db.read(db::leases)? {
            if self.local(&item)?.is_none() {
                missing.push(item);
            }
        }
        Ok(missing)
    }

    async fn lease_contents(&self, items: &[Item]) -> Result<Vec<Bytes>> {
        let rows: Vec<_> = items.iter().map(|item| &item.row).collect();
        self.ledger.contents(&rows, &[]).await
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
