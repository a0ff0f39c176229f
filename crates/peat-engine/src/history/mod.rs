//! The past as people ask for it: the log, what an entry did, what differs between two states, and taking changes back.

mod diff;
mod log;
mod restore;
mod show;
mod text;
mod undo;
mod when;

use std::collections::HashMap;

use peat_clone::{Item, Kept, LocalClone, Past, Step};
use peat_types::{Result, Unit};

pub use self::diff::DiffRequest;
pub use self::log::LogRequest;
pub use self::restore::RestoreRequest;
pub use self::undo::UndoRequest;
pub use self::when::When;

use crate::Repo;
use crate::paths::DataPath;
use crate::report::{HistoryData, HistoryItem};

/// Times a plan is made again because somebody committed between it and its commit.
const PLANS: u32 = 3;

/// Names of models by definition id.
type Names = HashMap<String, String>;

/// The name of the model behind a unit.
pub(crate) fn model_of(names: &Names, unit: &Unit) -> Option<String> {
    unit.as_str().strip_prefix("model/").and_then(|id| names.get(id)).cloned()
}

/// An item without anything but its name.
fn item(names: &Names, unit: &Unit, path: &str, change: &'static str) -> HistoryItem {
    HistoryItem {
        unit: unit.to_string(),
        model_name: model_of(names, unit),
        path: path.to_owned(),
        change,
        size_before: None,
        size: None,
        data: DataPath::parse(path).map(|data| HistoryData { name: data.name.to_owned(), version: data.version }),
        diff: None,
    }
}

/// Whether a path holds the lease of its unit: bookkeeping that is neither shown nor taken back.
fn is_lease(path: &str) -> bool {
    path.starts_with("leases/")
}

/// What a step does, for people; nothing when only the order of items changes.
fn planned(names: &Names, unit: &Unit, step: &Step) -> Option<HistoryItem> {
    if step.ranks() {
        return None;
    }
    let change = if step.to.is_some() { "put" } else { "delete" };
    Some(HistoryItem {
        size_before: step.was.as_ref().map(|was| was.row.size),
        size: step.to.as_ref().map(|to| to.row.size),
        ..item(names, unit, step.path.as_str(), change)
    })
}

fn count(items: &[HistoryItem], change: &str) -> u64 {
    items.iter().filter(|item| item.change == change).count() as u64
}

/// The version before: the same path, or of a data version the newest one below it.
fn previous<'a>(before: &'a [Item], after: &'a [Item], path: &str) -> Option<&'a Item> {
    if let Some(same) = before.iter().find(|item| item.path.as_str() == path) {
        return Some(same);
    }
    let new = DataPath::parse(path)?;
    let older = |item: &&Item| {
        DataPath::parse(item.path.as_str())
            .is_some_and(|old| old.name == new.name && old.file == new.file && old.version < new.version)
    };
    let version = |item: &&Item| DataPath::parse(item.path.as_str()).map(|old| old.version);
    before.iter().chain(after).filter(older).max_by_key(version)
}

impl Repo {
    /// The state that somebody means.
    pub(crate) async fn past(&self, clone: &LocalClone, kept: &Kept, when: When) -> Result<Past> {
        match when.at(self.host().env.now()) {
            when::Point::Entry(seq) => clone.past(kept, seq).await,
            when::Point::Time(time) => clone.past_at(kept, time).await,
        }
    }
}
