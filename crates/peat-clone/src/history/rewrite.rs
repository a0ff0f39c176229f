//! Taking items back to what they were: a list of steps that is planned and committed like any other change.

use peat_ledger::{FileRow, Rank, format};
use peat_types::{Error, ItemPath, Kind, Result, Seq, Unit};
use serde::{Deserialize, Serialize, de};

use super::is_lease;
use crate::handle::Inner;
use crate::{Change, Committed, Item, LocalClone, NewChange, OnRefusal, Plan, PlanContent, PlanOp, Refusal, View};

/// Kind of a change that takes items back; its payload is a [`Rewrite`]. Whoever implements a
/// [`Planner`](crate::Planner) carries it out with [`plan_rewrite`].
pub const REWRITE: &str = "history.rewrite";

/// Items and what they are to be again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rewrite {
    /// By unit.
    pub units: Vec<RewriteUnit>,
}

/// What happens to one unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RewriteUnit {
    /// The unit.
    pub unit: Unit,
    /// Set when nothing at all may have changed in it since: the entry that changed it last, or none when it did not
    /// exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_at: Option<Option<Seq>>,
    /// By path.
    pub steps: Vec<Step>,
}

/// What happens to one item.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The item.
    pub path: ItemPath,
    /// What it must be now; absent: it must not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Stored>,
    /// What it becomes; absent: it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Stored>,
}

/// A file of some state, with the place of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Its rank.
    pub rank: Rank,
    /// Size, hash and place of the content.
    #[serde(with = "hex_row")]
    pub row: FileRow,
}

impl Stored {
    pub(super) fn of((rank, row): &(Rank, FileRow)) -> Self {
        Self { rank: *rank, row: row.clone() }
    }
}

mod hex_row {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, FileRow, de, format};

    pub(super) fn serialize<S: Serializer>(row: &FileRow, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(format::encode_row(row)))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<FileRow, D::Error> {
        let bytes = hex::decode(String::deserialize(from)?).map_err(de::Error::custom)?;
        format::decode_row(&bytes).map_err(de::Error::custom)
    }
}

fn same(one: Option<&FileRow>, other: Option<&FileRow>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.same_file(other),
        (None, None) => true,
        _ => false,
    }
}

impl Step {
    /// Whether only the rank changes, which is an ordering and no fact.
    pub fn ranks(&self) -> bool {
        self.was.is_some() && same(self.was.as_ref().map(|was| &was.row), self.to.as_ref().map(|to| &to.row))
    }

    /// Whether the item is what the step leads to.
    pub(super) fn is_done(&self, now: Option<&Item>) -> bool {
        same(now.map(|item| &item.row), self.to.as_ref().map(|to| &to.row))
    }

    /// Whether the item is what the step expects.
    pub(super) fn fits(&self, now: Option<&Item>) -> bool {
        same(now.map(|item| &item.row), self.was.as_ref().map(|was| &was.row))
    }
}

impl Rewrite {
    /// The units it changes.
    pub fn units(&self) -> Vec<Unit> {
        self.units.iter().map(|unit| unit.unit.clone()).collect()
    }

    /// Every step with its unit.
    pub fn steps(&self) -> impl Iterator<Item = (&Unit, &Step)> {
        self.units.iter().flat_map(|unit| unit.steps.iter().map(|step| (&unit.unit, step)))
    }
}

/// The operations of a [`Rewrite`] on the state of the moment.
///
/// # Errors
/// `changed_since` when an item (or, where nothing may have changed, its unit) is not what it was; `run_in_progress` when
/// a run holds the lease of a unit.
pub async fn plan_rewrite(change: &Change, view: &dyn View) -> Result<Plan, Refusal> {
    let rewrite: Rewrite = serde_json::from_value(change.payload.clone()).map_err(|e| {
        Refusal::Refused(
            Error::damaged(format!("the journalled change {} cannot be understood", change.id)).with_source(e),
        )
    })?;
    let mut plan = Plan::default();
    for RewriteUnit { unit, only_at, steps } in &rewrite.units {
        at_rest(unit, view).await?;
        if only_at.is_some_and(|seq| seq != view.seq(unit)) {
            return Err(Refusal::Refused(changed(format!("{unit} changed since this was planned"))));
        }
        for step in steps.iter().filter(|step| !is_lease(&step.path)) {
            let (unit, path) = (unit.clone(), step.path.clone());
            let now = view.item(&unit, &path)?;
            match (&step.was, &step.to) {
                (Some(was), Some(to)) if step.ranks() => {
                    if step.fits(now.as_ref()) && now.is_some_and(|now| now.rank == was.rank) {
                        plan.ops.push(PlanOp::Rank { unit, path, rank: to.rank });
                    }
                }
                _ if step.is_done(now.as_ref()) => {}
                _ if !step.fits(now.as_ref()) => {
                    return Err(Refusal::Refused(changed(format!("{path} changed since this was planned"))));
                }
                (_, None) => plan.ops.push(PlanOp::Delete { unit, path }),
                (_, Some(to)) => plan.ops.push(PlanOp::Put {
                    unit,
                    path,
                    rank: to.rank,
                    executable: to.row.executable,
                    content: PlanContent::Stored(to.row.clone()),
                }),
            }
        }
    }
    if plan.ops.is_empty() {
        return Err(Refusal::Refused(changed("somebody else has done all of it meanwhile".to_owned())));
    }
    Ok(plan)
}

/// A run that is at work may rely on what would be taken away below it.
async fn at_rest(unit: &Unit, view: &dyn View) -> Result<(), Refusal> {
    for item in view.items(unit, "leases/")? {
        let Some(bytes) = view.read(unit, &item.path).await? else { continue };
        let lease: Option<peat_ledger::Lease> = serde_json::from_slice(&bytes).ok();
        if let Some(lease) = lease.filter(|lease| lease.held) {
            return Err(Refusal::Refused(in_progress(unit, &lease)));
        }
    }
    Ok(())
}

pub(super) fn in_progress(name: impl std::fmt::Display, lease: &peat_ledger::Lease) -> Error {
    let (user, host, since) = (&lease.user, &lease.host, lease.since);
    Error::new(Kind::Contended, format!("a run of {name} by {user}@{host} is in progress since {since}"))
        .with_code("run_in_progress")
        .with_hint("wait for its end, or end it with 'peat model cancel <model>'")
        .with_hint("'peat datastore lock status' shows who holds it")
}

pub(super) fn changed(message: String) -> Error {
    Error::new(Kind::Conflict, message)
        .with_code("changed_since")
        .with_hint("somebody else was faster: run the command again to see what would happen now")
}

impl Inner {
    /// As the plan of a rewrite will find it, but before anything is journalled, and with the names people know.
    pub(super) async fn at_rest(&self, units: &[Unit]) -> Result<()> {
        for unit in units {
            if let Some(lease) = self.lease(unit).await?.filter(|lease| lease.held) {
                return Err(in_progress(self.planner.name_of(unit), &lease));
            }
        }
        Ok(())
    }
}

impl LocalClone {
    /// Commits a rewrite. A refusal leaves nothing behind.
    pub async fn rewrite(&self, rewrite: &Rewrite, message: String) -> Result<Committed> {
        let payload =
            serde_json::to_value(rewrite).map_err(|e| Error::internal("cannot write a plan").with_source(e))?;
        let mut change = NewChange::new(REWRITE, rewrite.units(), payload);
        change.message = message;
        change.on_refusal = OnRefusal::Drop;
        let committed = self.commit(change).await?;
        // What came back is stored already, so it did not pass through this machine; here it is made visible.
        if let Err(error) = Box::pin(self.0.hydrate(Some(&rewrite.units()), &crate::sync::AtHand::default())).await {
            tracing::warn!(%error, "the tree is completed later");
        }
        Ok(committed)
    }
}
