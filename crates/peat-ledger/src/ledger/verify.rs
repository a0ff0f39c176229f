//! Checking a ledger. Nothing is ever repaired or deleted here.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt};
use peat_objects::Range;
use peat_types::{Error, ItemPath, Kind, Result, Seq, Unit};
use setsum::Setsum;

use super::pages::{NoCache, Pages};
use super::{Ledger, Verified, contents, key, log};
use crate::format::{self, PageSource};
use crate::model::{Entry, FileRow, Rank, Ref, Segment, State, UnitRow};

const PARALLEL: usize = 16;
/// Units whose tables are read together.
const TOGETHER: usize = 512;
/// Contents read and hashed together.
const BATCH: u64 = 32 << 20;

type Files = Vec<(Rank, ItemPath, FileRow)>;

struct Check<'a> {
    ledger: &'a Ledger,
    out: Verified,
    /// Sizes of all objects that others may point into.
    sizes: BTreeMap<Segment, u64>,
}

pub(super) async fn verify(ledger: &Ledger, deep: bool) -> Result<Verified> {
    let mut check = Check { ledger, out: Verified::default(), sizes: BTreeMap::new() };
    let Some(head) = check.log().await? else { return Ok(check.out) };
    check.packs_present().await?;
    check.head(&head, deep).await?;
    if deep {
        let pinned = head.root.pins.iter().map(|(_, seq)| *seq);
        for seq in pinned.chain([head.root.floor]).filter(|seq| *seq != head.seq).collect::<BTreeSet<_>>() {
            check.older(seq).await?;
        }
    }
    Ok(check.out)
}

impl<'a> Check<'a> {
    fn find(&mut self, object: impl Into<String>, what: impl Into<String>, remedy: &str) {
        self.out.findings.push((object.into(), what.into(), remedy.to_owned()));
    }

    /// An unreadable object is a finding; a store that does not answer is an error.
    fn note(&mut self, object: &str, error: Error) -> Result<()> {
        if !matches!(error.kind(), Kind::Damaged | Kind::NotFound | Kind::Unsupported) {
            return Err(error);
        }
        let remedy = error.hints().first().cloned().unwrap_or_else(|| "restore the object from a backup".to_owned());
        self.find(object, error.chain().join(": "), &remedy);
        Ok(())
    }

    /// L0: the log is contiguous from K to the head, every entry reads, the chain holds, nothing goes back.
    async fn log(&mut self) -> Result<Option<State>> {
        let ledger = self.ledger;
        if ledger.store.get(key::NS, Range::All).await?.is_none() {
            self.find(key::NS, "is missing", "restore ns.json from a backup");
        }
        let mut seqs = BTreeSet::new();
        for listed in log::list_all(ledger, key::LOG).await? {
            match key::log_seq(&listed.key) {
                Some(seq) => {
                    seqs.insert(seq);
                    self.sizes.insert(Segment::Log(seq), listed.size);
                }
                None => self.find(listed.key, "does not belong into the log", "remove it once nothing needs it"),
            }
        }
        let Some(newest) = seqs.last().copied() else {
            self.find(key::LOG, "holds no entry", "restore the log from a backup");
            return Ok(None);
        };
        let head = match ledger.entry(newest).await {
            Ok(entry) => entry.ok_or_else(|| ledger.missing(newest))?.state,
            Err(error) => {
                self.note(&key::log(newest), error)?;
                return Ok(None);
            }
        };
        let keep = head.root.keep;
        for missing in (keep.0..newest.0).map(Seq).filter(|seq| !seqs.contains(seq)) {
            self.find(key::log(missing), "is missing although later entries exist", "restore it from a backup");
        }
        let mut last: Option<Entry> = None;
        let reads = seqs.range(keep..).map(|seq| async move { (*seq, ledger.entry(*seq).await) });
        let mut reads = stream::iter(reads).buffered(PARALLEL);
        while let Some((seq, read)) = reads.next().await {
            self.out.entries += 1;
            let entry = match read {
                Ok(Some(entry)) => entry,
                // Removed by a collector since it was listed.
                Ok(None) => continue,
                Err(error) => {
                    self.note(&key::log(seq), error)?;
                    last = None;
                    continue;
                }
            };
            self.step(last.as_ref(), &entry);
            last = Some(entry);
        }
        Ok(Some(head))
    }

    fn step(&mut self, before: Option<&Entry>, entry: &Entry) {
        let (seq, root) = (entry.state.seq, &entry.state.root);
        let object = key::log(seq);
        let stop = "stop all writers and compare with a backup";
        let ordered = root.keep <= root.floor && root.floor <= root.horizon && root.horizon <= seq;
        if !ordered || root.keep > root.minlog {
            self.find(&object, "its horizons are out of order", stop);
        }
        let Some(before) = before.filter(|before| before.state.seq.next() == seq) else { return };
        if entry.prev != before.state.hash {
            self.find(&object, "does not follow the entry before it", stop);
        }
        let old = &before.state.root;
        if root.horizon < old.horizon || root.floor < old.floor || root.keep < old.keep || root.minlog < old.minlog {
            self.find(&object, "a horizon went back", stop);
        }
    }

    async fn packs_present(&mut self) -> Result<()> {
        for listed in log::list_all(self.ledger, key::PACK).await? {
            match key::pack_segment(&listed.key) {
                Some(segment) => {
                    self.sizes.insert(segment, listed.size);
                }
                None => self.find(listed.key, "is not named like a pack", "remove it once nothing needs it"),
            }
        }
        Ok(())
    }

    /// Whether a reference lies in an object that exists and, for the state after `head`, may not be removed.
    fn is_kept(&mut self, at: &Ref, head: &State, live: &BTreeSet<Segment>, from: &str) {
        self.resolves(at, from);
        let kept = match at.segment {
            Segment::Log(seq) => seq >= head.root.minlog,
            segment @ Segment::Pack(..) => live.contains(&segment),
        };
        if !kept {
            let what = format!("{from} refers to it although it may be removed");
            self.find(key::segment(at.segment), what, "commit the file again before garbage is collected");
        }
    }

    /// Whether a reference lies in an object that exists.
    fn resolves(&mut self, at: &Ref, from: &str) {
        let end = at.off.saturating_add(u64::from(at.len));
        let what = match self.sizes.get(&at.segment) {
            Some(size) if end <= *size => return,
            Some(size) => format!("has {size} bytes, {from} needs {end}"),
            None => format!("is missing, {from} needs it"),
        };
        self.find(key::segment(at.segment), what, "restore it from a backup");
    }

    /// L1: everything the head leads to is there and adds up. L2 (`deep`): every content matches its hash.
    async fn head(&mut self, head: &State, deep: bool) -> Result<()> {
        let object = key::log(head.seq);
        let pages = Pages::new(self.ledger, &NoCache);
        let (rows, packs) = match (pages.directory(head).await, format::packs(head, &pages).await) {
            (Ok(rows), Ok(packs)) => (rows, packs),
            (Err(error), _) | (_, Err(error)) => return self.note(&object, error),
        };
        let mut live = BTreeSet::new();
        for (dropped, base, id, row) in &packs {
            if !dropped {
                live.insert(Segment::Pack(*base, *id));
            }
            let what = match self.sizes.get(&Segment::Pack(*base, *id)) {
                Some(size) if *size == row.size => continue,
                Some(_) => format!("does not have the {} bytes the pack table says", row.size),
                // States before it was dropped are no longer kept.
                None if *dropped && row.seq <= head.root.floor => continue,
                None => "is missing although states that are kept need it".to_owned(),
            };
            self.find(key::pack(*base, *id), what, "restore it from a backup");
        }
        for at in pages.fetched() {
            self.is_kept(&at, head, &live, &object);
        }
        let (mut files, mut bytes, mut sum) = (0, 0, Setsum::default());
        let mut complete = true;
        for some in rows.chunks(TOGETHER) {
            let pages = self.ahead(some).await;
            for (unit, row) in some {
                match self.unit(unit, row, head, &live, deep, &pages).await {
                    Ok((unit_files, unit_bytes, unit_sum)) => {
                        files += unit_files;
                        bytes += unit_bytes;
                        sum += unit_sum;
                    }
                    Err(error) => {
                        complete = false;
                        self.note(&format!("unit {unit}"), error)?;
                    }
                }
            }
        }
        let root = &head.root;
        let counted = (rows.len() as u64, files, bytes);
        if complete && counted != (root.units, root.files, root.bytes) {
            let said = (root.units, root.files, root.bytes);
            let what = format!("counts (units, files, bytes) {said:?}, there are {counted:?}");
            self.find(&object, what, "report this as a defect; the contents are not affected");
        }
        if complete && sum.digest() != root.setsum {
            self.find(&object, "the sum over all files is wrong", "compare with a backup: files may have been lost");
        }
        Ok(())
    }

    async fn unit(
        &mut self,
        unit: &Unit,
        row: &UnitRow,
        head: &State,
        live: &BTreeSet<Segment>,
        deep: bool,
        pages: &Pages<'_>,
    ) -> Result<(u64, u64, Setsum)> {
        let (table, mut places) = table(row, pages).await?;
        let mut sum = Setsum::default();
        for (_, path, file) in &table {
            sum += format::setsum_of(unit, path, file);
            places.extend(file.content.blocks());
        }
        let from = format!("unit {unit}");
        for at in &places {
            self.is_kept(at, head, live, &from);
        }
        let (files, bytes) = (table.len() as u64, table.iter().map(|(_, _, file)| file.size).sum());
        if (files, bytes) != (row.files, row.bytes) {
            let what = format!("the directory counts {} files of {} bytes", row.files, row.bytes);
            self.find(&from, format!("{what}, its table has {files} of {bytes}"), "report this as a defect");
        }
        if deep {
            self.contents(&from, table.iter().map(|(_, _, file)| file)).await?;
        }
        Ok((files, bytes, sum))
    }

    /// Pages of the tables of some units, read together. What cannot be read fails again, and is named, with its unit.
    async fn ahead(&self, units: &[(Unit, UnitRow)]) -> Pages<'a> {
        let pages = Pages::new(self.ledger, &NoCache);
        if let Err(error) = pages.prefetch_trees(units.iter().filter_map(|(_, row)| row.table).collect()).await {
            tracing::debug!(%error, "the tables are read one by one");
        }
        pages
    }

    /// Whether everything that an older state which is kept refers to is there.
    async fn older(&mut self, seq: Seq) -> Result<()> {
        let object = key::log(seq);
        let Some(entry) = self.ledger.entry(seq).await? else {
            self.find(&object, "is missing although its state is kept", "restore it from a backup");
            return Ok(());
        };
        let rows = match Pages::new(self.ledger, &NoCache).directory(&entry.state).await {
            Ok(rows) => rows,
            Err(error) => return self.note(&object, error),
        };
        for some in rows.chunks(TOGETHER) {
            let pages = self.ahead(some).await;
            for (unit, row) in some {
                let from = format!("unit {unit} as of entry {seq}");
                match table(row, &pages).await {
                    Ok((table, places)) => {
                        let blocks = table.iter().flat_map(|(_, _, file)| file.content.blocks());
                        for at in blocks.chain(places).collect::<BTreeSet<_>>() {
                            self.resolves(&at, &from);
                        }
                    }
                    Err(error) => self.note(&from, error)?,
                }
            }
        }
        Ok(())
    }

    async fn contents<'f>(&mut self, from: &str, files: impl Iterator<Item = &'f FileRow>) -> Result<()> {
        let mut batch: Vec<&FileRow> = Vec::new();
        let mut bytes = 0;
        for file in files {
            bytes += file.size;
            batch.push(file);
            if bytes >= BATCH {
                self.batch(from, &std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        self.batch(from, &batch).await
    }

    async fn batch(&mut self, from: &str, rows: &[&FileRow]) -> Result<()> {
        self.out.contents += rows.len() as u64;
        if contents::contents(self.ledger, rows, &[]).await.is_ok() {
            return Ok(());
        }
        // One by one, so that every bad one is named.
        for row in rows {
            if let Err(error) = contents::contents(self.ledger, &[*row], &[]).await {
                self.note(from, error)?;
            }
        }
        Ok(())
    }
}

/// Files of a unit, and where the pages lie that say so.
async fn table(row: &UnitRow, pages: &Pages<'_>) -> Result<(Files, BTreeSet<Ref>)> {
    let (mut places, mut level) = (BTreeSet::new(), Vec::from_iter(row.table));
    while !level.is_empty() {
        let mut below = Vec::new();
        for at in &level {
            below.extend(format::page_children(&pages.page(at).await?, at)?);
        }
        places.extend(level);
        level = below;
    }
    Ok((format::table(row, pages).await?, places))
}
