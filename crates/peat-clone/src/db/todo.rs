//! Which files of the tree may differ from the index. Written in the transaction that changes the index, so a crash
//! between the two is made up for by the next one who looks.

use peat_types::{Hash, ItemPath, Result, Unit};
use rusqlite::{OptionalExtension, Transaction};

use super::{Db, sql};

/// One path to look at.
#[derive(Clone, Debug)]
pub(crate) struct Todo {
    pub(crate) id: i64,
    pub(crate) path: ItemPath,
    pub(crate) unit: Unit,
    /// What the file was to hold before; absent when there was no item. Anything else was put there by somebody.
    pub(crate) was: Option<Hash>,
}

/// Notes that the file at `path`, which `unit` set or removed, must be looked at (again). `was` is what it held until now; an
/// older note knows better.
pub(crate) fn note(tx: &Transaction<'_>, unit: &Unit, path: &ItemPath, was: Option<Hash>) -> Result<()> {
    let mut statement = tx
        .prepare_cached(
            "INSERT OR REPLACE INTO todo(path, unit, was)
             VALUES (?1, ?2, coalesce((SELECT was FROM todo WHERE path = ?1), ?3))",
        )
        .map_err(sql)?;
    let was = was.as_ref().map(Hash::as_bytes);
    statement.execute(rusqlite::params![path.as_str(), unit.as_str(), was]).map(drop).map_err(sql)
}

/// Whether there is a note about a path.
pub(crate) fn is_noted(tx: &Transaction<'_>, path: &ItemPath) -> Result<bool> {
    let mut statement = tx.prepare_cached("SELECT 1 FROM todo WHERE path = ?1").map_err(sql)?;
    Ok(statement.query_row([path.as_str()], |_| Ok(())).optional().map_err(sql)?.is_some())
}

impl Db {
    /// Up to `limit` paths noted after `after`, oldest first; only those of `unit` when given.
    pub(crate) fn todo(&self, unit: Option<&Unit>, after: i64, limit: u32) -> Result<Vec<Todo>> {
        self.read(|tx| {
            let mut statement = tx
                .prepare_cached(
                    "SELECT id, path, unit, was FROM todo WHERE id > ?1 AND (?2 IS NULL OR unit = ?2) ORDER BY id LIMIT ?3",
                )
                .map_err(sql)?;
            let rows = statement
                .query_map(rusqlite::params![after, unit.map(Unit::as_str), limit], |row| {
                    Ok((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?, row.get::<_, Option<[u8; 32]>>(3)?))
                })
                .map_err(sql)?;
            rows.map(|row| {
                let (id, path, unit, was) = row.map_err(sql)?;
                Ok(Todo { id, path: path.parse()?, unit: unit.parse()?, was: was.map(Hash::from_bytes) })
            })
            .collect()
        })
    }

    /// Units of all paths noted.
    pub(crate) fn todo_units(&self) -> Result<Vec<Unit>> {
        self.read(|tx| {
            let mut statement = tx.prepare_cached("SELECT DISTINCT unit FROM todo ORDER BY unit").map_err(sql)?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0)).map_err(sql)?;
            rows.map(|row| row.map_err(sql)?.parse()).collect()
        })
    }

    pub(crate) fn todo_count(&self) -> Result<u64> {
        self.read(|tx| {
            tx.query_row("SELECT count(*) FROM todo", [], |row| row.get::<_, i64>(0)).map(super::uint).map_err(sql)
        })
    }
}

/// The newest note so far: what is noted from now on comes after it.
pub(crate) fn last(tx: &Transaction<'_>) -> Result<i64> {
    // Not `max(id)`: ids are never used again, so this grows even when all notes are gone.
    tx.query_row("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'todo'), 0)", [], |row| row.get(0))
        .map_err(sql)
}

/// Forgets a note, unless it was made again meanwhile.
pub(crate) fn done(tx: &Transaction<'_>, id: i64) -> Result<()> {
    let mut statement = tx.prepare_cached("DELETE FROM todo WHERE id = ?1").map_err(sql)?;
    statement.execute([id]).map(drop).map_err(sql)
}
