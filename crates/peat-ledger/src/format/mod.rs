//! Bytes: segments, records, pages, trees, sections, entries. Everything here is pure; pages come through a
//! [`PageSource`]. All decoders are bounded and never panic.

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{CloneId, Error, InstanceId, Kind, Result, Timestamp};

use crate::model::{NewPack, Ref, State, TxHead};

pub(crate) mod block;
mod cbor;
mod check;
mod decode;
pub(crate) mod entry;
mod header;
mod json;
pub(crate) mod maintain;
mod ops;
pub(crate) mod pack;
pub(crate) mod packer;
pub(crate) mod page;
mod plan;
mod query;
pub(crate) mod record;
pub(crate) mod refs;
pub(crate) mod relocate;
pub(crate) mod repoint;
mod ring;
pub(crate) mod row;
mod staged;
mod state;
pub(crate) mod tree;
pub(crate) mod tree_write;
mod varint;

#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod codec_tests;
#[cfg(test)]
mod entry_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod staged_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tree_tests;
#[cfg(test)]
mod version_tests;

pub use block::{content_in, cuts, open_block, part_in};
pub use check::check;
pub(crate) use decode::decode_again;
pub use decode::{Prefix, decode_entry, decode_prefix};
pub use entry::{build_entry, genesis};
pub use header::void_slot;
pub use json::to_json;
pub(crate) use pack::decode_ends;
pub use pack::{PackBlock, PackIndex, decode_pack};
pub use page::page_children;
pub use plan::plan;
pub(crate) use query::files;
pub use query::{FileDiff, current, directory, directory_diff, file, packs, table, table_diff, unit_rows};
pub use ring::{RING_CHANGES, ring_tag};
pub use row::{PackRow, TINY, decode_row, encode_row, setsum_of};
pub use staged::{Staged, decode_group, decode_staged, encode_staged};
pub use state::{decode_state, encode_state};

/// Newest format this version writes and the newest it reads.
///
/// 2: maintenance (`checkpoint`, `gc` and `pin` transactions, packs of pages). Entries without any can be read by version 1.
/// 3: ledgers that moved (`moved` transactions, `origin` in `ns.json`); contents in parts, and transactions that bring
/// packs of pages: who knows only version 2 refuses their rows.
pub const VERSION: u32 = 3;

/// Where a tree finds its pages: cache, entry at hand, or store.
#[async_trait]
pub trait PageSource: Send + Sync {
    /// The record at `at` as stored. `Damaged` or `NotFound` when it is not there.
    async fn page(&self, at: &Ref) -> Result<Bytes>;

    /// These pages are wanted next: a source far away fetches them together.
    async fn ahead(&self, _: &[Ref]) -> Result<()> {
        Ok(())
    }
}

/// A planned transaction in bytes: position independent, so it can be put into an entry at any place.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its head. Offset and last seqs are known only once an entry holds it, and table references that lie in the
    /// section count from its start: read them from the entry, not from here.
    pub head: TxHead,
    /// The bytes.
    pub bytes: Bytes,
    /// Packs it introduces that are not in the store yet, with their bodies: they must be durable before an entry names
    /// them.
    pub packs: Vec<(NewPack, Bytes)>,
}

/// Who writes an entry; informational.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// The clone.
    pub clone: CloneId,
    /// The process instance.
    pub instance: InstanceId,
    /// When.
    pub time: Timestamp,
}

fn damaged(what: impl Into<String>) -> Error {
    Error::damaged(what)
}

fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::new(Kind::Unsupported, format!("this version of Peat does not know {what}"))
        .with_code("unsupported_version")
        .with_hint("update Peat, then run the command again")
}

/// Refuses to write after an entry that asks for newer writers.
fn check_writer(state: &State) -> Result<()> {
    if state.min_writer > VERSION {
        return Err(unsupported(format!("how to write to a ledger of version {}", state.min_writer)));
    }
    Ok(())
}

/// First 16 bytes of the BLAKE3 of `bytes`.
pub(crate) fn hash16(bytes: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    out
}
