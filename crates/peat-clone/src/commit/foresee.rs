//! What pending changes would do, before they are sent.

use peat_types::{ChangeId, Error, Result};

use super::draft::Unplanned;
use super::{Overlay, Placed};
use crate::handle::Inner;
use crate::journal::{self, Role};
use crate::{LocalClone, PendingStatus};

/// What settling would do, as far as can be told from what is known here.
#[derive(Debug, Default)]
pub struct Foreseen {
    /// Items that would be set.
    pub puts: u64,
    /// Bytes of the contents that would be set.
    pub bytes: u64,
    /// Changes that would be refused, and why.
    pub refused: Vec<(ChangeId, Error)>,
}

impl LocalClone {
    /// What settling would do now: each pending change is planned upon what those before it leave. Nothing is changed, and
    /// the store is asked only for contents that a plan needs and that are not here.
    pub async fn foresee(&self) -> Result<Foreseen> {
        Box::pin(self.0.foresee()).await
    }
}

impl Inner {
    async fn foresee(&self) -> Result<Foreseen> {
        let mut rows = Vec::new();
        for id in self.journal.ids()? {
            // One that cannot be read is shown where changes are listed.
            let Ok(Some((row, state))) = self.journal.read(id) else { continue };
            let sent = matches!(journal::pending(&row, &state).status, PendingStatus::Pending | PendingStatus::Unknown);
            // Only these have a plan of their own; the others give leases back.
            if sent && matches!(row.header.role, Role::Change | Role::End { .. }) {
                rows.push(journal::change(&row, &state));
            }
        }
        rows.sort_by_key(|change| (change.time, change.id));
        let mut units: Vec<_> = rows.iter().flat_map(|change| change.units.iter().cloned()).collect();
        units.sort_unstable();
        units.dedup();
        let placed = Placed::default();
        let mut overlay = Overlay::new(self, &units, &placed)?;
        let mut refused = Vec::new();
        for change in &rows {
            match self.plan_change(change, &mut overlay).await {
                Ok(_) | Err(Unplanned::Held(..) | Unplanned::Away(_)) => {}
                Err(Unplanned::Refused(error)) => refused.push((change.id, error)),
                Err(Unplanned::Failed(error)) => return Err(error),
            }
        }
        let (puts, bytes) = overlay.counts();
        Ok(Foreseen { puts, bytes, refused })
    }
}
