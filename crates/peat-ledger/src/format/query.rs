//! What the trees of a state say.

use std::collections::BTreeMap;

use peat_types::{ItemPath, PackId, Result, Seq, Unit};

use super::page::TreeKind;
use super::row::{
    PackRow, checked_parts, part_key, parts_of, rank_prefix, read_file_value, read_pack_key, read_pack_value,
    read_part_value, read_table_key, read_unit_key, read_unit_value, table_key,
};
use super::tree::{diff, lookup, prefixed, range, scan};
use super::{PageSource, damaged};
use crate::model::{Content, FileRow, Part, Rank, State, UnitRow};

/// Rows of `units`, in the order asked for.
///
/// # Errors
/// Whatever `pages` reports, `Damaged`, `Unsupported`.
pub async fn unit_rows(state: &State, units: &[&Unit], pages: &dyn PageSource) -> Result<Vec<Option<UnitRow>>> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_unstable_by_key(|i| units[*i]);
    let keys: Vec<&[u8]> = order.iter().map(|i| units[*i].as_str().as_bytes()).collect();
    let found = lookup(state.root.directory.as_ref(), TreeKind::Directory, &keys, pages).await?;
    let mut out = vec![None; units.len()];
    for (i, value) in order.into_iter().zip(found) {
        out[i] = value.as_ref().map(read_unit_value).transpose()?;
    }
    Ok(out)
}

/// All units, sorted.
///
/// # Errors
/// As [`unit_rows`].
pub async fn directory(state: &State, pages: &dyn PageSource) -> Result<Vec<(Unit, UnitRow)>> {
    let rows = scan(state.root.directory.as_ref(), TreeKind::Directory, pages).await?;
    rows.iter().map(|(key, value)| Ok((read_unit_key(key)?, read_unit_value(value)?))).collect()
}

/// Units that differ between two states, with their rows before and after. Pages both states share are not read.
///
/// # Errors
/// As [`unit_rows`].
pub async fn directory_diff(
    before: &State,
    after: &State,
    pages: &dyn PageSource,
) -> Result<BTreeMap<Unit, (Option<UnitRow>, Option<UnitRow>)>> {
    let roots = (before.root.directory.as_ref(), after.root.directory.as_ref());
    let changes = diff(roots.0, roots.1, TreeKind::Directory, pages).await?;
    let row = |value: Option<_>| value.as_ref().map(read_unit_value).transpose();
    changes.into_iter().map(|(key, (was, is))| Ok((read_unit_key(&key)?, (row(was)?, row(is)?)))).collect()
}

/// All files of a unit: the current ones first, then history, newest first.
///
/// # Errors
/// As [`unit_rows`].
pub async fn table(row: &UnitRow, pages: &dyn PageSource) -> Result<Vec<(Rank, ItemPath, FileRow)>> {
    files(&scan(row.table.as_ref(), TreeKind::Table, pages).await?)
}

/// A file before and after, with its rank.
pub type FileDiff = (Option<(Rank, FileRow)>, Option<(Rank, FileRow)>);

/// Files that differ between two states of a unit: in content, in being executable or in rank, but not in where the
/// content lies. Pages both states share are not read.
///
/// # Errors
/// As [`unit_rows`].
pub async fn table_diff(
    before: Option<&UnitRow>,
    after: Option<&UnitRow>,
    pages: &dyn PageSource,
) -> Result<BTreeMap<ItemPath, FileDiff>> {
    let root = |row: Option<&UnitRow>| row.and_then(|row| row.table);
    let changes = diff(root(before).as_ref(), root(after).as_ref(), TreeKind::Table, pages).await?;
    let mut out: BTreeMap<ItemPath, FileDiff> = BTreeMap::new();
    for (key, (was, is)) in changes {
        // One path lies under two keys when its rank changed. Parts that only moved are no difference.
        let (rank, path, None) = read_table_key(&key)? else { continue };
        let entry = out.entry(path).or_default();
        if let Some(was) = was {
            entry.0 = Some((rank, read_file_value(&was)?));
        }
        if let Some(is) = is {
            entry.1 = Some((rank, read_file_value(&is)?));
        }
    }
    out.retain(|_, (was, is)| match (was, is) {
        (Some((from, was)), Some((to, is))) => from != to || !was.same_file(is),
        _ => true,
    });
    for (path, (was, is)) in &mut out {
        with_parts(was, before, path, pages).await?;
        with_parts(is, after, path, pages).await?;
    }
    Ok(out)
}

/// Reads the rows of the parts of a content, of which some may be what they were.
async fn with_parts(
    of: &mut Option<(Rank, FileRow)>,
    unit: Option<&UnitRow>,
    path: &ItemPath,
    pages: &dyn PageSource,
) -> Result<()> {
    if let (Some((rank, row)), Some(unit)) = (of, unit)
        && matches!(row.content, Content::Parts(_))
    {
        *row = file(unit, *rank, path, pages).await?.ok_or_else(|| damaged("a row went away"))?;
    }
    Ok(())
}

/// The current files of a unit only: as a rule one page.
///
/// # Errors
/// As [`unit_rows`].
pub async fn current(row: &UnitRow, pages: &dyn PageSource) -> Result<Vec<(Rank, ItemPath, FileRow)>> {
    files(&prefixed(row.table.as_ref(), TreeKind::Table, &rank_prefix(Rank::Current), pages).await?)
}

/// One file of a unit.
///
/// # Errors
/// As [`unit_rows`].
pub async fn file(row: &UnitRow, rank: Rank, path: &ItemPath, pages: &dyn PageSource) -> Result<Option<FileRow>> {
    let key = table_key(rank, path);
    // With the rows of its parts, but nothing else: no path holds a control character.
    let to = [&key[..], &[1]].concat();
    let rows = range(row.table.as_ref(), TreeKind::Table, &key, Some(&to), pages).await?;
    Ok(files(&rows)?.pop().map(|(_, _, row)| row))
}

/// The pack table: whether dropped, base, id, row.
///
/// # Errors
/// As [`unit_rows`].
pub async fn packs(state: &State, pages: &dyn PageSource) -> Result<Vec<(bool, Seq, PackId, PackRow)>> {
    let rows = scan(state.root.packs.as_ref(), TreeKind::Packs, pages).await?;
    let read = |(key, value): &(Vec<u8>, super::refs::Value)| {
        let (dropped, base, id) = read_pack_key(key)?;
        Ok((dropped, base, id, read_pack_value(value)?))
    };
    rows.iter().map(read).collect()
}

/// Rows of files from rows of a table, those of parts folded into the row before them.
pub(crate) fn files(rows: &[super::page::Row]) -> Result<Vec<(Rank, ItemPath, FileRow)>> {
    let mut out: Vec<(Rank, ItemPath, FileRow)> = Vec::with_capacity(rows.len());
    let mut rows = rows.iter();
    while let Some((key, value)) = rows.next() {
        let (rank, path, None) = read_table_key(key)? else { return Err(damaged("a part belongs to no content")) };
        let mut row = read_file_value(value)?;
        let mut parts: Vec<Part> = Vec::new();
        for n in 0..parts_of(value)? {
            let part = rows.next().filter(|(found, _)| *found == part_key(key, n));
            parts.push(read_part_value(&part.ok_or_else(|| damaged("a part of a content has no row"))?.1)?);
        }
        if !parts.is_empty() {
            checked_parts(row.size, &parts)?;
            row.content = Content::Parts(parts.into());
        }
        out.push((rank, path, row));
    }
    Ok(out)
}
