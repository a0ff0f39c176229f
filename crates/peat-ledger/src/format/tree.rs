//! Reading a copy-on-write B+tree. Writing is in `tree_write`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::future::Future;
use std::pin::Pin;

use peat_types::{Kind, Result};

use super::page::{Page, Row, TreeKind};
use super::refs::Value;
use super::{PageSource, damaged};
use crate::model::Ref;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A page as its parent means it: where it lies, its level, and the keys that may lie below it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Ref,
    level: Option<u8>,
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
}

impl Node {
    pub(crate) fn root(at: Ref) -> Self {
        Self { at, level: None, low: Vec::new(), high: None }
    }

    /// Loads the page and checks that it is the one meant. Levels fall by one on every step down and the ranges of
    /// children do not overlap, so a walk ends and meets no page twice, whatever the bytes say.
    pub(crate) async fn load(&self, pages: &dyn PageSource, kind: TreeKind) -> Result<Page> {
        let record = pages.page(&self.at).await?;
        let page = Page::decode(&record, &self.at)?;
        // The first key of an inner page only stands for whatever lies below the second.
        let keys = &page.rows[usize::from(page.level > 0)..];
        let below = |(key, _): &Row| key < &self.low;
        let above = |(key, _): &Row| self.high.as_ref().is_some_and(|high| key >= high);
        let outside = keys.first().is_some_and(below) || page.rows.last().is_some_and(above);
        if page.kind != kind || self.level.is_some_and(|level| level != page.level) || outside {
            return Err(damaged("a page is not the one its parent means"));
        }
        Ok(page)
    }

    /// The children of `page`, which is this node's.
    pub(crate) fn children(&self, page: &Page) -> Result<Vec<Self>> {
        let mut out = Vec::with_capacity(page.rows.len());
        for (i, (key, value)) in page.rows.iter().enumerate() {
            out.push(Self {
                at: value.at.ok_or_else(|| damaged("an inner row refers to nothing"))?,
                level: page.level.checked_sub(1),
                low: if i == 0 { self.low.clone() } else { key.clone() },
                high: page.rows.get(i + 1).map(|(next, _)| next.clone()).or_else(|| self.high.clone()),
            });
        }
        Ok(out)
    }
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
        Some(root) if !keys.is_empty() => walk(Node::root(*root), kind, keys, pages, &mut out).await?,
        _ => out.resize(keys.len(), None),
    }
    Ok(out)
}

fn walk<'a>(
    node: Node,
    kind: TreeKind,
    keys: &'a [&'a [u8]],
    pages: &'a dyn PageSource,
    out: &'a mut Vec<Option<Value>>,
) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        let page = node.load(pages, kind).await?;
        if page.level == 0 {
            for key in keys {
                let found = page.rows.binary_search_by(|(row, _)| row.as_slice().cmp(key));
                out.push(found.ok().map(|i| page.rows[i].1.clone()));
            }
            return Ok(());
        }
        let mut rest = keys;
        for child in node.children(&page)? {
            let high = child.high.as_deref();
            let (mine, others) = rest.split_at(rest.partition_point(|key| high.is_none_or(|high| *key < high)));
            if !mine.is_empty() {
                walk(child, kind, mine, pages, out).await?;
            }
            rest = others;
        }
        // Only keys above the range of a broken page can be left; they are not in the tree.
        out.resize(out.len() + rest.len(), None);
        Ok(())
    })
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
    let mut open: Vec<Node> = root.map(|at| Node::root(*at)).into_iter().collect();
    while let Some(node) = open.pop() {
        let page = node.load(pages, kind).await?;
        if page.level > 0 {
            let meets = |child: &Node| {
                child.high.as_deref().is_none_or(|high| high > from) && to.is_none_or(|to| child.low.as_slice() < to)
            };
            open.extend(node.children(&page)?.into_iter().rev().filter(meets));
            continue;
        }
        let inside = |(key, _): &Row| key.as_slice() >= from && to.is_none_or(|to| key.as_slice() < to);
        out.extend(page.rows.into_iter().filter(inside));
    }
    Ok(out)
}

/// A page that cannot be read: which keys lie below it is known, what they say is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) at: Ref,
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
    /// Why it cannot be read.
    pub(crate) why: String,
}

impl Hole {
    /// Whether a key lies below it.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && self.high.as_deref().is_none_or(|high| key < high)
    }
}

/// What can be read of a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Salvaged {
    /// The rows that are there, sorted.
    pub(crate) rows: Vec<Row>,
    /// The pages that are not.
    pub(crate) holes: Vec<Hole>,
    /// The pages that are.
    pub(crate) pages: BTreeSet<Ref>,
}

/// Every row that can be read, and which pages cannot.
///
/// # Errors
/// Whatever `pages` reports, but for pages that are gone or damaged.
pub(crate) async fn salvage(root: Option<&Ref>, kind: TreeKind, pages: &dyn PageSource) -> Result<Salvaged> {
    salvage_all(&[root.copied()], kind, pages).await?.pop().unwrap_or_else(|| Ok(Salvaged::default()))
}

/// The same of several trees at once, so that neighbours are read together; of each for itself what no version before this
/// one could read.
///
/// # Errors
/// Whatever else `pages` reports.
pub(crate) async fn salvage_all(
    roots: &[Option<Ref>],
    kind: TreeKind,
    pages: &dyn PageSource,
) -> Result<Vec<Result<Salvaged>>> {
    let mut out: Vec<Result<Salvaged>> = roots.iter().map(|_| Ok(Salvaged::default())).collect();
    let roots = roots.iter().enumerate().filter_map(|(tree, root)| Some((tree, Node::root((*root)?))));
    let mut level: Vec<(usize, Node)> = roots.collect();
    while !level.is_empty() {
        // What fails is asked for one by one, and named.
        drop(pages.ahead(&level.iter().map(|(_, node)| node.at).collect::<Vec<_>>()).await);
        let mut below = Vec::new();
        for (tree, node) in level {
            let Ok(found) = &mut out[tree] else { continue };
            let read = match node.load(pages, kind).await {
                Ok(page) if page.level > 0 => {
                    node.children(&page).map(|children| below.extend(children.into_iter().map(|child| (tree, child))))
                }
                Ok(page) => {
                    found.rows.extend(page.rows);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match read {
                Ok(()) => drop(found.pages.insert(node.at)),
                Err(error) if matches!(error.kind(), Kind::Damaged | Kind::NotFound) => {
                    let why = error.chain().join(": ");
                    found.holes.push(Hole { at: node.at, low: node.low, high: node.high, why });
                }
                Err(error) if error.kind() == Kind::Unsupported => out[tree] = Err(error),
                Err(error) => return Err(error),
            }
        }
        level = below;
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
    let mut open: [Vec<(Node, u8)>; 2] = Default::default();
    let mut rows: [BTreeMap<Vec<u8>, Value>; 2] = Default::default();
    for (side, root) in [before, after].into_iter().enumerate() {
        if let (Some(root), true) = (root, before != after) {
            let node = Node::root(*root);
            let level = node.load(pages, kind).await?.level;
            open[side].push((node, level));
        }
    }
    // Both sides go down level by level, so a shared page is met on both before it is read.
    while let Some(level) = open.iter().flatten().map(|(_, level)| *level).max() {
        let refs = |side: usize| open[side].iter().map(|(node, _)| node.at).collect::<HashSet<Ref>>();
        let shared: HashSet<Ref> = refs(0).intersection(&refs(1)).copied().collect();
        let here = |(node, its_level): &&(Node, u8)| *its_level == level && !shared.contains(&node.at);
        let wanted: Vec<Ref> = open.iter().flatten().filter(here).map(|(node, _)| node.at).collect();
        pages.ahead(&wanted).await?;
        for side in 0..2 {
            for (node, its_level) in std::mem::take(&mut open[side]) {
                if shared.contains(&node.at) {
                    continue;
                }
                if its_level < level {
                    open[side].push((node, its_level));
                    continue;
                }
                let page = node.load(pages, kind).await?;
                if page.level == 0 {
                    rows[side].extend(page.rows);
                } else {
                    let below = page.level - 1;
                    open[side].extend(node.children(&page)?.into_iter().map(|child| (child, below)));
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
