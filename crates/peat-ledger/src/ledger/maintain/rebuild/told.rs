//! What units hold whose pages are lost, told by who knew it at some entry, and carried on by the log from there.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};
use peat_types::{EntryId, ItemPath, Result, Seq, Unit};
use setsum::Setsum;

use crate::format;
use crate::format::page::TreeKind;
use crate::format::row::{read_unit_key, read_unit_value};
use crate::format::tree::salvage;
use crate::ledger::maintain::search::readable_or_none;
use crate::ledger::pages::{NoCache, Pages};
use crate::ledger::verify::Sums;
use crate::ledger::{Copies, Ledger};
use crate::model::{FileRow, NewPack, OpRecord, Rank, Segment, State, TxKind};

/// Entries read at once.
const PARALLEL: usize = 8;

/// A unit, as of an entry.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// The entry that changed it last.
    pub(super) seq: Seq,
    /// Up to which entry that is known.
    pub(super) as_of: Seq,
    pub(super) files: BTreeMap<ItemPath, (Rank, FileRow)>,
    /// Whether this machine told it, and not the ledger.
    pub(super) here: bool,
}

/// Units by name.
pub(super) type Picture = BTreeMap<Unit, Told>;

impl Told {
    pub(super) fn bytes(&self) -> u64 {
        self.files.values().map(|(_, row)| row.size).sum()
    }

    /// With that of what it is added to: units, files, bytes and setsum.
    pub(super) fn add_to(&self, unit: &Unit, (units, files, bytes, mut sum): Sums) -> Sums {
        for (path, (_, row)) in &self.files {
            sum += format::setsum_of(unit, path, row);
        }
        (units + 1, files + self.files.len() as u64, bytes + self.bytes(), sum)
    }

    fn apply(&mut self, seq: Seq, ops: &[OpRecord]) {
        for op in ops {
            match op {
                OpRecord::Put(path, rank, row) => drop(self.files.insert(path.clone(), (*rank, row.clone()))),
                OpRecord::Delete(path) => drop(self.files.remove(path)),
                OpRecord::Rank(path, rank) => {
                    if let Some((known, _)) = self.files.get_mut(path) {
                        *known = *rank;
                    }
                }
            }
        }
        (self.seq, self.as_of) = (seq, seq);
    }
}

/// What an entry did to the units in question.
struct Said {
    seq: Seq,
    changes: Vec<(Unit, Option<Seq>, Vec<OpRecord>)>,
}

/// What the log says, from K on.
pub(super) struct Log {
    said: Vec<Said>,
    /// Every entry from here to the head can be read.
    pub(super) from: Seq,
    /// States right before a checkpoint, the newest first: their pages lie elsewhere.
    pub(super) older: Vec<State>,
    /// Packs that it introduced, and in which entry.
    pub(super) introduced: BTreeMap<Segment, (NewPack, Seq)>,
    /// Which entry stands in each slot.
    entries: BTreeMap<Seq, EntryId>,
    head: Seq,
}

impl Log {
    pub(super) async fn read(ledger: &Ledger, head: &State, wanted: &(dyn Fn(&Unit) -> bool + Sync)) -> Result<Self> {
        let keep = head.root.keep;
        let mut out = Self {
            said: Vec::new(),
            from: keep,
            older: Vec::new(),
            introduced: BTreeMap::new(),
            entries: BTreeMap::new(),
            head: head.seq,
        };
        let mut last: Option<State> = None;
        let reads = (keep.0..=head.seq.0).map(|seq| async move { (Seq(seq), ledger.entry(Seq(seq)).await) });
        let mut reads = stream::iter(reads).buffered(PARALLEL).boxed();
        while let Some((seq, read)) = reads.next().await {
            let Some(entry) = readable_or_none(read)?.flatten() else {
                (out.from, last) = (seq.next(), None);
                continue;
            };
            if last.as_ref().is_some_and(|last| last.hash != entry.prev) {
                (out.from, last) = (seq, None);
            }
            if entry.txs.iter().any(|tx| tx.kind == TxKind::Checkpoint) {
                out.older.extend(last.take());
            }
            let packs = entry.txs.iter().flat_map(|tx| &tx.packs);
            out.introduced.extend(packs.map(|pack| (pack.segment(), (*pack, seq))));
            let mut changes = Vec::new();
            for (tx, units) in entry.txs.iter().zip(entry.ops) {
                for ops in units.into_iter().filter(|ops| wanted(&ops.unit)) {
                    let named = tx.units.iter().find(|unit| unit.unit == ops.unit);
                    changes.push((ops.unit, named.and_then(|unit| unit.expected), ops.ops));
                }
            }
            out.said.push(Said { seq, changes });
            out.entries.insert(seq, entry.state.entry);
            last = Some(entry.state);
        }
        out.older.reverse();
        Ok(out)
    }

    /// Carries a picture on to the head, as far as that goes without a gap; a unit that comes up in it is new.
    pub(super) fn forward(&self, mut picture: Picture) -> Picture {
        for Said { seq, changes } in &self.said {
            for (unit, expected, ops) in changes {
                match picture.get_mut(unit) {
                    Some(known) if known.as_of >= *seq => {}
                    Some(known) if Some(known.seq) == *expected => known.apply(*seq, ops),
                    // It missed something.
                    Some(_) => drop(picture.remove(unit)),
                    None if expected.is_none() => {
                        let mut new = Told { seq: *seq, as_of: *seq, files: BTreeMap::new(), here: false };
                        new.apply(*seq, ops);
                        picture.insert(unit.clone(), new);
                    }
                    None => {}
                }
            }
        }
        picture
    }

    /// Whether what is told of a unit holds at the head: nothing after it can have been missed.
    pub(super) fn reaches(&self, told: &Told) -> bool {
        told.as_of.next() >= self.from && told.seq <= self.head
    }

    /// Whether a state belongs to this log, as far as that can be told.
    fn has(&self, state: &State) -> bool {
        state.seq <= self.head && self.entries.get(&state.seq).is_none_or(|entry| *entry == state.entry)
    }
}

/// What this machine tells, and whether that is proven: all it knows adds up to what some entry says.
pub(super) fn here(
    ledger: &Ledger,
    log: &Log,
    copies: &dyn Copies,
    wanted: &(dyn Fn(&Unit) -> bool + Sync),
) -> Result<(Picture, bool)> {
    let mut picture = Picture::new();
    let (mut units, mut files, mut sum, mut ahead) = (0_u64, 0_u64, Setsum::default(), Seq::ZERO);
    let upto = copies.each(&mut |known| {
        (units, files) = (units + 1, files + known.files.len() as u64);
        ahead = ahead.max(known.as_of);
        for (_, path, row) in &known.files {
            sum += format::setsum_of(&known.unit, path, row);
        }
        if wanted(&known.unit) {
            let files = known.files.into_iter().map(|(rank, path, row)| (path, (rank, row))).collect();
            let told = Told { seq: known.seq, as_of: known.as_of, files, here: true };
            picture.insert(known.unit, told);
        }
        Ok(())
    })?;
    // A store that was set back or replaced has another past than this machine.
    let Some(upto) = upto.filter(|state| state.ledger == ledger.info.ledger && log.has(state)) else {
        return Ok((Picture::new(), false));
    };
    let root = &upto.root;
    let adds_up = (units, files, sum.digest()) == (root.units, root.files, root.setsum);
    Ok((picture, adds_up && ahead <= upto.seq))
}

/// What an older state tells, as far as it can be read.
pub(super) async fn older(ledger: &Ledger, state: &State, wanted: &(dyn Fn(&Unit) -> bool + Sync)) -> Result<Picture> {
    let pages = Pages::new(ledger, &NoCache);
    let Some(read) = readable_or_none(salvage(state.root.directory.as_ref(), TreeKind::Directory, &pages).await)?
    else {
        return Ok(Picture::new());
    };
    let mut out = Picture::new();
    for (key, value) in &read.rows {
        let (unit, row) = (read_unit_key(key)?, read_unit_value(value)?);
        if !wanted(&unit) {
            continue;
        }
        let table = format::table(&row, &pages).await;
        pages.forget();
        if let Some(table) = readable_or_none(table)? {
            let files = table.into_iter().map(|(rank, path, row)| (path, (rank, row))).collect();
            out.insert(unit, Told { seq: row.last_seq, as_of: state.seq, files, here: false });
        }
    }
    Ok(out)
}
