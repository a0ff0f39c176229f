//! Contents of files, verified before anybody sees them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use peat_types::{Error, Kind, Result};

use super::pages::{fetch, slice};
use super::{Ledger, key};
use crate::format;
use crate::model::{Content, ContentRef, Entry, FileRow, Ref, Segment};

pub(super) async fn contents(ledger: &Ledger, rows: &[&FileRow], at_hand: &[Entry]) -> Result<Vec<Bytes>> {
    let mut records: BTreeMap<Ref, Bytes> = BTreeMap::new();
    let mut missing = BTreeSet::new();
    for at in blocks(rows) {
        match at_hand.iter().find(|entry| at.segment == Segment::Log(entry.state.seq)) {
            // Entries were checked when they were read.
            Some(entry) => {
                let record = slice(&entry.body, at.off, at.len).ok_or_else(|| ledger.gone(&at))?;
                records.insert(at, record);
            }
            None => {
                missing.insert(at);
            }
        }
    }
    records.extend(fetch(ledger, missing).await?);
    let mut blocks = unpack(&records);

    // Damaged bytes are fetched once more before they are believed.
    let again: BTreeSet<Ref> =
        rows.iter().filter(|row| take(row, &blocks).is_err()).filter_map(|row| block(row)).collect();
    if !again.is_empty() {
        blocks.extend(unpack(&fetch(ledger, again).await?));
    }
    rows.iter()
        .map(|row| {
            take(row, &blocks).map_err(|why| match &row.content {
                Content::Tiny(_) => Error::damaged(format!("a content kept in its row does not match its hash: {why}")),
                Content::At(at) => damaged(ledger, at, &why),
            })
        })
        .collect()
}

fn damaged(ledger: &Ledger, at: &ContentRef, why: &str) -> Error {
    let key = key::segment(at.block.segment);
    Error::damaged(format!("{key} in {} is damaged at offset {}: {why}", ledger.store, at.block.off)).with_hint(
        "run 'peat ledger verify --deep' to see what else is; another clone that has the file can store it again",
    )
}

fn block(row: &FileRow) -> Option<Ref> {
    match &row.content {
        Content::Tiny(_) => None,
        Content::At(at) => Some(at.block),
    }
}

fn blocks(rows: &[&FileRow]) -> BTreeSet<Ref> {
    rows.iter().filter_map(|row| block(row)).collect()
}

type Blocks = BTreeMap<Ref, Result<Bytes>>;

fn unpack(records: &BTreeMap<Ref, Bytes>) -> Blocks {
    records.iter().map(|(at, record)| (*at, format::open_block(record))).collect()
}

fn take(row: &FileRow, blocks: &Blocks) -> std::result::Result<Bytes, String> {
    let none = Bytes::new();
    let block = match block(row).map(|at| blocks.get(&at)) {
        None => &none,
        Some(Some(Ok(bytes))) => bytes,
        Some(Some(Err(error))) => return Err(error.to_string()),
        Some(None) => return Err("it was not read".to_owned()),
    };
    format::content_in(block, row).map_err(|error| error.to_string())
}

impl Ledger {
    /// Whether an error says that a reference leads nowhere, so that a newer head may know better.
    pub fn is_gone(error: &Error) -> bool {
        error.kind() == Kind::NotFound && error.code() == "object_gone"
    }
}
