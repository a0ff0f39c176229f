//! Which files this clone put into the tree, and which of them were found to be right. What is missing is told by this:
//! that a file is not there says nothing, unless it is known to have been.

use peat_types::{Hash, Result};
use rusqlite::{OptionalExtension, Transaction, params};

use super::sql;
use crate::Item;

/// For a file that was put there and not looked at since: no file has this time.
const UNSEEN: i64 = i64::MIN;

/// Notes that the file of an item is in the tree.
pub(crate) fn placed(tx: &Transaction<'_>, item: &Item) -> Result<()> {
    let mut statement = tx
        .prepare_cached(
            "INSERT INTO checked(path, nanos, hash) VALUES (?1, ?2, ?3)
             ON CONFLICT(path) DO UPDATE SET nanos = excluded.nanos, hash = excluded.hash WHERE hash <> excluded.hash",
        )
        .map_err(sql)?;
    let row = params![item.path.as_str(), UNSEEN, item.row.hash.as_bytes()];
    statement.execute(row).map(drop).map_err(sql)
}

/// Notes that no file of an item is in the tree, because it was removed from there or never put there.
pub(crate) fn not_placed(tx: &Transaction<'_>, path: &str) -> Result<()> {
    let mut statement = tx.prepare_cached("DELETE FROM checked WHERE path = ?1").map_err(sql)?;
    statement.execute([path]).map(drop).map_err(sql)
}

/// Whether the file of a path was put into the tree.
pub(crate) fn is_placed(tx: &Transaction<'_>, path: &str) -> Result<bool> {
    let mut statement = tx.prepare_cached("SELECT 1 FROM checked WHERE path = ?1").map_err(sql)?;
    Ok(statement.query_row([path], |_| Ok(())).optional().map_err(sql)?.is_some())
}

/// Paths whose file was put into the tree, with the hash it had then, in the order of paths.
pub(crate) fn all_placed(tx: &Transaction<'_>, take: &mut dyn FnMut(&str, Hash)) -> Result<()> {
    let mut statement = tx.prepare_cached("SELECT path, hash FROM checked ORDER BY path").map_err(sql)?;
    let mut rows = statement.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let path: String = row.get(0).map_err(sql)?;
        take(&path, Hash::from_bytes(row.get(1).map_err(sql)?));
    }
    Ok(())
}

/// Whether the file of an item was found to be right when it had been written at `nanos`.
pub(crate) fn was_checked(tx: &Transaction<'_>, item: &Item, nanos: i64) -> Result<bool> {
    let mut statement =
        tx.prepare_cached("SELECT 1 FROM checked WHERE path = ?1 AND nanos = ?2 AND hash = ?3").map_err(sql)?;
    let row = params![item.path.as_str(), nanos, item.row.hash.as_bytes()];
    Ok(statement.query_row(row, |_| Ok(())).optional().map_err(sql)?.is_some())
}

/// Notes that the file of an item, written at `nanos`, was found to be right.
pub(crate) fn checked(tx: &Transaction<'_>, item: &Item, nanos: i64) -> Result<()> {
    let mut statement =
        tx.prepare_cached("INSERT OR REPLACE INTO checked(path, nanos, hash) VALUES (?1, ?2, ?3)").map_err(sql)?;
    statement.execute(params![item.path.as_str(), nanos, item.row.hash.as_bytes()]).map(drop).map_err(sql)
}
