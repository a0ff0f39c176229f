//! Whole tables of units, page by page of one level at a time so that neighbours are read together.

use peat_types::{ItemPath, Result};

use super::Ledger;
use super::pages::Pages;
use crate::format::{self, PageSource};
use crate::model::{FileRow, PageCache, Rank, Ref, State, UnitRow};

pub(super) async fn tables(
    ledger: &Ledger,
    rows: &[&UnitRow],
    cache: &dyn PageCache,
) -> Result<Vec<Vec<(Rank, ItemPath, FileRow)>>> {
    let pages = Pages::new(ledger, cache);
    pages.prefetch_trees(rows.iter().filter_map(|row| row.table).collect()).await?;
    let mut out = Vec::with_capacity(rows.len());
    for row in rows {
        out.push(format::table(row, &pages).await?);
    }
    Ok(out)
}

impl Pages<'_> {
    /// All units of a state.
    pub(super) async fn directory(&self, state: &State) -> Result<Vec<(peat_types::Unit, UnitRow)>> {
        self.prefetch_trees(state.root.directory.into_iter().collect()).await?;
        format::directory(state, self).await
    }

    /// Fetches whole trees, level by level.
    pub(super) async fn prefetch_trees(&self, mut level: Vec<Ref>) -> Result<()> {
        while !level.is_empty() {
            self.prefetch(&level).await?;
            let mut below = Vec::new();
            for at in &level {
                below.extend(format::page_children(&self.page(at).await?, at)?);
            }
            level = below;
        }
        Ok(())
    }
}
