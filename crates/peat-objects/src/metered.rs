//! Counting requests and bytes, to hold the budgets of the design.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::Result;
use serde::Serialize;

use crate::key::first_segment;
use crate::{Created, List, Object, Page, Range, Store};

/// The operations of the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// [`Store::get`]
    Get,
    /// [`Store::create`]
    Create,
    /// [`Store::put`]
    Put,
    /// [`Store::list`]
    List,
    /// [`Store::delete`]
    Delete,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Put => "put",
            Self::List => "list",
            Self::Delete => "delete",
        })
    }
}

/// How much was asked and moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Requests sent, failed ones and retries included.
    pub requests: u64,
    /// Bytes of bodies received. A listing counts the length of its keys unless the backend knows the wire.
    pub bytes_in: u64,
    /// Bytes of bodies sent.
    pub bytes_out: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

/// What was counted, by operation and first segment of the key (`log`, `pack`, `beat`, `ns.json`, …).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<(Op, String), Count>);

impl Counts {
    /// The sum over everything.
    pub fn total(&self) -> Count {
        self.sum(|_, _| true)
    }

    /// The sum over one operation.
    pub fn of(&self, op: Op) -> Count {
        self.sum(|o, _| o == op)
    }

    /// The sum over the rows that `wanted` selects by operation and first segment.
    pub fn sum(&self, wanted: impl Fn(Op, &str) -> bool) -> Count {
        let mut sum = Count::default();
        self.0.iter().filter(|((op, segment), _)| wanted(*op, segment)).for_each(|(_, count)| sum += *count);
        sum
    }

    /// Every row that is not zero.
    pub fn rows(&self) -> impl Iterator<Item = (Op, &str, Count)> {
        self.0.iter().map(|((op, segment), count)| (*op, segment.as_str(), *count))
    }

    /// What was counted after `earlier` was taken from the same meter.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let rows = self.0.iter().filter_map(|(row, now)| {
            let before = earlier.0.get(row).copied().unwrap_or_default();
            let count = Count {
                requests: now.requests.saturating_sub(before.requests),
                bytes_in: now.bytes_in.saturating_sub(before.bytes_in),
                bytes_out: now.bytes_out.saturating_sub(before.bytes_out),
            };
            (count != Count::default()).then(|| (row.clone(), count))
        });
        Self(rows.collect())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (op, segment, count)) in self.rows().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(
                f,
                "{comma}{}× {op} {segment} ({} B in, {} B out)",
                count.requests, count.bytes_in, count.bytes_out
            )?;
        }
        Ok(())
    }
}

/// A shared counter. Clones count into the same place.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<Counts>>);

impl Meter {
    /// What was counted so far.
    pub fn snapshot(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        self.snapshot().since(earlier)
    }

    /// Adds to one row; `key` is a key or a list prefix.
    pub(crate) fn add(&self, op: Op, key: &str, count: Count) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.0.entry((op, first_segment(key).to_owned())).or_default() += count;
    }
}

/// A store that counts what is asked of it.
#[derive(Clone, Debug)]
pub struct Metered {
    inner: Arc<dyn Store>,
    meter: Meter,
}

impl Metered {
    /// Counts the requests to `inner` into a meter of its own.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self::with_meter(inner, Meter::default())
    }

    /// Counts the requests to `inner` into `meter`.
    pub fn with_meter(inner: Arc<dyn Store>, meter: Meter) -> Self {
        Self { inner, meter }
    }

    /// The counter.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    // Counted when it is sent, so that a caller who gives up waiting is counted as well.
    fn sent(&self, op: Op, key: &str, bytes_out: usize) {
        self.meter.add(op, key, Count { requests: 1, bytes_in: 0, bytes_out: bytes_out as u64 });
    }

    fn received(&self, op: Op, key: &str, bytes_in: usize) {
        self.meter.add(op, key, Count { requests: 0, bytes_in: bytes_in as u64, bytes_out: 0 });
    }
}

#[async_trait]
impl Store for Metered {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.sent(Op::Get, key, 0);
        let object = self.inner.get(key, range).await?;
        self.received(Op::Get, key, object.as_ref().map_or(0, |object| object.bytes.len()));
        Ok(object)
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.sent(Op::Create, key, body.len());
        self.inner.create(key, body).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<crate::Meta> {
        self.sent(Op::Put, key, body.len());
        self.inner.put(key, body).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        self.sent(Op::List, &list.prefix, 0);
        let page = self.inner.list(list).await?;
        let bytes = page.keys.iter().map(|k| k.key.len()).chain(page.prefixes.iter().map(String::len)).sum();
        self.received(Op::List, &list.prefix, bytes);
        Ok(page)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.sent(Op::Delete, key, 0);
        self.inner.delete(key).await
    }
}

impl fmt::Display for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
