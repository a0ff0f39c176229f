//! The state a change is planned on, with what was planned already laid over it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use peat_ledger::{Content, FileRow, NewContent, Op, Rank};
use peat_types::{Error, Hash, ItemPath, Kind, Result, Seq, Unit};

use crate::db;
use crate::handle::Inner;
use crate::{Change, Item, Plan, PlanContent, PlanOp, Refusal, View};

/// What a path will hold: nothing, or a row and where its content comes from.
type Edit = Option<(Item, Source)>;

/// Where a planned content comes from.
#[derive(Clone)]
enum Source {
    /// It stays as it is.
    Same,
    /// New bytes.
    Bytes(Bytes),
    /// The place the row names, which some kept state has.
    Stored,
}

/// A view that takes plans.
pub(crate) struct Overlay<'a> {
    inner: &'a Inner,
    units: Vec<Unit>,
    seqs: BTreeMap<Unit, Option<Seq>>,
    edits: BTreeMap<(Unit, ItemPath), Edit>,
}

impl<'a> Overlay<'a> {
    /// The units as they are known now.
    pub(crate) fn new(inner: &'a Inner, units: &[Unit]) -> Result<Self> {
        let seqs = inner.unit_seqs(units)?;
        Ok(Self { inner, units: units.to_vec(), seqs, edits: BTreeMap::new() })
    }

    pub(crate) fn seqs(&self) -> &BTreeMap<Unit, Option<Seq>> {
        &self.seqs
    }

    /// Lays a plan over the state.
    ///
    /// # Errors
    /// A refusal when it breaks a rule that every unit keeps.
    pub(crate) fn take(&mut self, change: &Change, plan: Plan) -> Result<(), Refusal> {
        for op in plan.ops {
            match op {
                PlanOp::Put { unit, path, rank, executable, content: PlanContent::Stored(row) } => {
                    self.check_put(&unit, &path)?;
                    let row = FileRow { executable, ..row };
                    let item = Item { unit: unit.clone(), path: path.clone(), rank, row };
                    self.edits.insert((unit, path), Some((item, Source::Stored)));
                }
                PlanOp::Put { unit, path, rank, executable, content } => {
                    let bytes = match content {
                        PlanContent::Bytes(bytes) => bytes,
                        PlanContent::Stored(_) => return Err(Error::internal("a stored content has no bytes").into()),
                        PlanContent::Journalled(at) => change.contents.get(at).cloned().ok_or_else(|| {
                            Error::internal(format!(
                                "the plan of a {} refers to a content it does not have",
                                change.kind
                            ))
                        })?,
                    };
                    self.put(unit, path, rank, executable, bytes)?;
                }
                PlanOp::Delete { unit, path } => {
                    self.check_unit(&unit)?;
                    self.edits.insert((unit, path), None);
                }
                PlanOp::Rank { unit, path, rank } => {
                    self.check_unit(&unit)?;
                    if let Some((mut item, bytes)) = self.now(&unit, &path)? {
                        item.rank = rank;
                        self.edits.insert((unit, path), Some((item, bytes)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Lays one new content over the state.
    pub(crate) fn put(
        &mut self,
        unit: Unit,
        path: ItemPath,
        rank: Rank,
        executable: bool,
        bytes: Bytes,
    ) -> Result<(), Refusal> {
        self.check_put(&unit, &path)?;
        // Where the content will lie is decided later; nobody looks at it here.
        let row = FileRow {
            executable,
            size: bytes.len() as u64,
            hash: Hash::of(&bytes),
            content: Content::Tiny(Bytes::new()),
        };
        let item = Item { unit: unit.clone(), path: path.clone(), rank, row };
        self.edits.insert((unit, path), Some((item, Source::Bytes(bytes))));
        Ok(())
    }

    fn check_put(&self, unit: &Unit, path: &ItemPath) -> Result<(), Refusal> {
        self.check_unit(unit)?;
        if self.now(unit, path)?.is_none() { self.check_name(unit, path) } else { Ok(()) }
    }

    /// Fetches what is stored already, to be stored again: the places it lies at are no longer ones to refer to.
    pub(crate) async fn bring_stored(&mut self) -> Result<()> {
        let stored = |edit: &Edit| matches!(edit, Some((_, Source::Stored)));
        let keys: Vec<_> = self.edits.iter().filter(|(_, edit)| stored(edit)).map(|(key, _)| key.clone()).collect();
        let items: Vec<Item> = keys.iter().filter_map(|key| Some(self.edits.get(key)?.as_ref()?.0.clone())).collect();
        let contents = self.inner.past_contents(&items.iter().collect::<Vec<_>>(), &[]).await?;
        for ((key, item), bytes) in keys.into_iter().zip(items).zip(contents) {
            self.edits.insert(key, Some((item, Source::Bytes(bytes))));
        }
        Ok(())
    }

    fn check_unit(&self, unit: &Unit) -> Result<()> {
        if self.seqs.contains_key(unit) {
            return Ok(());
        }
        Err(Error::internal(format!("a plan touches {unit}, which its change does not name")))
    }

    /// Invariant P: no two paths of a unit that some file system takes for one, or of which one needs the other to be a
    /// folder.
    fn check_name(&self, unit: &Unit, path: &ItemPath) -> Result<(), Refusal> {
        let stored = self.inner.db.read(|tx| db::collisions(tx, unit, path))?;
        let fold = path.folded();
        let clash = |other: &str| {
            let (short, long) = if other.len() < fold.len() { (other, fold.as_str()) } else { (fold.as_str(), other) };
            long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let gone = |other: &ItemPath| matches!(self.edits.get(&(unit.clone(), other.clone())), Some(None));
        let planned = self
            .edits
            .iter()
            .filter(|((of, other), edit)| of == unit && edit.is_some() && other != path)
            .map(|((_, other), _)| other)
            .find(|other| clash(&other.folded()));
        if let Some(other) = stored.iter().find(|other| !gone(other)).or(planned) {
            return Err(Refusal::Refused(
                Error::new(Kind::Conflict, format!("{path} cannot stand beside {other} in {unit}"))
                    .with_code("path_collision")
                    .with_hint(
                        "names that differ only in case or in the way accents are written count as one; choose another",
                    ),
            ));
        }
        Ok(())
    }

    fn now(&self, unit: &Unit, path: &ItemPath) -> Result<Edit> {
        if let Some(edit) = self.edits.get(&(unit.clone(), path.clone())) {
            return Ok(edit.clone());
        }
        Ok(self.inner.db.read(|tx| db::get(tx, unit, path))?.map(|item| (item, Source::Same)))
    }

    /// The operations that lead from the state to what was laid over it, by unit: one per path at most.
    pub(crate) fn ops(&self, avoid_known: bool) -> Result<BTreeMap<Unit, Vec<Op>>> {
        let mut out: BTreeMap<Unit, Vec<Op>> = self.units.iter().map(|unit| (unit.clone(), Vec::new())).collect();
        for ((unit, path), edit) in &self.edits {
            let old = self.inner.db.read(|tx| db::get(tx, unit, path))?;
            let ops = out.entry(unit.clone()).or_default();
            match (edit, old) {
                (None, Some(old)) => ops.push(Op::Delete { path: path.clone(), rank: old.rank }),
                (None, None) => {}
                (Some((item, source @ (Source::Bytes(_) | Source::Stored))), old) => ops.push(Op::Put {
                    path: path.clone(),
                    rank: item.rank,
                    old: old.map(|old| old.rank),
                    executable: item.row.executable,
                    content: match source {
                        Source::Bytes(bytes) => self.content(item, bytes, avoid_known)?,
                        _ => NewContent::Known(item.row.clone()),
                    },
                }),
                (Some((item, Source::Same)), Some(old)) if item.rank != old.rank => {
                    ops.push(Op::Rank { path: path.clone(), from: old.rank, to: item.rank });
                }
                (Some((_, Source::Same)), _) => {}
            }
        }
        Ok(out)
    }

    /// A11: bytes that would need a pack, and lie in one already, are not sent again. `avoid` when a reference that was
    /// used so turned out to be gone.
    fn content(&self, item: &Item, bytes: &Bytes, avoid: bool) -> Result<NewContent> {
        if !avoid
            && item.row.size > self.inner.ledger.info().params.inline_file
            && let Some(row) = self.inner.db.read(|tx| db::in_pack(tx, item.row.hash, item.row.size))?
        {
            return Ok(NewContent::Known(row));
        }
        Ok(NewContent::Bytes(bytes.clone()))
    }

    /// New contents by hash, for the tree.
    pub(crate) fn contents(&self) -> BTreeMap<Hash, Bytes> {
        let new = self.edits.values().flatten().filter_map(|(item, source)| match source {
            Source::Bytes(bytes) => Some((item.row.hash, bytes.clone())),
            Source::Same | Source::Stored => None,
        });
        new.collect()
    }
}

#[async_trait]
impl View for Overlay<'_> {
    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn seq(&self, unit: &Unit) -> Option<Seq> {
        self.seqs.get(unit).copied().flatten()
    }

    fn items(&self, unit: &Unit, prefix: &str) -> Result<Vec<Item>> {
        let stored = self.inner.db.read(|tx| db::items(tx, unit, prefix))?;
        let mut items: BTreeMap<ItemPath, Item> = stored.into_iter().map(|item| (item.path.clone(), item)).collect();
        for ((of, path), edit) in &self.edits {
            if of == unit && path.as_str().starts_with(prefix) {
                match edit {
                    Some((item, _)) => items.insert(path.clone(), item.clone()),
                    None => items.remove(path),
                };
            }
        }
        Ok(items.into_values().collect())
    }

    fn item(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Item>> {
        Ok(self.now(unit, path)?.map(|(item, _)| item))
    }

    async fn read(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Bytes>> {
        match self.now(unit, path)? {
            None => Ok(None),
            Some((_, Source::Bytes(bytes))) => Ok(Some(bytes)),
            Some((item, Source::Same | Source::Stored)) => self.inner.content(&item).await.map(Some),
        }
    }
}

impl Inner {
    /// The last seq of each unit as known now, in one snapshot.
    pub(crate) fn unit_seqs(&self, units: &[Unit]) -> Result<BTreeMap<Unit, Option<Seq>>> {
        self.db.read(|tx| units.iter().map(|unit| Ok((unit.clone(), db::known(tx, unit)?.0))).collect())
    }
}
