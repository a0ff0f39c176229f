//! Objects by name: the packs of the table, and what nothing needs.

use std::collections::{BTreeMap, BTreeSet};

use peat_objects::{List, Listed, Pages as Listing};
use peat_types::{PackId, Result, Seq};

use super::flaw::{BUILD_AGAIN, Flaw, LET_GO, Orphan, RESTORE};
use super::{Check, listing};
use crate::format;
use crate::format::page::TreeKind;
use crate::format::row::{read_pack_key, read_pack_value};
use crate::format::tree::{Hole, salvage};
use crate::ledger::{create, key};
use crate::model::{Segment, State};

/// A slot that was written of late stays for a day, so that nobody is left waiting at it.
const FREED: &str = "is no longer valid; a collection, 'peat datastore gc', frees it a day after it was written";
const NEXT: &str = "goes with the next collection: 'peat datastore gc'";
const LATER: &str =
    "may still become part of the ledger; if not, it goes with a collection some two days after it was written";

/// Folder of what a trial of the store writes.
const PROBE: &str = "probe/";

/// A pack of the table.
pub(super) struct InTable {
    pub(super) dropped: bool,
    pub(super) base: Seq,
    pub(super) id: PackId,
    pub(super) row: format::PackRow,
}

impl InTable {
    pub(super) fn segment(&self) -> Segment {
        Segment::Pack(self.base, self.id)
    }
}

/// The pack table, as far as it can be read.
pub(super) struct PackTable {
    pub(super) rows: Vec<InTable>,
    pub(super) holes: Vec<Hole>,
}

impl PackTable {
    /// Whether a pack may be relied on: it is in the table, and not dropped. Where the table cannot be read nobody knows.
    pub(super) fn live(&self) -> Option<BTreeSet<Segment>> {
        let live = self.rows.iter().filter(|pack| !pack.dropped).map(InTable::segment);
        self.holes.is_empty().then(|| live.collect())
    }
}

impl Check<'_> {
    /// `ns.json`: whoever has a clone never reads it again, whoever comes anew needs it.
    pub(super) async fn info(&mut self) -> Result<()> {
        let again = "'peat doctor --repair' writes it again, on a machine that has a clone";
        match create::read(&*self.ledger.store).await {
            Ok(Some(info)) if info.ledger == self.ledger.info.ledger => {}
            Ok(Some(info)) => self.find(key::NS, format!("names another ledger, {}", info.ledger), RESTORE),
            Ok(None) => self.find(key::NS, "is missing", again),
            Err(error) => self.note(Flaw::new(key::NS, "", again), error)?,
        }
        Ok(())
    }

    /// The pack table, compared with the packs that are there. `None` when a newer version wrote it.
    pub(super) async fn packs(&mut self, head: &State) -> Result<Option<PackTable>> {
        let pages = self.source();
        let read = salvage(head.root.packs.as_ref(), TreeKind::Packs, &pages).await.and_then(|read| {
            let row = |(key, value): &(Vec<u8>, _)| {
                let (dropped, base, id) = read_pack_key(key)?;
                Ok(InTable { dropped, base, id, row: read_pack_value(value)? })
            };
            let rows = read.rows.iter().map(row).collect::<Result<_>>()?;
            Ok((PackTable { rows, holes: read.holes }, read.pages))
        });
        let (table, places) = match read {
            Ok(read) => read,
            Err(error) => {
                self.note(Flaw::new(key::log(head.seq), "", RESTORE), error)?;
                return Ok(None);
            }
        };
        self.pages.extend(places.iter().map(|at| at.segment));
        self.holes(&table.holes, "the table of all packs");
        for listed in listing::list_all(self.ledger, key::PACK).await? {
            match key::pack_segment(&listed.key) {
                Some(segment) => {
                    self.sizes.insert(segment, listed.size);
                }
                None => self.foreign(listed.key),
            }
        }
        for pack in &table.rows {
            let what = match self.sizes.get(&pack.segment()) {
                Some(size) if *size == pack.row.size => {
                    self.out.packs += 1;
                    continue;
                }
                Some(size) => format!("has {size} bytes, the pack table says {}", pack.row.size),
                // States before it was dropped are no longer kept.
                None if pack.dropped && pack.row.seq <= head.root.floor => continue,
                None => "is missing".to_owned(),
            };
            let object = key::pack(pack.base, pack.id);
            let flaw = if pack.dropped {
                let what = format!("{what}; states before entry {} need it", pack.row.seq);
                Flaw { past: true, ..Flaw::new(object, what, LET_GO) }
            } else {
                let remedy = match pack.row.metadata {
                    true => BUILD_AGAIN.to_owned(),
                    false => format!("'peat doctor --repair' puts back what it finds copies of; else {RESTORE}"),
                };
                Flaw::new(object, what, remedy)
            };
            self.out.findings.push(flaw);
        }
        Ok(Some(table))
    }

    /// Objects that nothing refers to, and what does not belong here.
    pub(super) async fn leftovers(&mut self, head: &State, table: &PackTable) -> Result<()> {
        let known: BTreeSet<Segment> = table.rows.iter().map(InTable::segment).collect();
        let root = &head.root;
        let mut orphans: BTreeMap<String, Orphan> = BTreeMap::new();
        let mut orphan = |key: String, size: u64, what: &'static str| {
            orphans.insert(key.clone(), Orphan { key, size, what });
        };
        for (segment, size) in &self.sizes {
            match segment {
                Segment::Log(seq) if *seq < root.keep => orphan(key::log(*seq), *size, FREED),
                Segment::Pack(base, id) if table.holes.is_empty() && !known.contains(segment) => {
                    orphan(key::pack(*base, *id), *size, if *base <= root.horizon { NEXT } else { LATER });
                }
                _ => {}
            }
        }
        let mut foreign = Vec::new();
        for prefix in [key::TX, key::BEAT] {
            for Listed { key, size, .. } in listing::list_all(self.ledger, prefix).await? {
                let base = match key::tx_parts(&key) {
                    Some((base, _)) => Some(base),
                    None => key::beat_parts(&key).map(|(base, _)| base),
                };
                match base {
                    Some(base) => orphan(key, size, if base <= root.horizon { NEXT } else { LATER }),
                    None => foreign.push(key),
                }
            }
        }
        let mut pages = Listing::new(&*self.ledger.store, List { delimiter: true, ..List::default() });
        while let Some(page) = pages.next().await? {
            foreign.extend(page.keys.into_iter().map(|listed| listed.key).filter(|name| name != key::NS));
            let ours = [key::LOG, key::PACK, key::TX, key::BEAT, PROBE];
            if page.prefixes.iter().any(|name| name == PROBE) {
                let what =
                    "was left by a trial of the store that was interrupted, or may not delete: it may be removed";
                self.out.orphans.push(Orphan { key: PROBE.to_owned(), size: 0, what });
            }
            foreign.extend(page.prefixes.into_iter().filter(|name| !ours.contains(&name.as_str())));
        }
        foreign.into_iter().for_each(|key| self.foreign(key));
        self.out.orphans.extend(orphans.into_values());
        Ok(())
    }

    /// Pages that cannot be read, and what they are pages of.
    pub(super) fn holes(&mut self, holes: &[Hole], of: &str) {
        for hole in holes {
            self.torn.insert(hole.at.segment);
            let what = format!("holds a part of {of}: {}", hole.why);
            self.find(key::segment(hole.at.segment), what, BUILD_AGAIN);
        }
    }

    fn needs(&self, at: &Segment) -> bool {
        self.pages.contains(at) || self.blocks.contains(at) || self.torn.contains(at)
    }

    /// Packs that are not what the table says; some of them the newest state does not need.
    pub(super) fn spoilt(&mut self, table: &[InTable]) {
        let live = table.iter().filter(|pack| !pack.dropped).map(|pack| (pack.segment(), pack.row));
        let spoilt: Vec<Segment> =
            live.filter(|(at, row)| self.sizes.get(at) != Some(&row.size)).map(|(at, _)| at).collect();
        let idle: BTreeSet<String> = spoilt.iter().filter(|at| !self.needs(at)).map(|at| key::segment(*at)).collect();
        for flaw in self.out.findings.iter_mut().filter(|flaw| idle.contains(&flaw.object)) {
            flaw.what.push_str("; the newest state does not need it");
            "'peat doctor --repair' drops it from the table".clone_into(&mut flaw.remedy);
        }
        self.out.spoilt = spoilt;
    }
}
