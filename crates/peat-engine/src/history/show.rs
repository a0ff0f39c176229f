//! `peat show`: what an entry did.

use std::collections::BTreeMap;

use bytes::Bytes;
use peat_clone::{Entry, Item, Kept, LocalClone, OpRecord, UnitOps};
use peat_types::{Result, Seq, Unit};

use super::{Names, is_lease, item, log, previous, text};
use crate::Repo;
use crate::paths::DataPath;
use crate::report::{ContentDiff, HistoryItem, ShowReport, ShowTransaction};

/// Items of a unit before and after an entry.
type Sides = (Vec<Item>, Vec<Item>);

impl Repo {
    /// `peat show`: an entry, its transactions and their items; with `content` what changed in short texts.
    pub async fn show(&self, seq: Seq, content: bool) -> Result<ShowReport> {
        let (clone, place) = self.opened().await?;
        let names = self.model_names()?;
        let kept = clone.kept().await?;
        let (entry, written) = clone.entry(&kept, seq).await?;
        let mut transactions = Vec::new();
        for (tx, ops) in entry.txs.iter().zip(&entry.ops) {
            let mut items: Vec<HistoryItem> = ops.iter().flat_map(|ops| items(&names, ops)).collect();
            if content {
                diffs(clone, &kept, &entry, ops, &mut items).await?;
            }
            transactions.push(ShowTransaction { about: log::transaction(&names, tx), items });
        }
        Ok(ShowReport {
            namespace: place.namespace.clone(),
            seq,
            time: entry.time,
            written,
            size: entry.body.len() as u64,
            writer: entry.state.clone,
            oldest_state: kept.floor(),
            transactions,
        })
    }
}

fn items(names: &Names, ops: &UnitOps) -> Vec<HistoryItem> {
    let one = |op: &OpRecord| match op {
        OpRecord::Put(path, ..) | OpRecord::Delete(path) if is_lease(path.as_str()) => None,
        OpRecord::Put(path, _, row) => {
            Some(HistoryItem { size: Some(row.size), ..item(names, &ops.unit, path.as_str(), "set") })
        }
        OpRecord::Delete(path) => Some(item(names, &ops.unit, path.as_str(), "removed")),
        // The order of items is no fact.
        OpRecord::Rank(..) => None,
    };
    ops.ops.iter().filter_map(one).collect()
}

/// Adds to items of a transaction how their contents differ from the version before.
async fn diffs(
    clone: &LocalClone,
    kept: &Kept,
    entry: &Entry,
    ops: &[UnitOps],
    items: &mut [HistoryItem],
) -> Result<()> {
    let seq = entry.state.seq;
    // Of an entry whose predecessor is no longer kept, the contents are shown as they are.
    let known = seq > kept.floor();
    let mut before: BTreeMap<String, Vec<Item>> = BTreeMap::new();
    if known {
        let past = clone.past(kept, Seq(seq.0.saturating_sub(1))).await?;
        for ops in ops {
            before.insert(ops.unit.to_string(), clone.past_items(&past, &ops.unit, "").await?);
        }
    }
    let after = ops.iter().map(|ops| (ops.unit.to_string(), puts(&ops.unit, ops))).collect::<BTreeMap<_, _>>();
    let sides: BTreeMap<String, Sides> = after
        .into_iter()
        .map(|(unit, after)| (unit.clone(), (before.remove(&unit).unwrap_or_default(), after)))
        .collect();
    compare(clone, &sides, items, std::slice::from_ref(entry)).await?;
    if !known {
        for item in items.iter_mut().filter_map(|item| item.diff.as_mut()) {
            item.against = Some("nothing: what was before is no longer kept".to_owned());
        }
    }
    Ok(())
}

fn puts(unit: &Unit, ops: &UnitOps) -> Vec<Item> {
    let put = |op: &OpRecord| match op {
        OpRecord::Put(path, rank, row) => {
            Some(Item { unit: unit.clone(), path: path.clone(), rank: *rank, row: row.clone() })
        }
        OpRecord::Delete(_) | OpRecord::Rank(..) => None,
    };
    ops.ops.iter().filter_map(put).collect()
}

/// An item, its contents before and after among those that are read, and what it is compared with.
type Pair = (usize, Option<usize>, Option<usize>, Option<String>);

/// Adds to items how their contents differ. `sides` are the items of each unit before and after.
pub(super) async fn compare(
    clone: &LocalClone,
    sides: &BTreeMap<String, Sides>,
    items: &mut [HistoryItem],
    at_hand: &[Entry],
) -> Result<()> {
    let mut wanted: Vec<&Item> = Vec::new();
    let mut pairs: Vec<Pair> = Vec::new();
    for (at, shown) in items.iter_mut().enumerate() {
        let Some((before, after)) = sides.get(&shown.unit) else { continue };
        let new = after.iter().find(|item| item.path.as_str() == shown.path).filter(|_| shown.change != "removed");
        let old = previous(before, after, &shown.path);
        if let Some(note) = text::too_large([old.map(Item::size), new.map(Item::size)]) {
            shown.diff = Some(note);
            continue;
        }
        let against = old.filter(|old| old.path.as_str() != shown.path).and_then(|old| {
            DataPath::parse(old.path.as_str()).map(|data| format!("version {} of {}", data.version, data.name))
        });
        let mut place = |item| {
            wanted.push(item);
            wanted.len() - 1
        };
        let (old, new) = (old.map(&mut place), new.map(&mut place));
        pairs.push((at, old, new, against));
    }
    let contents = clone.past_contents(&wanted, at_hand).await?;
    let content = |at: Option<usize>| -> Option<&Bytes> { at.and_then(|at| contents.get(at)) };
    for (at, old, new, against) in pairs {
        let diff: ContentDiff = text::diff(content(old), content(new), against);
        if let Some(item) = items.get_mut(at) {
            item.diff = Some(diff);
        }
    }
    Ok(())
}
