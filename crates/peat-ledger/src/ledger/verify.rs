//! Checking a ledger. Nothing is ever repaired or deleted here.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt};
use peat_objects::Range;
use peat_types::{Error, Kind, Result, Seq, Unit};
use setsum::Setsum;

use super::pages::{NoCache, Pages};
use super::{Ledger, Verified, contents, key, log, tables};
use crate::format;
use crate::model::{Content, Entry, FileRow, Ref, Segment, State, UnitRow};

const PARALLEL: usize = 16;
/// Contents read and hashed together.
const BATCH: u64 = 32 << 20;

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
    Ok(check.out)
}

impl Check<'_> {
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
        if !(root.keep <= root.floor
            && root.floor <= seq
            && root.horizon <= seq
            && root.keep <= root.minlog.max(root.keep))
        {
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
        for (_, base, id, row) in packs.iter().filter(|(dropped, ..)| !dropped) {
            live.insert(Segment::Pack(*base, *id));
            if self.sizes.get(&Segment::Pack(*base, *id)).is_some_and(|size| *size != row.size) {
                let what = format!("does not have the {} bytes the pack table says", row.size);
                self.find(key::pack(*base, *id), what, "restore it from a backup");
            }
        }
        let (mut files, mut bytes, mut sum) = (0, 0, Setsum::default());
        let mut complete = true;
        for (unit, row) in &rows {
            match self.unit(unit, row, head, &live, deep).await {
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
    ) -> Result<(u64, u64, Setsum)> {
        let table = tables::tables(self.ledger, &[row], &NoCache).await?.pop().unwrap_or_default();
        let mut sum = Setsum::default();
        let mut blocks: BTreeSet<Ref> = row.table.into_iter().collect();
        for (_, path, file) in &table {
            sum += format::setsum_of(unit, path, file);
            if let Content::At(at) = &file.content {
                blocks.insert(at.block);
            }
        }
        let from = format!("unit {unit}");
        for at in &blocks {
            self.resolves(at, &from);
            let kept = match at.segment {
                Segment::Log(seq) => seq >= head.root.minlog,
                segment @ Segment::Pack(..) => live.contains(&segment),
            };
            if !kept {
                let what = format!("{from} refers to it although it may be removed");
                self.find(key::segment(at.segment), what, "commit the file again before garbage is collected");
            }
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
