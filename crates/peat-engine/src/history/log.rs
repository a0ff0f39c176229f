//! `peat log`.

use peat_clone::{LogLine, LogQuery, TxHead};
use peat_types::Result;

use super::when::Point;
use super::{Names, When, model_of};
use crate::report::{LogEntry, LogReport, LogTransaction, UnreadEntry};
use crate::{Definition, Repo};

/// Entries shown unless told otherwise.
const NEWEST: usize = 20;

/// `peat log`.
#[derive(Clone, Debug, Default)]
pub struct LogRequest {
    /// Only entries that changed this model: name, id or beginning of an id.
    pub model: Option<String>,
    /// At most so many. Unless given, 20, or with `since` all.
    pub limit: Option<usize>,
    /// Only entries written then or later.
    pub since: Option<When>,
    /// Only what this machine has seen, without asking the store.
    pub local: bool,
}

impl Repo {
    /// `peat log`: entries of the store, newest first.
    pub async fn log(&self, request: &LogRequest) -> Result<LogReport> {
        let definition = self.model_of_history(request.model.as_deref()).await?;
        let (clone, place) = self.opened().await?;
        let names = self.model_names()?;
        let (mut since, mut from) = (None, None);
        match request.since.map(|since| since.at(self.host().env.now())) {
            Some(Point::Time(time)) => since = Some(time),
            Some(Point::Entry(seq)) => from = Some(seq),
            None => {}
        }
        let query = LogQuery {
            unit: definition.as_ref().map(Definition::unit).transpose()?,
            count: request.limit.or_else(|| request.since.is_none().then_some(NEWEST)),
            since,
            from,
        };
        let page = if request.local { clone.log_here(&query)? } else { clone.log(&query).await? };
        let mut unseen = 0;
        if request.local && query.unit.is_none() {
            let newest = page.lines.first().map(|line| line.seq).zip(clone.head()?).into_iter();
            let steps = page.lines.windows(2).map(|pair| (pair[1].seq.next(), pair[0].seq));
            unseen = newest.chain(steps).map(|(from, to)| to.0.saturating_sub(from.0)).sum();
        }
        Ok(LogReport {
            namespace: place.namespace.clone(),
            source: if request.local { "clone" } else { "store" }.to_owned(),
            unseen,
            model: definition.map(|definition| definition.name),
            first: page.first,
            more: page.more,
            entries: page.lines.iter().map(|line| entry(&names, line)).collect(),
            unread: page.unread.into_iter().map(|(seq, why)| UnreadEntry { seq, reason: why.to_string() }).collect(),
        })
    }
}

fn entry(names: &Names, line: &LogLine) -> LogEntry {
    LogEntry {
        seq: line.seq,
        time: line.time,
        written: line.written,
        size: line.size,
        transactions: line.txs.iter().map(|tx| transaction(names, tx)).collect(),
    }
}

pub(super) fn transaction(names: &Names, tx: &TxHead) -> LogTransaction {
    let kind = serde_json::to_value(tx.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    LogTransaction {
        tx: tx.tx,
        change: tx.change,
        kind: kind.unwrap_or_default(),
        author: tx.author.clone(),
        message: tx.message.clone(),
        time: tx.time,
        run: tx.guard.as_ref().map(|guard| guard.nonce.to_string()),
        models: tx.units.iter().filter_map(|unit| model_of(names, &unit.unit)).collect(),
        units: tx.units.iter().map(|unit| unit.unit.to_string()).collect(),
    }
}
