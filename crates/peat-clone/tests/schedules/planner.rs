//! What the changes of the schedules mean: every one appends a version that holds its token.

use async_trait::async_trait;
use bytes::Bytes;
use peat_clone::{Change, Interrupted, Plan, PlanContent, PlanOp, Planner, Rank, Refusal, View};
use peat_types::{ItemPath, Unit};
use serde_json::json;

pub struct Appender;

/// Name of a version.
pub fn version(unit: &Unit, n: u64) -> Result<ItemPath, peat_types::Error> {
    format!("data/{unit}/{n:06}").parse()
}

/// The version in the name of one.
pub fn version_in(path: &ItemPath) -> Option<u64> {
    path.as_str().strip_prefix("data/")?.rsplit('/').next()?.parse().ok()
}

fn newest(view: &dyn View, unit: &Unit) -> Result<u64, Refusal> {
    let items = view.items(unit, &format!("data/{unit}/"))?;
    Ok(items.iter().filter_map(|item| version_in(&item.path)).max().unwrap_or(0))
}

fn put(unit: &Unit, path: ItemPath, content: PlanContent) -> PlanOp {
    PlanOp::Put { unit: unit.clone(), path, rank: Rank::Current, executable: false, content }
}

fn output(unit: &Unit) -> Result<ItemPath, peat_types::Error> {
    format!("outputs/{unit}/latest").parse()
}

#[async_trait]
impl Planner for Appender {
    async fn plan(&self, change: &Change, view: &dyn View) -> Result<Plan, Refusal> {
        let mut plan = Plan::default();
        let mut versions = Vec::new();
        for unit in &change.units {
            if change.kind != "append" {
                let status = match change.kind.as_str() {
                    "start" => "running",
                    "fail" => "failed",
                    _ => "done",
                };
                let bytes = Bytes::from(format!("{status} {}", change.message));
                plan.ops.push(put(unit, output(unit)?, PlanContent::Bytes(bytes)));
            }
            if change.kind == "start" || change.kind == "fail" {
                continue;
            }
            // A2: the number is given by the state of this attempt.
            let n = newest(view, unit)? + 1;
            plan.ops.push(put(unit, version(unit, n)?, PlanContent::Journalled(0)));
            if n > 2 {
                plan.ops.push(PlanOp::Rank { unit: unit.clone(), path: version(unit, n - 2)?, rank: Rank::History(n) });
            }
            versions.push(n);
        }
        plan.answer = json!(versions);
        Ok(plan)
    }

    async fn interrupt(&self, dead: &Interrupted, view: &dyn View) -> Result<Plan, Refusal> {
        let mut plan = Plan::default();
        let at = output(&dead.unit)?;
        if view.read(&dead.unit, &at).await?.is_some_and(|bytes| bytes.starts_with(b"running")) {
            plan.ops.push(put(&dead.unit, at, PlanContent::Bytes("interrupted".into())));
        }
        Ok(plan)
    }
}
