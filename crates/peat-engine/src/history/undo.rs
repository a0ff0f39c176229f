//! `peat undo`: the inverse of an entry, as a change like any other.

use peat_clone::Undo;
use peat_types::{Result, Seq, in_span, operation};

use super::{PLANS, count, log, planned};
use crate::Repo;
use crate::report::{HistoryItem, UndoReport, UndoneChange};

/// `peat undo`.
#[derive(Clone, Debug)]
pub struct UndoRequest {
    /// The entry.
    pub seq: Seq,
    /// Which of its changes, when it holds several: an id or its beginning.
    pub change: Option<String>,
    /// Only say what would happen.
    pub dry_run: bool,
}

impl Repo {
    /// `peat undo`.
    ///
    /// # Errors
    /// Those of [`LocalClone::plan_undo`](peat_clone::LocalClone::plan_undo), and those of a commit.
    pub async fn undo(&self, request: &UndoRequest) -> Result<UndoReport> {
        let span = operation!("undo", peat.dry_run = request.dry_run);
        in_span(span, Box::pin(self.undo_now(request))).await
    }

    async fn undo_now(&self, request: &UndoRequest) -> Result<UndoReport> {
        let (clone, place) = self.opened().await?;
        let names = self.model_names()?;
        let mut tries = 1;
        loop {
            let kept = clone.kept().await?;
            let plan = clone.plan_undo(&kept, request.seq, request.change.as_deref()).await?;
            let items: Vec<HistoryItem> =
                plan.rewrite.steps().filter_map(|(unit, step)| planned(&names, unit, step)).collect();
            let mut report = UndoReport {
                namespace: place.namespace.clone(),
                seq: request.seq,
                dry_run: request.dry_run,
                undone: plan
                    .undone
                    .iter()
                    .map(|(seq, tx)| UndoneChange { seq: *seq, about: log::transaction(&names, tx) })
                    .collect(),
                entry: None,
                puts: count(&items, "put"),
                deletes: count(&items, "delete"),
                items,
            };
            if request.dry_run {
                return Ok(report);
            }
            match clone.rewrite(&plan.rewrite, message(request.seq, &plan)).await {
                Ok(committed) => {
                    report.entry = Some(committed.seq);
                    return Ok(report);
                }
                // Somebody was faster: the next plan fits what is there now, or says why not and who it was.
                Err(error) if error.has_code("changed_since") && tries < PLANS => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

fn message(seq: Seq, plan: &Undo) -> String {
    let what = plan.undone.last().map(|(_, tx)| tx.message.as_str()).unwrap_or_default();
    if what.is_empty() { format!("undo entry {seq}") } else { format!("undo entry {seq}: {what}") }
}
