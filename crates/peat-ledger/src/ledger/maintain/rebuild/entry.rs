//! The entry that brings pages of the same rows in the place of lost ones.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use peat_types::{Error, Kind, Result, Unit};

use super::{Known, Rebuild, Rows, Standing, Work, fill};
use crate::format::entry::introduction;
use crate::format::maintain::{Maintenance, section};
use crate::format::page::{PageSink, TreeKind};
use crate::format::refs::Value;
use crate::format::repoint::{Places, move_to};
use crate::format::row::{PackRow, pack_key, pack_value, read_file_value, read_pack_key, unit_value};
use crate::format::tree::{lookup, salvage};
use crate::format::tree_write::{Edit, apply};
use crate::ledger::Ledger;
use crate::ledger::maintain::enter::{Build, Entered, Mark, enter};
use crate::ledger::maintain::mend::{Copies, Mended, Mending, store};
use crate::ledger::maintain::shelf::{Shelf, Stored};
use crate::ledger::pages::{NoCache, Pages};
use crate::model::{Content, Entry, NewPack, Ref, Root, Segment, State, TxKind, UnitRow};

/// Lets rows point to where `places` says.
pub(super) fn replace(rows: &mut Rows, places: &Places) -> Result<()> {
    for value in rows.values_mut() {
        let row = read_file_value(value)?;
        let Content::At(at) = row.content else { continue };
        if let Some(new) = places.get(&(at.block, at.sub, row.hash)) {
            move_to(value, new)?;
        }
    }
    Ok(())
}

fn edits(rows: impl IntoIterator<Item = (Vec<u8>, Value)>) -> Vec<Edit> {
    rows.into_iter().map(|(key, value)| Edit { key, value: Some(value) }).collect()
}

/// Carries a plan out. What others entered since it was made does not harm it; another checkpoint makes it void.
pub(in super::super) async fn run(
    ledger: &Ledger,
    rebuild: &Rebuild,
    copies: &dyn Copies,
    how: &Mending,
    out: &mut Mended,
) -> Result<()> {
    let give_up = ledger.env.monotonic() + how.patience;
    let work = &rebuild.work;
    let base = work.state.seq.next();
    let again = store(ledger, &work.contents.here, &work.contents.elsewhere, copies, base, how.patience).await?;
    out.stored += again.bytes;
    let mut shelf = Shelf::new(ledger, base, give_up)?;
    let mut pages = Pages::new(ledger, &NoCache);
    let mut tables = BTreeMap::new();
    for (unit, Known { told, rows }) in &work.units {
        let mut rows = rows.clone();
        replace(&mut rows, &again.places)?;
        // What hangs below a page in a pack has to lie in packs: the rest is put on top of it in the entry.
        let in_packs = |value: &Value| value.at.is_none_or(|at| matches!(at.segment, Segment::Pack(..)));
        let first: Rows =
            rows.iter().filter(|(_, value)| in_packs(value)).map(|(key, value)| (key.clone(), value.clone())).collect();
        let root = apply(None, TreeKind::Table, &edits(first.clone()), &pages, &mut shelf.pages).await?;
        shelf.turn().await?;
        let row = UnitRow { last_seq: told.seq, table: None, files: told.files.len() as u64, bytes: told.bytes() };
        tables.insert(unit.clone(), Table { row, rows, first, root });
    }
    shelf.finish().await?;
    if let Some((segment, body)) = shelf.last.take() {
        pages.hold_object(segment, body);
    }
    let packs: BTreeSet<NewPack> = again.packs.into_iter().chain(shelf.stored.iter().map(Stored::named)).collect();
    let mut build = Rebuilding {
        mark: Mark::new(ledger, &how.author),
        limit: usize::try_from(ledger.info.params.entry_max / 2).unwrap_or(usize::MAX),
        work,
        directory: rebuild.directory,
        packs: rebuild.packs,
        tables,
        new: packs,
        introduced: false,
        built: Vec::new(),
        done: out.built.clone(),
    };
    let mut state = work.state.clone();
    loop {
        ledger.env.step("mend.build").await;
        let entered = enter(ledger, state, pages, &mut build, give_up).await;
        match entered.map_err(|error| too_large(error, rebuild.directory))? {
            Entered::Yes(entry, head) => {
                out.entries.push(entry.state.seq);
                build.settle();
                if build.tables.is_empty() {
                    break;
                }
                state = head.state;
                pages = Pages::new(ledger, &NoCache);
            }
            Entered::Void if build.tables.is_empty() => break,
            Entered::Void => {
                let why = "others put things in another place meanwhile; run 'peat doctor --repair' again";
                build.done.left = Some(why.to_owned());
                break;
            }
            Entered::Late(error) => return Err(error.context("not all pages were built again")),
            Entered::Unknown(error) => {
                return Err(error
                    .context("whether all pages were built again is not known")
                    .with_hint("run 'peat doctor --repair' again: it does what is left to be done"));
            }
        }
        build.mark = Mark::new(ledger, &how.author);
    }
    out.built = build.done;
    Ok(())
}

/// The directory travels in one entry, with what lies in the log of all tables that are lost with it.
fn too_large(error: Error, directory: bool) -> Error {
    if error.kind() != Kind::Invalid || !directory {
        return error;
    }
    Error::damaged("the list of all models is too long to be written again by one entry")
        .with_hint("restore the objects that 'peat ledger verify' names, from a backup or from older versions of them")
        .with_source(error)
}

/// The table of a unit, written anew.
struct Table {
    row: UnitRow,
    /// All that is known of it.
    rows: Rows,
    /// What lies in the pack at `root`.
    first: Rows,
    root: Option<Ref>,
}

/// Built from nothing but the state before it: wherever a lost page is referred to, there is a page of the same rows
/// afterwards. A page never changes, so what it held is right for every state that refers to it.
struct Rebuilding<'a> {
    mark: Mark,
    /// Bytes of tables in one entry.
    limit: usize,
    work: &'a Work,
    directory: bool,
    packs: bool,
    /// Units that are still to be looked at.
    tables: BTreeMap<Unit, Table>,
    new: BTreeSet<NewPack>,
    /// Whether an entry introduced the new packs already.
    introduced: bool,
    /// Units that the entry is about.
    built: Vec<(Unit, bool)>,
    done: super::Built,
}

impl Rebuilding<'_> {
    /// The entry is in the log.
    fn settle(&mut self) {
        for (unit, changed) in self.built.drain(..) {
            self.done.tables += u64::from(changed);
            self.tables.remove(&unit);
        }
        self.introduced = true;
        self.done.directory |= self.directory;
        self.done.packs |= self.packs;
        (self.directory, self.packs) = (false, false);
    }

    fn known(&self, holes: &[crate::format::tree::Hole]) -> bool {
        holes.iter().all(|hole| self.work.holes.contains(&hole.at))
    }

    /// Whether what is to be referred to may be (R2), and what an earlier entry introduced still may (R3).
    async fn may(&self, base: &State, pages: &Pages<'_>) -> Result<bool> {
        if !self.introduced {
            return Ok(self.new.iter().all(|pack| pack.base > base.root.horizon));
        }
        let keys: Vec<Vec<u8>> = self.new.iter().map(|pack| pack_key(false, pack.base, pack.id)).collect();
        let sorted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let live = lookup(base.root.packs.as_ref(), TreeKind::Packs, &sorted, pages).await?;
        Ok(live.iter().all(Option::is_some))
    }

    /// Edits of the pack table, and what they are applied to.
    async fn pack_edits(&self, base: &State, pages: &Pages<'_>) -> Result<Option<(Option<Ref>, Vec<Edit>)>> {
        let seq = base.seq.next();
        let mut rows = Rows::new();
        if !self.introduced {
            rows.extend(self.new.iter().map(|pack| introduction(pack, seq)));
        }
        if !self.packs {
            return Ok(Some((base.root.packs, edits(rows))));
        }
        let read = salvage(base.root.packs.as_ref(), TreeKind::Packs, pages).await?;
        if read.holes.is_empty() || !self.known(&read.holes) {
            return Ok(None);
        }
        let mut known = BTreeSet::new();
        for (key, _) in &read.rows {
            let (_, base, id) = read_pack_key(key)?;
            known.insert(Segment::Pack(base, id));
        }
        let mut told = Rows::new();
        for (segment, standing, row) in &self.work.packs {
            let Segment::Pack(base, id) = *segment else { continue };
            let dropped = *standing == Standing::Dropped;
            // As of now: it stays as long as a state before this one does.
            let row = PackRow { seq: if dropped { seq } else { row.seq }, ..*row };
            if !known.contains(segment) {
                told.insert(pack_key(dropped, base, id), pack_value(&row));
            }
        }
        rows.extend(fill(&read, &told));
        Ok(Some((None, edits(rows))))
    }
}

#[async_trait]
impl Build for Rebuilding<'_> {
    fn pass(&mut self, entry: &Entry) -> bool {
        // C3: it may have moved what the rows refer to.
        !entry.txs.iter().any(|tx| tx.kind == TxKind::Checkpoint)
    }

    async fn build(&mut self, base: &State, pages: &Pages<'_>) -> Result<Option<Maintenance>> {
        self.built.clear();
        if !self.may(base, pages).await? {
            return Ok(None);
        }
        let read = salvage(base.root.directory.as_ref(), TreeKind::Directory, pages).await?;
        if !self.known(&read.holes) || read.holes.is_empty() && self.directory {
            return Ok(None);
        }
        let mut sink = PageSink::append(section()?);
        let mut directory = Rows::new();
        for (unit, table) in &self.tables {
            let key = unit.as_str().as_bytes();
            let listed = read.rows.binary_search_by(|(row, _)| row.as_slice().cmp(key)).ok().map(|at| &read.rows[at].1);
            let rows = match listed {
                None if self.directory => table.rows.clone(),
                None => return Ok(None),
                Some(value) => {
                    let torn = salvage(value.at.as_ref(), TreeKind::Table, pages).await?;
                    if !self.known(&torn.holes) {
                        return Ok(None);
                    }
                    if torn.holes.is_empty() {
                        self.built.push((unit.clone(), false));
                        continue;
                    }
                    fill(&torn, &table.rows)
                }
            };
            let keys: BTreeSet<&Vec<u8>> = rows.keys().chain(table.first.keys()).collect();
            let changed = keys.into_iter().filter(|key| rows.get(*key) != table.first.get(*key));
            let changed: Vec<Edit> =
                changed.map(|key| Edit { key: key.clone(), value: rows.get(key).cloned() }).collect();
            let root = apply(table.root, TreeKind::Table, &changed, pages, &mut sink).await?;
            let value = match listed {
                Some(value) => Value { at: root, ..value.clone() },
                None => unit_value(&UnitRow { table: root, ..table.row.clone() }, None),
            };
            directory.insert(key.to_vec(), value);
            self.built.push((unit.clone(), true));
            let full = matches!(&sink, PageSink::Append { out, .. } if out.len() > self.limit);
            if full && !self.directory {
                break;
            }
        }
        let Some((packs_root, packs)) = self.pack_edits(base, pages).await? else { return Ok(None) };
        if directory.is_empty() && !self.directory && !self.packs {
            self.tables.clear();
            return Ok(None);
        }
        let mut root = Root { packs: packs_root, ..base.root.clone() };
        if self.directory {
            root.directory = None;
            let rest = read.rows.into_iter().filter(|(key, _)| !directory.contains_key(key)).collect::<Vec<_>>();
            directory.extend(rest);
        }
        let PageSink::Append { out: section, .. } = sink else { return Err(Error::internal("page sink")) };
        root.tail = root.tail.saturating_add(section.len() as u64);
        let tables = self.built.iter().filter(|(_, changed)| *changed).count();
        Ok(Some(Maintenance {
            kind: TxKind::Checkpoint,
            tx: self.mark.tx,
            change: self.mark.change,
            author: self.mark.author.clone(),
            message: message(tables, self.directory, self.packs),
            root,
            directory: edits(directory),
            packs,
            introduced: if self.introduced { Vec::new() } else { self.new.iter().copied().collect() },
            section,
        }))
    }
}

fn message(tables: usize, directory: bool, packs: bool) -> String {
    let what = [
        (tables > 0).then(|| format!("the tables of {tables} units")),
        directory.then(|| "the directory".to_owned()),
        packs.then(|| "the pack table".to_owned()),
    ];
    format!("repair: {} were built again", what.into_iter().flatten().collect::<Vec<_>>().join(", "))
}
