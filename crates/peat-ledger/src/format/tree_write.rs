//! Changing a copy-on-write B+tree: new pages for the changed paths, the rest is referred to as before.

use peat_types::Result;

use super::PageSource;
use super::page::{Page, PageOut, Row, TreeKind, costs, shared};
use super::refs::Value;
use super::tree::{BoxFuture, Node};
use crate::model::Ref;

/// One change: the new value of a key, or its end.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Value>,
}

/// Applies `edits`, sorted by key and each key once. New pages go to `sink`; the answer is the new root, or the old one
/// when nothing changed.
pub(crate) async fn apply(
    root: Option<Ref>,
    kind: TreeKind,
    edits: &[Edit],
    pages: &dyn PageSource,
    sink: &mut dyn PageOut,
) -> Result<Option<Ref>> {
    let mut page = match root {
        None => {
            let rows = edits.iter().filter_map(|edit| Some((edit.key.clone(), edit.value.clone()?))).collect();
            Page { kind, level: 0, rows }
        }
        Some(at) => {
            let node = Node::root(at);
            let mut page = node.load(pages, kind).await?;
            if !update(&node, &mut page, edits, pages, sink).await? {
                return Ok(Some(at));
            }
            page
        }
    };
    // The lowest key of the whole tree is the empty one, so that no key ever sorts before its page.
    let mut low = Vec::new();
    loop {
        match page.rows.as_slice() {
            [] => return Ok(None),
            [(_, only)] if page.level > 0 => return Ok(only.at),
            _ => {}
        }
        let level = page.level;
        let mut rows = write_split(page, low, sink)?;
        match (rows.pop(), rows.is_empty()) {
            (Some((_, only)), true) => return Ok(only.at),
            (Some(last), false) => rows.push(last),
            (None, _) => return Ok(None),
        }
        low = Vec::new();
        page = Page { kind, level: level + 1, rows };
    }
}

/// Applies `edits` below `page`, the page of `node`; false when nothing changed. Children that changed are written, `page`
/// is not.
fn update<'a>(
    node: &'a Node,
    page: &'a mut Page,
    edits: &'a [Edit],
    pages: &'a dyn PageSource,
    sink: &'a mut dyn PageOut,
) -> BoxFuture<'a, bool> {
    Box::pin(async move {
        if page.level == 0 {
            return Ok(merge_rows(&mut page.rows, edits));
        }
        let mut children: Vec<Child> = Vec::with_capacity(page.rows.len());
        let mut rest = edits;
        let mut changed = false;
        for (node, (low, value)) in node.children(page)?.into_iter().zip(std::mem::take(&mut page.rows)) {
            let high = node.high.as_ref();
            let (mine, others) = rest.split_at(rest.partition_point(|edit| high.is_none_or(|high| edit.key < *high)));
            rest = others;
            let mut child = Child { node, low, value, open: None };
            if !mine.is_empty() {
                let mut opened = child.node.load(pages, page.kind).await?;
                if update(&child.node, &mut opened, mine, pages, sink).await? {
                    child.open = Some(opened);
                    changed = true;
                }
            }
            children.push(child);
        }
        if changed {
            drop_empty(&mut children);
            merge_small(&mut children, page.kind, page.level, pages).await?;
        }
        for child in children {
            match child.open {
                None => page.rows.push((child.low, child.value)),
                Some(opened) => page.rows.extend(write_split(opened, child.low, sink)?),
            }
        }
        Ok(changed)
    })
}

struct Child {
    node: Node,
    /// Its key in the page above.
    low: Vec<u8>,
    value: Value,
    /// Its page, when it changed and is to be written again.
    open: Option<Page>,
}

impl Child {
    fn size(&self) -> Option<usize> {
        Some(costs(&self.open.as_ref()?.rows).iter().sum())
    }
}

/// Removes children without rows. The next one takes over the lower bound of a first one, because keys between the two
/// would belong to it.
fn drop_empty(children: &mut Vec<Child>) {
    let first = children.first().map(|child| child.low.clone());
    children.retain(|child| child.open.as_ref().is_none_or(|page| !page.rows.is_empty()));
    if let (Some(low), Some(child)) = (first, children.first_mut()) {
        child.low = low;
    }
}

/// Joins a changed child below a quarter of the target with a neighbour. `level` is that of the page above.
async fn merge_small(children: &mut Vec<Child>, kind: TreeKind, level: u8, pages: &dyn PageSource) -> Result<()> {
    let small = kind.target(level.saturating_sub(1)) / 4;
    let mut i = 0;
    while i < children.len() {
        if children.len() == 1 || children[i].size().is_none_or(|size| size >= small) {
            i += 1;
            continue;
        }
        let left = i.saturating_sub(1);
        for child in &mut children[left..left + 2] {
            if child.open.is_none() {
                child.open = Some(child.node.load(pages, kind).await?);
            }
        }
        let right = children.remove(left + 1);
        if let (Some(page), Some(mut moved)) = (children[left].open.as_mut(), right.open) {
            // Above the leaves the lower bound of the right page must survive as the key of its first child.
            if let Some((key, _)) = moved.rows.first_mut().filter(|_| moved.level > 0) {
                *key = right.low;
            }
            page.rows.append(&mut moved.rows);
        }
        i = left;
    }
    Ok(())
}

/// Merges sorted edits into sorted rows; false when that changes nothing.
fn merge_rows(rows: &mut Vec<Row>, edits: &[Edit]) -> bool {
    let mut old = std::mem::take(rows).into_iter().peekable();
    let mut changed = false;
    for edit in edits {
        while let Some(row) = old.next_if(|(key, _)| *key < edit.key) {
            rows.push(row);
        }
        let was = old.next_if(|(key, _)| *key == edit.key).map(|(_, value)| value);
        changed |= was != edit.value;
        rows.extend(edit.value.clone().map(|value| (edit.key.clone(), value)));
    }
    rows.extend(old);
    changed
}

/// Writes a page as one or, above the target, as several; gives the rows for the page above.
fn write_split(page: Page, low: Vec<u8>, sink: &mut dyn PageOut) -> Result<Vec<Row>> {
    let Page { kind, level, rows } = page;
    let mut out: Vec<Row> = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    let mut low = Some(low);
    for rows in split(kind, level, rows) {
        let first = rows.first().map(|(key, _)| key.as_slice()).unwrap_or_default();
        // Between leaves the shortest key that tells them apart is enough; above, separators are exact.
        let low = match (low.take(), &last) {
            (Some(low), _) => low,
            (None, Some(last)) if level == 0 => first[..(shared(last, first) + 1).min(first.len())].to_vec(),
            (None, _) => first.to_vec(),
        };
        last = rows.last().map(|(key, _)| key.clone());
        out.push((low, Value::of_ref(sink.page(&Page { kind, level, rows })?)));
    }
    Ok(out)
}

/// The rows of a page in groups that are to be pages: one, or several of about equal size.
fn split(kind: TreeKind, level: u8, mut rows: Vec<Row>) -> Vec<Vec<Row>> {
    let target = kind.target(level);
    let costs = costs(&rows);
    let total: usize = costs.iter().sum();
    if total <= target {
        return vec![rows];
    }
    let seam = rows.windows(2).position(|pair| level == 0 && kind.parts_at(&pair[0].0, &pair[1].0));
    if let Some(seam) = seam {
        let before: usize = costs[..=seam].iter().sum();
        if before.min(total - before) >= target / 4 {
            let after = rows.split_off(seam + 1);
            return [split(kind, level, rows), split(kind, level, after)].concat();
        }
    }
    // Parts of four fifths leave room, so that the next row does not split them again.
    let parts = (total * 5 / 4).div_ceil(target).max(2);
    let goal = total.div_ceil(parts);
    // An inner page of one child would be a level for nothing.
    let least = if level == 0 { 1 } else { 2 };
    let mut out: Vec<Vec<Row>> = vec![Vec::new()];
    let mut size = 0;
    for (row, cost) in rows.into_iter().zip(costs) {
        if size + cost / 2 > goal && out.last().is_some_and(|part| part.len() >= least) {
            out.push(Vec::new());
            size = 0;
        }
        if let Some(part) = out.last_mut() {
            part.push(row);
        }
        size += cost;
    }
    out
}
