//! Pieces of plans.

use std::collections::HashSet;

use peat_clone::{Item, Plan, PlanContent, PlanOp, Rank, Refusal, View};
use peat_types::{Error, ItemPath, Kind, Unit};

use super::{DataWrite, RunRecord, Written, record, refused};
use crate::paths::{self, DataPath, METADATA, OutputPath, RAW};
use crate::record::{DataArtifact, Metadata, Output, to_yaml};

/// Outputs of a unit that count as current.
const CURRENT_OUTPUTS: usize = 20;

/// A put of bytes.
pub(super) fn put(plan: &mut Plan, unit: &Unit, path: ItemPath, rank: Rank, bytes: Vec<u8>) {
    plan.ops.push(PlanOp::Put {
        unit: unit.clone(),
        path,
        rank,
        executable: false,
        content: PlanContent::Bytes(bytes.into()),
    });
}

/// A put of a journalled content.
pub(super) fn put_journalled(plan: &mut Plan, unit: &Unit, path: ItemPath, index: usize) {
    plan.ops.push(PlanOp::Put {
        unit: unit.clone(),
        path,
        rank: Rank::Current,
        executable: false,
        content: PlanContent::Journalled(index),
    });
}

/// Rank of what is superseded by the entry being planned: later supersessions come first.
pub(super) fn history(unit: &Unit, view: &dyn View) -> Rank {
    Rank::History(view.seq(unit).map_or(1, |seq| seq.next().0))
}

/// Path of a run's output, without its extension. Two runs that began in the same millisecond (possible without a lease)
/// are told apart by their ids.
pub(super) async fn output_path(run: &RunRecord, unit: &Unit, view: &dyn View) -> Result<ItemPath, Refusal> {
    let output = &run.output;
    let stamp = paths::stamp(output.started_at);
    let path =
        |stamp: &str| paths::output(&run.type_name, &output.method_name, &output.definition_id, stamp).map_err(refused);
    let plain = path(&stamp)?;
    let yaml = paths::with(&plain, "yaml").map_err(refused)?;
    if view.item(unit, &yaml)?.is_none() {
        return Ok(plain);
    }
    let Some(bytes) = view.read(unit, &yaml).await? else { return Ok(plain) };
    if record::<Output>(&bytes, &yaml).is_ok_and(|there| there.id == output.id) {
        return Ok(plain);
    }
    let short: String = output.id.chars().take(8).collect();
    path(&format!("{stamp}-{short}"))
}

/// The path without its extension.
fn base(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(base, _)| base)
}

/// Moves outputs beyond the newest twenty to history. `new` is the record being written.
pub(super) fn rank_outputs(
    plan: &mut Plan,
    definition: &str,
    new: &ItemPath,
    unit: &Unit,
    view: &dyn View,
) -> Result<(), Refusal> {
    let items = view.items(unit, "outputs/")?;
    let new = base(new.as_str());
    let mut current: Vec<(&str, &str)> = items
        .iter()
        .filter(|item| item.rank == Rank::Current && base(item.path.as_str()) != new)
        .filter_map(|item| {
            let path = item.path.as_str();
            OutputPath::parse(path, definition).map(|p| (p.stamp, base(path)))
        })
        .collect();
    current.sort_unstable_by(|a, b| b.cmp(a));
    current.dedup();
    let beyond: HashSet<&str> = current.iter().skip(CURRENT_OUTPUTS - 1).map(|(_, base)| *base).collect();
    let rank = history(unit, view);
    for item in items.iter().filter(|item| item.rank == Rank::Current && beyond.contains(base(item.path.as_str()))) {
        plan.ops.push(PlanOp::Rank { unit: unit.clone(), path: item.path.clone(), rank });
    }
    Ok(())
}

/// Adds a version to a data item. `items` are the data items of the unit.
pub(super) async fn write_data(
    plan: &mut Plan,
    run: &RunRecord,
    write: &DataWrite,
    unit: &Unit,
    view: &dyn View,
    items: &[Item],
) -> Result<(Written, DataArtifact), Refusal> {
    paths::check_data_name(&write.name).map_err(refused)?;
    let versions: Vec<(DataPath<'_>, &Item)> = items
        .iter()
        .filter_map(|item| DataPath::parse(item.path.as_str()).map(|path| (path, item)))
        .filter(|(path, _)| path.name == write.name)
        .collect();
    let (mut id, mut version) = (write.fresh_id.clone(), 1);
    if let Some((newest, item)) = versions.iter().max_by_key(|(path, _)| (path.version, path.file == METADATA)) {
        version = newest.version + 1;
        if newest.file == METADATA
            && let Some(bytes) = view.read(unit, &item.path).await?
        {
            let before: Metadata = record(&bytes, &item.path).map_err(refused)?;
            let owner = &before.owner_definition;
            if !owner.same(&write.owner) {
                let message = format!("data '{}' belongs to {} {}", write.name, owner.owner_type, owner.owner_ref);
                return Err(refused(Error::new(Kind::Conflict, message).with_code("owned_by_another")));
            }
            id = before.id;
        }
    }
    let rank = history(unit, view);
    for (_, item) in versions.iter().filter(|(_, item)| item.rank == Rank::Current) {
        plan.ops.push(PlanOp::Rank { unit: unit.clone(), path: item.path.clone(), rank });
    }
    let metadata = Metadata {
        id: id.clone(),
        name: write.name.clone(),
        version,
        content_type: write.content_type.clone(),
        lifetime: write.lifetime.clone(),
        garbage_collection: write.garbage_collection.clone(),
        streaming: write.streaming,
        tags: write.tags.clone(),
        owner_definition: write.owner.clone(),
        created_at: write.created_at,
        size: Some(write.size),
        checksum: Some(write.checksum.clone()),
        lifecycle: None,
        renamed_to: None,
    };
    let folder = paths::data(&run.type_name, &run.output.definition_id, &write.name, version).map_err(refused)?;
    let raw = folder.join(RAW).map_err(refused)?;
    put_journalled(plan, unit, raw.clone(), write.content);
    put(plan, unit, folder.join(METADATA).map_err(refused)?, Rank::Current, to_yaml(&metadata).map_err(refused)?);
    let artifact = DataArtifact { data_id: id.clone(), name: write.name.clone(), version, tags: write.tags.clone() };
    Ok((Written { id, name: write.name.clone(), version, path: raw.to_string() }, artifact))
}
