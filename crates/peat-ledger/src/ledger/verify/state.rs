//! L1 and L2: everything that a state leads to is there and adds up, and every content has its hash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use peat_types::{ItemPath, Result, Seq, Unit};
use setsum::Setsum;

use super::flaw::{BUILD_AGAIN, Broken, Flaw, LET_GO, Lost, PUT_AGAIN, RESTORE};
use super::names::PackTable;
use super::{Check, Depth};
use crate::format::page::TreeKind;
use crate::format::row::{read_unit_key, read_unit_value};
use crate::format::tree::{Hole, Salvaged, salvage, salvage_all};
use crate::format::{self, PageSource};
use crate::ledger::aside::aside;
use crate::ledger::pages::{NoCache, Pages};
use crate::ledger::{Ledger, contents, key};
use crate::model::{FileRow, Rank, Ref, Segment, State, UnitRow};

/// Rows of the tables that are read together, some 10 MiB in memory, where not all of them belong to one unit; and how
/// many times that: while one is looked at the next one is read.
const TOGETHER: u64 = 32 << 10;
const BATCHES: usize = 2;
/// About so many bytes of a page become one row.
const ROW: usize = 64;
/// Contents read and hashed together.
const BATCH: u64 = 32 << 20;

const DEFECT: &str =
    "report this as a defect, with what 'peat ledger cat <key>' shows of it; contents are not concerned";

/// The table of a unit as far as it can be read: its files and the sum over them when there are no holes.
#[derive(Default)]
struct ReadTable {
    holes: Vec<Hole>,
    places: BTreeSet<Ref>,
    files: Vec<(Rank, ItemPath, FileRow)>,
    sum: Setsum,
}

/// Packs that may be relied on; none where the table of them cannot be read.
type Live<'a> = Option<&'a BTreeSet<Segment>>;

/// What the table of a unit is like.
enum Table {
    /// Files, bytes and setsum.
    Sound(u64, u64, Setsum),
    /// Some pages cannot be read.
    Torn,
    /// Its pages can be read, and make no sense.
    Wrong,
}

impl<'a> Check<'a> {
    /// Key of the object that holds the first page of a tree which cannot be read.
    pub(super) async fn bad_page(&self, root: Option<Ref>) -> Option<String> {
        let pages = self.source();
        let mut open: Vec<Ref> = root.into_iter().collect();
        while let Some(at) = open.pop() {
            match pages.page(&at).await.and_then(|record| format::page_children(&record, &at)) {
                Ok(children) => open.extend(children),
                Err(_) => return Some(key::segment(at.segment)),
            }
        }
        None
    }

    /// What is wrong with a reference: its object is not there, or too short.
    fn resolves(&self, at: &Ref) -> Result<(), String> {
        let end = at.off.saturating_add(u64::from(at.len));
        match self.sizes.get(&at.segment) {
            Some(size) if end <= *size => Ok(()),
            Some(size) => Err(format!("has {size} bytes, and {end} are needed")),
            None => Err("is missing".to_owned()),
        }
    }

    /// The same for the newest state, whose references also must lie where nobody may delete.
    fn stays(&self, at: &Ref, head: &State, live: Live<'_>) -> Result<(), String> {
        self.resolves(at)?;
        let kept = match at.segment {
            Segment::Log(seq) => seq >= head.root.minlog,
            segment @ Segment::Pack(..) => live.is_none_or(|live| live.contains(&segment)),
        };
        if kept { Ok(()) } else { Err("may be removed, and is referred to".to_owned()) }
    }

    /// Everything below the newest state. `None` when a newer version wrote it.
    pub(super) async fn head(&mut self, head: &State, packs: &PackTable) -> Result<Option<()>> {
        let object = key::log(head.seq);
        let pages = self.source();
        let read = salvage(head.root.directory.as_ref(), TreeKind::Directory, &pages).await.and_then(|read| {
            let row = |(key, value): &(Vec<u8>, _)| Ok((read_unit_key(key)?, read_unit_value(value)?));
            let rows = read.rows.iter().map(row).collect::<Result<Vec<(Unit, UnitRow)>>>()?;
            Ok((rows, read.holes, read.pages))
        });
        let (rows, holes, places) = match read {
            Ok(read) => read,
            Err(error) => {
                self.note(Flaw::new(object, "", RESTORE), error)?;
                return Ok(None);
            }
        };
        self.holes(&holes, "the list of all models");
        let live = packs.live();
        let live = (head, live.as_ref());
        for at in places {
            self.pages.insert(at.segment);
            if let Err(what) = self.stays(&at, head, live.1) {
                self.find(key::segment(at.segment), format!("{what} by the list of all models"), RESTORE);
            }
        }
        self.directory(&rows, &holes, head);
        let mut sound = (0, 0, 0, Setsum::default());
        let mut units = BTreeMap::new();
        let mut complete = true;
        let mut tables = self.tables(&rows);
        while let Some(read) = tables.next().await {
            for ((unit, row), read) in read? {
                match self.unit(unit, row, live, read).await? {
                    Table::Sound(files, bytes, sum) => {
                        sound = (sound.0 + 1, sound.1 + files, sound.2 + bytes, sound.3 + sum);
                    }
                    Table::Torn => drop(units.insert(unit.clone(), row.clone())),
                    Table::Wrong => complete = false,
                }
            }
        }
        let (pages, blocks) = (self.pages.clone(), self.blocks.clone());
        let (state, packs) = (head.clone(), packs.holes.clone());
        let lost = Lost { state, directory: holes, packs, units, sound, pages, blocks };
        let root = &head.root;
        if complete && lost.directory.is_empty() && lost.units.is_empty() {
            let (counted, said) = ((sound.0, sound.1, sound.2), (root.units, root.files, root.bytes));
            if counted != said {
                let what = format!("counts (units, files, bytes) {said:?}, there are {counted:?}");
                self.find(&object, what, DEFECT);
            }
            if sound.3.digest() != root.setsum {
                let remedy = "compare with a backup, files may have been lost: 'peat log' shows what was changed";
                self.find(&object, "the sum over all files is wrong", remedy);
            }
        }
        self.out.lost = Some(lost).filter(|lost| !lost.is_nothing());
        Ok(Some(()))
    }

    /// The directory against the entries: each says which units it changed.
    fn directory(&mut self, rows: &[(Unit, UnitRow)], holes: &[Hole], head: &State) {
        let mut wrong = Vec::new();
        for (unit, changed) in &self.changed {
            let row = rows.binary_search_by(|(known, _)| known.cmp(unit)).ok().map(|at| &rows[at].1);
            let what = match row {
                None if holes.iter().any(|hole| hole.covers(unit.as_str().as_bytes())) => continue,
                None => format!("the directory does not list it, although entry {} changed it", changed.seq),
                Some(row) if row.last_seq < changed.seq => {
                    format!(
                        "the directory has it as of entry {}, although entry {} changed it",
                        row.last_seq, changed.seq
                    )
                }
                Some(row)
                    if row.last_seq == changed.seq
                        && (row.files, row.bytes) != (changed.row.files, changed.row.bytes) =>
                {
                    format!(
                        "the directory counts {} files of {} bytes, entry {} says {} of {}",
                        row.files, row.bytes, changed.seq, changed.row.files, changed.row.bytes
                    )
                }
                Some(_) => continue,
            };
            wrong.push(Flaw::new(key::log(head.seq), what, DEFECT).of(unit));
        }
        for (unit, row) in rows {
            let known = self.changed.get(unit).map(|changed| changed.seq);
            if self.whole && row.last_seq >= head.root.keep && known.is_none_or(|known| known < row.last_seq) {
                let what = format!("the directory has it as of entry {}, which does not name it", row.last_seq);
                wrong.push(Flaw::new(key::log(head.seq), what, DEFECT).of(unit));
            }
        }
        self.out.findings.append(&mut wrong);
    }

    async fn unit(
        &mut self,
        unit: &Unit,
        row: &UnitRow,
        (head, live): (&State, Live<'_>),
        read: Result<ReadTable>,
    ) -> Result<Table> {
        let ReadTable { holes, places, files: table, sum } = match read {
            Ok(read) => read,
            Err(error) => {
                self.pages.extend(row.table.map(|at| at.segment));
                let object = row.table.map_or_else(String::new, |at| key::segment(at.segment));
                self.note(Flaw::new(object, "", RESTORE).of(unit), error)?;
                return Ok(Table::Wrong);
            }
        };
        self.pages.extend(places.iter().map(|at| at.segment));
        if !holes.is_empty() {
            for hole in holes {
                self.torn.insert(hole.at.segment);
                let what = format!("holds a part of the table of a model: {}", hole.why);
                let flaw = Flaw::new(key::segment(hole.at.segment), what, BUILD_AGAIN);
                self.out.findings.push(flaw.of(unit));
            }
            return Ok(Table::Torn);
        }
        for at in &places {
            if let Err(what) = self.stays(at, head, live) {
                let flaw = Flaw::new(key::segment(at.segment), format!("{what} by the table of a model"), RESTORE);
                self.out.findings.push(flaw.of(unit));
            }
        }
        let mut sound = Vec::new();
        for (_, path, file) in &table {
            for piece in Broken::pieces(unit, path, file) {
                self.blocks.insert(piece.at.block.segment);
                match self.stays(&piece.at.block, head, live) {
                    Ok(()) => sound.push(piece),
                    Err(what) => self.broken(piece, what),
                }
            }
        }
        let (files, bytes) = (table.len() as u64, table.iter().map(|(_, _, file)| file.size).sum());
        if (files, bytes) != (row.files, row.bytes) {
            let what = format!("the directory counts {} files of {} bytes", row.files, row.bytes);
            let what = format!("{what}, its table has {files} of {bytes}");
            self.out.findings.push(Flaw::new(key::log(head.seq), what, DEFECT).of(unit));
        }
        if self.depth == Depth::Contents {
            self.out.contents += table.len() as u64;
            self.contents(sound).await?;
        }
        Ok(Table::Sound(files, bytes, sum))
    }

    fn broken(&mut self, piece: Broken, what: String) {
        let object = key::segment(piece.at.block.segment);
        let what = match piece.part {
            None => what,
            Some(n) => format!("{what} (part {} of a large content)", n + 1),
        };
        let flaw = Flaw::new(object, what, PUT_AGAIN).of(&piece.unit);
        self.out.findings.push(Flaw { path: Some(piece.path.clone()), ..flaw });
        self.out.broken.push(piece);
    }

    /// The tables of units, in batches.
    fn tables<'b>(&self, units: &'b [(Unit, UnitRow)]) -> impl Stream<Item = Result<Vec<Read<'b>>>> + use<'a, 'b> {
        let reads: Vec<_> =
            batches(units).into_iter().map(|some| read_tables(self.ledger, self.held.clone(), some)).collect();
        stream::iter(reads).buffered(BATCHES)
    }

    /// Whether everything that an older state which is kept refers to is there.
    pub(super) async fn older(&mut self, seq: Seq) -> Result<()> {
        let object = key::log(seq);
        let past = |object, what: String| Flaw { past: true, ..Flaw::new(object, what, LET_GO) };
        let Ok(Some(entry)) = self.ledger.entry(seq).await else {
            // Named by the look at the log.
            return Ok(());
        };
        let rows = match self.source().directory(&entry.state).await {
            Ok(rows) => rows,
            Err(error) => {
                let bad = self.bad_page(entry.state.root.directory).await.unwrap_or(object);
                return self.note(past(bad, String::new()), error);
            }
        };
        let mut tables = self.tables(&rows);
        while let Some(read) = tables.next().await {
            for ((unit, row), read) in read? {
                match read {
                    Ok(ReadTable { holes, places, files, .. }) => {
                        let blocks = files.iter().flat_map(|(_, _, file)| file.content.blocks());
                        let wrong = |at: Ref| self.resolves(&at).err().map(|what| (at.segment, what));
                        let wrong: BTreeSet<_> = blocks.chain(places).filter_map(wrong).collect();
                        for (segment, what) in wrong {
                            let what = format!("{what}; the state of entry {seq} needs it");
                            self.out.findings.push(past(key::segment(segment), what).of(unit));
                        }
                        for hole in holes {
                            self.out.findings.push(past(key::segment(hole.at.segment), hole.why).of(unit));
                        }
                    }
                    Err(error) => {
                        let bad = row.table.map_or_else(|| object.clone(), |at| key::segment(at.segment));
                        self.note(past(bad, String::new()).of(unit), error)?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn contents(&mut self, pieces: Vec<Broken>) -> Result<()> {
        let mut batch: Vec<Broken> = Vec::new();
        let mut bytes = 0;
        for piece in pieces {
            bytes += piece.size;
            batch.push(piece);
            if bytes >= BATCH {
                self.batch(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        self.batch(batch).await
    }

    /// Reads contents and lets go of each once it is verified.
    async fn read_all(&self, rows: &[&FileRow]) -> Result<()> {
        let mut pieces = self.ledger.pieces(rows, &[]);
        while let Some(piece) = pieces.next().await {
            piece?;
        }
        Ok(())
    }

    async fn batch(&mut self, pieces: Vec<Broken>) -> Result<()> {
        let rows: Vec<FileRow> = pieces.iter().map(Broken::row).collect();
        if self.read_all(&rows.iter().collect::<Vec<_>>()).await.is_ok() {
            return Ok(());
        }
        // One by one, so that every bad one is named.
        for (piece, row) in pieces.into_iter().zip(&rows) {
            if let Err(error) = self.read_all(&[row]).await {
                if !contents::is_lost(&error) {
                    return Err(error);
                }
                self.broken(piece, error.chain().join(": "));
            }
        }
        Ok(())
    }
}

/// Units whose tables are read together: many, or one that is large.
fn batches(units: &[(Unit, UnitRow)]) -> Vec<&[(Unit, UnitRow)]> {
    let (mut out, mut from, mut rows) = (Vec::new(), 0, 0_u64);
    for (at, (_, row)) in units.iter().enumerate() {
        // A table has a page at least.
        let more = row.files.saturating_add(8);
        if at > from && rows.saturating_add(more) > TOGETHER {
            out.push(&units[from..at]);
            (from, rows) = (at, 0);
        }
        rows = rows.saturating_add(more);
    }
    out.extend(Some(&units[from..]).filter(|rest| !rest.is_empty()));
    out
}

/// A unit, and its table as it was read.
type Read<'a> = (&'a (Unit, UnitRow), Result<ReadTable>);

/// Reads the tables of some units, neighbours together, and adds them up on another thread.
async fn read_tables<'b>(
    ledger: &Ledger,
    held: Arc<BTreeMap<Segment, Bytes>>,
    units: &'b [(Unit, UnitRow)],
) -> Result<Vec<Read<'b>>> {
    let pages = Pages::holding(ledger, &NoCache, held);
    let roots: Vec<Option<Ref>> = units.iter().map(|(_, row)| row.table).collect();
    let read = salvage_all(&roots, TreeKind::Table, &pages).await?;
    let rows: usize = read.iter().flatten().map(|table| table.rows.len()).sum();
    let names: Vec<Unit> = units.iter().map(|(unit, _)| unit.clone()).collect();
    let add_up = move || names.iter().zip(read).map(|(unit, read)| understand(unit, read?)).collect::<Vec<_>>();
    Ok(units.iter().zip(aside(rows * ROW, add_up).await?).collect())
}

fn understand(unit: &Unit, Salvaged { rows, holes, pages }: Salvaged) -> Result<ReadTable> {
    let mut read = ReadTable { holes, places: pages, ..ReadTable::default() };
    if read.holes.is_empty() {
        read.files = format::files(&rows)?;
        let sums = read.files.iter().map(|(_, path, file)| format::setsum_of(unit, path, file));
        read.sum = sums.fold(Setsum::default(), |sum, one| sum + one);
    }
    Ok(read)
}
