//! Which files of the tree may differ from the index. Written in the transaction that changes the index, so a crash
//! between the two is made up for by the next one who looks.

use std::collections::HashMap;

use peat_ledger::format::decode_row;
use peat_ledger::{Ref, Segment};
use peat_types::{Hash, ItemPath, Result, Unit};
use rusqlite::{OptionalExtension, Transaction};

use super::{Db, sql};

/// One path to look at.
#[derive(Clone, Debug)]
pub(crate) struct Todo {
    pub(crate) id: i64,
    pub(crate) path: ItemPath,
    /// Absent for a file that was found in the tree when the index knew nothing.
    pub(crate) unit: Option<Unit>,
    /// What the file was to hold before; absent when there was no item. Anything else was put there by somebody.
    pub(crate) was: Option<Hash>,
}

/// Notes that the file at `path`, which `unit` set or removed, must be looked at (again). `was` is what it held until now; an
/// older note knows better.
pub(crate) fn note(tx: &Transaction<'_>, unit: Option<&Unit>, path: &ItemPath, was: Option<Hash>) -> Result<()> {
    let mut statement = tx
        .prepare_cached(
            "INSERT OR REPLACE INTO todo(path, unit, was)
             VALUES (?1, ?2, coalesce((SELECT was FROM todo WHERE path = ?1), ?3))",
        )
        .map_err(sql)?;
    let was = was.as_ref().map(Hash::as_bytes);
    statement.execute(rusqlite::params![path.as_str(), unit.map(Unit::as_str), was]).map(drop).map_err(sql)
}

/// Whether there is a note about a path.
pub(crate) fn is_noted(tx: &Transaction<'_>, path: &ItemPath) -> Result<bool> {
    let mut statement = tx.prepare_cached("SELECT 1 FROM todo WHERE path = ?1").map_err(sql)?;
    Ok(statement.query_row([path.as_str()], |_| Ok(())).optional().map_err(sql)?.is_some())
}

impl Db {
    /// The notes with these ids, in their order.
    pub(crate) fn todo(&self, ids: &[i64]) -> Result<Vec<Todo>> {
        self.read(|tx| {
            let mut statement = tx.prepare_cached("SELECT id, path, unit, was FROM todo WHERE id = ?1").map_err(sql)?;
            let mut out = Vec::with_capacity(ids.len());
            for id in ids {
                let row = statement
                    .query_row([id], |row| {
                        Ok((
                            row.get(0)?,
                            row.get::<_, String>(1)?,
                            row.get::<_, Option<String>>(2)?,
                            row.get::<_, Option<[u8; 32]>>(3)?,
                        ))
                    })
                    .optional();
                // Another process may have seen to it.
                let Some((id, path, unit, was)) = row.map_err(sql)? else { continue };
                let unit = unit.map(|unit| unit.parse()).transpose()?;
                out.push(Todo { id, path: path.parse()?, unit, was: was.map(Hash::from_bytes) });
            }
            Ok(out)
        })
    }

    /// Ids of all notes made after `after`, of `unit` when given, in the order in which the contents that they are about lie
    /// in the store: whoever goes through many of them in pieces reads every object once. 24 bytes each.
    pub(crate) fn todo_by_place(&self, unit: Option<&Unit>, after: i64) -> Result<Vec<i64>> {
        let mut segments: HashMap<Segment, u32> = HashMap::new();
        let mut notes: Vec<(u32, u64, i64)> = Vec::new();
        self.read(|tx| {
            let mut statement = tx
                .prepare_cached(
                    "SELECT id, (SELECT row FROM items WHERE items.path = todo.path ORDER BY items.unit LIMIT 1)
                     FROM todo WHERE id > ?1 AND (?2 IS NULL OR unit = ?2) ORDER BY id",
                )
                .map_err(sql)?;
            let mut rows = statement.query(rusqlite::params![after, unit.map(Unit::as_str)]).map_err(sql)?;
            while let Some(row) = rows.next().map_err(sql)? {
                let (id, row): (i64, Option<Vec<u8>>) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
                let blocks = row.map(|row| decode_row(&row)).transpose()?.map(|row| row.content.blocks());
                let next = u32::try_from(segments.len()).unwrap_or(u32::MAX).saturating_add(1);
                let place = |at: &Ref| (*segments.entry(at.segment).or_insert(next), at.off);
                let (segment, off) = blocks.iter().flatten().next().map_or((0, 0), place);
                notes.push((segment, off, id));
            }
            Ok(())
        })?;
        notes.sort_unstable();
        Ok(notes.into_iter().map(|(_, _, id)| id).collect())
    }

    /// Units of all paths noted.
    pub(crate) fn todo_units(&self) -> Result<Vec<Unit>> {
        self.read(|tx| {
            let mut statement = tx
                .prepare_cached("SELECT DISTINCT unit FROM todo WHERE unit IS NOT NULL ORDER BY unit")
                .map_err(sql)?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use peat_ledger::format::encode_row;
    use peat_ledger::{Content, ContentRef, FileRow};
    use peat_objects::MemoryStore;
    use peat_types::{Env, PackId, Seq};

    use super::*;
    use crate::{Durability, Hydration, Options, Silent, Together};

    /// Files in the order of their names lie in two packs by turns: each pack is gone through once.
    #[tokio::test]
    async fn notes_come_in_the_order_of_the_store() {
        let (env, dir) = (Env::system([]), tempfile::tempdir().unwrap());
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        let options = Options {
            folder: None,
            store: Arc::new(MemoryStore::new()),
            url: "memory:".to_owned(),
            namespace: "n".parse().unwrap(),
            dir: dir.path().to_owned(),
            repo_id: "r".to_owned(),
            hydration: Hydration::Full,
            durability: Durability::Process,
            together: Together::default(),
            user: "u".to_owned(),
            host: "h".to_owned(),
            reporter: Arc::new(Silent),
        };
        let db = Db::open(&env, &options).await.unwrap();
        let unit: Unit = "model/a".parse().unwrap();
        let packs = [PackId::random(&env), PackId::random(&env)];
        let path = |n: u64| -> ItemPath { format!("data/{n:03}").parse().unwrap() };
        db.write(|tx| {
            for n in 0..100_u64 {
                let segment = Segment::Pack(Seq(1), packs[usize::try_from(n % 2).unwrap()]);
                let block = Ref { segment, off: (100 - n) * 10, len: 10 };
                let content = Content::At(ContentRef { block, sub: 0 });
                let row = FileRow { executable: false, size: 100, hash: Hash::of(&n.to_le_bytes()), content };
                let insert = "INSERT INTO items(unit, path, row) VALUES (?1, ?2, ?3)";
                tx.execute(insert, rusqlite::params![unit.as_str(), path(n).as_str(), encode_row(&row)])
                    .map_err(sql)?;
                note(tx, Some(&unit), &path(n), None)?;
            }
            // A file that went away needs nothing.
            note(tx, Some(&unit), &path(200), None)
        })
        .unwrap();
        let notes = db.todo(&db.todo_by_place(None, 0).unwrap()).unwrap();
        let seen: Vec<ItemPath> = notes.into_iter().map(|todo| todo.path).collect();
        let falling = |rest: u64| (0..100).rev().filter(move |n| n % 2 == rest).map(path);
        let wanted: Vec<ItemPath> = [path(200)].into_iter().chain(falling(0)).chain(falling(1)).collect();
        assert_eq!(seen, wanted);
        assert!(db.todo_by_place(Some(&"model/b".parse().unwrap()), 0).unwrap().is_empty());
    }
}
