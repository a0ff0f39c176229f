//! Copying what a state refers to away from the objects that are to be freed.

use std::collections::{BTreeMap, BTreeSet};

use peat_types::{Error, Hash, Kind, Result, Seq};

use super::PageSource;
use super::page::{PageOut, Row, TreeKind};
use super::row::read_file_value;
use super::tree::{BoxFuture, Node};
use crate::model::{Content, Ref, Segment};

/// What is to be left behind.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    /// Slots below this one.
    pub(crate) cut: Seq,
    /// Packs.
    pub(crate) packs: BTreeSet<Segment>,
    /// Whether contents of packs move, too: then nothing can be skipped. Otherwise what hangs below a page in a pack
    /// that stays lies in packs that stay.
    pub(crate) contents: bool,
}

impl Moves {
    /// Whether what lies there must be copied.
    pub(crate) fn moves(&self, at: &Ref) -> bool {
        match at.segment {
            Segment::Log(seq) => seq < self.cut,
            pack @ Segment::Pack(..) => self.packs.contains(&pack),
        }
    }

    /// Whether something at or below a page may have to be copied.
    pub(crate) fn reaches(&self, at: &Ref) -> bool {
        self.contents || matches!(at.segment, Segment::Log(_)) || self.moves(at)
    }
}

/// Code of the error that says: a block moves, but was not copied.
pub(crate) const NOT_COPIED: &str = "not_copied";

/// The tree at `root`, with every reference that moves replaced by what `moved` says, or by a page written anew to `out`
/// (and added to `moved`). Tables that a directory refers to are treated alike. Pages that nothing changes in stay.
///
/// # Errors
/// `Conflict` with code [`NOT_COPIED`] for a block that moves and is not in `moved`; whatever `pages` reports.
pub(crate) async fn relocate(
    root: Option<Ref>,
    kind: TreeKind,
    moves: &Moves,
    moved: &mut BTreeMap<Ref, Ref>,
    pages: &dyn PageSource,
    out: &mut dyn PageOut,
) -> Result<Option<Ref>> {
    let Some(root) = root else { return Ok(None) };
    Relocation { moves, moved, pages, out }.tree(Node::root(root), kind).await.map(Some)
}

struct Relocation<'a> {
    moves: &'a Moves,
    moved: &'a mut BTreeMap<Ref, Ref>,
    pages: &'a dyn PageSource,
    out: &'a mut dyn PageOut,
}

impl Relocation<'_> {
    fn tree(&mut self, node: Node, kind: TreeKind) -> BoxFuture<'_, Ref> {
        Box::pin(async move {
            let at = node.at;
            if let Some(new) = self.moved.get(&at) {
                return Ok(*new);
            }
            if !self.moves.reaches(&at) {
                return Ok(at);
            }
            let mut page = node.load(self.pages, kind).await?;
            let mut changed = self.moves.moves(&at);
            let children = if page.level > 0 { node.children(&page)? } else { Vec::new() };
            let mut children = children.into_iter();
            for (_, value) in &mut page.rows {
                let Some(was) = value.at else { continue };
                let is = match (children.next(), kind) {
                    (Some(child), _) => self.tree(child, kind).await?,
                    (None, TreeKind::Directory) => self.tree(Node::root(was), TreeKind::Table).await?,
                    (None, _) => self.block(was)?,
                };
                changed |= is != was;
                value.at = Some(is);
            }
            if !changed {
                return Ok(at);
            }
            let new = self.out.page(&page)?;
            self.moved.insert(at, new);
            Ok(new)
        })
    }

    fn block(&self, at: Ref) -> Result<Ref> {
        match self.moved.get(&at) {
            Some(new) => Ok(*new),
            None if !self.moves.moves(&at) => Ok(at),
            None => Err(Error::new(Kind::Conflict, "a block that nobody referred to is referred to again")
                .with_code(NOT_COPIED)),
        }
    }
}

/// Contents of a block: offset, size, hash.
pub(crate) type Contents = Vec<(u32, u64, Hash)>;

/// Blocks that the leaves of a table refer to, and what they hold. Only pages that `reach` are looked into.
pub(crate) async fn blocks(root: Ref, moves: &Moves, pages: &dyn PageSource) -> Result<BTreeMap<Ref, Contents>> {
    let mut out: BTreeMap<Ref, Contents> = BTreeMap::new();
    for (_, value) in reached(Some(root), TreeKind::Table, moves, pages).await? {
        let row = read_file_value(&value)?;
        if let Content::At(at) = &row.content {
            let contents = out.entry(at.block).or_default();
            let content = (at.sub, row.size, row.hash);
            // Equal contents of one transaction share their place.
            if !contents.contains(&content) {
                contents.push(content);
            }
        }
    }
    Ok(out)
}

/// Rows of those leaves of a tree that `reach`.
pub(crate) async fn reached(
    root: Option<Ref>,
    kind: TreeKind,
    moves: &Moves,
    pages: &dyn PageSource,
) -> Result<Vec<Row>> {
    let mut out = Vec::new();
    let mut open: Vec<Node> = root.filter(|at| moves.reaches(at)).map(Node::root).into_iter().collect();
    while let Some(node) = open.pop() {
        let page = node.load(pages, kind).await?;
        if page.level > 0 {
            open.extend(node.children(&page)?.into_iter().rev().filter(|child| moves.reaches(&child.at)));
        } else {
            out.extend(page.rows);
        }
    }
    Ok(out)
}
