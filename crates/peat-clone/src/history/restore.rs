//! Making the present equal to an older state.

use peat_ledger::Past;
use peat_types::{Result, Seq, Unit};

use super::is_lease;
use super::rewrite::{Rewrite, RewriteUnit, Step, Stored, in_progress};
use crate::{LocalClone, Scope};

/// What a restore would do.
#[derive(Clone, Debug)]
pub struct Restore {
    /// The state that the present becomes equal to.
    pub to: Past,
    /// The state that it was planned on.
    pub from: Seq,
    /// Items that there are in scope now, lease records among them.
    pub items: u64,
    /// What happens.
    pub rewrite: Rewrite,
}

impl LocalClone {
    /// Compares an older state with the newest one. Leases stay as they are.
    ///
    /// # Errors
    /// `run_in_progress` when a run in scope holds a lease.
    pub async fn plan_restore(&self, to: &Past, scope: &Scope) -> Result<Restore> {
        Box::pin(self.restore_of(to, scope)).await
    }

    async fn restore_of(&self, to: &Past, scope: &Scope) -> Result<Restore> {
        let units = match scope {
            Scope::All => None,
            Scope::Units(units) => Some(units.as_slice()),
        };
        let now = self.kept().await?.newest;
        let diffs = self.compare(to, &now, units).await?;
        let mut changed: Vec<Unit> = diffs.iter().map(|diff| diff.unit.clone()).collect();
        changed.extend(units.into_iter().flatten().cloned());
        changed.sort_unstable();
        changed.dedup();
        if !changed.is_empty() {
            self.pull(&Scope::Units(changed.clone())).await?;
        }
        let in_scope = |unit: &Unit| units.is_none_or(|units| units.contains(unit));
        if let Some(held) = self.leases()?.into_iter().find(|held| held.lease.held && in_scope(&held.unit)) {
            return Err(in_progress(self.0.planner.name_of(&held.unit), &held.lease));
        }
        self.0.at_rest(&changed).await?;
        let items = match units {
            None => now.state.root.files,
            Some(units) => {
                let mut items = 0;
                for unit in units {
                    items += self.0.ledger.unit(&now.state, unit, &self.0.db).await?.map_or(0, |row| row.files);
                }
                items
            }
        };
        let rewritten = diffs.into_iter().map(|diff| RewriteUnit {
            only_at: Some(diff.after.map(|row| row.last_seq)),
            unit: diff.unit,
            steps: diff
                .files
                .into_iter()
                .filter(|(path, _)| !is_lease(path))
                .map(|(path, (to, was))| Step {
                    path,
                    was: was.as_ref().map(Stored::of),
                    to: to.as_ref().map(Stored::of),
                })
                .collect(),
        });
        let rewrite = Rewrite { units: rewritten.filter(|unit| !unit.steps.is_empty()).collect() };
        Ok(Restore { to: to.clone(), from: now.state.seq, items, rewrite })
    }
}
