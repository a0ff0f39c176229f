//! Opening: under a lock of the clone's folder, so that concurrent first openings wait for one another instead of
//! failing with "database is locked".

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use peat_types::{Env, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

use super::{Db, mark_of, sql};
use crate::files;
use crate::tree::Tree;
use crate::{Durability, Event, Options};

/// Raised whenever the tables change; another number means another program wrote the file, so it is built anew.
const VERSION: i32 = 4;
pub(super) const BUSY: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- seq: NULL when the unit is known not to exist
CREATE TABLE units(unit TEXT PRIMARY KEY, seq INTEGER, as_of INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX units_as_of ON units(as_of);
-- fold: NULL when it is the path; rank: NULL is current; hash: only of contents that lie in packs; bytes: content of what is
-- not in the tree. Rows have ids, so that an index need not repeat unit and path.
CREATE TABLE items(
    id INTEGER PRIMARY KEY, unit TEXT NOT NULL, path TEXT NOT NULL, fold TEXT, rank INTEGER, row BLOB NOT NULL, hash BLOB,
    bytes BLOB, UNIQUE(unit, path));
CREATE INDEX items_fold ON items(unit, fold) WHERE fold IS NOT NULL;
CREATE INDEX items_path ON items(path);
CREATE INDEX items_hash ON items(hash) WHERE hash IS NOT NULL;
-- paths whose file in the tree may not be what the index says; a new id whenever that happens again; was: hash of what it
-- held before; unit: NULL for what was in the tree when this file was built
CREATE TABLE todo(id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, unit TEXT, was BLOB);
-- files that were put into the tree: one that is missing was removed by somebody; and when those had been written that were
-- found to be right, which saves reading them again
CREATE TABLE checked(path TEXT PRIMARY KEY, nanos INTEGER NOT NULL, hash BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX todo_unit ON todo(unit);
CREATE TABLE pages(id INTEGER PRIMARY KEY AUTOINCREMENT, at BLOB NOT NULL UNIQUE, record BLOB NOT NULL);
-- entries that were read whole
CREATE TABLE headers(seq INTEGER PRIMARY KEY, size INTEGER NOT NULL, header BLOB NOT NULL);
CREATE TABLE observed(
    unit TEXT PRIMARY KEY, nonce BLOB NOT NULL, digest BLOB NOT NULL, polls INTEGER NOT NULL,
    first_mono INTEGER NOT NULL, last_mono INTEGER NOT NULL, last_wall INTEGER NOT NULL) WITHOUT ROWID;
";

impl Db {
    /// Opens or builds the file. The caller holds the lock of the folder.
    pub(crate) async fn open(env: &Env, options: &Options) -> Result<Self> {
        let path = options.dir.join("state.db");
        let reporter = &*options.reporter;
        // Half-built files of a process that was killed while building.
        for name in files::names(&options.dir, "")?.iter().filter(|name| name.starts_with("state.new-")) {
            files::remove(&options.dir.join(name))?;
        }
        let mut tries = 0;
        let conn = loop {
            if mark_of(&path).exists() {
                reporter.report(Event::Rebuilt { why: "it was found damaged" });
                break rebuild(env, &path, options.durability)?;
            }
            match connect(&path, options.durability) {
                Ok(conn) => break conn,
                // Another process is closing or checkpointing: that is no reason to throw the file away.
                Err(e) if busy(&e) && tries < 20 => {
                    tries += 1;
                    env.sleep(Duration::from_millis(25) + env.jitter(Duration::from_millis(50))).await;
                }
                Err(e) if busy(&e) || cannot_be_helped(&e) => return Err(sql(e)),
                Err(e) => {
                    reporter.report(Event::Rebuilt { why: &e.to_string() });
                    break rebuild(env, &path, options.durability)?;
                }
            }
        };
        let db = Self { conn: Mutex::new(conn), path, page_puts: AtomicU64::new(0) };
        let tree = Tree::new(options.dir.join("tree"));
        db.meet(&tree)?;
        db.keeps(&tree, options.hydration)?;
        Ok(db)
    }
}

fn busy(e: &rusqlite::Error) -> bool {
    matches!(e.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// A new file would fail for the same reason.
fn cannot_be_helped(e: &rusqlite::Error) -> bool {
    matches!(e.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::PermissionDenied))
}

fn connect(path: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    let mut conn = Connection::open(path)?;
    conn.busy_timeout(BUSY)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = if durability == Durability::Synced { "NORMAL" } else { "OFF" };
    conn.pragma_update(None, "synchronous", synchronous)?;
    // No plan here depends on values; without this, some statements are prepared anew for every one of them.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let version: i32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    match (version, tables) {
        (VERSION, _) => {}
        (0, 0) => build(&mut conn)?,
        _ => return Err(rusqlite::Error::InvalidQuery),
    }
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

/// Makes the tables of an empty file.
pub(super) fn build(conn: &mut Connection) -> rusqlite::Result<()> {
    let tx = conn.transaction()?;
    tx.execute_batch(SCHEMA)?;
    tx.pragma_update(None, "user_version", VERSION)?;
    tx.commit()
}

/// Builds a new file beside and swaps it in.
fn rebuild(env: &Env, path: &Path, durability: Durability) -> Result<Connection> {
    let fresh = beside(env, path);
    connect(&fresh, durability).map_err(sql)?.close().map_err(|(_, e)| sql(e))?;
    swap_in(&fresh, path)?;
    connect(path, durability).map_err(sql)
}

/// Where a file that is to take the place of `path` is built. What is left there by a kill is removed by the next opening.
pub(crate) fn beside(env: &Env, path: &Path) -> PathBuf {
    path.with_extension(format!("new-{:016x}", u64::from_le_bytes(env.random_bytes())))
}

/// Puts a new file into its place. The caller holds the lock of the folder.
pub(crate) fn swap_in(fresh: &Path, path: &Path) -> Result<()> {
    // A log of the old file would be replayed into the new one.
    for extension in ["db-wal", "db-shm"] {
        files::remove(&path.with_extension(extension))?;
    }
    std::fs::rename(fresh, path).map_err(|e| peat_types::Error::io("replace", path, e))?;
    for extension in ["db-wal", "db-shm"] {
        files::remove(&path.with_extension(extension))?;
    }
    files::remove(&mark_of(path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn no_statement_is_prepared_anew_for_another_value() {
        let dir = tempfile::tempdir().unwrap();
        let mut conn = connect(&dir.path().join("state.db"), Durability::Process).unwrap();
        let tx = conn.transaction().unwrap();
        for path in ["data/a", "data/b", "data/c"] {
            let path = path.parse().unwrap();
            super::super::claimant(&tx, &path).unwrap();
        }
        let claimant = tx.prepare_cached(super::super::index::CLAIMANT).unwrap();
        assert!(claimant.get_status(StatementStatus::Run) >= 3);
        assert_eq!(claimant.get_status(StatementStatus::RePrepare), 0);
    }
}
