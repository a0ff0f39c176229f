//! `peat restore`: the present becomes equal to an older state.

use peat_clone::{Restore, Scope};
use peat_types::{Error, Kind, Result, in_span, operation};

use super::{PLANS, When, count, planned};
use crate::report::{HistoryItem, RestoreReport};
use crate::{Definition, Repo};

/// Deletes up to this number are done without a flag, as long as they are few among what there is.
const DELETES: u64 = 500;
/// The share of what there is that may go without a flag: one in so many.
const SHARE: u64 = 5;

/// `peat restore`.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// The state.
    pub at: When,
    /// Only this model: name, id or beginning of an id.
    pub model: Option<String>,
    /// Only say what would happen.
    pub dry_run: bool,
    /// Many deletes are meant.
    pub allow_deletes: bool,
}

impl Repo {
    /// `peat restore`.
    ///
    /// # Errors
    /// `too_many_deletes` without `allow_deletes`, `run_in_progress` while a run in scope holds a lease, those of naming
    /// a state, and those of a commit.
    pub async fn restore(&self, request: &RestoreRequest) -> Result<RestoreReport> {
        let span = operation!("restore", peat.dry_run = request.dry_run);
        in_span(span, Box::pin(self.restore_now(request))).await
    }

    async fn restore_now(&self, request: &RestoreRequest) -> Result<RestoreReport> {
        let definition = self.model_of_history(request.model.as_deref()).await?;
        let unit = definition.as_ref().map(Definition::unit).transpose()?;
        let scope = unit.map_or(Scope::All, |unit| Scope::Units(vec![unit]));
        let (clone, place) = self.opened().await?;
        let names = self.model_names()?;
        let kept = clone.kept().await?;
        let to = self.past(clone, &kept, request.at).await?;
        let mut tries = 1;
        loop {
            let plan = clone.plan_restore(&to, &scope).await?;
            let items: Vec<HistoryItem> =
                plan.rewrite.steps().filter_map(|(unit, step)| planned(&names, unit, step)).collect();
            let mut report = RestoreReport {
                namespace: place.namespace.clone(),
                at: plan.to.state.seq,
                written: plan.to.written,
                from: plan.from,
                model: definition.as_ref().map(|definition| definition.name.clone()),
                dry_run: request.dry_run,
                entry: None,
                puts: count(&items, "put"),
                deletes: count(&items, "delete"),
                needs_allow_deletes: false,
                items,
            };
            report.needs_allow_deletes = many(report.deletes, plan.items);
            if request.dry_run || plan.rewrite.units.is_empty() {
                return Ok(report);
            }
            if report.needs_allow_deletes && !request.allow_deletes {
                return Err(Error::new(
                    Kind::Conflict,
                    format!("this would delete {} of {} items", report.deletes, plan.items),
                )
                .with_code("too_many_deletes")
                .with_hint("look at what would go with --dry-run; if that is meant, add --allow-deletes"));
            }
            match clone.rewrite(&plan.rewrite, message(&plan, report.model.as_deref())).await {
                Ok(committed) => {
                    report.entry = Some(committed.seq);
                    return Ok(report);
                }
                // Somebody was faster: the next plan also takes back what they did.
                Err(error) if error.has_code("changed_since") && tries < PLANS => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

fn many(deletes: u64, items: u64) -> bool {
    deletes > DELETES || deletes.saturating_mul(SHARE) > items
}

fn message(plan: &Restore, model: Option<&str>) -> String {
    let seq = plan.to.state.seq;
    match model {
        Some(model) => format!("restore model {model} to the state of entry {seq}"),
        None => format!("restore the state of entry {seq}"),
    }
}

#[cfg(test)]
mod tests {
    use super::many;

    #[test]
    fn one_in_five_or_five_hundred_are_many() {
        for (deletes, items, is) in
            [(0, 0, false), (1, 5, false), (2, 9, true), (500, 10_000, false), (501, 10_000, true), (1, 0, true)]
        {
            assert_eq!(many(deletes, items), is, "{deletes} of {items}");
        }
    }
}
