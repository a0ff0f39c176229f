//! The log as people look at it.

use futures::stream::{self, StreamExt, TryStreamExt};
use peat_objects::{List, Listed, Pages, Range};
use peat_types::{Error, Result, Seq};

use super::{Ledger, LogLine, key};
use crate::format;

const PARALLEL: usize = 8;

pub(super) async fn recent(ledger: &Ledger, count: u16) -> Result<Vec<LogLine>> {
    let list = List { prefix: key::LOG.to_owned(), max_keys: Some(count.clamp(1, 1000)), ..List::default() };
    let mut pages = Pages::in_order(&*ledger.store, list);
    let mut seqs: Vec<Seq> = Vec::new();
    while seqs.len() < usize::from(count)
        && let Some(page) = pages.next().await?
    {
        seqs.extend(page.keys.iter().filter_map(|listed| key::log_seq(&listed.key)));
    }
    seqs.truncate(usize::from(count));
    let reads = seqs.into_iter().map(|seq| async move { Ok((seq, ledger.glance(seq).await?)) });
    let read: Vec<_> = stream::iter(reads).buffered(PARALLEL).try_collect::<Vec<_>>().await?;
    let keep = read.iter().find_map(|(_, glance)| glance.as_ref()).map_or(Seq::ZERO, |head| head.state.root.keep);
    // Slots below the floor are void, whatever they hold, and may be removed while they are listed.
    let valid = read.into_iter().filter(|(seq, _)| *seq >= keep);
    valid
        .map(|(seq, glance)| {
            let glance = glance.ok_or_else(|| ledger.missing(seq))?;
            Ok(LogLine { seq, time: glance.time, size: glance.size, txs: glance.txs })
        })
        .collect()
}

pub(super) async fn cat(ledger: &Ledger, key: &str) -> Result<serde_json::Value> {
    let object = ledger.store.get(key, Range::All).await?;
    let object = object.ok_or_else(|| {
        Error::not_found(format!("{} holds no object {key}", ledger.store))
            .with_hint("'peat ledger ls' shows the objects there are")
    })?;
    let json = match serde_json::from_slice(&object.bytes) {
        Ok(json) => Ok(json),
        Err(_) => format::to_json(key::log_seq(key), &object.bytes),
    };
    json.map_err(|e| ledger.unreadable(key, e))
}

/// Every object below a folder.
pub(super) async fn list_all(ledger: &Ledger, prefix: &str) -> Result<Vec<Listed>> {
    let mut pages = Pages::new(&*ledger.store, List { prefix: prefix.to_owned(), ..List::default() });
    let mut all = Vec::new();
    while let Some(page) = pages.next().await? {
        all.extend(page.keys);
    }
    Ok(all)
}
