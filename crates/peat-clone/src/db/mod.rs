//! `state.db`: everything a clone derived from the log. Disposable: when it cannot be opened it is built anew, and the
//! next pull fills it again. What must not be lost is in the journal.

mod found;
mod headers;
mod heads;
mod index;
mod observed;
mod open;
mod pages;
mod placed;
mod spent;
mod taken;
mod todo;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use peat_types::{Error, Kind, Result};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

pub(crate) use heads::{Heads, Moment, NewHead, head_seq, heads, position_seq, set_head, set_position, shown_seq};
pub(crate) use index::{
    Applied, LeaseBytes, NewTable, apply_entries, apply_table, below, bytes, claimant, collisions, get, in_pack,
    is_lease, items, known, leases, move_rows, of_hash, twice_claimed, units,
};
pub(crate) use open::{beside, swap_in};
pub(crate) use pages::keep as keep_pages;
pub(crate) use placed::{all_placed, checked, is_placed, not_placed, placed, was_checked};
pub(crate) use todo::{Todo, done as todo_done, is_noted, last as last_todo, note};

/// The connection. One per process; never held across an await.
pub(crate) struct Db {
    conn: Mutex<Connection>,
    path: PathBuf,
    page_puts: AtomicU64,
}

impl Db {
    /// Runs `f` in one read snapshot.
    pub(crate) fn read<T>(&self, f: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        self.transact(TransactionBehavior::Deferred, f)
    }

    /// Runs `f` as one transaction that holds the write lock from its beginning, so that what it reads stays true.
    pub(crate) fn write<T>(&self, f: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        self.transact(TransactionBehavior::Immediate, f)
    }

    /// Moves what the log of the database holds into the database, synced. Gives whether all of it was: somebody may read.
    pub(crate) fn settle_log(&self) -> Result<bool> {
        let conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        conn.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| row.get::<_, i64>(0)).map(|busy| busy == 0).map_err(sql)
    }

    fn transact<T>(&self, kind: TransactionBehavior, f: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let result = conn.transaction_with_behavior(kind).map_err(sql).and_then(|tx| {
            let value = f(&tx)?;
            tx.commit().map_err(sql)?;
            Ok(value)
        });
        result.inspect_err(|e| {
            if e.code() == CORRUPT {
                // The next opening finds the mark and builds a new file.
                let _ = std::fs::write(mark_of(&self.path), b"");
            }
        })
    }
}

const CORRUPT: &str = "state_db_damaged";

fn mark_of(path: &Path) -> PathBuf {
    path.with_extension("bad")
}

/// An error of SQLite in our terms.
pub(crate) fn sql(e: rusqlite::Error) -> Error {
    let (kind, code, message) = match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (Kind::Contended, "state_db_busy", "state.db is in use by another process")
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (Kind::Damaged, CORRUPT, "state.db is damaged"),
        Some(ErrorCode::DiskFull) => (Kind::Offline, "disk_full", "the disk is full: cannot write state.db"),
        Some(ErrorCode::ReadOnly) => (Kind::Denied, "read_only", "state.db cannot be written"),
        _ => (Kind::Internal, "state_db", "state.db does not do what it is asked"),
    };
    let error = Error::new(kind, message).with_code(code);
    match code {
        CORRUPT => error.with_hint("run the command again: state.db is rebuilt from the ledger, nothing is lost"),
        "disk_full" => error.with_hint("free some space, then run the command again: nothing was lost"),
        "read_only" => error.with_hint("make the folder of the clone writable or use another one"),
        _ => error,
    }
    .with_source(e)
}

/// A seq as SQLite keeps it. Logs do not reach 2^63 entries.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Back from [`int`].
pub(crate) fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
