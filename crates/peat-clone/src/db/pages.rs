//! Tree pages kept near, so that a quiet commit reads nothing.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use peat_ledger::{Entry, PageCache, Ref, Segment};
use peat_types::{Result, Seq};
use rusqlite::{OptionalExtension, Transaction};

use super::{Db, sql};

/// Most pages kept; the oldest go first. At the usual 4 to 16 KiB that is well under 200 MB.
const MAX_PAGES: i64 = 16_384;
/// How often the bound is enforced.
const SWEEP: u64 = 512;

fn key(at: &Ref) -> Vec<u8> {
    let mut key = Vec::with_capacity(37);
    match at.segment {
        Segment::Log(seq) => {
            key.push(0);
            key.extend(seq.0.to_be_bytes());
        }
        Segment::Pack(base, id) => {
            key.push(1);
            key.extend(base.0.to_be_bytes());
            key.extend(id.as_bytes());
        }
    }
    key.extend(at.off.to_be_bytes());
    key.extend(at.len.to_be_bytes());
    key
}

fn insert(tx: &Transaction<'_>, at: &Ref, record: &[u8]) -> Result<()> {
    let mut statement = tx.prepare_cached("INSERT OR IGNORE INTO pages(at, record) VALUES (?1, ?2)").map_err(sql)?;
    statement.execute(rusqlite::params![key(at), record]).map(drop).map_err(sql)
}

/// Keeps the pages that came along with an entry.
pub(crate) fn keep(tx: &Transaction<'_>, entry: &Entry) -> Result<()> {
    for at in &entry.pages {
        let start = usize::try_from(at.off).unwrap_or(usize::MAX);
        let end = start.saturating_add(at.len as usize);
        if let Some(record) = entry.body.get(start..end) {
            insert(tx, at, record)?;
        }
    }
    Ok(())
}

/// Forgets the pages in entries after `upto`.
pub(super) fn end_at(tx: &Transaction<'_>, upto: Seq) -> Result<()> {
    tx.execute("DELETE FROM pages WHERE substr(at, 1, 1) = x'00' AND substr(at, 2, 8) > ?1", [upto.0.to_be_bytes()])
        .map(drop)
        .map_err(sql)
}

/// Enforces the bound.
pub(crate) fn sweep(tx: &Transaction<'_>) -> Result<()> {
    tx.execute("DELETE FROM pages WHERE id <= (SELECT max(id) FROM pages) - ?1", [MAX_PAGES]).map(drop).map_err(sql)
}

// A page that cannot be read or kept costs a request and nothing else, so errors end here.
impl PageCache for Db {
    fn get(&self, at: &Ref) -> Option<Bytes> {
        self.read(|tx| {
            let mut statement = tx.prepare_cached("SELECT record FROM pages WHERE at = ?1").map_err(sql)?;
            statement.query_row([key(at)], |row| row.get::<_, Vec<u8>>(0)).optional().map_err(sql)
        })
        .ok()
        .flatten()
        .map(Bytes::from)
    }

    fn put_all(&self, records: &[(Ref, Bytes)]) {
        let kept = self.write(|tx| {
            records.iter().try_for_each(|(at, record)| insert(tx, at, record))?;
            sweep(tx)
        });
        if let Err(error) = kept {
            tracing::debug!(%error, "pages not kept");
        }
    }

    fn put(&self, at: &Ref, record: &Bytes) {
        let sweep_now = self.page_puts.fetch_add(1, Ordering::Relaxed) % SWEEP == SWEEP - 1;
        let kept = self.write(|tx| {
            insert(tx, at, record)?;
            if sweep_now { sweep(tx) } else { Ok(()) }
        });
        if let Err(error) = kept {
            tracing::debug!(%error, "page not kept");
        }
    }
}
