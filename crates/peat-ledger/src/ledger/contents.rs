//! Contents of files, verified before anybody sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use peat_types::{Error, Kind, Result};

use super::pages::{fetch, read_span, slice, spans};
use super::{Ledger, key};
use crate::format;
use crate::model::{Content, Entry, FileRow, Ref, Segment};

/// Reads in flight at once, each of at most 8 MiB: what is in memory of contents that are on their way.
const AHEAD: usize = 4;

/// A verified piece of a content: all of it, or one part of a large one.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Index of the row.
    pub row: usize,
    /// Where in the content it belongs.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Who needs a block: row, part of it, and the offset of that.
type Users = BTreeMap<Ref, Vec<(usize, usize, u64)>>;

fn users(rows: &[&FileRow]) -> Users {
    let mut users = Users::new();
    for (row, file) in rows.iter().enumerate() {
        match &file.content {
            Content::Tiny(_) => {}
            Content::At(at) => users.entry(at.block).or_default().push((row, 0, 0)),
            Content::Parts(parts) => {
                let mut offset = 0;
                for (n, part) in parts.iter().enumerate() {
                    users.entry(part.block).or_default().push((row, n, offset));
                    offset += part.size;
                }
            }
        }
    }
    users
}

impl Ledger {
    /// Contents of rows piece by piece, in the order in which they lie in the store, so that neighbours are read together;
    /// several reads are in flight at once, and not more is in memory than these. `at_hand` are entries whose bytes are
    /// here already. Every piece is verified; the stream ends with the first error.
    pub fn pieces<'a>(&'a self, rows: &'a [&'a FileRow], at_hand: &'a [Entry]) -> BoxStream<'a, Result<Piece>> {
        let users = Arc::new(users(rows));
        let held = |at: &Ref| at_hand.iter().find(|entry| at.segment == Segment::Log(entry.state.seq));
        let (near, away): (Vec<Ref>, Vec<Ref>) = users.keys().copied().partition(|at| held(at).is_some());
        let tiny = rows.iter().enumerate().filter(|(_, file)| matches!(file.content, Content::Tiny(_)));
        let tiny = stream::iter(tiny.map(|(row, file)| {
            let bytes = format::content_in(&Bytes::new(), file)
                .map_err(|why| Error::damaged(format!("a content kept in its row does not match its hash: {why}")))?;
            Ok(Piece { row, offset: 0, bytes })
        }));
        // Entries were checked when they were read.
        let near: Vec<Result<(Ref, Bytes)>> = near
            .into_iter()
            .map(|at| {
                let record = held(&at).and_then(|entry| slice(&entry.body, at.off, at.len));
                Ok((at, record.ok_or_else(|| self.gone(&at))?))
            })
            .collect();
        let spans = spans(away.into_iter().collect());
        let away = stream::iter(spans).map(move |span| read_span(self, span)).buffered(AHEAD);
        let away = away.map_ok(|span| stream::iter(span.records.into_iter().map(Ok))).try_flatten();
        let records = stream::iter(near).chain(away);
        let pieces = records.and_then(move |(at, record)| {
            let users = users.clone();
            async move {
                let users = users.get(&at).map(Vec::as_slice).unwrap_or_default();
                let pieces = self.pieces_of(&at, record, users, rows).await?;
                Ok(stream::iter(pieces.into_iter().map(Ok)))
            }
        });
        tiny.chain(pieces.try_flatten()).boxed()
    }

    /// What `users` need of a block. Damaged bytes are fetched once more before they are believed.
    async fn pieces_of(
        &self,
        at: &Ref,
        record: Bytes,
        users: &[(usize, usize, u64)],
        rows: &[&FileRow],
    ) -> Result<Vec<Piece>> {
        let open = |record: &Bytes| -> Result<Vec<Piece>> {
            let block = format::open_block(record)?;
            let take = |(row, part, offset): &(usize, usize, u64)| {
                let bytes = match &rows[*row].content {
                    Content::Parts(parts) => format::part_in(&block, &parts[*part])?,
                    _ => format::content_in(&block, rows[*row])?,
                };
                Ok(Piece { row: *row, offset: *offset, bytes })
            };
            users.iter().map(take).collect()
        };
        if let Ok(pieces) = open(&record) {
            return Ok(pieces);
        }
        drop(record);
        let again = fetch(self, BTreeSet::from([*at])).await?;
        let record = again.get(at).ok_or_else(|| self.gone(at))?;
        match open(record) {
            Ok(pieces) => Ok(pieces),
            Err(why) => {
                let key = key::segment(at.segment);
                let error =
                    Error::damaged(format!("{key} in {} is damaged at offset {}: {why}", self.store, at.off)).with_hint(
                        "run 'peat doctor --repair' on a machine that has the file: it stores it again; 'peat ledger verify \
                         --deep' shows what else is damaged",
                    );
                let error = error.with_code(DAMAGED);
                Err(self.unless_gone(at, error).await)
            }
        }
    }

    /// Whether an error says that a reference leads nowhere, so that a newer head may know better.
    pub fn is_gone(error: &Error) -> bool {
        error.kind() == Kind::NotFound && error.code() == "object_gone"
    }

    /// Whether an error says that a content is not where it should lie: it moved, as [`is_gone`](Self::is_gone), was put
    /// elsewhere by a repair, or is lost.
    pub fn is_lost(error: &Error) -> bool {
        is_lost(error)
    }
}

/// Code of the error that says: what lies where a content should is not the content.
const DAMAGED: &str = "content_damaged";

/// Whether an error says that a content cannot be had from where it should lie, and asking again does not help.
pub(super) fn is_lost(error: &Error) -> bool {
    Ledger::is_gone(error) || error.kind() == Kind::Damaged && error.code() == DAMAGED
}

pub(super) async fn contents(ledger: &Ledger, rows: &[&FileRow], at_hand: &[Entry]) -> Result<Vec<Bytes>> {
    let mut found: Vec<BTreeMap<u64, Bytes>> = vec![BTreeMap::new(); rows.len()];
    let mut pieces = ledger.pieces(rows, at_hand);
    while let Some(piece) = pieces.next().await {
        let Piece { row, offset, bytes } = piece?;
        found[row].insert(offset, bytes);
    }
    let whole = |mut pieces: BTreeMap<u64, Bytes>| match pieces.len() {
        1 => pieces.pop_first().map(|(_, bytes)| bytes).unwrap_or_default(),
        _ => pieces.into_values().collect::<Vec<_>>().concat().into(),
    };
    Ok(found.into_iter().map(whole).collect())
}
