//! Reading a copy-on-write B+tree. Writing is in `tree_write`.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::pin::Pin;

use peat_types::Result;

use super::page::{Page, Row, TreeKind};
use super::refs::Value;
use super::{PageSource, damaged};
use crate::model::Ref;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Loads a page and checks that it is the one expected: `level` falls by one on every step down, so a walk ends.
pub(crate) async fn load(pages: &dyn PageSource, at: &Ref, kind: TreeKind, level: Option<u8>) -> Result<Page> {
    let record = pages.page(at).await?;
    let page = Page::decode(&record, at)?;
    if page.kind != kind || level.is_some_and(|level| level != page.level) {
        return Err(damaged("a page is not the one its parent means"));
    }
    Ok(page)
}

/// Values of `keys`, which are sorted, in one walk.
pub(crate) async fn lookup(
    root: Option<&Ref>,
    kind: TreeKind,
    keys: &[&[u8]],
    pages: &dyn PageSource,
) -> Result<Vec<Option<Value>>> {
    let mut out = Vec::with_capacity(keys.len());
    match root {
        Some(root) if !keys.is_empty() => walk(*root, kind, None, keys, pages, &mut out).await?,
        _ => out.resize(keys.len(), None),
    }
    Ok(out)
}

fn walk<'a>(
    at: Ref,
    kind: TreeKind,
    level: Option<u8>,
    keys: &'a [&'a [u8]],
    pages: &'a dyn PageSource,
    out: &'a mut Vec<Option<Value>>,
) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        let page = load(pages, &at, kind, level).await?;
        if page.level == 0 {
            for key in keys {
                let found = page.rows.binary_search_by(|(row, _)| row.as_slice().cmp(key));
                out.push(found.ok().map(|i| page.rows[i].1.clone()));
            }
            return Ok(());
        }
        let mut rest = keys;
        while let Some(first) = rest.first() {
            let (child, below) = child_of(&page, first)?;
            let (mine, others) = rest.split_at(rest.partition_point(|key| below.is_none_or(|below| *key < below)));
            walk(child, kind, Some(page.level - 1), mine, pages, out).await?;
            rest = others;
        }
        Ok(())
    })
}

/// The child that holds `key` and the lowest key of the next one.
pub(crate) fn child_of<'a>(page: &'a Page, key: &[u8]) -> Result<(Ref, Option<&'a [u8]>)> {
    let i = page.child(key);
    let child = page.rows.get(i).and_then(|(_, value)| value.at);
    let below = page.rows.get(i + 1).map(|(low, _)| low.as_slice());
    Ok((child.ok_or_else(|| damaged("an inner row refers to nothing"))?, below))
}

/// All rows whose key is at least `from` and, when given, below `to`.
pub(crate) async fn range(
    root: Option<&Ref>,
    kind: TreeKind,
    from: &[u8],
    to: Option<&[u8]>,
    pages: &dyn PageSource,
) -> Result<Vec<Row>> {
    let mut out = Vec::new();
    // A stack instead of recursion: children are pushed last first.
    let mut open: Vec<(Ref, Option<u8>)> = root.map(|at| (*at, None)).into_iter().collect();
    while let Some((at, level)) = open.pop() {
        let page = load(pages, &at, kind, level).await?;
        let end = page.rows.partition_point(|(key, _)| to.is_none_or(|to| key.as_slice() < to));
        if page.level == 0 {
            let start = page.rows.partition_point(|(key, _)| key.as_slice() < from);
            out.extend(page.rows.into_iter().take(end).skip(start));
            continue;
        }
        // The first child also holds what sorts below its separator.
        let rows = page.rows.iter().take(end.max(1)).skip(page.child(from));
        open.extend(rows.rev().filter_map(|(_, value)| Some((value.at?, Some(page.level - 1)))));
    }
    Ok(out)
}

/// All rows whose key starts with `prefix`.
pub(crate) async fn prefixed(
    root: Option<&Ref>,
    kind: TreeKind,
    prefix: &[u8],
    pages: &dyn PageSource,
) -> Result<Vec<Row>> {
    let mut to = prefix.to_vec();
    while to.last() == Some(&u8::MAX) {
        to.pop();
    }
    if let Some(last) = to.last_mut() {
        *last += 1;
    }
    range(root, kind, prefix, Some(to.as_slice()).filter(|to| !to.is_empty()), pages).await
}

/// Every row.
pub(crate) async fn scan(root: Option<&Ref>, kind: TreeKind, pages: &dyn PageSource) -> Result<Vec<Row>> {
    range(root, kind, &[], None, pages).await
}

/// Keys whose values differ between two trees: the value before and after. Pages both share are not read.
pub(crate) async fn diff(
    before: Option<&Ref>,
    after: Option<&Ref>,
    kind: TreeKind,
    pages: &dyn PageSource,
) -> Result<BTreeMap<Vec<u8>, (Option<Value>, Option<Value>)>> {
    let mut open = [Vec::new(), Vec::new()];
    let mut rows: [BTreeMap<Vec<u8>, Value>; 2] = Default::default();
    for (side, root) in [before, after].into_iter().enumerate() {
        if let (Some(root), true) = (root, before != after) {
            open[side].push((*root, load(pages, root, kind, None).await?.level));
        }
    }
    // Both sides go down level by level, so a shared page is met on both before it is read.
    while let Some(level) = open.iter().flatten().map(|(_, level)| *level).max() {
        let refs = |side: usize| open[side].iter().map(|(at, _)| *at).collect::<HashSet<Ref>>();
        let shared: HashSet<Ref> = refs(0).intersection(&refs(1)).copied().collect();
        for side in 0..2 {
            for (at, its_level) in std::mem::take(&mut open[side]) {
                if shared.contains(&at) {
                    continue;
                }
                if its_level < level {
                    open[side].push((at, its_level));
                    continue;
                }
                let page = load(pages, &at, kind, Some(level)).await?;
                if level == 0 {
                    rows[side].extend(page.rows);
                } else {
                    let children = page.rows.iter().filter_map(|(_, value)| value.at);
                    open[side].extend(children.map(|child| (child, level - 1)));
                }
            }
        }
    }
    let [mut old, new] = rows;
    let mut out = BTreeMap::new();
    for (key, value) in new {
        match old.remove(&key) {
            Some(was) if was == value => {}
            was => drop(out.insert(key, (was, Some(value)))),
        }
    }
    out.extend(old.into_iter().map(|(key, was)| (key, (Some(was), None))));
    Ok(out)
}
