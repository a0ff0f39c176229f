//! The entry of a checkpoint: what was copied, on top of what others did since.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use peat_types::{Error, Result, Seq, Unit};

use super::Checkpoint;
use super::enter::{Build, Mark};
use super::shelf::Stored;
use crate::format::entry::introduction;
use crate::format::maintain::{Maintenance, section};
use crate::format::page::{PageSink, TreeKind};
use crate::format::refs::Value;
use crate::format::relocate::{Moves, relocate};
use crate::format::row::{PackRow, pack_key, pack_value, read_unit_value};
use crate::format::tree::lookup;
use crate::format::tree_write::Edit;
use crate::ledger::pages::Pages;
use crate::model::{Entry, NewPack, Ref, Root, Segment, State, TxKind};

/// Everything copied, and what has to become of it in the entry.
pub(super) struct Plan {
    pub(super) mark: Mark,
    pub(super) full: bool,
    pub(super) moves: Moves,
    pub(super) moved: BTreeMap<Ref, Ref>,
    /// The trees of the base with everything in its new place.
    pub(super) directory: Option<Ref>,
    pub(super) packs: Option<Ref>,
    pub(super) checkpoint: Option<Ref>,
    pub(super) stored: Vec<Stored>,
    pub(super) page_bytes: u64,
    pub(super) content_bytes: u64,
    pub(super) dropped: BTreeMap<Segment, PackRow>,
    /// Rows of packs whose live bytes were counted.
    pub(super) recounted: BTreeMap<Segment, PackRow>,
    /// Rules that a test switched off.
    pub(super) no_rebase: bool,
    pub(super) no_void: bool,
    /// What others changed since the base.
    pub(super) changed: BTreeSet<Unit>,
    pub(super) introduced: Vec<(NewPack, Seq)>,
    pub(super) tail: u64,
}

impl Plan {
    pub(super) fn done(&self, seq: Seq) -> Checkpoint {
        Checkpoint::Done {
            seq,
            cut: self.moves.cut,
            full: self.full,
            pages: self.page_bytes,
            contents: self.content_bytes,
            introduced: self.stored.len() as u64,
            dropped: self.dropped.len() as u64,
        }
    }

    /// Rows of the pack table: what others introduced, what this does, what nothing refers to any more.
    fn pack_edits(&self, seq: Seq) -> Vec<Edit> {
        let mut edits: BTreeMap<Vec<u8>, Option<Value>> = BTreeMap::new();
        for (pack, seq) in &self.introduced {
            let (key, value) = introduction(pack, *seq);
            edits.insert(key, Some(value));
        }
        for Stored { base, id, size, metadata } in &self.stored {
            let row = PackRow { size: *size, live: *size, seq, metadata: *metadata };
            edits.insert(pack_key(false, *base, *id), Some(pack_value(&row)));
        }
        for (segment, row) in &self.recounted {
            if let Segment::Pack(base, id) = segment {
                edits.insert(pack_key(false, *base, *id), Some(pack_value(row)));
            }
        }
        for (segment, row) in &self.dropped {
            if let Segment::Pack(base, id) = segment {
                edits.insert(pack_key(false, *base, *id), None);
                edits.insert(pack_key(true, *base, *id), Some(pack_value(&PackRow { live: 0, seq, ..*row })));
            }
        }
        edits.into_iter().map(|(key, value)| Edit { key, value }).collect()
    }
}

#[async_trait]
impl Build for Plan {
    fn pass(&mut self, entry: &Entry) -> bool {
        for tx in &entry.txs {
            self.changed.extend(tx.units.iter().map(|unit| unit.unit.clone()));
            self.introduced.extend(tx.packs.iter().map(|pack| (*pack, entry.state.seq)));
            self.tail = self.tail.saturating_add(tx.len);
        }
        // C3: it may have moved the same things, or raised H above what was uploaded.
        let moves = |kind: TxKind| kind.is_maintenance() && kind != TxKind::Pin;
        self.no_void || !entry.txs.iter().any(|tx| moves(tx.kind))
    }

    async fn build(&mut self, base: &State, pages: &Pages<'_>) -> Result<Option<Maintenance>> {
        if self.stored.iter().any(|pack| pack.base <= base.root.horizon) {
            return Ok(None);
        }
        // C2: units that changed since keep their tables; what these still refer to in the old places is replaced.
        let keys: Vec<&[u8]> = self.changed.iter().map(|unit| unit.as_str().as_bytes()).collect();
        let rows = lookup(base.root.directory.as_ref(), TreeKind::Directory, &keys, pages).await?;
        let mut sink = PageSink::append(section()?);
        let mut moved = self.moved.clone();
        let mut directory = Vec::with_capacity(keys.len());
        for (key, value) in keys.into_iter().zip(rows) {
            let Some(mut value) = value else {
                return Err(Error::damaged("a unit that an entry changed is not in the directory"));
            };
            read_unit_value(&value)?;
            if !self.no_rebase {
                value.at = relocate(value.at, TreeKind::Table, &self.moves, &mut moved, pages, &mut sink).await?;
            }
            directory.push(Edit { key: key.to_vec(), value: Some(value) });
        }
        let PageSink::Append { out: section, .. } = sink else { return Err(Error::internal("page sink")) };
        let root = Root {
            directory: self.directory,
            packs: self.packs,
            minlog: self.moves.cut,
            checkpoint: self.checkpoint.or(base.root.checkpoint),
            tail: self.tail,
            ..base.root.clone()
        };
        Ok(Some(Maintenance {
            kind: TxKind::Checkpoint,
            tx: self.mark.tx,
            change: self.mark.change,
            author: self.mark.author.clone(),
            message: self.message(),
            root,
            directory,
            packs: self.pack_edits(base.seq.next()),
            introduced: self.stored.iter().map(Stored::named).collect(),
            section,
        }))
    }
}

impl Plan {
    fn message(&self) -> String {
        let what = if self.full { "full checkpoint" } else { "checkpoint" };
        format!("{what}: nothing below entry {} is needed for the state", self.moves.cut)
    }
}
