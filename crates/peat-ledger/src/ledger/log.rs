//! The log as people look at it.

use futures::stream::{self, StreamExt};
use peat_objects::{List, Listed, Pages as Listing, Range};
use peat_types::{Error, Kind, Result, Seq, Timestamp, Unit};

use super::pages::Pages;
use super::read::Glance;
use super::{Ledger, LogLine, key};
use crate::format;
use crate::model::PageCache;

const PARALLEL: usize = 8;
/// Keys of a page of a listing.
const LISTED: u16 = 1000;

/// Which entries are wanted.
#[derive(Clone, Debug, Default)]
pub struct LogQuery {
    /// Only entries that changed this unit.
    pub unit: Option<Unit>,
    /// At most so many; all when absent.
    pub count: Option<usize>,
    /// Only entries written at this time or later.
    pub since: Option<Timestamp>,
    /// Only this entry and later ones.
    pub from: Option<Seq>,
}

impl LogQuery {
    /// The newest `count` entries.
    pub fn newest(count: usize) -> Self {
        Self { count: Some(count), ..Self::default() }
    }

    /// The line as the query wants it, if it does.
    pub fn of_line(&self, mut line: LogLine) -> Option<LogLine> {
        let early = self.since.is_some_and(|since| line.written < since);
        if early || self.from.is_some_and(|from| line.seq < from) {
            return None;
        }
        if let Some(unit) = &self.unit {
            line.txs.retain(|tx| tx.units.iter().any(|changed| changed.unit == *unit));
        }
        (self.unit.is_none() || !line.txs.is_empty()).then_some(line)
    }

    fn left(&self, lines: &[LogLine]) -> usize {
        self.count.map_or(usize::MAX, |count| count.saturating_sub(lines.len()))
    }

    fn is_before(&self, glance: &Glance) -> bool {
        let early = self.since.is_some_and(|since| glance.written < since);
        early || self.from.is_some_and(|from| glance.state.seq < from)
    }
}

/// Entries as shown by the log.
#[derive(Debug, Default)]
pub struct LogPage {
    /// Newest first. Of an entry asked for by unit, only the transaction that changed the unit.
    pub lines: Vec<LogLine>,
    /// The first entry that is still kept.
    pub first: Seq,
    /// Whether older ones that are kept were left out because there were enough.
    pub more: bool,
    /// Those in between that cannot be read, newest first, and why.
    pub unread: Vec<(Seq, Error)>,
}

pub(super) async fn log(ledger: &Ledger, query: &LogQuery, cache: &dyn PageCache) -> Result<LogPage> {
    let page = match &query.unit {
        None => of_all(ledger, query).await,
        Some(unit) => match of_unit(ledger, query, unit, cache).await {
            // The way from one entry of the unit to the one before is broken: all are looked at.
            Err(error) if error.kind() == Kind::Damaged => of_all(ledger, query).await,
            page => page,
        },
    };
    let mut page = page?;
    // Where nothing can be read, that is the news.
    if page.lines.is_empty() && !page.unread.is_empty() { Err(page.unread.swap_remove(0).1) } else { Ok(page) }
}

/// Goes through what the store lists. What is missing there or cannot be read does not hide the rest.
async fn of_all(ledger: &Ledger, query: &LogQuery) -> Result<LogPage> {
    let max_keys = query.count.and_then(|count| u16::try_from(count).ok()).unwrap_or(LISTED).clamp(1, LISTED);
    let list = List { prefix: key::LOG.to_owned(), max_keys: Some(max_keys), ..List::default() };
    let mut listing = Listing::in_order(&*ledger.store, list);
    let mut page = LogPage::default();
    // The entry that comes next if none is missing.
    let mut next: Option<Seq> = None;
    let mut empty = true;
    while let Some(listed) = listing.next().await? {
        let seqs: Vec<Seq> = listed.keys.iter().filter_map(|listed| key::log_seq(&listed.key)).collect();
        empty &= seqs.is_empty();
        let mut rest = &seqs[..];
        while !rest.is_empty() {
            let (now, after) = rest.split_at(rest.len().min(PARALLEL).min(query.left(&page.lines)));
            rest = after;
            let reads = now.iter().map(|seq| async move { (*seq, ledger.glance(*seq).await) });
            let read: Vec<_> = stream::iter(reads).buffered(PARALLEL).collect().await;
            if let Some(newest) = read.iter().find_map(|(_, glance)| glance.as_ref().ok()?.as_ref()) {
                page.first = page.first.max(newest.state.root.keep);
            }
            for (seq, glance) in read {
                // Slots below the floor are void, whatever they hold, and may be removed while they are listed.
                if seq < page.first || !gap(ledger, query, &mut page, next, seq.next()).await? {
                    return Ok(page);
                }
                next = seq.0.checked_sub(1).map(Seq);
                match glance.and_then(|glance| glance.ok_or_else(|| ledger.missing(seq))) {
                    Ok(glance) if query.is_before(&glance) => return Ok(page),
                    Ok(glance) => page.lines.extend(query.of_line(line(seq, glance))),
                    Err(error) => match ledger.unless_void(seq, error).await {
                        // Void by now.
                        None => return Ok(page),
                        Some(error) if error.kind() == Kind::Damaged && !is_set_back(&error) => {
                            page.unread.push((seq, error));
                        }
                        Some(error) => return Err(error),
                    },
                }
            }
            if query.left(&page.lines) == 0 {
                page.more = page.lines.last().is_some_and(|oldest| oldest.seq > page.first);
                return Ok(page);
            }
        }
    }
    let first = page.first;
    gap(ledger, query, &mut page, next, first).await?;
    if empty { Err(ledger.emptied(Seq::ZERO)) } else { Ok(page) }
}

/// Notes that the entries from `from` down to `to` are not there. Gives whether they should be: else a collection went over
/// them while the log was listed.
async fn gap(ledger: &Ledger, query: &LogQuery, page: &mut LogPage, from: Option<Seq>, to: Seq) -> Result<bool> {
    let Some(from) = from.filter(|from| *from >= to && query.from.is_none_or(|first| *from >= first)) else {
        return Ok(true);
    };
    match ledger.unless_void(to, ledger.missing(to)).await {
        None => return Ok(false),
        Some(error) if error.kind() != Kind::Damaged || is_set_back(&error) => return Err(error),
        Some(_) => {}
    }
    let down = (to.0..=from.0).rev().map(Seq).filter(|seq| query.from.is_none_or(|first| *seq >= first));
    page.unread.extend(down.map(|seq| (seq, ledger.missing(seq))));
    Ok(true)
}

/// Whether an error says more than that something is damaged.
fn is_set_back(error: &Error) -> bool {
    ["rollback", "fork"].iter().any(|code| error.has_code(code))
}

/// Each transaction head names the entry that changed its units before.
async fn of_unit(ledger: &Ledger, query: &LogQuery, unit: &Unit, cache: &dyn PageCache) -> Result<LogPage> {
    let kept = ledger.kept().await?;
    let mut pages = Pages::new(ledger, cache);
    kept.newest.near(&mut pages);
    let mut page = LogPage { first: kept.first_entry(), ..LogPage::default() };
    let mut next = pages.unit(&kept.newest.state, unit).await?.map(|row| row.last_seq);
    while let Some(seq) = next.filter(|seq| *seq >= page.first) {
        if query.left(&page.lines) == 0 {
            page.more = true;
            break;
        }
        let mut glance = ledger.glance_entry(&kept, seq).await?;
        if query.is_before(&glance) {
            break;
        }
        glance.txs.retain(|tx| tx.units.iter().any(|changed| changed.unit == *unit));
        let changed = glance.txs.iter().flat_map(|tx| &tx.units).find(|changed| changed.unit == *unit);
        next = changed
            .ok_or_else(|| Error::damaged(format!("{} should have changed {unit}, but does not", key::log(seq))))?
            .expected;
        page.lines.push(line(seq, glance));
    }
    Ok(page)
}

fn line(seq: Seq, glance: Glance) -> LogLine {
    LogLine { seq, time: glance.time, written: glance.written, size: glance.size, txs: glance.txs }
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
    let mut pages = Listing::new(&*ledger.store, List { prefix: prefix.to_owned(), ..List::default() });
    let mut all = Vec::new();
    while let Some(page) = pages.next().await? {
        all.extend(page.keys);
    }
    Ok(all)
}
