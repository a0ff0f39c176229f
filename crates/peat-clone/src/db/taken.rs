//! Taking over what the clone of a ledger knew for the clone of the ledger that goes on from it. Entries, packs and numbers
//! are the same in both, so the rows hold. What was only true of the place that is left does not come along: what was seen
//! there and when, what it cost, and everything after the last entry that both have.

use std::path::{Path, PathBuf};

use peat_ledger::{NsInfo, State};
use peat_types::{Result, Seq};
use rusqlite::{Connection, Transaction};
use serde::{Deserialize, Serialize};

use super::heads::{self, Heads, get_json, set_json};
use super::open::{BUSY, build};
use super::{Db, found, int, last_todo, mark_of, pages, sql};
use crate::tree::Tree;

/// Where it is noted whose tree the rows of `checked` are about.
const TREE: &str = "tree_of";

/// A tree that may be taken over: files that were put into it have notes here, as long as it is elsewhere.
#[derive(Debug, Serialize, Deserialize)]
struct Elsewhere {
    /// Folder of its clone.
    clone: PathBuf,
    /// These notes say nothing but that: after the first, up to the last.
    notes: (i64, i64),
}

impl Db {
    /// Copies what is known here into the new file `fresh`, which is of use once it has been [`Db::hand_over`]ed. What is
    /// written here meanwhile or later is made up for then. Gives whether there is anything.
    pub(crate) fn copy_out(&self, fresh: &Path) -> Result<bool> {
        if !self.can_be_handed_over()? {
            return Ok(false);
        }
        let mut conn = beside(fresh)?;
        build(&mut conn).map_err(sql)?;
        self.with_old(conn, |tx| {
            // Whole tables are copied as they lie, without looking at the rows.
            for table in ["items", "units", "headers", "pages"] {
                tx.execute(&format!("INSERT INTO {table} SELECT * FROM old.{table}"), []).map_err(sql)?;
            }
            Ok(true)
        })
    }

    /// Makes of that copy the index of a clone of `next`, whose entries up to `upto` are this ledger's. `every` notes the file
    /// of every item, for a clone that keeps all contents; else only those that are here.
    ///
    /// Gives whether there was anything that could be taken over: what was seen must be part of what went along.
    pub(crate) fn hand_over(&self, fresh: &Path, next: &NsInfo, upto: Seq, every: bool) -> Result<bool> {
        if !self.is_sound() {
            return Ok(false);
        }
        self.with_old(beside(fresh)?, |tx| {
            let taken = take(tx, next, upto)?;
            if taken {
                note_tree(tx, self.path.parent().unwrap_or(&self.path), every)?;
            }
            Ok(taken)
        })
    }

    /// Does something in one transaction on a database beside this one, which it knows as `old`.
    fn with_old(&self, mut conn: Connection, work: impl FnOnce(&Transaction<'_>) -> Result<bool>) -> Result<bool> {
        conn.execute("ATTACH ?1 AS old", [self.path.to_str()]).map_err(sql)?;
        let tx = conn.transaction().map_err(sql)?;
        let done = work(&tx)?;
        tx.commit().map_err(sql)?;
        conn.execute("DETACH old", []).map_err(sql)?;
        conn.close().map_err(|(_, e)| sql(e))?;
        Ok(done)
    }

    /// Whether anything is known here that could be handed over.
    pub(crate) fn can_be_handed_over(&self) -> Result<bool> {
        Ok(self.is_sound() && self.path.to_str().is_some() && self.heads()?.head.is_some())
    }

    fn is_sound(&self) -> bool {
        !mark_of(&self.path).exists()
    }
}

/// Opens a file that nobody sees before it is whole and synced: a journal would only be written twice.
fn beside(fresh: &Path) -> Result<Connection> {
    let conn = Connection::open(fresh).map_err(sql)?;
    conn.busy_timeout(BUSY).map_err(sql)?;
    conn.pragma_update(None, "journal_mode", "OFF").map_err(sql)?;
    conn.pragma_update(None, "synchronous", "OFF").map_err(sql)?;
    Ok(conn)
}

fn take(tx: &Transaction<'_>, next: &NsInfo, upto: Seq) -> Result<bool> {
    tx.execute(
        "INSERT INTO meta SELECT * FROM old.meta
         WHERE key IN ('head', 'head_seq', 'position', 'position_seq', 'position_is_head')",
        [],
    )
    .map_err(sql)?;
    let Some(heads) = shared(heads::heads(tx)?, next, upto) else { return Ok(false) };
    let later = "SELECT EXISTS(SELECT 1 FROM old.units WHERE seq > ?1)";
    if tx.query_row(later, [int(upto.0)], |row| row.get(0)).map_err(sql)? {
        return Ok(false);
    }
    heads::begin_at(tx, heads.position.as_ref(), heads.head.as_ref())?;
    // Items change with their unit only, so the units say which ones changed since they were copied.
    tx.execute_batch(
        "CREATE TEMP TABLE since AS SELECT unit FROM (SELECT * FROM old.units EXCEPT SELECT * FROM main.units);
         DELETE FROM items WHERE unit IN (SELECT unit FROM since);
         INSERT INTO items(unit, path, fold, rank, row, hash, bytes)
             SELECT unit, path, fold, rank, row, hash, bytes FROM old.items WHERE unit IN (SELECT unit FROM since);
         INSERT OR REPLACE INTO units SELECT * FROM old.units WHERE unit IN (SELECT unit FROM since);
         DROP TABLE since;",
    )
    .map_err(sql)?;
    tx.execute("UPDATE units SET as_of = ?1 WHERE as_of > ?1", [int(upto.0)]).map_err(sql)?;
    tx.execute("INSERT OR IGNORE INTO headers SELECT * FROM old.headers", []).map_err(sql)?;
    tx.execute("DELETE FROM headers WHERE seq > ?1", [int(upto.0)]).map_err(sql)?;
    pages::end_at(tx, upto)?;
    Ok(true)
}

/// The tree is another one, and empty: every file that belongs into it gets a note, which also keeps it from looking as if
/// somebody had removed it.
fn note_tree(tx: &Transaction<'_>, clone: &Path, every: bool) -> Result<()> {
    tx.execute("INSERT INTO checked SELECT * FROM old.checked", []).map_err(sql)?;
    tx.execute("INSERT INTO todo(path, unit, was) SELECT path, unit, was FROM old.todo ORDER BY id", [])
        .map_err(sql)?;
    let first = last_todo(tx)?;
    tx.execute(PLACED, []).map_err(sql)?;
    set_json(tx, TREE, &Elsewhere { clone: clone.to_owned(), notes: (first, last_todo(tx)?) })?;
    if every {
        tx.execute(
            "INSERT OR IGNORE INTO todo(path, unit) SELECT path, min(unit) FROM items
             WHERE NOT (path >= 'leases/' AND path < 'leases0') GROUP BY path ORDER BY path",
            [],
        )
        .map_err(sql)?;
    }
    Ok(())
}

/// Notes every file that was put into the tree.
const PLACED: &str = "INSERT OR IGNORE INTO todo(path, unit)
    SELECT path, min(unit) FROM items JOIN checked USING (path) GROUP BY path ORDER BY path";

impl Db {
    /// Whether the files that are noted here lie in the tree of the clone in `dir`.
    pub(crate) fn has_its_tree_in(&self, dir: &Path) -> Result<bool> {
        Ok(self.read(|tx| get_json::<Elsewhere>(tx, TREE))?.is_some_and(|tree| tree.clone == dir))
    }

    /// Forgets the notes of files that came along with the tree. What was noted for another reason since stays.
    pub(crate) fn has_got_its_tree(&self, tree: &Tree) -> Result<()> {
        self.write(|tx| {
            found::is_here(tx, tree)?;
            let Some(Elsewhere { notes: (first, last), .. }) = get_json(tx, TREE)? else { return Ok(()) };
            let brought = "DELETE FROM todo WHERE id > ?1 AND id <= ?2 AND path IN (SELECT path FROM checked)";
            tx.execute(brought, [first, last]).map_err(sql)?;
            tx.execute("DELETE FROM meta WHERE key = ?1", [TREE]).map(drop).map_err(sql)
        })
    }

    /// Gives the tree away: no file of it is missed from here on. Gives whether that is as durable as the files are.
    pub(crate) fn lose_tree(&self) -> Result<bool> {
        self.write(|tx| {
            tx.execute(PLACED, []).map_err(sql)?;
            tx.execute("DELETE FROM checked", []).map(drop).map_err(sql)
        })?;
        self.settle_log()
    }
}

/// What both ledgers have of what was seen; `None` when nothing was, or something that did not go along.
fn shared(seen: Heads, next: &NsInfo, upto: Seq) -> Option<Heads> {
    let head = seen.head?;
    let renamed = |state: State| State { ledger: next.ledger, ..state };
    let position = seen.position.filter(|state| state.seq <= upto).map(renamed);
    if head.seq <= upto {
        return Some(Heads { position, head: Some(renamed(head)), ..Heads::default() });
    }
    // The end of the ledger was seen: it must be the one that leads here.
    let led = head.root.moved.filter(|moved| moved.upto == upto && next.comes_from(moved.ledger));
    led.map(|_| Heads { head: position.clone(), position, ..Heads::default() })
}
