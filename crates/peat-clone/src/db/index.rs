//! Units and their items, and the one way in which they move: forward, each unit on its own.
//!
//! Every unit knows *as of* which entry its rows are right. An entry is applied to the units that were right just before
//! it (or later, in which case they have it already); others keep what they have until somebody asks for them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use peat_ledger::format::{decode_row, encode_row};
use peat_ledger::{Content, Entry, FileRow, OpRecord, Rank, Segment, UnitRow};
use peat_types::{Error, Hash, ItemPath, Result, Seq, Unit};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::{Db, heads, int, sql, todo, uint};
use crate::tree::Tree;
use crate::{Item, UnitInfo};

/// Lease records are facts, not files: nothing below here is in the tree.
const LEASES: &str = "leases/";

/// Whether a path is not materialised.
pub(crate) fn is_lease(path: &ItemPath) -> bool {
    path.as_str().starts_with(LEASES)
}

/// Contents of lease records by hash, at hand before an index update.
pub(crate) type LeaseBytes = BTreeMap<Hash, Bytes>;

/// What an update changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) items: u64,
    /// The newest note about the tree before it.
    pub(crate) noted: i64,
}

/// A whole unit as read from its table.
pub(crate) struct NewTable {
    pub(crate) unit: Unit,
    /// `None` when the unit does not exist.
    pub(crate) row: Option<UnitRow>,
    /// Its files; `None` when the unit is known to be at this seq already.
    pub(crate) files: Option<Vec<(Rank, ItemPath, FileRow)>>,
}

fn rank_int(rank: Rank) -> Option<i64> {
    match rank {
        Rank::Current => None,
        // All 64 bits, reinterpreted: SQLite never compares them.
        Rank::History(n) => Some(i64::from_ne_bytes(n.to_ne_bytes())),
    }
}

fn int_rank(rank: Option<i64>) -> Rank {
    rank.map_or(Rank::Current, |n| Rank::History(u64::from_ne_bytes(n.to_ne_bytes())))
}

/// The hash by which a content is found again that must not be uploaded twice (A11).
fn pack_hash(row: &FileRow) -> Option<&[u8]> {
    match &row.content {
        Content::At(at) if matches!(at.block.segment, Segment::Pack(..)) => Some(row.hash.as_bytes()),
        Content::Parts(_) => Some(row.hash.as_bytes()),
        _ => None,
    }
}

type Raw = (String, Option<i64>, Vec<u8>);

fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

fn item(unit: &Unit, (path, rank, row): Raw) -> Result<Item> {
    Ok(Item { unit: unit.clone(), path: path.parse()?, rank: int_rank(rank), row: decode_row(&row)? })
}

pub(crate) fn get(tx: &Transaction<'_>, unit: &Unit, path: &ItemPath) -> Result<Option<Item>> {
    let mut statement =
        tx.prepare_cached("SELECT path, rank, row FROM items WHERE unit = ?1 AND path = ?2").map_err(sql)?;
    let found = statement.query_row([unit.as_str(), path.as_str()], raw).optional().map_err(sql)?;
    found.map(|found| item(unit, found)).transpose()
}

/// What is asked for most often.
pub(super) const CLAIMANT: &str = "SELECT path, rank, row, unit FROM items WHERE path = ?1 ORDER BY unit LIMIT 1";

/// The item whose content the tree shows at `path`: of the first unit by name, should two claim it (the doctor tells).
pub(crate) fn claimant(tx: &Transaction<'_>, path: &ItemPath) -> Result<Option<Item>> {
    let mut statement = tx.prepare_cached(CLAIMANT).map_err(sql)?;
    let found = statement
        .query_row([path.as_str()], |row| Ok((raw(row)?, row.get::<_, String>(3)?)))
        .optional()
        .map_err(sql)?;
    found.map(|(found, unit)| item(&unit.parse()?, found)).transpose()
}

fn put(
    tx: &Transaction<'_>,
    unit: &Unit,
    path: &ItemPath,
    rank: Rank,
    row: &FileRow,
    (leases, lazy): (&LeaseBytes, Option<&Tree>),
) -> Result<()> {
    let kept = is_lease(path).then(|| leases.get(&row.hash)).flatten();
    let was = if is_lease(path) { None } else { claimant(tx, path)?.map(|item| item.row.hash) };
    // A clone that fetches when asked misses nothing in an empty place, and a first pull has a hundred thousand of them.
    let as_it_should_be = lazy.is_some_and(|tree| was.is_none() && pack_hash(row).is_some() && !tree.holds(path));
    let mut statement = tx
        .prepare_cached(
            "INSERT OR REPLACE INTO items(unit, path, fold, rank, row, hash, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .map_err(sql)?;
    statement
        .execute(params![
            unit.as_str(),
            path.as_str(),
            Some(path.folded()).filter(|fold| fold != path.as_str()),
            rank_int(rank),
            encode_row(row),
            pack_hash(row),
            kept.map(|bytes| &bytes[..]),
        ])
        .map_err(sql)?;
    if kept.is_some() || as_it_should_be { Ok(()) } else { todo::note(tx, Some(unit), path, was) }
}

fn delete(tx: &Transaction<'_>, unit: &Unit, path: &ItemPath) -> Result<bool> {
    let was = claimant(tx, path)?.map(|item| item.row.hash);
    let mut statement = tx.prepare_cached("DELETE FROM items WHERE unit = ?1 AND path = ?2").map_err(sql)?;
    let gone = statement.execute([unit.as_str(), path.as_str()]).map_err(sql)? > 0;
    if gone && !is_lease(path) {
        todo::note(tx, Some(unit), path, was)?;
    }
    Ok(gone)
}

fn unit_row(tx: &Transaction<'_>, unit: &Unit) -> Result<Option<(Option<Seq>, Seq)>> {
    let mut statement = tx.prepare_cached("SELECT seq, as_of FROM units WHERE unit = ?1").map_err(sql)?;
    statement
        .query_row([unit.as_str()], |row| {
            Ok((row.get::<_, Option<i64>>(0)?.map(|seq| Seq(uint(seq))), Seq(uint(row.get(1)?))))
        })
        .optional()
        .map_err(sql)
}

fn set_unit(tx: &Transaction<'_>, unit: &Unit, seq: Option<Seq>, as_of: Seq) -> Result<()> {
    let mut statement =
        tx.prepare_cached("INSERT OR REPLACE INTO units(unit, seq, as_of) VALUES (?1, ?2, ?3)").map_err(sql)?;
    statement.execute(params![unit.as_str(), seq.map(|seq| int(seq.0)), int(as_of.0)]).map(drop).map_err(sql)
}

/// The unit's last seq, and as of which entry that is known; `None` for the latter when it never was looked at.
pub(crate) fn known(tx: &Transaction<'_>, unit: &Unit) -> Result<(Option<Seq>, Option<Seq>)> {
    let position = heads::position_seq(tx)?;
    Ok(match unit_row(tx, unit)? {
        Some((seq, as_of)) => (seq, Some(as_of).max(position)),
        None => (None, position),
    })
}

/// Applies entries that follow one another. Each unit takes those it does not have yet; a unit that was last right
/// before the first of them is left alone. Moves the position when it was at or behind the first one's predecessor.
pub(crate) fn apply_entries(tx: &Transaction<'_>, entries: &[Entry], leases: &LeaseBytes) -> Result<Applied> {
    let mut applied = Applied::default();
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(applied) };
    let Some(base) = first.state.seq.0.checked_sub(1).map(Seq) else { return Ok(applied) };
    let mut changed = BTreeSet::new();
    // `None` marks a unit that is not followed.
    let mut followed: BTreeMap<&Unit, Option<(Option<Seq>, Seq)>> = BTreeMap::new();
    for entry in entries {
        let seq = entry.state.seq;
        for (head, units) in entry.txs.iter().zip(&entry.ops) {
            for ops in units {
                let state = match followed.get(&ops.unit) {
                    Some(state) => *state,
                    None => match known(tx, &ops.unit)? {
                        (at, Some(as_of)) if as_of >= base => Some((at, as_of)),
                        _ => None,
                    },
                };
                let Some((at, as_of)) = state else {
                    followed.insert(&ops.unit, None);
                    continue;
                };
                if as_of >= seq {
                    followed.insert(&ops.unit, state);
                    continue;
                }
                let expected = head.units.iter().find(|unit| unit.unit == ops.unit).and_then(|unit| unit.expected);
                if expected != at {
                    return Err(Error::damaged(format!(
                        "entry {seq} continues unit {} from {expected:?}, this clone has it at {at:?}",
                        ops.unit
                    ))
                    .with_code("fork")
                    .with_hint("run 'peat doctor'; nothing was changed here"));
                }
                for op in &ops.ops {
                    let done = apply_op(tx, &ops.unit, op, leases)?;
                    if let OpRecord::Put(path, ..) | OpRecord::Delete(path) = op
                        && done
                        && !is_lease(path)
                    {
                        changed.insert((&ops.unit, path));
                    }
                }
                set_unit(tx, &ops.unit, Some(seq), seq)?;
                followed.insert(&ops.unit, Some((Some(seq), seq)));
            }
        }
        super::pages::keep(tx, entry)?;
        super::headers::keep(tx, entry)?;
    }
    super::pages::sweep(tx)?;
    let last = &last.state;
    tx.execute("UPDATE units SET as_of = ?2 WHERE as_of >= ?1 AND as_of < ?2", [int(base.0), int(last.seq.0)])
        .map_err(sql)?;
    if heads::position_seq(tx)?.is_some_and(|position| position >= base) {
        heads::set_position(tx, last)?;
    }
    applied.items = changed.len() as u64;
    Ok(applied)
}

fn apply_op(tx: &Transaction<'_>, unit: &Unit, op: &OpRecord, leases: &LeaseBytes) -> Result<bool> {
    match op {
        OpRecord::Put(path, rank, row) => put(tx, unit, path, *rank, row, (leases, None)).map(|()| true),
        OpRecord::Delete(path) => delete(tx, unit, path),
        OpRecord::Rank(path, rank) => {
            let mut statement =
                tx.prepare_cached("UPDATE items SET rank = ?3 WHERE unit = ?1 AND path = ?2").map_err(sql)?;
            statement.execute(params![unit.as_str(), path.as_str(), rank_int(*rank)]).map(|rows| rows > 0).map_err(sql)
        }
    }
}

/// Sets a unit to what its table says as of entry `as_of`, unless the unit is known to be newer (a late reply, A8).
/// What the table does not hold was removed by a recorded op, for a table is the whole unit. `lazy` is the tree of a clone
/// that fetches contents when they are asked for.
pub(crate) fn apply_table(tx: &Transaction<'_>, new: &NewTable, as_of: Seq, lazy: Option<&Tree>) -> Result<Applied> {
    let mut applied = Applied::default();
    let (at, known_as_of) = known(tx, &new.unit)?;
    if known_as_of.is_some_and(|known| known >= as_of) {
        return Ok(applied);
    }
    let Some(files) = &new.files else {
        set_unit(tx, &new.unit, at, as_of)?;
        return Ok(applied);
    };
    let none = LeaseBytes::new();
    let mut old: BTreeMap<ItemPath, Item> = BTreeMap::new();
    for item in items(tx, &new.unit, "")? {
        old.insert(item.path.clone(), item);
    }
    for (rank, path, row) in files {
        match old.remove(path) {
            Some(known) if known.rank == *rank && known.row == *row => continue,
            // The same content in another place or rank: the file is right as it is.
            Some(known) if known.row.hash == row.hash && known.row.executable == row.executable && !is_lease(path) => {
                move_row(tx, &new.unit, path, *rank, row)?;
            }
            _ => put(tx, &new.unit, path, *rank, row, (&none, lazy))?,
        }
        applied.items += 1;
    }
    for path in old.keys() {
        delete(tx, &new.unit, path)?;
        applied.items += 1;
    }
    set_unit(tx, &new.unit, new.row.as_ref().map(|row| row.last_seq), as_of)?;
    Ok(applied)
}

fn move_row(tx: &Transaction<'_>, unit: &Unit, path: &ItemPath, rank: Rank, row: &FileRow) -> Result<()> {
    let mut statement = tx
        .prepare_cached("UPDATE items SET rank = ?3, row = ?4, hash = ?5 WHERE unit = ?1 AND path = ?2")
        .map_err(sql)?;
    statement
        .execute(params![unit.as_str(), path.as_str(), rank_int(rank), encode_row(row), pack_hash(row)])
        .map(drop)
        .map_err(sql)
}

/// Notes where the contents of a unit lie by now. Items with other contents than `files` says stay as they are.
pub(crate) fn move_rows(tx: &Transaction<'_>, unit: &Unit, files: &[(Rank, ItemPath, FileRow)]) -> Result<()> {
    for (_, path, row) in files {
        if let Some(known) = get(tx, unit, path)?
            && (known.row.hash, known.row.executable) == (row.hash, row.executable)
            && known.row != *row
        {
            move_row(tx, unit, path, known.rank, row)?;
        }
    }
    Ok(())
}

/// Items of a unit whose path starts with `prefix`, by path.
pub(crate) fn items(tx: &Transaction<'_>, unit: &Unit, prefix: &str) -> Result<Vec<Item>> {
    let mut statement = tx
        .prepare_cached(
            "SELECT path, rank, row FROM items WHERE unit = ?1 AND path >= ?2 AND path < ?2 || char(1114111)
             ORDER BY path",
        )
        .map_err(sql)?;
    let rows = statement.query_map([unit.as_str(), prefix], raw).map_err(sql)?;
    rows.map(|row| item(unit, row.map_err(sql)?)).collect()
}

/// Paths of a unit that count as the same name as `path`, hold it as a folder, or would lie below it as a folder.
pub(crate) fn collisions(tx: &Transaction<'_>, unit: &Unit, path: &ItemPath) -> Result<Vec<ItemPath>> {
    let fold = path.folded();
    let mut out = Vec::new();
    let mut same = tx
        .prepare_cached(
            "SELECT path FROM items WHERE unit = ?1 AND fold = ?2
             UNION ALL SELECT path FROM items WHERE unit = ?1 AND path = ?2 AND fold IS NULL",
        )
        .map_err(sql)?;
    let ancestors = fold.match_indices('/').map(|(at, _)| fold.get(..at).unwrap_or_default());
    for name in ancestors.chain([fold.as_str()]) {
        let rows = same.query_map([unit.as_str(), name], |row| row.get::<_, String>(0)).map_err(sql)?;
        for row in rows {
            out.push(row.map_err(sql)?.parse()?);
        }
    }
    let mut below = tx
        .prepare_cached("SELECT path FROM items WHERE unit = ?1 AND fold >= ?2 || '/' AND fold < ?2 || '0'
             UNION ALL SELECT path FROM items WHERE unit = ?1 AND path >= ?2 || '/' AND path < ?2 || '0' AND fold IS NULL
             LIMIT 8")
        .map_err(sql)?;
    let rows = below.query_map([unit.as_str(), &fold], |row| row.get::<_, String>(0)).map_err(sql)?;
    for row in rows {
        out.push(row.map_err(sql)?.parse()?);
    }
    out.retain(|other| other != path);
    Ok(out)
}

/// A row of any unit whose content lies in a pack and has this hash and size.
pub(crate) fn in_pack(tx: &Transaction<'_>, hash: Hash, size: u64) -> Result<Option<FileRow>> {
    let mut statement = tx.prepare_cached("SELECT row FROM items WHERE hash = ?1 LIMIT 1").map_err(sql)?;
    let found = statement.query_row([hash.as_bytes()], |row| row.get::<_, Vec<u8>>(0)).optional().map_err(sql)?;
    Ok(found.map(|row| decode_row(&row)).transpose()?.filter(|row| row.size == size))
}

/// Items of any unit whose content lies in a pack and has this hash.
pub(crate) fn of_hash(tx: &Transaction<'_>, hash: Hash) -> Result<Vec<Item>> {
    let mut statement = tx
        .prepare_cached("SELECT path, rank, row, unit FROM items WHERE hash = ?1 ORDER BY unit, path")
        .map_err(sql)?;
    let rows = statement.query_map([hash.as_bytes()], |row| Ok((raw(row)?, row.get::<_, String>(3)?))).map_err(sql)?;
    rows.map(|row| {
        let (found, unit) = row.map_err(sql)?;
        item(&unit.parse()?, found)
    })
    .collect()
}

/// Content of an item that is not in the tree, if it is here and still the item's.
pub(crate) fn bytes(tx: &Transaction<'_>, unit: &Unit, path: &ItemPath) -> Result<Option<Bytes>> {
    let mut statement = tx.prepare_cached("SELECT bytes FROM items WHERE unit = ?1 AND path = ?2").map_err(sql)?;
    let found = statement
        .query_row([unit.as_str(), path.as_str()], |row| row.get::<_, Option<Vec<u8>>>(0))
        .optional()
        .map_err(sql)?;
    Ok(found.flatten().map(Bytes::from))
}

/// All lease records.
pub(crate) fn leases(tx: &Transaction<'_>) -> Result<Vec<Item>> {
    below(tx, LEASES.trim_end_matches('/'))
}

/// Items of any unit below a folder.
pub(crate) fn below(tx: &Transaction<'_>, folder: &str) -> Result<Vec<Item>> {
    let mut statement = tx
        .prepare_cached(
            "SELECT path, rank, row, unit FROM items WHERE path >= ?1 || '/' AND path < ?1 || '0' ORDER BY unit, path",
        )
        .map_err(sql)?;
    let rows = statement.query_map([folder], |row| Ok((raw(row)?, row.get::<_, String>(3)?))).map_err(sql)?;
    rows.map(|row| {
        let (found, unit) = row.map_err(sql)?;
        item(&unit.parse()?, found)
    })
    .collect()
}

/// Paths of the tree that items of several units claim, and names that count as one within a unit.
pub(crate) fn twice_claimed(tx: &Transaction<'_>) -> Result<Vec<String>> {
    let mut statement = tx
        .prepare_cached(
            "SELECT min(path) FROM items GROUP BY coalesce(fold, path) HAVING count(*) > 1 ORDER BY 1 LIMIT 100",
        )
        .map_err(sql)?;
    let rows = statement.query_map([], |row| row.get(0)).map_err(sql)?;
    rows.map(|row| row.map_err(sql)).collect()
}

/// Units, and up to which entry each is known.
pub(crate) fn units(tx: &Transaction<'_>) -> Result<Vec<UnitInfo>> {
    let position = heads::position_seq(tx)?;
    let mut statement = tx
        .prepare_cached(
            "SELECT unit, seq, as_of, (SELECT count(*) FROM items WHERE items.unit = units.unit)
             FROM units WHERE seq IS NOT NULL ORDER BY unit",
        )
        .map_err(sql)?;
    let rows = statement
        .query_map([], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
        })
        .map_err(sql)?;
    rows.map(|row| {
        let (unit, seq, as_of, items) = row.map_err(sql)?;
        let as_of = Seq(uint(as_of)).max(position.unwrap_or_default());
        Ok(UnitInfo { unit: unit.parse()?, seq: Seq(uint(seq)), as_of, items: uint(items) })
    })
    .collect()
}

impl Db {
    pub(crate) fn units(&self) -> Result<Vec<UnitInfo>> {
        self.read(units)
    }

    /// The entry that changed each known unit last.
    pub(crate) fn unit_seqs(&self) -> Result<BTreeMap<Unit, Seq>> {
        self.read(|tx| {
            let mut statement = tx.prepare_cached("SELECT unit, seq FROM units WHERE seq IS NOT NULL").map_err(sql)?;
            let rows =
                statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))).map_err(sql)?;
            rows.map(|row| {
                let (unit, seq) = row.map_err(sql)?;
                Ok((unit.parse()?, Seq(uint(seq))))
            })
            .collect()
        })
    }

    /// Keeps the content of an item that is not in the tree, if the item still has it.
    pub(crate) fn keep_bytes(&self, item: &Item, bytes: &Bytes) -> Result<()> {
        self.write(|tx| {
            if get(tx, &item.unit, &item.path)?.is_some_and(|now| now.row.hash == item.row.hash) {
                tx.execute(
                    "UPDATE items SET bytes = ?3 WHERE unit = ?1 AND path = ?2",
                    params![item.unit.as_str(), item.path.as_str(), &bytes[..]],
                )
                .map_err(sql)?;
            }
            Ok(())
        })
    }
}
