//! Bytes: segments, records, pages, trees, sections, entries. Everything here is pure; pages come through a
//! [`PageSource`]. All decoders are bounded and never panic.

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{CloneId, EntryId, InstanceId, PackId, Result, Seq, Timestamp};

use crate::model::{Draft, Entry, FileRow, Ref, State, TxHead};

/// Newest format this version writes and the newest it reads.
pub const VERSION: u32 = 1;

/// Where a tree finds its pages: cache, entry at hand, or store.
#[async_trait]
pub trait PageSource: Send + Sync {
    /// The record at `at` as stored. `Damaged` or `NotFound` when it is not there.
    async fn page(&self, at: &Ref) -> Result<Bytes>;
}

/// A planned transaction in bytes: position independent, so it can be put into an entry at any place.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its head; offset and last seqs are filled in by [`build_entry`].
    pub head: TxHead,
    /// The bytes.
    pub bytes: Bytes,
    /// Packs it introduces, which must be durable before an entry names them: key below the namespace, and body.
    pub packs: Vec<(Seq, PackId, Bytes)>,
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

/// Entry 0 of a ledger: a pure function of `ns.json`, so that anybody can finish an interrupted creation.
pub fn genesis(info: &crate::NsInfo) -> Result<(Bytes, State)> {
    let _ = info;
    Err(peat_types::Error::internal("genesis"))
}

/// Turns a draft into a section: ops, content blocks (and packs for what does not fit), new unit-table pages.
///
/// `pack_id` gives the name of a pack that is needed; its base is `state.seq`.
///
/// # Errors
/// `Conflict` when an op does not match the table it was planned on, `Invalid` when a limit is exceeded, and whatever
/// `pages` reports.
pub async fn plan(
    draft: &Draft,
    state: &State,
    params: &crate::Params,
    pages: &dyn PageSource,
    pack_id: &mut (dyn FnMut() -> PackId + Send),
) -> Result<Section> {
    let _ = (draft, state, params, pages, pack_id);
    Err(peat_types::Error::internal("plan"))
}

/// R1–R3 and guards of one section against `state`: `None` when it may be committed on it.
///
/// # Errors
/// Whatever `pages` reports.
pub async fn check(section: &Section, state: &State, pages: &dyn PageSource) -> Result<Option<crate::Dead>> {
    let _ = (section, state, pages);
    Err(peat_types::Error::internal("check"))
}

/// Entry `state.seq + 1` carrying `sections` (which passed [`check`], and of which no two touch one unit).
///
/// # Errors
/// `Invalid` when the entry would be larger than allowed, and whatever `pages` reports.
pub async fn build_entry(
    state: &State,
    sections: &[Section],
    entry: EntryId,
    writer: Writer,
    params: &crate::Params,
    pages: &dyn PageSource,
) -> Result<(Bytes, State)> {
    let _ = (state, sections, entry, writer, params, pages);
    Err(peat_types::Error::internal("build"))
}

/// A whole entry. Checks every CRC, hash, bound and path.
///
/// # Errors
/// `Damaged`; `Unsupported` with code `unsupported_version` for a newer format.
pub fn decode_entry(seq: Seq, body: &Bytes) -> Result<Entry> {
    let _ = (seq, body);
    Err(peat_types::Error::internal("decode"))
}

/// Header and ring from the first bytes of an entry: `Err(needed)` when `prefix` is too short.
/// The hash of the state is not known from a prefix: it is all zero, and such a state is never built upon.
///
/// # Errors
/// As [`decode_entry`].
pub fn decode_prefix(
    seq: Seq,
    prefix: &Bytes,
    size: u64,
) -> Result<std::result::Result<(State, Vec<TxHead>, Timestamp), u64>> {
    let _ = (seq, prefix, size);
    Err(peat_types::Error::internal("prefix"))
}

/// The bytes under which a clone keeps a state.
pub fn encode_state(state: &State) -> Vec<u8> {
    let _ = state;
    Vec::new()
}

/// Reads back [`encode_state`].
///
/// # Errors
/// `Damaged`.
pub fn decode_state(bytes: &[u8]) -> Result<State> {
    let _ = bytes;
    Err(peat_types::Error::internal("state"))
}

/// The bytes of a file row, with every reference resolved.
pub fn encode_row(row: &FileRow) -> Vec<u8> {
    let _ = row;
    Vec::new()
}

/// Reads back [`encode_row`].
///
/// # Errors
/// `Damaged`.
pub fn decode_row(bytes: &[u8]) -> Result<FileRow> {
    let _ = bytes;
    Err(peat_types::Error::internal("row"))
}
