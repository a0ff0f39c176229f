//! `peat diff`: what differs between two states.

use std::collections::BTreeMap;

use peat_clone::UnitDiff;
use peat_types::{Result, Seq};

use super::{When, count, is_lease, item, show};
use crate::report::{DiffReport, HistoryItem};
use crate::{Definition, Repo};

/// `peat diff`.
#[derive(Clone, Debug)]
pub struct DiffRequest {
    /// The state before.
    pub from: When,
    /// The state after; the newest when absent.
    pub to: Option<When>,
    /// Only this model: name, id or beginning of an id.
    pub model: Option<String>,
    /// Also how short texts differ.
    pub content: bool,
}

impl Repo {
    /// `peat diff`: items added, changed and removed between two states. Leases and the order of items are left out.
    pub async fn diff(&self, request: &DiffRequest) -> Result<DiffReport> {
        let definition = self.model_of_history(request.model.as_deref()).await?;
        let units = definition.as_ref().map(Definition::unit).transpose()?.map(|unit| vec![unit]);
        let (clone, place) = self.opened().await?;
        let names = self.model_names()?;
        let kept = clone.kept().await?;
        let from = self.past(clone, &kept, request.from).await?;
        let to = self.past(clone, &kept, request.to.unwrap_or(When::Entry(kept.head()))).await?;
        let diffs = clone.compare(&from, &to, units.as_deref()).await?;
        let mut items: Vec<HistoryItem> = Vec::new();
        for UnitDiff { unit, files, .. } in &diffs {
            for (path, (before, after)) in files.iter().filter(|(path, _)| !is_lease(path.as_str())) {
                let change = match (before, after) {
                    (None, _) => "added",
                    (_, None) => "removed",
                    (Some((_, was)), Some((_, is))) if was.same_file(is) => continue,
                    _ => "changed",
                };
                items.push(HistoryItem {
                    size_before: before.as_ref().map(|(_, row)| row.size),
                    size: after.as_ref().map(|(_, row)| row.size),
                    ..item(&names, unit, path.as_str(), change)
                });
            }
        }
        if request.content {
            let mut sides = BTreeMap::new();
            for UnitDiff { unit, .. } in &diffs {
                let before = clone.past_items(&from, unit, "").await?;
                let after = clone.past_items(&to, unit, "").await?;
                sides.insert(unit.to_string(), (before, after));
            }
            show::compare(clone, &sides, &mut items, &[]).await?;
        }
        let end = |past: &peat_clone::Past| -> (Seq, peat_types::Timestamp) { (past.state.seq, past.written) };
        let ((from, from_written), (to, to_written)) = (end(&from), end(&to));
        Ok(DiffReport {
            namespace: place.namespace.clone(),
            from,
            from_written,
            to,
            to_written,
            model: definition.map(|definition| definition.name),
            added: count(&items, "added"),
            changed: count(&items, "changed"),
            removed: count(&items, "removed"),
            items,
        })
    }
}
