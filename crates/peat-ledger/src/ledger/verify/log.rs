//! L0: the log is contiguous from K to the head, every entry reads, the chain holds, nothing goes back, and what each entry
//! says of those before it is so.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt};
use peat_objects::Range;
use peat_types::{Result, Seq};

use super::flaw::{Flaw, RESTORE};
use super::{Changed, Check, Depth, listing};
use crate::ledger::key;
use crate::model::{Entry, Segment, State, TxKind};

const PARALLEL: usize = 16;
/// When the log contradicts itself.
const STOP: &str = "stop all writers, compare with a backup, and restore the one that is right: 'peat ledger cat <key>' shows any object";

impl Check<'_> {
    pub(super) async fn log(&mut self) -> Result<Option<State>> {
        let ledger = self.ledger;
        let seen = ledger.known(Seq::ZERO);
        if ledger.store.get(key::NS, Range::All).await?.is_none() {
            self.find(key::NS, "is missing", RESTORE);
        }
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
        let head = match ledger.entry(newest).await {
            Ok(entry) => entry.ok_or_else(|| ledger.missing(newest))?,
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
            self.entries(seqs.range(keep..newest).copied().collect(), &head).await?;
        }
        Ok(Some(head.state))
    }

    /// The entries `before` the newest, and that.
    async fn entries(&mut self, before: Vec<Seq>, head: &Entry) -> Result<()> {
        let ledger = self.ledger;
        let mut last: Option<Entry> = None;
        // Bytes of the sections of each entry.
        let mut sections = BTreeMap::new();
        let reads = before.into_iter().map(|seq| async move { (seq, ledger.entry(seq).await) });
        let newest = stream::iter([(head.state.seq, Ok(Some(head.clone())))]);
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
            if self.prints.and_then(|prints| prints.get(&Segment::Log(seq))).is_some_and(|it| it != entry.state.hash) {
                self.find(key::log(seq), "is not the entry that was copied", RESTORE);
            }
            if seq >= head.state.root.minlog {
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

    fn step(&mut self, before: Option<&Entry>, entry: &Entry, sections: &BTreeMap<Seq, u64>) {
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
