//! Whole tables of units, page by page of one level at a time so that neighbours are read together.

use peat_types::{ItemPath, Result};

use super::Ledger;
use super::pages::Pages;
use crate::format::relocate::Moves;
use crate::format::{self, PageSource};
use crate::model::{FileRow, PageCache, Rank, Ref, State, UnitRow};

/// Tables of units whose pages were fetched together, to be taken one by one.
pub struct Tables<'a> {
    ledger: &'a Ledger,
    pages: Pages<'a>,
}

impl<'a> Tables<'a> {
    pub(super) async fn ahead(ledger: &'a Ledger, rows: &[&UnitRow], cache: &'a dyn PageCache) -> Result<Self> {
        let pages = Pages::new(ledger, cache);
        let roots: Vec<Ref> = rows.iter().filter_map(|row| row.table).collect();
        let lowest = roots.iter().min().copied();
        ledger.read_from(lowest, pages.prefetch_trees(roots).await).await?;
        Ok(Self { ledger, pages })
    }

    /// All files of a unit, by rank and path.
    ///
    /// # Errors
    /// As [`Ledger::tables`].
    pub async fn files(&self, row: &UnitRow) -> Result<Vec<(Rank, ItemPath, FileRow)>> {
        self.ledger.read_from(row.table, format::table(row, &self.pages).await).await
    }
}

impl Pages<'_> {
    /// All units of a state.
    pub(super) async fn directory(&self, state: &State) -> Result<Vec<(peat_types::Unit, UnitRow)>> {
        self.prefetch_trees(state.root.directory.into_iter().collect()).await?;
        format::directory(state, self).await
    }

    /// Fetches the pages of trees that `moves` reaches, level by level; gives the bytes of those that move.
    pub(super) async fn prefetch_reached(&self, mut level: Vec<Ref>, moves: &Moves) -> Result<u64> {
        let mut bytes = 0;
        level.retain(|at| moves.reaches(at));
        while !level.is_empty() {
            self.prefetch(&level).await?;
            let mut below = Vec::new();
            for at in &level {
                bytes += if moves.moves(at) { u64::from(at.len) } else { 0 };
                below.extend(format::page_children(&self.page(at).await?, at)?);
            }
            below.retain(|at| moves.reaches(at));
            level = below;
        }
        Ok(bytes)
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
