//! Building pages again that cannot be read: what they held is told by who knew it, proven by the sums in the root, and
//! entered as new pages of the same rows. See `docs/design/016-repair.md`.

mod entry;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use peat_types::{Hash, PackId, Result, Unit};

use self::told::{Log, Picture, Told};
use super::mend::{Copies, Sorted, sort};
use super::search::{Candidates, elsewhere, readable_or_none, search};
pub(super) use entry::run;

use crate::format::open_block;
use crate::format::page::TreeKind;
use crate::format::refs::Value;
use crate::format::repoint::Places;
use crate::format::row::{PackRow, file_rows, read_file_value, read_pack_key, read_table_key};
use crate::format::tree::{Salvaged, salvage};
use crate::ledger::pages::{NoCache, Pages, fetch};
use crate::ledger::{Broken, Ledger, Lost, key, log};
use crate::model::{Content, ContentRef, FileRow, Ref, Segment, State};

/// Rows of a tree by key.
type Rows = BTreeMap<Vec<u8>, Value>;

/// Pages that can be built again, and what of it cannot.
#[derive(Debug)]
pub struct Rebuild {
    /// Units whose tables are written anew, and whether this machine tells what they hold (else the ledger does).
    pub units: BTreeMap<Unit, bool>,
    /// Whether the directory is written anew.
    pub directory: bool,
    /// Whether the pack table is.
    pub packs: bool,
    /// Units whose tables cannot be read, and that nobody tells for sure.
    pub untold: Vec<Unit>,
    /// Why something is left as it is.
    pub why: Option<&'static str>,
    work: Work,
}

/// What was built again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// Tables of units.
    pub tables: u64,
    /// The directory.
    pub directory: bool,
    /// The pack table.
    pub packs: bool,
    /// Why not all of it was.
    pub left: Option<String>,
}

impl Rebuild {
    /// Whether there is nothing that could be built.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty() && !self.directory && !self.packs
    }
}

/// How it is done.
#[derive(Debug)]
struct Work {
    /// The state it was planned on.
    state: State,
    /// The pages that are lost.
    holes: BTreeSet<Ref>,
    units: BTreeMap<Unit, Known>,
    packs: Vec<(Segment, Standing, PackRow)>,
    /// Contents that lie where a state must not refer to, and are stored again.
    contents: Sorted,
}

/// A unit whose table is lost, or its row in the directory.
#[derive(Debug)]
struct Known {
    told: Told,
    rows: Rows,
}

/// Whether a pack may be referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Live,
    Dropped,
}

/// The rows of a tree: those that can be read, and of the known ones those that lie in the holes.
fn fill(read: &Salvaged, known: &Rows) -> Rows {
    let lost = known.iter().filter(|(key, _)| read.holes.iter().any(|hole| hole.covers(key)));
    read.rows.iter().cloned().chain(lost.map(|(key, value)| (key.clone(), value.clone()))).collect()
}

/// Whether what is known of a table agrees with what can be read of it, wherever the contents lie.
fn agrees(read: &Salvaged, known: &Rows) -> bool {
    let same = |a: &Value, b: &Value| match (read_file_value(a), read_file_value(b)) {
        (Ok(a), Ok(b)) => a.same_file(&b),
        _ => false,
    };
    let outside = known.keys().filter(|key| !read.holes.iter().any(|hole| hole.covers(key))).count();
    outside == read.rows.len()
        && read.rows.iter().all(|(key, value)| known.get(key).is_some_and(|row| same(row, value)))
}

const UNTOLD: &str = "neither the log nor an older state nor this machine tells all that they held";
const UNPROVEN: &str = "what is told does not add up to what the newest entry says";
const NO_TABLE: &str = "the table of all packs can be built only when everything else can be read";

pub(super) async fn plan(ledger: &Ledger, lost: &Lost, copies: &dyn Copies) -> Result<Rebuild> {
    let covered = |unit: &Unit| lost.directory.iter().any(|hole| hole.covers(unit.as_str().as_bytes()));
    let wanted = |unit: &Unit| lost.units.contains_key(unit) || covered(unit);
    let log = Log::read(ledger, &lost.state, &wanted).await?;
    let mut finder = Finder { ledger, lost, log: &log, torn: BTreeMap::new(), found: BTreeMap::new() };
    finder.read_torn().await?;
    let (here, proven) = told::here(ledger, &log, copies, &wanted)?;
    let mut here = Some(log.forward(here));
    if proven {
        finder.take(here.take());
    }
    if !finder.complete() {
        finder.take(Some(log.forward(Picture::new())));
    }
    for state in &log.older {
        if finder.complete() {
            break;
        }
        finder.take(Some(log.forward(told::older(ledger, state, &wanted).await?)));
    }
    if !finder.complete() {
        finder.take(here);
    }
    let whole = finder.complete();
    let mut why = None;
    if !whole {
        let all = lost.units.keys().all(|unit| finder.found.contains_key(unit));
        // What the ledger itself says of a unit is as good as a page; what a machine says has to be proven.
        finder.found.retain(|unit, known| lost.units.contains_key(unit) && (proven || !known.told.here));
        if !lost.packs.is_empty() {
            finder.found.clear();
        }
        why = match (all, lost.units.len() == finder.found.len()) {
            _ if !lost.packs.is_empty() => Some(NO_TABLE),
            (true, true) if lost.directory.is_empty() => None,
            (true, false) => Some(UNPROVEN),
            _ => Some(UNTOLD),
        };
    }
    let Finder { torn, mut found, .. } = finder;
    let untold = lost.units.keys().filter(|unit| !found.contains_key(unit)).cloned().collect();
    let packs = Packs::read(ledger, lost).await?;
    let contents = place(ledger, &mut found, &torn, &packs, copies).await?;
    let holes = torn.values().flat_map(|read| &read.holes).chain(&lost.directory).chain(&lost.packs);
    let holes: BTreeSet<Ref> = holes.map(|hole| hole.at).collect();
    let rows = if whole && !lost.packs.is_empty() { packs.rows(lost, &holes, &log, &found) } else { Vec::new() };
    Ok(Rebuild {
        units: found.iter().map(|(unit, known)| (unit.clone(), known.told.here)).collect(),
        directory: whole && !lost.directory.is_empty(),
        packs: whole && !lost.packs.is_empty(),
        untold,
        why,
        work: Work { holes, state: lost.state.clone(), units: found, packs: rows, contents },
    })
}

/// Looks for what was lost.
struct Finder<'a> {
    ledger: &'a Ledger,
    lost: &'a Lost,
    log: &'a Log,
    /// What can be read of the tables that cannot be read whole.
    torn: BTreeMap<Unit, Salvaged>,
    found: BTreeMap<Unit, Known>,
}

impl Finder<'_> {
    async fn read_torn(&mut self) -> Result<()> {
        for (unit, row) in &self.lost.units {
            let pages = Pages::new(self.ledger, &NoCache);
            self.torn.insert(unit.clone(), salvage(row.table.as_ref(), TreeKind::Table, &pages).await?);
        }
        Ok(())
    }

    /// Takes over what a picture tells of units that nobody told yet, where it is what the newest state says of them.
    fn take(&mut self, picture: Option<Picture>) {
        for (unit, told) in picture.into_iter().flatten() {
            // What stands in a row itself is in no pack, and nobody verifies it later.
            let wrong = |row: &FileRow| matches!(&row.content, Content::Tiny(bytes) if Hash::of(bytes) != row.hash);
            if self.found.contains_key(&unit) || told.files.values().any(|(_, row)| wrong(row)) {
                continue;
            }
            let files = told.files.iter().flat_map(|(path, (rank, row))| file_rows(*rank, path, row));
            let rows: Rows = files.collect();
            let rows = match self.lost.units.get(&unit).zip(self.torn.get(&unit)) {
                // Equal last seq means equal unit.
                Some((row, read)) => {
                    let same =
                        (told.seq, told.files.len() as u64, told.bytes()) == (row.last_seq, row.files, row.bytes);
                    (same && agrees(read, &rows)).then(|| fill(read, &rows))
                }
                None => self.log.reaches(&told).then_some(rows),
            };
            if let Some(rows) = rows {
                self.found.insert(unit, Known { told, rows });
            }
        }
    }

    /// Whether all that was found and all that can be read is, together, what the root says.
    fn complete(&self) -> bool {
        let sums = self.found.iter().fold(self.lost.sound, |sums, (unit, known)| known.told.add_to(unit, sums));
        let root = &self.lost.state.root;
        let all = self.lost.units.keys().all(|unit| self.found.contains_key(unit));
        all && (sums.0, sums.1, sums.2, sums.3.digest()) == (root.units, root.files, root.bytes, root.setsum)
    }
}

/// The packs there are, and those of the table as far as that can be read.
struct Packs {
    listed: BTreeMap<Segment, u64>,
    table: BTreeMap<Segment, Standing>,
    whole: bool,
    state: State,
}

impl Packs {
    async fn read(ledger: &Ledger, lost: &Lost) -> Result<Self> {
        let listed = log::list_all(ledger, key::PACK).await?;
        let listed = listed.iter().filter_map(|listed| Some((key::pack_segment(&listed.key)?, listed.size))).collect();
        let pages = Pages::new(ledger, &NoCache);
        let read = salvage(lost.state.root.packs.as_ref(), TreeKind::Packs, &pages).await?;
        let mut table = BTreeMap::new();
        for (key, _) in &read.rows {
            let (dropped, base, id) = read_pack_key(key)?;
            let standing = if dropped { Standing::Dropped } else { Standing::Live };
            table.insert(Segment::Pack(base, id), standing);
        }
        Ok(Self { listed, table, whole: read.holes.is_empty(), state: lost.state.clone() })
    }

    /// Whether a state may refer to what lies there. Where the table cannot be read, what is there counts as live: it is
    /// in the table from then on.
    fn live(&self, segment: Segment) -> bool {
        match (segment, self.table.get(&segment)) {
            (Segment::Log(seq), _) => seq >= self.state.root.minlog && seq <= self.state.seq,
            (Segment::Pack(..), Some(standing)) => *standing == Standing::Live,
            (Segment::Pack(..), None) => !self.whole && self.listed.contains_key(&segment),
        }
    }

    /// The rows of the packs that the table no longer tells of. What the newest state refers to was live. All else that
    /// may have been in the table is dropped as of now: older states may need it, and nobody may refer to it anew. What was
    /// uploaded and not introduced stays out, so that it still can be.
    fn rows(
        &self,
        lost: &Lost,
        holes: &BTreeSet<Ref>,
        log: &Log,
        found: &BTreeMap<Unit, Known>,
    ) -> Vec<(Segment, Standing, PackRow)> {
        let rows = found.values().flat_map(|known| known.rows.values()).filter_map(|value| value.at);
        let told: BTreeSet<Segment> = rows.map(|at| at.segment).filter(|at| self.listed.contains_key(at)).collect();
        let needed: BTreeSet<Segment> = lost.pages.iter().chain(&lost.blocks).chain(&told).copied().collect();
        // Who restores a pack of pages that is gone has older states back.
        let gone = holes.iter().map(|at| at.segment).filter(|at| log.introduced.contains_key(at));
        let all: BTreeSet<Segment> = self.listed.keys().chain(&needed).copied().chain(gone).collect();
        let mut out = Vec::new();
        for segment in all.into_iter().filter(|segment| !self.table.contains_key(segment)) {
            let Segment::Pack(base, _) = segment else { continue };
            let introduced = log.introduced.get(&segment);
            let live = needed.contains(&segment);
            if !live && introduced.is_none() && base > self.state.root.horizon {
                continue;
            }
            let size = self.listed.get(&segment).copied().or(introduced.map(|(pack, _)| pack.size));
            let size = size.unwrap_or_default();
            // References lead from younger to older packs, by their bases as well as by the entries that introduced them.
            let seq = introduced.map_or(base, |(_, seq)| *seq);
            let metadata = lost.pages.contains(&segment) || introduced.is_some_and(|(pack, _)| pack.pages);
            let standing = if live { Standing::Live } else { Standing::Dropped };
            out.push((segment, standing, PackRow { size, live: if live { size } else { 0 }, seq, metadata }));
        }
        out
    }
}

/// Finds a place for each content that was told with one which a state may no longer refer to. What has to be stored
/// again is given back.
async fn place(
    ledger: &Ledger,
    found: &mut BTreeMap<Unit, Known>,
    torn: &BTreeMap<Unit, Salvaged>,
    packs: &Packs,
    copies: &dyn Copies,
) -> Result<Sorted> {
    let mut astray = Vec::new();
    for (unit, known) in &*found {
        let none = Salvaged::default();
        let read = torn.get(unit).unwrap_or(&none);
        for (key, value) in &known.rows {
            let here = read.rows.binary_search_by(|(row, _)| row.cmp(key)).is_ok();
            let row = read_file_value(value)?;
            let Content::At(at) = row.content else { continue };
            if !here && !packs.live(at.block.segment) {
                let (_, path, part) = read_table_key(key)?;
                astray.push(Broken { unit: unit.clone(), path, part, at, size: row.size, hash: row.hash });
            }
        }
    }
    if astray.is_empty() {
        return Ok(Sorted::default());
    }
    let said = search(ledger, &astray).await?;
    let (mut places, mut nowhere) = (Places::new(), Vec::new());
    for broken in astray {
        match live_place(ledger, &broken, &said, packs).await? {
            Some(at) => drop(places.insert((broken.at.block, broken.at.sub, broken.hash), at)),
            None => nowhere.push(broken),
        }
    }
    let sorted = sort(ledger, &nowhere, copies).await?;
    for broken in &sorted.lost {
        places.insert((broken.at.block, broken.at.sub, broken.hash), no_place(broken));
    }
    for known in found.values_mut() {
        entry::replace(&mut known.rows, &places)?;
    }
    Ok(sorted)
}

/// Where a content lies that a state may refer to.
async fn live_place(ledger: &Ledger, broken: &Broken, said: &Candidates, packs: &Packs) -> Result<Option<ContentRef>> {
    for (block, sub) in said.get(&broken.hash).into_iter().flatten().rev() {
        let at = ContentRef { block: *block, sub: *sub };
        let there = packs.listed.contains_key(&block.segment) || matches!(block.segment, Segment::Log(_));
        if !there || !packs.live(block.segment) {
            continue;
        }
        // A part has to be all of its block.
        if broken.part.is_some() {
            let record = readable_or_none(fetch(ledger, BTreeSet::from([*block])).await)?;
            let block = record.and_then(|mut records| open_block(&records.remove(block)?).ok());
            if block.is_none_or(|block| block.len() as u64 != broken.size)
                || elsewhere(ledger, broken, at).await?.is_none()
            {
                continue;
            }
        }
        return Ok(Some(at));
    }
    Ok(None)
}

/// The place of a content that nobody has, told with a place that no state may refer to any more. No pack has this name,
/// so reading it says that it is lost, and a repair that finds a copy some day puts it back by its hash.
fn no_place(broken: &Broken) -> ContentRef {
    let base = match broken.at.block.segment {
        Segment::Log(seq) => seq,
        Segment::Pack(base, _) => base,
    };
    let segment = Segment::Pack(base, PackId::from_bytes([0; 16]));
    ContentRef { block: Ref { segment, off: 0, ..broken.at.block }, sub: 0 }
}
