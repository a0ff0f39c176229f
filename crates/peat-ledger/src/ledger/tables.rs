//! Whole tables of units, page by page of one level at a time so that neighbours are read together.

use peat_types::{ItemPath, Result, Unit};

use super::Ledger;
use super::pages::Pages;
use crate::format::relocate::Moves;
use crate::format::{self, PageSource};
use crate::model::{Entry, FileRow, PageCache, Rank, Ref, Segment, State, UnitRow};

/// All units of a state, for who takes the state over and will need the tables that were changed with the pages of the
/// directory, too: the entries in which such pages lie are read whole, each once, and are given along.
pub(super) async fn directory_and_entries(
    ledger: &Ledger,
    state: &State,
    cache: &dyn PageCache,
) -> Result<(Vec<(Unit, UnitRow)>, Vec<Entry>)> {
    let mut pages = Pages::new(ledger, cache);
    let mut entries = Vec::new();
    let mut level: Vec<Ref> = state.root.directory.into_iter().collect();
    while !level.is_empty() {
        let slots = pages.away(&level).into_iter().filter_map(|at| match at.segment {
            Segment::Log(seq) => Some(seq),
            Segment::Pack(..) => None,
        });
        for entry in ledger.entries_at(state, &slots.collect()).await? {
            pages.hold(entry.state.seq, entry.body.clone());
            entries.push(entry);
        }
        level = pages.below(&level).await?;
    }
    Ok((format::directory(state, &pages).await?, entries))
}

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
    pub(super) async fn directory(&self, state: &State) -> Result<Vec<(Unit, UnitRow)>> {
        self.prefetch_trees(state.root.directory.into_iter().collect()).await?;
        format::directory(state, self).await
    }

    /// The pages below some of one level, all of which are fetched together.
    async fn below(&self, level: &[Ref]) -> Result<Vec<Ref>> {
        self.prefetch(level).await?;
        let mut below = Vec::new();
        for at in level {
            below.extend(format::page_children(&self.page(at).await?, at)?);
        }
        Ok(below)
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
            level = self.below(&level).await?;
        }
        Ok(())
    }
}
