//! L0: the log is contiguous from K to the head, every entry reads, the chain holds, nothing goes back, and what each entry
//! says of those before it is so.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use peat_types::{Result, Seq};

use super::flaw::{Flaw, RESTORE};
use super::{Changed, Check, Depth, listing};
use crate::format;
use crate::ledger::whole::Print;
use crate::ledger::{Ledger, key};
use crate::model::{Entry, Segment, State, TxHead, TxKind};

const PARALLEL: usize = 16;
/// When the log contradicts itself.
const STOP: &str = "stop all writers, compare with a backup, and restore the one that is right: 'peat ledger cat <key>' shows any object";

/// What an entry says of the log.
struct Line {
    state: State,
    prev: [u8; 16],
    txs: Vec<TxHead>,
    body: Bytes,
}

impl From<Entry> for Line {
    fn from(Entry { state, prev, txs, body, .. }: Entry) -> Self {
        Self { state, prev, txs, body }
    }
}

/// An entry, decoded whole; of a copy, once it is known to have the bytes that were decoded then.
async fn line(ledger: &Ledger, seq: Seq, print: Option<Print>) -> Result<Option<Line>> {
    let Some(print) = print else { return Ok(ledger.entry(seq).await?.map(Line::from)) };
    let Some((body, print)) = ledger.read_whole(&key::log(seq), Some(print)).await? else { return Ok(None) };
    let (mut state, prev, txs) = format::decode_again(seq, &body, print)?;
    ledger.adopt(&mut state)?;
    Ok(Some(Line { state, prev, txs, body }))
}

impl Check<'_> {
    pub(super) async fn log(&mut self) -> Result<Option<State>> {
        let ledger = self.ledger;
        let seen = ledger.known(Seq::ZERO);
        let mut seqs = BTreeSet::new();
        for listed in listing::list_all(ledger, key::LOG).await? {
            match key::log_seq(&listed.key) {
                Some(seq) => {
                    seqs.insert(seq);
                    self.sizes.insert(Segment::Log(seq), listed.size);
                }
                None => self.foreign(listed.key),
            }
        }
        let Some(newest) = seqs.last().copied() else {
            self.find(key::LOG, "holds no entry", RESTORE);
            return Ok(None);
        };
        // A listing may lag behind; the slot itself does not.
        if newest < seen && ledger.entry(seen).await?.is_none() {
            self.find(
                key::log(seen),
                format!("was seen here, and the log ends with entry {newest}: it was set back"),
                RESTORE,
            );
        }
        let prints = self.prints;
        let print = |seq: Seq| prints.and_then(|prints| prints.get(&Segment::Log(seq)));
        let head = match line(ledger, newest, print(newest)).await {
            Ok(line) => line.ok_or_else(|| ledger.missing(newest))?,
            Err(error) => {
                self.note(Flaw::new(key::log(newest), "", RESTORE), error)?;
                return Ok(None);
            }
        };
        let keep = head.state.root.keep;
        for missing in (keep.0..newest.0).map(Seq).filter(|seq| !seqs.contains(seq)) {
            self.whole = false;
            self.find(key::log(missing), "is missing although later entries exist", RESTORE);
        }
        if self.depth > Depth::Names {
            let before = seqs.range(keep..newest).map(|seq| (*seq, print(*seq))).collect();
            let state = head.state.clone();
            self.entries(before, head).await?;
            return Ok(Some(state));
        }
        Ok(Some(head.state))
    }

    /// The entries `before` the newest, and that.
    async fn entries(&mut self, before: Vec<(Seq, Option<Print>)>, head: Line) -> Result<()> {
        let ledger = self.ledger;
        let minlog = head.state.root.minlog;
        let mut last: Option<Line> = None;
        // Bytes of the sections of each entry.
        let mut sections = BTreeMap::new();
        let reads = before.into_iter().map(|(seq, print)| async move { (seq, line(ledger, seq, print).await) });
        let newest = stream::iter([(head.state.seq, Ok(Some(head)))]);
        let mut reads = stream::iter(reads).buffered(PARALLEL).chain(newest);
        while let Some((seq, read)) = reads.next().await {
            self.out.entries += 1;
            let entry = match read {
                Ok(Some(entry)) => entry,
                // Removed by a collector since it was listed.
                Ok(None) => {
                    self.whole = false;
                    continue;
                }
                Err(error) => {
                    self.whole = false;
                    self.note(Flaw::new(key::log(seq), "", RESTORE), error)?;
                    last = None;
                    continue;
                }
            };
            sections.insert(seq, entry.txs.iter().fold(0, |sum: u64, tx| sum.saturating_add(tx.len)));
            if seq >= minlog {
                self.hold(Segment::Log(seq), &entry.body);
            }
            self.step(last.as_ref(), &entry, &sections);
            for unit in entry.txs.iter().flat_map(|tx| &tx.units) {
                self.changed.insert(unit.unit.clone(), Changed { seq, row: unit.row.clone() });
            }
            last = Some(entry);
        }
        Ok(())
    }

    fn step(&mut self, before: Option<&Line>, entry: &Line, sections: &BTreeMap<Seq, u64>) {
        let (seq, root) = (entry.state.seq, &entry.state.root);
        let object = key::log(seq);
        let ordered = root.keep <= root.floor && root.floor <= root.horizon && root.horizon <= seq;
        if !ordered || root.keep > root.minlog {
            self.find(&object, "its horizons are out of order", STOP);
        }
        let Some(before) = before.filter(|before| before.state.seq.next() == seq) else { return };
        if entry.prev != before.state.hash {
            self.find(&object, "does not follow the entry before it", STOP);
        }
        let old = &before.state.root;
        if root.horizon < old.horizon || root.floor < old.floor || root.keep < old.keep || root.minlog < old.minlog {
            self.find(&object, "a horizon went back", STOP);
        }
        let units = entry.txs.iter().flat_map(|tx| &tx.units).map(|unit| &unit.unit);
        if entry.state.ring != before.state.ring.push(units, self.ledger.info.params.ring) {
            let what = "its ring does not tell which units the newest entries changed";
            self.find(
                &object,
                what,
                "'peat datastore sync --pull' reads whole states and does not need it; report this as a defect",
            );
        }
        // What a checkpoint leaves behind is counted from its cut on.
        let checkpoint = entry.txs.iter().any(|tx| tx.kind == TxKind::Checkpoint);
        let maintains = entry.txs.iter().any(|tx| tx.kind.is_maintenance());
        let own = sections.get(&seq).copied().unwrap_or(0);
        let tail = if checkpoint && root.minlog > old.minlog {
            (root.minlog.0..seq.0).map(|seq| sections.get(&Seq(seq))).sum::<Option<u64>>()
        } else if maintains && !checkpoint {
            Some(old.tail)
        } else {
            Some(old.tail.saturating_add(own))
        };
        if let Some(tail) = tail.filter(|tail| *tail != root.tail) {
            let what = format!("counts {} bytes of the log since the last checkpoint, there are {tail}", root.tail);
            self.find(
                &object,
                what,
                "no data is concerned: 'peat ledger maintain --full' makes a checkpoint and counts anew",
            );
        }
    }

    pub(super) fn foreign(&mut self, key: String) {
        self.find(key, "does not belong to the ledger", "remove it with the tools of the store: Peat never reads it");
    }
}
