//! From a journalled change to a transaction on the state of the moment.

use std::collections::BTreeMap;

use peat_ledger::{Draft, DraftUnit, Guard, Lease, Rank, TxKind};
use peat_types::{Error, Hash, ItemPath, Kind, Mutation, Result, RunNonce, Seq, TxId, Unit};

use super::{Overlay, Placed};
use crate::db;
use crate::handle::Inner;
use crate::journal::{Locked, Role};
use crate::{Brought, Change, Grant, Interrupted, Item, Refusal};

/// Code of the error that says that a lease is not held any more.
pub(crate) const LEASE_LOST: &str = "lease_lost";

/// One attempt.
pub(crate) struct Planned {
    pub(crate) draft: Draft,
    /// The unit seqs it stands on.
    pub(crate) expected: BTreeMap<Unit, Option<Seq>>,
    pub(crate) answer: serde_json::Value,
    /// New contents, for the tree.
    pub(crate) contents: BTreeMap<Hash, Brought>,
    /// The leases it takes.
    pub(crate) grants: Vec<Grant>,
}

/// Why there is none.
pub(crate) enum Unplanned {
    Refused(Error),
    Failed(Error),
    /// A lease it would take is held by somebody who may be alive.
    Held(Unit, Lease),
    /// These contents have to be stored again first.
    Away(Vec<Item>),
}

impl From<Error> for Unplanned {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for Unplanned {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Refused(error) => Self::Refused(error),
            Refusal::Failed(error) => Self::Failed(error),
        }
    }
}

/// Holders that were found dead, by unit: only these leases may be taken over.
pub(crate) type Dead = BTreeMap<Unit, RunNonce>;

impl Inner {
    /// Plans a row on the units as they are known now.
    pub(crate) async fn plan(
        &self,
        locked: &Locked,
        tx: TxId,
        placed: &Placed,
        avoid_known: bool,
        dead: &Dead,
    ) -> Result<Planned, Unplanned> {
        let header = &locked.row.header;
        let grants: &[Grant] = if locked.state().adopted { &[] } else { &header.grants };
        let change = locked.change();
        let mut overlay = Overlay::new(self, &locked.units(), placed)?;
        self.check_guards(grants).await?;
        let mut answer = serde_json::Value::Null;
        let mut taken = Vec::new();
        match &header.role {
            Role::Change => answer = self.plan_change(&change, &mut overlay).await?,
            Role::Start { nonce, leases, ttl_ms } => {
                let mut takes = Vec::new();
                for unit in leases {
                    takes.push(self.take_lease(&change, unit, *nonce, *ttl_ms, dead, &mut overlay).await?);
                }
                answer = self.plan_change(&change, &mut overlay).await?;
                for (grant, lease) in takes {
                    put_lease(&mut overlay, &grant.unit, &lease)?;
                    taken.push(grant);
                }
            }
            Role::End { free } => {
                answer = self.plan_change(&change, &mut overlay).await?;
                for grant in grants.iter().filter(|grant| free.contains(&grant.unit)) {
                    self.free(&change, grant, &mut overlay, false).await?;
                }
            }
            Role::Release => {
                for grant in grants {
                    if let Some(lease) = self.lease(&grant.unit).await? {
                        self.interrupt(&change, &grant.unit, lease, &mut overlay).await?;
                    }
                    self.free(&change, grant, &mut overlay, true).await?;
                }
            }
        }
        if avoid_known {
            let away = overlay.bring_stored().await?;
            if !away.is_empty() {
                return Err(Unplanned::Away(away));
            }
        }
        let units = overlay
            .ops(avoid_known)?
            .into_iter()
            .map(|(unit, ops)| DraftUnit { expected: overlay.seqs().get(&unit).copied().flatten(), unit, ops })
            .collect();
        let draft = Draft {
            tx,
            change: header.id,
            kind: match header.role {
                Role::Change => TxKind::Change,
                Role::Start { .. } => TxKind::Start,
                Role::End { .. } | Role::Release => TxKind::End,
            },
            author: header.author.clone(),
            message: header.message.clone(),
            time: header.time,
            guard: taken.first().or(grants.first()).map(|grant| grant.guard.clone()),
            units,
        };
        Ok(Planned { draft, expected: overlay.seqs().clone(), answer, contents: overlay.contents(), grants: taken })
    }

    pub(super) async fn plan_change(
        &self,
        change: &Change,
        overlay: &mut Overlay<'_>,
    ) -> Result<serde_json::Value, Unplanned> {
        let plan = self.planner.plan(change, &*overlay).await?;
        let answer = plan.answer.clone();
        overlay.take(change, plan)?;
        Ok(answer)
    }

    async fn interrupt(
        &self,
        change: &Change,
        unit: &Unit,
        lease: Lease,
        overlay: &mut Overlay<'_>,
    ) -> Result<(), Unplanned> {
        let plan = self.planner.interrupt(&Interrupted { unit: unit.clone(), lease }, &*overlay).await?;
        Ok(overlay.take(change, plan)?)
    }

    /// The lease record that a start writes; what a dead predecessor left is marked first.
    async fn take_lease(
        &self,
        change: &Change,
        unit: &Unit,
        nonce: RunNonce,
        ttl_ms: u64,
        dead: &Dead,
        overlay: &mut Overlay<'_>,
    ) -> Result<(Grant, Lease), Unplanned> {
        let found = self.lease(unit).await?;
        let generation = found.as_ref().map_or(0, |lease| lease.generation) + 1;
        if let Some(lease) = found.filter(|lease| lease.held) {
            if dead.get(unit) != Some(&lease.nonce) {
                return Err(Unplanned::Held(unit.clone(), lease));
            }
            self.interrupt(change, unit, lease, overlay).await?;
        }
        let lease = Lease {
            generation,
            held: true,
            nonce,
            clone: self.id,
            instance: self.instance,
            base: self.runs.base(),
            user: self.options.user.clone(),
            host: self.options.host.clone(),
            since: self.env.now(),
            ttl_ms,
        };
        let guard = Guard { path: lease_path(unit)?, generation, nonce };
        Ok((Grant { unit: unit.clone(), guard }, lease))
    }

    /// Frees a lease. The record stays and its generation never decreases, so that no guard ever fits twice.
    async fn free(
        &self,
        change: &Change,
        grant: &Grant,
        overlay: &mut Overlay<'_>,
        bump: bool,
    ) -> Result<(), Unplanned> {
        if self.env.mutated(Mutation::LeaseFreeDeletes) {
            let op = crate::PlanOp::Delete { unit: grant.unit.clone(), path: grant.guard.path.clone() };
            return Ok(overlay.take(change, crate::Plan { ops: vec![op], answer: serde_json::Value::Null })?);
        }
        let Some(lease) = self.lease(&grant.unit).await? else { return Ok(()) };
        let generation = lease.generation + u64::from(bump);
        Ok(put_lease(overlay, &grant.unit, &Lease { held: false, generation, ..lease })?)
    }

    /// A13: every lease a change is made under is still held, in the state it is planned on. R1 carries that to the
    /// commit, for the leases' units are among the transaction's.
    async fn check_guards(&self, grants: &[Grant]) -> Result<(), Unplanned> {
        if self.env.mutated(Mutation::NoGuard) {
            return Ok(());
        }
        for grant in grants {
            if let Some(error) = self.guard_failure(grant).await? {
                return Err(Unplanned::Refused(error));
            }
        }
        Ok(())
    }

    /// Why a guard does not hold in the state known now, if so.
    pub(crate) async fn guard_failure(&self, grant: &Grant) -> Result<Option<Error>> {
        let lease = self.lease_at(&grant.unit, &grant.guard.path).await?;
        let (generation, nonce) = (grant.guard.generation, grant.guard.nonce);
        let how = match lease {
            Some(lease) if lease.held && lease.generation == generation && lease.nonce == nonce => return Ok(None),
            Some(lease) if lease.held => {
                format!("{}@{} took it over at {}", lease.user, lease.host, lease.since)
            }
            Some(_) => "it was released".to_owned(),
            None => "there is no such lease".to_owned(),
        };
        Ok(Some(
            Error::new(
                Kind::Conflict,
                format!("the lease of {} is not held any more: {how}", self.planner.name_of(&grant.unit)),
            )
            .with_code(LEASE_LOST),
        ))
    }

    /// The lease record of a unit as known now.
    pub(crate) async fn lease(&self, unit: &Unit) -> Result<Option<Lease>> {
        self.lease_at(unit, &lease_path(unit)?).await
    }

    async fn lease_at(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Lease>> {
        let Some(item) = self.db.read(|tx| db::get(tx, unit, path))? else { return Ok(None) };
        let bytes = self.content(&item).await?;
        let lease = serde_json::from_slice(&bytes)
            .map_err(|e| Error::damaged(format!("the lease record {path} cannot be read")).with_source(e))?;
        Ok(Some(lease))
    }
}

/// Where the lease of a unit is recorded.
pub(crate) fn lease_path(unit: &Unit) -> Result<ItemPath> {
    format!("leases/{unit}").parse()
}

fn put_lease(overlay: &mut Overlay<'_>, unit: &Unit, lease: &Lease) -> Result<(), Refusal> {
    let bytes = serde_json::to_vec(lease).map_err(|e| Error::internal("cannot write a lease").with_source(e))?;
    overlay.put(unit.clone(), lease_path(unit)?, Rank::Current, bytes.into())
}

impl Locked {
    /// Every unit its transaction names: those of the change, and those whose leases guard it.
    pub(crate) fn units(&self) -> Vec<Unit> {
        let header = &self.row.header;
        let mut units = header.units.clone();
        if !self.state().adopted {
            units.extend(header.grants.iter().map(|grant| grant.unit.clone()));
        }
        if let Role::Start { leases, .. } = &header.role {
            units.extend(leases.iter().cloned());
        }
        units.sort_unstable();
        units.dedup();
        units
    }
}
