//! What was done to the tree by hand, as operations.

use std::collections::{BTreeMap, BTreeSet};

use peat_clone::{Change, Item, NOTHING_LEFT, Plan, PlanContent, PlanOp, Rank, Refusal, View};
use peat_types::{Error, Hash, ItemPath, Kind, Unit};
use serde::{Deserialize, Serialize};

use super::{no_run, ops, record, refused};
use crate::paths::{DataPath, METADATA, RAW};
use crate::record::{Metadata, to_yaml};

/// Files of the tree that were changed, added or removed by hand, in any number of units.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HandChange {
    pub files: Vec<AddedFile>,
    pub deletes: Vec<RemovedFile>,
}

/// A file of the tree that was changed or added by hand.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AddedFile {
    pub unit: Unit,
    pub path: ItemPath,
    /// Index of the content.
    pub content: usize,
    /// BLAKE3 of the content.
    pub hash: Hash,
    /// What it was made from; absent for a new one.
    pub base: Option<Hash>,
    /// Size and SHA-256, for the metadata of a version of data whose content was changed.
    pub size: u64,
    pub checksum: Option<String>,
}

/// A file of the tree that was removed by hand, and is to be deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RemovedFile {
    pub unit: Unit,
    pub path: ItemPath,
    /// What it held.
    pub base: Option<Hash>,
}

impl HandChange {
    /// The files it was made from, as they were then.
    pub fn made_from(self) -> Vec<(ItemPath, Option<Hash>)> {
        let files = self.files.into_iter().map(|file| (file.path, Some(file.hash)));
        files.chain(self.deletes.into_iter().map(|file| (file.path, None))).collect()
    }
}

/// What belongs to one unit.
#[derive(Default)]
struct OfUnit {
    files: Vec<AddedFile>,
    deletes: Vec<RemovedFile>,
}

/// Each file is set, or removed, only where the ledger still holds what it was made from.
pub(super) async fn plan_add(hand: HandChange, change: &Change, view: &dyn View) -> Result<Plan, Refusal> {
    let mut units: BTreeMap<Unit, OfUnit> = BTreeMap::new();
    for file in hand.files {
        // The file was read once to be described and once to be journalled.
        if change.contents.get(file.content).is_none_or(|kept| kept.hash() != file.hash) {
            let message = format!("{} was written while it was read", file.path);
            return Err(refused(Error::new(Kind::Conflict, message).with_hint("run the command again")));
        }
        units.entry(file.unit.clone()).or_default().files.push(file);
    }
    for file in hand.deletes {
        units.entry(file.unit.clone()).or_default().deletes.push(file);
    }
    let mut plan = Plan::default();
    for (unit, of) in units {
        if !of.deletes.is_empty() {
            no_run(&unit, view).await?;
        }
        let newest = rank(&mut plan, &unit, &of, view)?;
        puts(&mut plan, &unit, &of.files, &newest, view).await?;
        deletes(&mut plan, &unit, &of.deletes, view)?;
    }
    if plan.ops.is_empty() {
        let done = Error::new(Kind::AlreadyExists, "the datastore holds all of it already").with_code(NOTHING_LEFT);
        return Err(refused(done));
    }
    Ok(plan)
}

async fn puts(
    plan: &mut Plan,
    unit: &Unit,
    files: &[AddedFile],
    newest: &Newest,
    view: &dyn View,
) -> Result<(), Refusal> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for file in files {
        let there = view.item(unit, &file.path)?;
        let now = there.as_ref().map(Item::hash);
        if now == Some(file.hash) {
            continue;
        }
        if now != file.base {
            return Err(meanwhile(&file.path));
        }
        let superseded = || newest.is(&file.path) == Some(false);
        let rank = match &there {
            Some(there) => there.rank,
            None if superseded() => ops::history(unit, view),
            None => Rank::Current,
        };
        plan.ops.push(PlanOp::Put {
            unit: unit.clone(),
            path: file.path.clone(),
            rank,
            executable: there.as_ref().is_some_and(|there| there.row.executable),
            content: PlanContent::Journalled(file.content),
        });
        // What is said about a content stays true.
        let path = file.path.as_str();
        let Some(checksum) = &file.checksum else { continue };
        let beside = format!("{}{METADATA}", path.strip_suffix(RAW).unwrap_or_default());
        if paths.contains(beside.as_str()) {
            continue;
        }
        let beside: ItemPath = beside.parse().map_err(refused)?;
        if let Some(item) = view.item(unit, &beside)?
            && let Some(bytes) = view.read(unit, &beside).await?
        {
            let mut metadata: Metadata = record(&bytes, &beside).map_err(refused)?;
            (metadata.size, metadata.checksum) = (Some(file.size), Some(checksum.clone()));
            ops::put(plan, unit, beside, item.rank, to_yaml(&metadata).map_err(refused)?);
        }
    }
    Ok(())
}

fn deletes(plan: &mut Plan, unit: &Unit, removed: &[RemovedFile], view: &dyn View) -> Result<(), Refusal> {
    for file in removed {
        let now = view.item(unit, &file.path)?.map(|item| item.hash());
        if now.is_none() {
            continue;
        }
        if now != file.base {
            return Err(meanwhile(&file.path));
        }
        plan.ops.push(PlanOp::Delete { unit: unit.clone(), path: file.path.clone() });
    }
    Ok(())
}

/// The newest version of each data item that loses or gets one.
struct Newest(BTreeMap<String, u64>);

impl Newest {
    /// Whether a path is of the newest version of its data item; `None` when that item loses and gets none.
    fn is(&self, path: &ItemPath) -> Option<bool> {
        let data = DataPath::parse(path.as_str())?;
        self.0.get(data.name).map(|newest| data.version == *newest)
    }
}

/// The newest version of a data item is its current one, and no other: ranks of what is there already.
fn rank(plan: &mut Plan, unit: &Unit, of: &OfUnit, view: &dyn View) -> Result<Newest, Refusal> {
    let removed: BTreeSet<&ItemPath> = of.deletes.iter().map(|file| &file.path).collect();
    let fresh: Vec<&ItemPath> = of.files.iter().filter(|file| file.base.is_none()).map(|file| &file.path).collect();
    let touched = fresh.iter().chain(&removed).filter_map(|path| DataPath::parse(path.as_str()));
    let mut newest = Newest(touched.map(|data| (data.name.to_owned(), 0)).collect());
    if newest.0.is_empty() {
        return Ok(newest);
    }
    let mut items = view.items(unit, "data/")?;
    items.retain(|item| !removed.contains(&item.path));
    let paths = fresh.into_iter().chain(items.iter().map(|item| &item.path));
    for data in paths.filter_map(|path| DataPath::parse(path.as_str())) {
        if let Some(newest) = newest.0.get_mut(data.name) {
            *newest = data.version.max(*newest);
        }
    }
    for item in items {
        let Some(current) = newest.is(&item.path) else { continue };
        // What is history keeps the number that it got when it was superseded.
        if current != (item.rank == Rank::Current) {
            let rank = if current { Rank::Current } else { ops::history(unit, view) };
            plan.ops.push(PlanOp::Rank { unit: unit.clone(), path: item.path, rank });
        }
    }
    Ok(newest)
}

fn meanwhile(path: &ItemPath) -> Refusal {
    refused(
        Error::new(Kind::Conflict, format!("{path} was changed in the datastore meanwhile; nothing was committed"))
            .with_hint("pull, compare both, and change it again: 'peat datastore sync --pull'")
            .with_hint("'peat add <path>' commits others without it"),
    )
}
