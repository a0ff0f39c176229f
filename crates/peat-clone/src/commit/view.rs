//! The state a change is planned on, with what was planned already laid over it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use peat_ledger::{Content, FileRow, NewContent, Op, Rank};
use peat_types::{Error, Hash, ItemPath, Kind, Result, Seq, Unit};

use super::Placed;
use crate::db;
use crate::handle::{Inner, fits_memory};
use crate::{Brought, Change, Item, Plan, PlanContent, PlanOp, Refusal, View};

/// What a path will hold: nothing, or a row.
type Edit = Option<Row>;

/// A row, and where its content comes from.
#[derive(Clone, Debug)]
struct Row {
    rank: Rank,
    row: FileRow,
    source: Source,
}

/// Where a planned content comes from.
#[derive(Clone, Debug)]
enum Source {
    /// It stays as it is.
    Same,
    /// It is new. The index is that of a journalled one, which may be in the store already.
    New(Brought, Option<usize>),
    /// The place the row names, which some kept state has.
    Stored,
}

/// A view that takes plans.
pub(crate) struct Overlay<'a> {
    inner: &'a Inner,
    placed: &'a Placed,
    units: Vec<Unit>,
    seqs: BTreeMap<Unit, Option<Seq>>,
    edits: BTreeMap<Unit, BTreeMap<ItemPath, Edit>>,
    /// Paths that are set, by the form in which they count as one (invariant P).
    names: BTreeMap<Unit, BTreeMap<String, ItemPath>>,
}

impl<'a> Overlay<'a> {
    /// The units as they are known now; `placed` are contents of the change that are in the store.
    pub(crate) fn new(inner: &'a Inner, units: &[Unit], placed: &'a Placed) -> Result<Self> {
        let seqs = inner.unit_seqs(units)?;
        let (edits, names) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { inner, placed, units: units.to_vec(), seqs, edits, names })
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
                PlanOp::Put { unit, path, rank, executable, content } => match content {
                    PlanContent::Bytes(bytes) => self.set(unit, path, rank, executable, bytes.into(), None)?,
                    PlanContent::Journalled(at) => {
                        let kept = change.contents.get(at).cloned().ok_or_else(|| {
                            let kind = &change.kind;
                            Error::internal(format!("the plan of a {kind} refers to a content it does not have"))
                        })?;
                        self.set(unit, path, rank, executable, kept, Some(at))?;
                    }
                    PlanContent::Stored(row) => {
                        let row = FileRow { executable, ..row };
                        self.lay(unit, path, Row { rank, row, source: Source::Stored })?;
                    }
                },
                PlanOp::Delete { unit, path } => {
                    self.check_unit(&unit)?;
                    if let Some(names) = self.names.get_mut(&unit) {
                        names.remove(&path.folded());
                    }
                    self.edits.entry(unit).or_default().insert(path, None);
                }
                PlanOp::Rank { unit, path, rank } => {
                    self.check_unit(&unit)?;
                    if let Some(row) = self.now(&unit, &path)? {
                        self.edits.entry(unit).or_default().insert(path, Some(Row { rank, ..row }));
                    }
                }
            }
        }
        Ok(())
    }

    /// Lays one new content over the state.
    pub(crate) fn put(&mut self, unit: Unit, path: ItemPath, rank: Rank, bytes: Bytes) -> Result<(), Refusal> {
        self.set(unit, path, rank, false, bytes.into(), None)
    }

    fn set(
        &mut self,
        unit: Unit,
        path: ItemPath,
        rank: Rank,
        executable: bool,
        kept: Brought,
        at: Option<usize>,
    ) -> Result<(), Refusal> {
        // Where the content will lie is decided later; nobody looks at it here.
        let row = FileRow { executable, size: kept.size(), hash: kept.hash(), content: Content::Tiny(Bytes::new()) };
        self.lay(unit, path, Row { rank, row, source: Source::New(kept, at) })
    }

    fn lay(&mut self, unit: Unit, path: ItemPath, row: Row) -> Result<(), Refusal> {
        self.check_unit(&unit)?;
        let folded = path.folded();
        if self.now(&unit, &path)?.is_none() {
            self.check_name(&unit, &path, &folded)?;
        }
        self.names.entry(unit.clone()).or_default().insert(folded, path.clone());
        self.edits.entry(unit).or_default().insert(path, Some(row));
        Ok(())
    }

    /// Sees to contents that are stored already, at places that are no longer ones to refer to. What fits an entry is fetched,
    /// to be stored again with it; gives the others, as long as they were not stored again.
    pub(crate) async fn bring_stored(&mut self) -> Result<Vec<Item>> {
        let rows = self.edits.iter().flat_map(|(unit, edits)| edits.iter().map(move |(path, row)| (unit, path, row)));
        let stored = rows.filter_map(|(unit, path, row)| {
            let row = row.as_ref().filter(|row| matches!(row.source, Source::Stored))?;
            Some(item(unit, path, row.clone()))
        });
        let params = &self.inner.ledger.info().params;
        let (small, mut large): (Vec<Item>, Vec<Item>) = stored.partition(|item| item.size() <= params.inline_file);
        if small.iter().map(Item::size).sum::<u64>() > params.inline_tx {
            large.extend(small);
        } else {
            let contents = self.inner.past_contents(&small.iter().collect::<Vec<_>>(), &[]).await?;
            for (Item { unit, path, rank, row }, bytes) in small.into_iter().zip(contents) {
                let source = Source::New(bytes.into(), None);
                self.edits.entry(unit).or_default().insert(path, Some(Row { rank, row, source }));
            }
        }
        large.retain(|item| self.placed.again.content(&item.row).is_none());
        Ok(large)
    }

    fn check_unit(&self, unit: &Unit) -> Result<()> {
        if self.seqs.contains_key(unit) {
            return Ok(());
        }
        Err(Error::internal(format!("a plan touches {unit}, which its change does not name")))
    }

    /// Whether the unit has items that were committed: if not, nobody need look for them.
    fn exists(&self, unit: &Unit) -> bool {
        self.seqs.get(unit).is_some_and(Option::is_some)
    }

    /// Invariant P: no two paths of a unit that some file system takes for one, or of which one needs the other to be a
    /// folder.
    fn check_name(&self, unit: &Unit, path: &ItemPath, folded: &str) -> Result<(), Refusal> {
        let edits = self.edits.get(unit);
        let gone = |other: &ItemPath| edits.is_some_and(|edits| matches!(edits.get(other), Some(None)));
        let stored = match self.exists(unit) {
            true => self.inner.db.read(|tx| db::collisions(tx, unit, path))?,
            false => Vec::new(),
        };
        if let Some(other) = stored.iter().find(|other| !gone(other)).or_else(|| self.planned(unit, path, folded)) {
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

    /// Another path that is set and cannot stand beside this one.
    fn planned(&self, unit: &Unit, path: &ItemPath, folded: &str) -> Option<&ItemPath> {
        let names = self.names.get(unit)?;
        let above = folded.match_indices('/').filter_map(|(at, _)| folded.get(..at)).chain([folded]);
        let same = above.filter_map(|name| names.get(name)).find(|other| *other != path);
        let folder = format!("{folded}/");
        let below = || names.range(folder.clone()..).next().filter(|(name, _)| name.starts_with(&folder));
        same.or_else(|| below().map(|(_, other)| other))
    }

    fn now(&self, unit: &Unit, path: &ItemPath) -> Result<Edit> {
        if let Some(edit) = self.edits.get(unit).and_then(|edits| edits.get(path)) {
            return Ok(edit.clone());
        }
        let stored = self.stored(unit, path)?;
        Ok(stored.map(|item| Row { rank: item.rank, row: item.row, source: Source::Same }))
    }

    fn stored(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Item>> {
        if self.exists(unit) { self.inner.db.read(|tx| db::get(tx, unit, path)) } else { Ok(None) }
    }

    /// The operations that lead from the state to what was laid over it, by unit: one per path at most.
    pub(crate) fn ops(&self, avoid_known: bool) -> Result<BTreeMap<Unit, Vec<Op>>> {
        let mut out: BTreeMap<Unit, Vec<Op>> = self.units.iter().map(|unit| (unit.clone(), Vec::new())).collect();
        for (unit, edits) in &self.edits {
            let ops = out.entry(unit.clone()).or_default();
            for (path, edit) in edits {
                let old = self.stored(unit, path)?;
                let Some(Row { rank, row, source }) = edit else {
                    ops.extend(old.map(|old| Op::Delete { path: path.clone(), rank: old.rank }));
                    continue;
                };
                let content = match source {
                    Source::New(kept, at) => self.content(kept, *at, avoid_known)?,
                    Source::Stored if avoid_known => self.placed.again.content(row).ok_or_else(|| {
                        Error::internal(format!("the content of {path} was to be stored again, and was not"))
                    })?,
                    Source::Stored => NewContent::Known(row.clone()),
                    Source::Same => {
                        let moved = old.filter(|old| old.rank != *rank);
                        ops.extend(moved.map(|old| Op::Rank { path: path.clone(), from: old.rank, to: *rank }));
                        continue;
                    }
                };
                let (path, old, executable) = (path.clone(), old.map(|old| old.rank), row.executable);
                ops.push(Op::Put { path, rank: *rank, old, executable, content });
            }
        }
        Ok(out)
    }

    /// What was uploaded is introduced. A11: other bytes that would need a pack, and lie in one already, are not sent
    /// again. `avoid` when a reference that was used so turned out to be gone.
    fn content(&self, kept: &Brought, at: Option<usize>, avoid: bool) -> Result<NewContent> {
        if let Some(placed) = at.and_then(|at| self.placed.brought.get(&at)) {
            return Ok(placed.clone());
        }
        if !avoid
            && kept.size() > self.inner.ledger.info().params.inline_file
            && let Some(row) = self.inner.db.read(|tx| db::in_pack(tx, kept.hash(), kept.size()))?
        {
            return Ok(NewContent::Known(row));
        }
        Ok(NewContent::Bytes(kept.read()?))
    }

    /// Items that are set, and their bytes.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let rows = self.edits.values().flat_map(BTreeMap::values).flatten();
        let set = rows.filter(|row| !matches!(row.source, Source::Same));
        set.fold((0, 0), |(puts, bytes), row| (puts + 1, bytes + row.row.size))
    }

    /// New contents by hash, for the tree.
    pub(crate) fn contents(&self) -> BTreeMap<Hash, Brought> {
        let rows = self.edits.values().flat_map(BTreeMap::values).flatten();
        rows.filter_map(|row| match &row.source {
            Source::New(kept, _) => Some((row.row.hash, kept.clone())),
            Source::Same | Source::Stored => None,
        })
        .collect()
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
        for (path, edit) in self.edits.get(unit).into_iter().flatten() {
            if path.as_str().starts_with(prefix) {
                match edit {
                    Some(row) => items.insert(path.clone(), item(unit, path, row.clone())),
                    None => items.remove(path),
                };
            }
        }
        Ok(items.into_values().collect())
    }

    fn item(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Item>> {
        Ok(self.now(unit, path)?.map(|row| item(unit, path, row)))
    }

    async fn read(&self, unit: &Unit, path: &ItemPath) -> Result<Option<Bytes>> {
        let now = self.now(unit, path)?;
        now.iter().try_for_each(|row| fits_memory(path, row.row.size))?;
        match now {
            None => Ok(None),
            Some(Row { source: Source::New(kept, _), .. }) => kept.read().map(Some),
            Some(row) => self.inner.content(&item(unit, path, row)).await.map(Some),
        }
    }
}

fn item(unit: &Unit, path: &ItemPath, row: Row) -> Item {
    Item { unit: unit.clone(), path: path.clone(), rank: row.rank, row: row.row }
}

impl Inner {
    /// The last seq of each unit as known now, in one snapshot.
    pub(crate) fn unit_seqs(&self, units: &[Unit]) -> Result<BTreeMap<Unit, Option<Seq>>> {
        self.db.read(|tx| units.iter().map(|unit| Ok((unit.clone(), db::known(tx, unit)?.0))).collect())
    }
}
