//! Entries that change where things are and how long they are kept, but nothing that is there.

use bytes::Bytes;
use peat_types::{ChangeId, EntryId, Result, TxId};
use setsum::Setsum;

use super::entry::{Parts, check_base, header, seal};
use super::page::{PageSink, TreeKind};
use super::plan::SECTION_PREAMBLE;
use super::record::{self, Pack};
use super::tree_write::{Edit, apply};
use super::{PageSource, VERSION, Writer, hash16, ops};
use crate::model::{NewPack, Params, Root, State, TxHead, TxKind};

/// A maintenance entry, all but what depends on its slot.
pub(crate) struct Maintenance {
    pub(crate) kind: TxKind,
    pub(crate) tx: TxId,
    pub(crate) change: ChangeId,
    pub(crate) author: String,
    pub(crate) message: String,
    /// The root to be; its directory and pack table are those that the edits are applied to.
    pub(crate) root: Root,
    /// Sorted by key. Own references count from the start of the section.
    pub(crate) directory: Vec<Edit>,
    /// Sorted by key.
    pub(crate) packs: Vec<Edit>,
    /// Packs it introduces.
    pub(crate) introduced: Vec<NewPack>,
    /// Begun with [`section`].
    pub(crate) section: Vec<u8>,
}

/// A section without operations; table pages may follow.
pub(crate) fn section() -> Result<Vec<u8>> {
    let mut out = vec![0; SECTION_PREAMBLE];
    record::put(&mut out, &ops::encode(&[]), Pack::Zstd, record::OPS)?;
    Ok(out)
}

/// The entry after `state`.
///
/// # Errors
/// As [`build_entry`](super::build_entry).
pub(crate) async fn build(
    state: &State,
    what: Maintenance,
    entry: EntryId,
    writer: Writer,
    params: &Params,
    pages: &dyn PageSource,
) -> Result<(Bytes, State)> {
    check_base(state)?;
    let mut root = what.root;
    let mut sink = PageSink::prepend();
    root.directory = apply(root.directory, TreeKind::Directory, &what.directory, pages, &mut sink).await?;
    root.packs = apply(root.packs, TreeKind::Packs, &what.packs, pages, &mut sink).await?;
    match what.kind {
        // A repair is one that moves nothing out of the log.
        TxKind::Checkpoint if root.minlog > state.root.minlog => {
            root.checkpointed = Some((state.seq.next(), writer.time));
        }
        TxKind::Gc => root.collected = Some((state.seq.next(), writer.time)),
        _ => {}
    }
    let section = Bytes::from(what.section);
    let tx = TxHead {
        tx: what.tx,
        change: what.change,
        kind: what.kind,
        author: what.author,
        message: what.message,
        time: writer.time,
        guard: None,
        units: Vec::new(),
        packs: what.introduced,
        ext_log: None,
        ext_packs: Vec::new(),
        setsum: Setsum::default().digest(),
        off: 0,
        len: section.len() as u64,
        hash: hash16(&section),
    };
    let ring = state.ring.push([], params.ring);
    let header = header(state, entry, writer, VERSION, vec![tx], root);
    seal(state, params, Parts { header, ring, pages: sink, sections: vec![section] })
}
