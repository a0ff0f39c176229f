//! Pulling: all of the namespace, or some units at one head.

use std::collections::BTreeSet;
use std::time::Duration;

use peat_ledger::{Entry, Follow, Ledger, Ref, Segment, State, Tables, UnitRow};
use peat_types::{Result, Seq, Unit};

use super::AtHand;
use super::content::LOST;
use crate::db::{self, Applied, Heads, LeaseBytes, Moment, NewHead, NewTable};
use crate::handle::Inner;
use crate::tree::Tree;
use crate::{Hydration, Pulled, Scope};

/// Times a pull starts over because what it read was cleared away meanwhile.
const RETRIES: u32 = 3;
/// Files of one batch of unit tables: what is decoded at once.
const BATCH_FILES: u64 = 20_000;
/// Files of the unit tables whose pages are fetched together: each such round asks every pack of pages, so few rounds make
/// few requests; some 20 MB in memory.
const AHEAD_FILES: u64 = 10 * BATCH_FILES;

impl Inner {
    pub(crate) async fn pull(&self, scope: &Scope) -> Result<Pulled> {
        let mut tries = 0;
        loop {
            let pulled = match scope {
                Scope::All => Box::pin(self.pull_all(tries > 0)).await,
                Scope::Units(units) => Box::pin(self.pull_units(units, tries > 0)).await,
            };
            match pulled {
                // (What a repair put elsewhere is found at once or not at all.)
                Err(error) if Ledger::is_gone(&error) && tries < RETRIES || error.code() == LOST && tries == 0 => {
                    tries += 1;
                    // What was noted before a checkpoint may have been freed since.
                    let noted = match scope {
                        Scope::All => self.db.todo_units()?,
                        Scope::Units(units) => units.clone(),
                    };
                    self.find_places(&noted).await?;
                }
                pulled => return self.watchful(pulled),
            }
        }
    }

    /// Whether the next look must be a LIST: a probe of one slot is enough only for those who looked lately, and a LIST
    /// now and then notices a bucket that was set back. So does one on what was written here: that it stands in the log
    /// does not show that what came before still does.
    pub(crate) fn list_due(&self, heads: &Heads) -> bool {
        heads.mine || self.unlisted_for_long(heads)
    }

    /// Whether the log was last listed so long ago that it may be another one by now.
    pub(crate) fn unlisted_for_long(&self, heads: &Heads) -> bool {
        let params = &self.ledger.info().params;
        let older =
            |moment: Option<Moment>, ms| moment.is_none_or(|moment| moment.age(&self.env) >= Duration::from_millis(ms));
        heads.suspect || older(heads.read, params.fresh_ms) || older(heads.listed, params.relist_ms)
    }

    async fn pull_all(&self, list: bool) -> Result<Pulled> {
        let heads = self.db.heads()?;
        let at = Moment::now(&self.env);
        let from = heads.position_seq();
        let Some(position) = &heads.position else { return self.pull_first(&heads, at).await };
        let list = list || self.list_due(&heads);
        match self.ledger.follow(position, list).await? {
            Follow::Unchanged => {
                self.db.seen(position.seq, at, list)?;
                self.pulled(from, position.seq, Applied::default(), None, &AtHand::default()).await
            }
            Follow::Entries(entries) => {
                let to = entries.last().map_or(position.seq, |entry| entry.state.seq);
                let applied = self.apply(&entries, at, list, false).await?;
                self.pulled(from, to, applied, None, &AtHand::entries(entries)).await
            }
            Follow::Jump(state) => {
                let (applied, read) = self.jump(&state, at, true).await?;
                self.pulled(from, state.seq, applied, None, &AtHand::entries(read)).await
            }
        }
    }

    /// Takes a whole state over for the first time.
    async fn pull_first(&self, heads: &Heads, at: Moment) -> Result<Pulled> {
        let (state, entries) = match &heads.head {
            // A head was seen before: what is there now must follow from it (A8).
            Some(head) => match self.ledger.follow(head, true).await? {
                Follow::Unchanged => (head.clone(), Vec::new()),
                Follow::Entries(entries) => {
                    (entries.last().map_or_else(|| head.clone(), |last| last.state.clone()), entries)
                }
                Follow::Jump(state) => (*state, Vec::new()),
            },
            None => {
                let entry = self.ledger.head().await?;
                (entry.state.clone(), vec![entry])
            }
        };
        let (applied, mut read) = self.jump(&state, at, true).await?;
        read.extend(entries);
        self.pulled(None, state.seq, applied, None, &AtHand::entries(read)).await
    }

    async fn pulled(
        &self,
        from: Option<Seq>,
        to: Seq,
        applied: Applied,
        only: Option<&[Unit]>,
        at_hand: &AtHand,
    ) -> Result<Pulled> {
        self.env.step("pull.facts").await;
        let fetched = self.hydrate(only, at_hand).await.map_err(|e| {
            // It is tried again, and finds that all of this is known.
            self.note_arrived(applied.items, 0);
            e.context("what is in the namespace is known here, but not all contents could be fetched")
        })?;
        if only.is_none() {
            self.db.compared()?;
        }
        let entries = to.0.saturating_sub(from.map_or(to.0, |from| from.0));
        Ok(Pulled { from, to, entries, items: applied.items, restored: fetched.restored, bytes: fetched.bytes })
    }

    /// Takes whole entries that follow one another into the index.
    pub(crate) async fn apply(&self, entries: &[Entry], at: Moment, listed: bool, mine: bool) -> Result<Applied> {
        let Some(last) = entries.last() else { return Ok(Applied::default()) };
        // Of many that an entry holds at once, the first one here took it in for all.
        let known = self.db.read(db::position_seq)?.is_some_and(|position| position >= last.state.seq);
        let leases = if known { LeaseBytes::new() } else { self.lease_bytes(entries).await? };
        self.env.step("apply").await;
        self.db.write(|tx| {
            let noted = db::last_todo(tx)?;
            db::set_head(tx, &NewHead { state: &last.state, at, listed, mine })?;
            if known {
                return Ok(Applied { noted, ..Applied::default() });
            }
            Ok(Applied { noted, ..db::apply_entries(tx, entries, &leases)? })
        })
    }

    /// Contents of the lease records that entries set.
    async fn lease_bytes(&self, entries: &[Entry]) -> Result<LeaseBytes> {
        let rows: Vec<_> = entries
            .iter()
            .flat_map(|entry| entry.ops.iter().flatten())
            .flat_map(|unit| &unit.ops)
            .filter_map(|op| match op {
                peat_ledger::OpRecord::Put(path, _, row) if db::is_lease(path) => Some(row),
                _ => None,
            })
            .collect();
        if rows.is_empty() {
            return Ok(LeaseBytes::new());
        }
        let contents = self.ledger.contents(&rows, entries).await?;
        Ok(rows.iter().map(|row| row.hash).zip(contents).collect())
    }

    /// The tree, when contents are only fetched when they are asked for.
    fn lazy(&self) -> Option<&Tree> {
        (self.options.hydration == Hydration::Lazy).then_some(&self.tree)
    }

    /// Takes a whole state over by comparing directories: units with the same last seq are the same.
    /// Gives the entries that were read for it, whose contents are at hand.
    pub(crate) async fn jump(&self, state: &State, at: Moment, listed: bool) -> Result<(Applied, Vec<Entry>)> {
        let (directory, mut entries) = self.ledger.directory_and_entries(state, &self.db).await?;
        let mut local = self.db.unit_seqs()?;
        let mut changed: Vec<(Unit, Option<UnitRow>)> = Vec::new();
        for (unit, row) in directory {
            if local.remove(&unit) != Some(row.last_seq) {
                changed.push((unit, Some(row)));
            }
        }
        // The directory is the recorded whole: what it does not hold any more was removed by an entry.
        changed.extend(local.into_keys().map(|unit| (unit, None)));
        let slot = |at: &Ref| if let Segment::Log(seq) = at.segment { Some(seq) } else { None };
        let mut slots: BTreeSet<Seq> =
            changed.iter().filter_map(|(_, row)| slot(row.as_ref()?.table.as_ref()?)).collect();
        for entry in &entries {
            slots.remove(&entry.state.seq);
        }
        entries.extend(self.ledger.entries_of(state, &slots).await?);
        self.db.write(|tx| entries.iter().try_for_each(|entry| db::keep_pages(tx, entry)))?;
        let mut applied = Applied::default();
        let mut rest = &changed[..];
        while !rest.is_empty() {
            let (mut ahead, after) = rest.split_at(batch_len(rest, AHEAD_FILES));
            rest = after;
            let fetched = self.ledger.tables_ahead(&present(ahead), &self.db).await?;
            while !ahead.is_empty() {
                let (batch, after) = ahead.split_at(batch_len(ahead, BATCH_FILES));
                ahead = after;
                let tables = new_tables(&fetched, batch).await?;
                self.env.step("pull.batch").await;
                applied.items += self.db.write(|tx| {
                    tables
                        .iter()
                        .try_fold(0, |sum, table| Ok(sum + db::apply_table(tx, table, state.seq, self.lazy())?.items))
                })?;
            }
        }
        self.db.write(|tx| {
            db::set_head(tx, &NewHead { state, at, listed, mine: false })?;
            db::set_position(tx, state)
        })?;
        Ok((applied, entries))
    }

    async fn pull_units(&self, units: &[Unit], list: bool) -> Result<Pulled> {
        let mut units = units.to_vec();
        units.sort_unstable();
        units.dedup();
        let heads = self.db.heads()?;
        let at = Moment::now(&self.env);
        let from = heads.head_seq();
        let list = list || self.list_due(&heads);
        let (state, rows, entries, listed) = match heads.head {
            // A table is read for every unit; nothing is known yet.
            None => {
                let entry = self.ledger.head().await?;
                let mut rows = Vec::new();
                for unit in &units {
                    rows.push((unit.clone(), self.ledger.unit(&entry.state, unit, &self.db).await?));
                }
                (entry.state.clone(), rows, vec![entry], true)
            }
            Some(head) => {
                // Known *as of* is what counts: a unit that did not change for long is not older for that.
                let have = units
                    .iter()
                    .map(|unit| Ok((unit.clone(), self.db.read(|tx| db::known(tx, unit))?.1)))
                    .collect::<Result<Vec<_>>>()?;
                let scoped = self.ledger.scoped(&head, list, &have, &self.db).await?;
                (scoped.state, scoped.units, scoped.entries, list)
            }
        };
        let applied = self.take_units(&state, &units, rows, at, listed).await?;
        self.pulled(from, state.seq, applied, Some(&units), &AtHand::entries(entries)).await
    }

    /// Brings units to a state, all in one step (A1). `rows` are those that may have changed.
    pub(crate) async fn take_units(
        &self,
        state: &State,
        units: &[Unit],
        rows: Vec<(Unit, Option<UnitRow>)>,
        at: Moment,
        listed: bool,
    ) -> Result<Applied> {
        let mut changed = Vec::new();
        for (unit, row) in rows {
            let known = self.db.read(|tx| db::known(tx, &unit))?;
            if known.1.is_none() || known.0 != row.as_ref().map(|row| row.last_seq) {
                changed.push((unit, row));
            }
        }
        let fetched = self.ledger.tables_ahead(&present(&changed), &self.db).await?;
        let mut tables = new_tables(&fetched, &changed).await?;
        let same: BTreeSet<&Unit> = changed.iter().map(|(unit, _)| unit).collect();
        for unit in units.iter().filter(|unit| !same.contains(unit)) {
            tables.push(NewTable { unit: unit.clone(), row: None, files: None });
        }
        self.env.step("pull.units").await;
        self.db.write(|tx| {
            db::set_head(tx, &NewHead { state, at, listed, mine: false })?;
            tables.iter().try_fold(Applied::default(), |sum, table| {
                let items = db::apply_table(tx, table, state.seq, self.lazy())?.items;
                Ok(Applied { items: sum.items + items, ..sum })
            })
        })
    }
}

fn present(units: &[(Unit, Option<UnitRow>)]) -> Vec<&UnitRow> {
    units.iter().filter_map(|(_, row)| row.as_ref()).collect()
}

async fn new_tables(fetched: &Tables<'_>, units: &[(Unit, Option<UnitRow>)]) -> Result<Vec<NewTable>> {
    let mut tables = Vec::with_capacity(units.len());
    for (unit, row) in units {
        let files = match row {
            Some(row) => fetched.files(row).await?,
            None => Vec::new(),
        };
        tables.push(NewTable { unit: unit.clone(), row: row.clone(), files: Some(files) });
    }
    Ok(tables)
}

/// How many of the first units have `most` files together: at least one.
fn batch_len(units: &[(Unit, Option<UnitRow>)], most: u64) -> usize {
    let mut files = 0;
    let fits = units.iter().take_while(|(_, row)| {
        files += row.as_ref().map_or(1, |row| row.files.max(1));
        files <= most
    });
    fits.count().max(1)
}
