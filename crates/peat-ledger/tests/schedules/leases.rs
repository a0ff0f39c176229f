//! A13, judged from the log alone: one holder per unit and generation, generations only grow, records stay, and what is
//! guarded is committed under exactly its lease.

use std::collections::BTreeMap;

use bytes::Bytes;
use peat_ledger::{Entry, Lease, OpRecord, TxKind};
use peat_objects::MemoryStore;
use peat_types::{Env, Error, ItemPath, Result as PeatResult};

use super::replay::{at_once, raw};

/// Leases as of the newest entry, by the path of their record.
#[derive(Debug, Default)]
pub struct Leases(BTreeMap<ItemPath, Lease>);

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

impl Leases {
    /// Takes the next entry. Gives how many leases it took or freed.
    pub fn apply(&mut self, store: &MemoryStore, env: &Env, entry: &Entry) -> Result<u32, String> {
        let seq = entry.state.seq;
        let mut changed = 0;
        for (tx, units) in entry.txs.iter().zip(&entry.ops) {
            if let Some(guard) = &tx.guard {
                let now = self.0.get(&guard.path);
                let holds =
                    now.is_some_and(|now| now.held && (now.generation, now.nonce) == (guard.generation, guard.nonce));
                ensure!(holds, "A13: entry {seq} holds a change under {guard:?}, and the lease is {now:?}");
            }
            for op in units.iter().flat_map(|unit| &unit.ops) {
                let (path, row) = match op {
                    OpRecord::Put(path, _, row) => (path, row),
                    OpRecord::Delete(path) => {
                        ensure!(!path.as_str().starts_with("leases/"), "A13: entry {seq} deletes {path}");
                        continue;
                    }
                    OpRecord::Rank(..) => continue,
                };
                if !path.as_str().starts_with("leases/") {
                    continue;
                }
                let bytes = at_once(raw(store, env)?.contents(&[row], std::slice::from_ref(entry)), "a lease")?;
                let new = read(&bytes[0]).map_err(|e| format!("A13: {path} in entry {seq}: {e:?}"))?;
                let old = self.0.get(path);
                let generation = old.map_or(0, |old| old.generation);
                let right = match tx.kind {
                    TxKind::Start => new.held && new.generation == generation + 1,
                    TxKind::End => {
                        let same = old.is_some_and(|old| old.nonce == new.nonce && old.generation == new.generation);
                        !new.held && same && tx.guard.as_ref().is_some_and(|guard| guard.path == *path)
                    }
                    // A purge stores records again as they are, next to what it removes.
                    TxKind::Change => old == Some(&new),
                    _ => false,
                };
                ensure!(right, "A13: entry {seq} ({:?}) makes {path} {new:?}, and it was {old:?}", tx.kind);
                changed += 1;
                self.0.insert(path.clone(), new);
            }
        }
        Ok(changed)
    }
}

/// The content of a lease record.
pub fn read(bytes: &Bytes) -> PeatResult<Lease> {
    serde_json::from_slice(bytes).map_err(|e| Error::damaged("a lease cannot be read").with_source(e))
}
