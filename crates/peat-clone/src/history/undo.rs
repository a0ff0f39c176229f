//! Undoing an entry: the inverse of what a transaction did, as long as nobody built upon it.

use std::collections::BTreeMap;

use peat_ledger::{Kept, OpRecord, Past, TxHead, TxKind, format::FileDiff};
use peat_types::{Error, ItemPath, Kind, Result, Seq, Unit};

use super::is_lease;
use super::rewrite::{Rewrite, RewriteUnit, Step, Stored};
use crate::{LocalClone, Scope};

/// Entries looked through for who changed an item after the entry that is to be undone.
const WALK: u32 = 256;

/// What an undo would do.
#[derive(Clone, Debug)]
pub struct Undo {
    /// The transactions that are undone together, oldest first, with their entries: of a run its start and its end.
    pub undone: Vec<(Seq, TxHead)>,
    /// What happens.
    pub rewrite: Rewrite,
}

/// Items by unit and path: before and after.
type Effect = BTreeMap<(Unit, ItemPath), FileDiff>;

impl LocalClone {
    /// Finds the inverse of a transaction. `change` names one where the entry holds several: an id or its beginning.
    ///
    /// # Errors
    /// `not_undoable` for entries that cannot be undone, `several_changes` when one must be named, `changed_since` when
    /// a later entry changed an item, naming it, `nothing_to_undo` when all is as it was before, `state_not_kept` when
    /// what was before is not known any more.
    pub async fn plan_undo(&self, kept: &Kept, seq: Seq, change: Option<&str>) -> Result<Undo> {
        Box::pin(self.undo_of(kept, seq, change)).await
    }

    async fn undo_of(&self, kept: &Kept, seq: Seq, change: Option<&str>) -> Result<Undo> {
        let (entry, _) = self.entry(kept, seq).await?;
        let tx = chosen(seq, &entry.txs, change)?;
        undoable(seq, tx)?;
        let mut undone = vec![(seq, tx.clone())];
        if let Some(other) = Box::pin(self.other_half(kept, seq, tx)).await? {
            undone.push(other);
        }
        undone.sort_by_key(|(seq, _)| *seq);
        let units: Vec<Unit> = tx.units.iter().map(|changed| changed.unit.clone()).collect();
        let mut effect = Effect::new();
        for (seq, head) in &undone {
            let own: Vec<Unit> = head.units.iter().map(|changed| changed.unit.clone()).collect();
            let before = self.past(kept, Seq(seq.0.saturating_sub(1))).await?;
            let after = self.past(kept, *seq).await?;
            self.add(&mut effect, *seq, &before, &after, &own).await?;
        }
        let last = undone.last().map_or(seq, |(seq, _)| *seq);
        self.pull(&Scope::Units(units.clone())).await?;
        self.0.at_rest(&units).await?;
        let rewrite = self.inverse(kept, last, effect).await?;
        if rewrite.steps().all(|(_, step)| step.ranks()) {
            return Err(Error::new(
                Kind::Conflict,
                format!("there is nothing to undo in entry {seq}: all is as it was"),
            )
            .with_code("nothing_to_undo")
            .with_hint(format!("'peat show {0}' shows what it did", seq)));
        }
        Ok(Undo { undone, rewrite })
    }

    /// Adds what an entry did to units. What it met must be what the other half left.
    async fn add(&self, effect: &mut Effect, seq: Seq, before: &Past, after: &Past, units: &[Unit]) -> Result<()> {
        for diff in self.compare(before, after, Some(units)).await? {
            for (path, (was, is)) in diff.files.into_iter().filter(|(path, _)| !is_lease(path)) {
                let known = effect.entry((diff.unit.clone(), path.clone()));
                let known = known.or_insert_with(|| (was.clone(), was.clone()));
                let same = match (&known.1, &was) {
                    (Some((_, left)), Some((_, met))) => left.same_file(met),
                    (None, None) => true,
                    _ => false,
                };
                if !same {
                    return Err(Error::new(
                        Kind::Conflict,
                        format!(
                            "{path} was changed by somebody else while the run that ended with entry {seq} was at work"
                        ),
                    )
                    .with_code("changed_since"));
                }
                known.1 = is;
            }
        }
        Ok(())
    }

    async fn inverse(&self, kept: &Kept, last: Seq, effect: Effect) -> Result<Rewrite> {
        let mut units: BTreeMap<Unit, Vec<Step>> = BTreeMap::new();
        for ((unit, path), (was, is)) in effect {
            let step = Step { path, was: is.as_ref().map(Stored::of), to: was.as_ref().map(Stored::of) };
            let now = self.item(&unit, &step.path)?;
            let now = now.as_ref();
            if step.ranks() {
                let still = step.fits(now) && now.map(|now| now.rank) == step.was.as_ref().map(|was| was.rank);
                if !still {
                    continue;
                }
            } else if step.is_done(now) {
                continue;
            } else if !step.fits(now) {
                return Err(self.built_upon(kept, last, &unit, &step.path).await);
            }
            units.entry(unit).or_default().push(step);
        }
        let units = units.into_iter().map(|(unit, steps)| RewriteUnit { unit, only_at: None, steps });
        Ok(Rewrite { units: units.collect() })
    }

    /// The other transaction of a run: its end for its start, its start for its end.
    async fn other_half(&self, kept: &Kept, seq: Seq, tx: &TxHead) -> Result<Option<(Seq, TxHead)>> {
        let (Some(guard), TxKind::Start | TxKind::End) = (&tx.guard, tx.kind) else { return Ok(None) };
        let of_run = |head: &TxHead| head.guard.as_ref().is_some_and(|other| other.nonce == guard.nonce);
        let lease = |changed: &&peat_ledger::TxUnit| guard.path.as_str() == format!("leases/{}", changed.unit);
        let Some(leased) = tx.units.iter().find(lease) else { return Ok(None) };
        let is_end = tx.kind == TxKind::End;
        let mut next = if is_end {
            leased.expected
        } else {
            self.0.ledger.unit(&kept.newest.state, &leased.unit, &self.0.db).await?.map(|row| row.last_seq)
        };
        while let Some(at) = next.filter(|at| is_end || *at > seq) {
            let (entry, _) = self.entry(kept, at).await.map_err(|error| {
                let half = if is_end { "beginning" } else { "end" };
                error.context(format!("the {half} of the run that entry {seq} is part of was not found"))
            })?;
            let wanted = if is_end { TxKind::Start } else { TxKind::End };
            if let Some(found) = entry.txs.iter().find(|head| head.kind == wanted && of_run(head)) {
                return Ok(Some((at, found.clone())));
            }
            let changed = entry.txs.iter().flat_map(|head| &head.units).find(|changed| changed.unit == leased.unit);
            next = changed.and_then(|changed| changed.expected);
        }
        Ok(None)
    }

    /// The refusal to undo what a later entry built upon: which entry, and whose.
    async fn built_upon(&self, kept: &Kept, last: Seq, unit: &Unit, path: &ItemPath) -> Error {
        let by = Box::pin(self.later(kept, last, unit, path)).await.ok().flatten();
        let (who, hint) = match by {
            Some((seq, head)) => (
                format!("entry {seq} by {}", head.author),
                format!("'peat show {0}' shows that entry; undo it first if both are to go", seq),
            ),
            None => ("a later entry".to_owned(), "'peat log' shows who changed what".to_owned()),
        };
        Error::new(Kind::Conflict, format!("{path} was changed after entry {last}, by {who}"))
            .with_code("changed_since")
            .with_hint(hint)
    }

    /// The newest transaction after `last` that set or removed an item.
    async fn later(&self, kept: &Kept, last: Seq, unit: &Unit, path: &ItemPath) -> Result<Option<(Seq, TxHead)>> {
        let mut next = self.0.ledger.unit(&kept.newest.state, unit, &self.0.db).await?.map(|row| row.last_seq);
        for _ in 0..WALK {
            let Some(seq) = next.filter(|seq| *seq > last) else { break };
            let (entry, _) = self.entry(kept, seq).await?;
            for (head, ops) in entry.txs.iter().zip(&entry.ops) {
                let of_unit = ops.iter().filter(|ops| ops.unit == *unit).flat_map(|ops| &ops.ops);
                let touches = |op: &OpRecord| match op {
                    OpRecord::Put(other, _, _) | OpRecord::Delete(other) => other == path,
                    OpRecord::Rank(..) => false,
                };
                if of_unit.clone().any(touches) {
                    return Ok(Some((seq, head.clone())));
                }
            }
            let changed = entry.txs.iter().flat_map(|head| &head.units).find(|changed| changed.unit == *unit);
            next = changed.and_then(|changed| changed.expected);
        }
        Ok(None)
    }
}

/// The transaction that is meant.
fn chosen<'a>(seq: Seq, txs: &'a [TxHead], change: Option<&str>) -> Result<&'a TxHead> {
    if change.is_some_and(|wanted| wanted.trim().is_empty()) {
        return Err(Error::invalid("the change to undo has an empty name: give the start of its id, or leave it out"));
    }
    let named = |tx: &&TxHead| change.is_none_or(|wanted| tx.change.to_string().starts_with(wanted));
    let found: Vec<&TxHead> = txs.iter().filter(named).collect();
    let list = |txs: &[&TxHead]| {
        let line = |tx: &&TxHead| format!("{} ({}: {})", tx.change, tx.author, tx.message);
        txs.iter().map(line).collect::<Vec<_>>().join(", ")
    };
    match (found.as_slice(), change) {
        ([one], _) => Ok(one),
        ([], Some(wanted)) => {
            let all: Vec<&TxHead> = txs.iter().collect();
            Err(Error::not_found(format!("entry {seq} holds no change '{wanted}'; it holds {}", list(&all))))
        }
        (several, _) => {
            let first = several.first().map(|tx| tx.change.to_string()).unwrap_or_default();
            Err(Error::invalid(format!("entry {seq} holds {} changes: {}", several.len(), list(several)))
                .with_code("several_changes")
                .with_hint(format!("name the one to undo: 'peat undo {0} --change {1}'", seq, first)))
        }
    }
}

fn undoable(seq: Seq, tx: &TxHead) -> Result<()> {
    let why = match tx.kind {
        TxKind::Change | TxKind::Start | TxKind::End => return Ok(()),
        TxKind::Genesis => "it created the ledger",
        TxKind::Moved => "it says where the namespace lives now",
        TxKind::Abort => "it changed nothing: it gave a change up",
        TxKind::Checkpoint | TxKind::Gc | TxKind::Pin => "it is maintenance and changed no item",
    };
    Err(Error::invalid(format!("entry {seq} cannot be undone: {why}")).with_code("not_undoable"))
}
