//! Where the protocol finds tree pages: bytes at hand, the caller's cache, then the store in few, coalesced reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use peat_objects::Range;
use peat_types::{Error, Kind, Result, Seq, Unit};

use super::{Ledger, key};
use crate::format::{self, PageSource};
use crate::model::{Entry, PageCache, Ref, Segment, State, UnitRow};

/// Bytes that are read and thrown away rather than asked for in two requests; more when much is wanted, so that a pack of
/// which half is dead is still read in few requests: one part in so many.
const GAP: u64 = 32 << 10;
const GAP_PART: u64 = 32;
/// Longest single read.
const SPAN: u64 = 8 << 20;
/// Reads in flight at once.
const PARALLEL: usize = 16;

/// A source of pages for one operation.
pub(super) struct Pages<'a> {
    ledger: &'a Ledger,
    cache: &'a dyn PageCache,
    /// Objects or their first bytes, from offset 0.
    held: Arc<BTreeMap<Segment, Bytes>>,
    /// Records fetched ahead.
    fetched: Mutex<BTreeMap<Ref, Bytes>>,
    /// What was read along with them, by the place of the first byte: what lies between the pages of one level is, more
    /// often than not, the next one.
    between: Mutex<BTreeMap<(Segment, u64), Bytes>>,
}

impl Entry {
    /// Puts the tree pages of this entry into a cache.
    pub fn keep_pages(&self, cache: &dyn PageCache) {
        for at in &self.pages {
            if let Some(record) = slice(&self.body, at.off, at.len) {
                cache.put(at, &record);
            }
        }
    }
}

/// Keeps nothing: for those who read everything once, or want it from the store.
pub(super) struct NoCache;

impl PageCache for NoCache {
    fn get(&self, _: &Ref) -> Option<Bytes> {
        None
    }

    fn put(&self, _: &Ref, _: &Bytes) {}
}

/// `len` bytes from `off`, if there are so many.
pub(super) fn slice(bytes: &Bytes, off: u64, len: u32) -> Option<Bytes> {
    let start = usize::try_from(off).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    (end <= bytes.len()).then(|| bytes.slice(start..end))
}

impl<'a> Pages<'a> {
    pub(super) fn new(ledger: &'a Ledger, cache: &'a dyn PageCache) -> Self {
        Self::holding(ledger, cache, Arc::default())
    }

    /// With objects that are here already.
    pub(super) fn holding(ledger: &'a Ledger, cache: &'a dyn PageCache, held: Arc<BTreeMap<Segment, Bytes>>) -> Self {
        Self { ledger, cache, held, fetched: Mutex::default(), between: Mutex::default() }
    }

    /// Keeps the bytes of an entry, whole or from its start, near.
    pub(super) fn hold(&mut self, seq: Seq, bytes: Bytes) {
        self.hold_object(Segment::Log(seq), bytes);
    }

    /// Keeps the bytes of an object, whole or from its start, near.
    pub(super) fn hold_object(&mut self, segment: Segment, bytes: Bytes) {
        Arc::make_mut(&mut self.held).insert(segment, bytes);
    }

    /// Bytes of a record in an object that is held.
    pub(super) fn held(&self, at: &Ref) -> Option<Bytes> {
        self.held.get(&at.segment).and_then(|body| slice(body, at.off, at.len))
    }

    /// Lets go of what was fetched ahead.
    pub(super) fn forget(&self) {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.between.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A page that was read along with others.
    fn between(&self, at: &Ref) -> Option<Bytes> {
        let between = self.between.lock().unwrap_or_else(PoisonError::into_inner);
        let ((_, off), bytes) = between.range((at.segment, 0)..=(at.segment, at.off)).next_back()?;
        let record = slice(bytes, at.off - off, at.len)?;
        format::page_children(&record, at).is_ok().then_some(record)
    }

    /// One unit of a state.
    pub(super) async fn unit(&self, state: &State, unit: &Unit) -> Result<Option<UnitRow>> {
        Ok(format::unit_rows(state, &[unit], self).await?.pop().flatten())
    }

    fn near(&self, at: &Ref) -> Option<Bytes> {
        if let Some(record) = self.held(at) {
            return Some(record);
        }
        let fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner).get(at).cloned();
        // A cache may have been damaged: then the store has the page.
        fetched.or_else(|| self.cache.get(at).filter(|record| format::page_children(record, at).is_ok()))
    }

    /// Those that are not near.
    pub(super) fn away(&self, wanted: &[Ref]) -> BTreeSet<Ref> {
        wanted.iter().filter(|at| self.near(at).is_none()).copied().collect()
    }

    /// Fetches the pages that are not near, neighbours together.
    pub(super) async fn prefetch(&self, wanted: &[Ref]) -> Result<()> {
        let missing = self.away(wanted);
        let here: Vec<(Ref, Bytes)> = missing.iter().filter_map(|at| Some((*at, self.between(at)?))).collect();
        let away = missing.into_iter().filter(|at| here.binary_search_by(|(near, _)| near.cmp(at)).is_err()).collect();
        let mut records = fetch_pages(self.ledger, away, &self.between).await?;
        records.extend(here);
        let records: Vec<(Ref, Bytes)> = records.into_iter().collect();
        self.cache.put_all(&records);
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner).extend(records);
        Ok(())
    }
}

#[async_trait]
impl PageSource for Pages<'_> {
    async fn page(&self, at: &Ref) -> Result<Bytes> {
        if let Some(record) = self.near(at) {
            return Ok(record);
        }
        let mut records = fetch_pages(self.ledger, BTreeSet::from([*at]), &Mutex::default()).await?;
        let record = records.remove(at).ok_or_else(|| self.ledger.gone(at))?;
        self.cache.put(at, &record);
        Ok(record)
    }

    async fn ahead(&self, at: &[Ref]) -> Result<()> {
        self.prefetch(at).await
    }
}

impl Ledger {
    /// What a reference points to is not in the store: the state it came from is older than the floor, or damaged.
    pub(super) fn gone(&self, at: &Ref) -> Error {
        let key = key::segment(at.segment);
        Error::new(Kind::NotFound, format!("{key} in {} is gone or too short at offset {}", self.store, at.off))
            .with_code("object_gone")
            .with_hint("read the head again: what it holds may have moved")
    }

    /// An error about what lies at a reference; in a slot that is void by now, what was there is gone.
    pub(super) async fn unless_gone(&self, at: &Ref, error: Error) -> Error {
        match at.segment {
            Segment::Log(seq) => self.unless_void(seq, error).await.unwrap_or_else(|| self.gone(at)),
            Segment::Pack(..) => error,
        }
    }

    /// What a reading of trees came to; pages of a void slot may make no sense together.
    pub(super) async fn read_from<T>(&self, root: Option<Ref>, read: Result<T>) -> Result<T> {
        match (read, root) {
            (Err(error), Some(root)) => Err(self.unless_gone(&root, error).await),
            (read, _) => read,
        }
    }
}

/// Reads pages and checks them; damaged ones are fetched once more before that is believed.
async fn fetch_pages(
    ledger: &Ledger,
    wanted: BTreeSet<Ref>,
    between: &Mutex<BTreeMap<(Segment, u64), Bytes>>,
) -> Result<BTreeMap<Ref, Bytes>> {
    let reads = spans(wanted).into_iter().map(|span| read_span(ledger, span));
    let reads: Vec<Span> = stream::iter(reads).buffered(PARALLEL).boxed().try_collect().await?;
    let mut records = BTreeMap::new();
    for Span { first, bytes, records: found } in reads {
        records.extend(found);
        between.lock().unwrap_or_else(PoisonError::into_inner).insert((first.segment, first.off), bytes);
    }
    let bad = |records: &BTreeMap<Ref, Bytes>| -> BTreeMap<Ref, Error> {
        records.iter().filter_map(|(at, record)| Some((*at, format::page_children(record, at).err()?))).collect()
    };
    let again: BTreeSet<Ref> = bad(&records).into_keys().collect();
    if !again.is_empty() {
        records.extend(fetch(ledger, again).await?);
        if let Some((at, error)) = bad(&records).pop_first() {
            let key = format!("{} at offset {}", key::segment(at.segment), at.off);
            return Err(ledger.unless_gone(&at, ledger.unreadable(&key, error)).await);
        }
    }
    Ok(records)
}

/// Reads records, neighbours of one object in one request. What is missing in the store is an error.
pub(super) async fn fetch(ledger: &Ledger, wanted: BTreeSet<Ref>) -> Result<BTreeMap<Ref, Bytes>> {
    let reads = spans(wanted).into_iter().map(|span| read_span(ledger, span));
    let reads: Vec<Span> = stream::iter(reads).buffered(PARALLEL).boxed().try_collect().await?;
    Ok(reads.into_iter().flat_map(|span| span.records).collect())
}

/// What one request read.
pub(super) struct Span {
    first: Ref,
    bytes: Bytes,
    /// The records that were asked for.
    pub(super) records: Vec<(Ref, Bytes)>,
}

/// Reads the records of one span, which lie in one object, in one request.
pub(super) async fn read_span(ledger: &Ledger, span: Vec<Ref>) -> Result<Span> {
    let first = span.first().copied().ok_or_else(|| Error::internal("nothing to read"))?;
    let end = span.iter().map(|at| at.off + u64::from(at.len)).max().unwrap_or_default();
    let range = Range::Part { offset: first.off, len: end - first.off };
    let object = ledger.store.get(&key::segment(first.segment), range).await?.ok_or_else(|| ledger.gone(&first))?;
    let record = |at: Ref| {
        let record = slice(&object.bytes, at.off - first.off, at.len).ok_or_else(|| ledger.gone(&at))?;
        Ok((at, record))
    };
    let records = span.into_iter().map(record).collect::<Result<_>>()?;
    Ok(Span { first, bytes: object.bytes, records })
}

/// Records in groups that are read in one request each.
pub(super) fn spans(wanted: BTreeSet<Ref>) -> Vec<Vec<Ref>> {
    let all: u64 = wanted.iter().map(|at| u64::from(at.len)).sum();
    let gap = GAP.max(all / GAP_PART);
    let mut spans: Vec<Vec<Ref>> = Vec::new();
    let mut end = 0;
    for at in wanted {
        let after = at.off.saturating_add(u64::from(at.len));
        let joins = spans.last().and_then(|span| span.first()).is_some_and(|first| {
            first.segment == at.segment && at.off <= u64::saturating_add(end, gap) && after - first.off <= SPAN
        });
        match spans.last_mut() {
            Some(span) if joins => {
                end = after.max(end);
                span.push(at);
            }
            _ => {
                end = after;
                spans.push(vec![at]);
            }
        }
    }
    spans
}
