//! Where contents lie: a checkpoint or a compaction moves them without changing any unit, so the index does not hear of it.

use peat_types::{Result, Unit};

use crate::db;
use crate::handle::Inner;

/// Units whose tables are read together.
const BATCH: usize = 64;

impl Inner {
    /// Looks up anew where the contents of units lie. What the index says of them stays.
    pub(crate) async fn find_places(&self, units: &[Unit]) -> Result<()> {
        if units.is_empty() {
            return Ok(());
        }
        let head = self.ledger.head().await?.state;
        for batch in units.chunks(BATCH) {
            let mut rows = Vec::new();
            for unit in batch {
                if let Some(row) = self.ledger.unit(&head, unit, &self.db).await? {
                    rows.push((unit, row));
                }
            }
            let tables = self.ledger.tables(&rows.iter().map(|(_, row)| row).collect::<Vec<_>>(), &self.db).await?;
            self.db.write(|tx| {
                rows.iter().zip(&tables).try_for_each(|((unit, _), files)| db::move_rows(tx, unit, files))
            })?;
        }
        Ok(())
    }
}
