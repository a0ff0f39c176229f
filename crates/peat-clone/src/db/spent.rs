//! What the last commands cost, for people. Lost with the file, and nobody depends on it.

use peat_types::Result;

use super::Db;
use super::heads::{get_json, set_json};
use crate::Spent;

/// How many commands are remembered.
const KEPT: usize = 20;
const KEY: &str = "spent";

impl Db {
    /// Remembers what a command cost.
    pub(crate) fn note_spent(&self, spent: &Spent) -> Result<()> {
        self.write(|tx| {
            let mut known: Vec<Spent> = get_json(tx, KEY)?.unwrap_or_default();
            known.insert(0, spent.clone());
            known.truncate(KEPT);
            set_json(tx, KEY, &known)
        })
    }

    /// What the last commands cost, newest first.
    pub(crate) fn spent(&self) -> Result<Vec<Spent>> {
        Ok(self.read(|tx| get_json(tx, KEY))?.unwrap_or_default())
    }
}
