//! `peat datastore setup --cleanup`: what a move left behind goes.

use peat_types::{Error, Kind, Result};

use super::previous;
use crate::Repo;
use crate::report::DatastoreCleanup;

impl Repo {
    /// Removes the objects of the ledger that this one was moved from, all but its description and the entry that says
    /// where it went.
    ///
    /// # Errors
    /// `NotFound` when no move is remembered here; `Conflict` when what lies there did not move here, or changes are
    /// pending there; `Contended` with code `too_early` shortly after the move.
    pub async fn datastore_cleanup(&self, dry_run: bool) -> Result<DatastoreCleanup> {
        let (shared, now) = self.opened().await?;
        let previous = previous::read(now)?.ok_or_else(|| {
            Error::not_found("this machine remembers no move to the present datastore")
                .with_hint("the machine that moved it can clean up; 'peat datastore status' shows where it is now")
        })?;
        let before = previous.place(self)?;
        if before.dir == now.dir {
            return Err(Error::internal("a datastore cannot come from itself"));
        }
        let old = previous::open(self, &before).await?;
        if let Some(pending) = old.pending()?.first() {
            return Err(Error::new(Kind::Conflict, format!("change {} is still pending there", pending.change))
                .with_hint(format!(
                    "take it over with '{}' where that datastore is still in use",
                    now.opened.setup(&now.namespace)
                )));
        }
        let plan = old.plan_clear(shared.info()).await?;
        let mut report = DatastoreCleanup {
            store: before.opened.url.clone(),
            namespace: before.namespace.clone(),
            dry_run,
            objects: plan.doomed.len() as u64,
            bytes: plan.doomed.iter().map(|object| object.size).sum(),
            left: 0,
            denied: None,
        };
        if !dry_run {
            let cleared = old.clear(&plan).await?;
            report.objects = cleared.deleted.len() as u64;
            report.bytes = cleared.deleted.iter().map(|object| object.size).sum();
            report.left = cleared.left.len() as u64;
            report.denied = cleared.denied;
            if report.left == 0 {
                previous::forget(now)?;
            }
        }
        Ok(report)
    }
}
