//! Headers of entries that were read here whole, so that the log can be looked at without the store.

use bytes::Bytes;
use peat_ledger::format::decode_prefix;
use peat_ledger::{Entry, LogLine};
use peat_types::{Error, Result, Seq};
use rusqlite::{Transaction, params};

use super::{Db, int, sql, uint};

/// Headers kept; the oldest go first. At some 3 KB each that is a few megabytes.
const MAX: u64 = 1_000;
/// Where reading the header of an entry begins.
const START: u64 = 4 << 10;

/// Keeps the header of an entry.
pub(crate) fn keep(tx: &Transaction<'_>, entry: &Entry) -> Result<()> {
    let (seq, size) = (entry.state.seq, entry.body.len() as u64);
    let mut len = START.min(size);
    let header = loop {
        let header = entry.body.slice(..usize::try_from(len).unwrap_or(usize::MAX).min(entry.body.len()));
        match decode_prefix(seq, &header, size)? {
            Ok(_) => break header,
            Err(needed) if needed > len => len = needed,
            Err(_) => return Err(Error::damaged(format!("entry {seq} has no header"))),
        }
    };
    let mut insert =
        tx.prepare_cached("INSERT OR IGNORE INTO headers(seq, size, header) VALUES (?1, ?2, ?3)").map_err(sql)?;
    insert.execute(params![int(seq.0), int(size), &header[..]]).map_err(sql)?;
    let mut sweep = tx.prepare_cached("DELETE FROM headers WHERE seq <= ?1").map_err(sql)?;
    sweep.execute([int(seq.0) - int(MAX)]).map(drop).map_err(sql)
}

impl Db {
    /// The entries whose headers are here, newest first.
    pub(crate) fn headers(&self) -> Result<Vec<LogLine>> {
        self.read(|tx| {
            let mut select =
                tx.prepare_cached("SELECT seq, size, header FROM headers ORDER BY seq DESC").map_err(sql)?;
            let rows = select
                .query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, Vec<u8>>(2)?)))
                .map_err(sql)?;
            rows.map(|row| {
                let (seq, size, header) = row.map_err(sql)?;
                let (seq, size) = (Seq(uint(seq)), uint(size));
                let read = decode_prefix(seq, &Bytes::from(header), size)?;
                let (_, txs, time) =
                    read.map_err(|_| Error::damaged(format!("the kept header of entry {seq} is cut")))?;
                // The store's time of it was not kept: its writer's has to do.
                Ok(LogLine { seq, time, written: time, size, txs })
            })
            .collect()
        })
    }
}
