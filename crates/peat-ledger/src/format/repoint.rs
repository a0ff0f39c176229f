//! Rows of a table that say where contents lie, changed one by one: what a repair does. (A checkpoint moves whole blocks:
//! see `relocate`.)

use std::collections::BTreeMap;

use peat_types::{Hash, Result};

use super::PageSource;
use super::page::{PageOut, TreeKind};
use super::refs::Value;
use super::row::read_file_value;
use super::tree::{BoxFuture, Node};
use super::varint::{Reader, put_varint};
use crate::model::{Content, ContentRef, Ref};

/// Where contents lay, and where they lie now.
pub(crate) type Places = BTreeMap<(Ref, u32, Hash), ContentRef>;

/// The table at `root` with the rows that `places` names pointing elsewhere, and how many those were. Pages that change
/// go to `out`, the others stay.
///
/// # Errors
/// Whatever `pages` reports.
pub(crate) async fn repoint(
    root: Ref,
    places: &Places,
    pages: &dyn PageSource,
    out: &mut dyn PageOut,
) -> Result<(Ref, u64)> {
    let mut work = Work { places, pages, out, changed: 0 };
    let root = work.tree(Node::root(root)).await?;
    Ok((root, work.changed))
}

struct Work<'a> {
    places: &'a Places,
    pages: &'a dyn PageSource,
    out: &'a mut dyn PageOut,
    changed: u64,
}

impl Work<'_> {
    fn tree(&mut self, node: Node) -> BoxFuture<'_, Ref> {
        Box::pin(async move {
            let mut page = node.load(self.pages, TreeKind::Table).await?;
            let mut changed = false;
            if page.level > 0 {
                for (child, (_, value)) in node.children(&page)?.into_iter().zip(&mut page.rows) {
                    let was = child.at;
                    let is = self.tree(child).await?;
                    changed |= is != was;
                    value.at = Some(is);
                }
            } else {
                for (_, value) in &mut page.rows {
                    let row = read_file_value(value)?;
                    let Content::At(at) = row.content else { continue };
                    if let Some(new) = self.places.get(&(at.block, at.sub, row.hash)) {
                        move_to(value, new)?;
                        changed = true;
                        self.changed += 1;
                    }
                }
            }
            if changed { self.out.page(&page) } else { Ok(node.at) }
        })
    }
}

/// Changes where a row says its content lies, and nothing else of it.
pub(crate) fn move_to(value: &mut Value, new: &ContentRef) -> Result<()> {
    let mut r = Reader::new(&value.rest);
    let mut rest = Vec::with_capacity(value.rest.len() + 4);
    put_varint(&mut rest, r.varint()?);
    rest.extend_from_slice(r.take(32)?);
    r.varint()?;
    put_varint(&mut rest, u64::from(new.sub));
    rest.extend_from_slice(r.rest());
    *value = Value { at: Some(new.block), rest, ..value.clone() };
    Ok(())
}
