//! Committing: create the next slot; whatever the reply, only the stored entry tells what happened.
//!
//! `slot` creates one slot, `base` moves the base over what others committed, `queue` is about the writers of this
//! process, `line` about the other processes of this clone, `help` about all others who wait.

mod base;
mod help;
mod line;
mod queue;
mod slot;

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use peat_objects::Listed;
use peat_types::{EntryId, Error, Kind, Mutation, PackId, Result, Seq, Unit, number};
use tracing::Span;

use self::help::{Load, Look};
use self::slot::Slot;
use super::local::Seat;
use super::neighbours::Held;
use super::pages::Pages;
use super::read::Stop;
use super::{Commit, Dead, Ledger, Together, busy, upload};
use crate::format::{self, Section, Writer};
use crate::model::{Draft, Entry, PageCache, State};

/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Full jitter starts here and doubles.
const PAUSE: Duration = Duration::from_millis(20);

/// Code of a store that is not there at all: nothing that was asked of it was done.
const STORE_MISSING: &str = "store_missing";

pub(super) struct Attempt<'a> {
    ledger: &'a Ledger,
    draft: &'a Draft,
    pages: Pages<'a>,
    /// What the next entry is built upon.
    base: State,
    /// When the base was known to be the head.
    read_at: Duration,
    give_up: Duration,
    /// Entries since the caller's state.
    passed: Vec<Entry>,
    /// The slot after the entry the section was planned on.
    planned_for: Seq,
    /// Key under which the section may be staged: then anybody may commit it.
    staged: Option<String>,
    /// The place among the writers of this process; one of them may commit it, too.
    seat: Option<Seat>,
    /// The turn among the processes of this clone.
    turn: Option<Held>,
    /// Whether the section was left to them; one of them may commit it, too.
    left: bool,
    /// Whether strangers were met.
    crowded: bool,
    /// Others want the same unit. Whoever waits to be carried then only loses it to the next who comes.
    pressing: bool,
    /// Slots that were tried to be created.
    tried: u32,
}

impl<'a> Attempt<'a> {
    pub(super) async fn new(
        ledger: &'a Ledger,
        state: &State,
        read_at: Duration,
        draft: &'a Draft,
        cache: &'a dyn PageCache,
        patience_ms: u64,
    ) -> Result<Self> {
        let give_up = ledger.env.monotonic() + Duration::from_millis(patience_ms);
        let pages = Pages::new(ledger, cache);
        let base = if state.is_whole() { state.clone() } else { ledger.whole(state).await? };
        let planned_for = base.seq.next();
        let pressing = ledger.busy.is_contested(&ledger.env, draft.units.iter().map(|unit| &unit.unit));
        Ok(Self {
            ledger,
            draft,
            pages,
            base,
            read_at,
            give_up,
            passed: Vec::new(),
            planned_for,
            staged: None,
            seat: None,
            turn: None,
            left: false,
            crowded: false,
            pressing,
            tried: 0,
        })
    }

    pub(super) async fn run(mut self) -> Result<Commit> {
        // Planning against a table that moved could only say so less clearly.
        if let Some(why) = self.moved().await? {
            return Ok(self.lost(why));
        }
        let env = &self.ledger.env;
        let params = &self.ledger.info.params;
        let mut pack_id = || PackId::random(env);
        let section = format::plan(self.draft, &self.base, params, &self.pages, &mut pack_id).await?;
        if let Some(error) = self.upload(&section).await? {
            return Ok(Commit::Refused { passed: self.passed, error });
        }
        let outcome = Box::pin(self.compete(&section)).await;
        Span::current().record("peat.attempts", number(self.tried));
        self.pass_on(&outcome);
        if let Some(seat) = &self.seat {
            seat.leave();
        }
        match outcome {
            // What was staged or taken along may be committed by others, whatever was refused here.
            Ok(Commit::Refused { passed, error }) if self.is_out() => Ok(Commit::Unknown { passed, error }),
            Err(error) if self.is_out() && matches!(error.kind(), Kind::Invalid | Kind::Conflict) => {
                Ok(Commit::Unknown { passed: self.passed, error })
            }
            Ok(settled @ (Commit::Committed { .. } | Commit::Lost { .. })) => {
                self.unstage().await;
                Ok(settled)
            }
            other => other,
        }
    }

    /// Whether somebody else has the section and may still commit it.
    fn is_out(&self) -> bool {
        self.staged.is_some() || self.left || self.seat.as_ref().is_some_and(Seat::is_aboard)
    }

    /// Tries slot after slot until one holds the section, alone or along with others.
    async fn compete(&mut self, own: &Section) -> Result<Commit> {
        let env = self.ledger.env.clone();
        if let Some(over) = self.turn(own).await? {
            return Ok(over);
        }
        let mut peers = Vec::new();
        let mut losses = 0;
        let mut contended = self.comes_into_a_crowd();
        if contended {
            let mut look = self.look().await?;
            if let Look::Peers(found) = &look
                && !self.goes_on(found.len())
            {
                if let Some(over) = self.dead(own, losses).await? {
                    return Ok(over);
                }
                self.stage(own).await;
                look = self.wait(1).await?;
            }
            match look {
                Look::Over(outcome) => return Ok(outcome),
                Look::Peers(found) => peers = found,
            }
        }
        loop {
            self.ledger.may_write(&self.base)?;
            if let Some(over) = self.dead(own, losses).await? {
                return Ok(over);
            }
            let (entry, body, load) = self.build(own, &peers).await?;
            self.tried += 1;
            let slot = Box::pin(self.slot(&entry, &body)).await?;
            let helps = load.helps;
            if matches!(slot, Slot::Other(..) | Slot::Void | Slot::Refused(_)) {
                load.aboard.ashore();
            }
            match slot {
                Slot::Mine(entry) => {
                    if contended || helps || losses > 0 {
                        self.ledger.busy.contended(&env);
                        self.crowded = true;
                    }
                    return self.committed(entry).await;
                }
                Slot::Other(entry, meta) => {
                    losses += 1;
                    // An entry that was merely unknown here is no contention: the next slot is probably free.
                    contended |= losses > 1 || busy::young(&meta);
                    if let Some(outcome) = self.absorb(vec![*entry]).await? {
                        return Ok(outcome);
                    }
                    if let Some(over) = self.dead(own, losses).await? {
                        return Ok(over);
                    }
                    if env.monotonic() >= self.give_up {
                        let error = Error::new(Kind::Contended, format!("{losses} other entries came first"));
                        return Ok(Commit::Unknown { passed: std::mem::take(&mut self.passed), error });
                    }
                    peers = Vec::new();
                    if self.ledger.together == Together::Alone {
                        if let Some(over) = self.retry(losses).await? {
                            return Ok(over);
                        }
                    } else if contended {
                        self.stage(own).await;
                        match self.wait(losses).await? {
                            Look::Over(outcome) => return Ok(outcome),
                            Look::Peers(found) => peers = found,
                        }
                    }
                }
                Slot::Void => return Ok(void()),
                Slot::Unknown(error) => {
                    return Ok(Commit::Unknown { passed: std::mem::take(&mut self.passed), error });
                }
                Slot::Refused(error) => {
                    return Ok(Commit::Refused { passed: std::mem::take(&mut self.passed), error });
                }
            }
        }
    }

    /// R1, R2 and R3 of the own section on the base.
    async fn dead(&mut self, own: &Section, losses: u32) -> Result<Option<Commit>> {
        if losses > 0 && self.ledger.env.mutated(Mutation::NoPrecond) {
            return Ok(None);
        }
        let why = self.check(own).await?;
        if let Some(Dead::Moved(unit)) = &why {
            self.ledger.busy.contested(&self.ledger.env, unit);
        }
        Ok(why.map(|why| Commit::Lost { passed: std::mem::take(&mut self.passed), why }))
    }

    /// R1, R2 and R3 of any section on the base.
    async fn check(&self, section: &Section) -> Result<Option<Dead>> {
        let why = format::check(section, &self.base, &self.pages).await?;
        let env = &self.ledger.env;
        Ok(why.filter(|why| match why {
            Dead::Moved(_) => true,
            Dead::Horizon => !env.mutated(Mutation::NoHorizon),
            Dead::Gone if section.head.ext_log.is_some_and(|low| low < self.base.root.minlog) => {
                !env.mutated(Mutation::NoTable) && !env.mutated(Mutation::NoExt)
            }
            Dead::Gone => !env.mutated(Mutation::NoTable),
        }))
    }

    /// The next entry around the own section, what waits in this process, and whatever of `peers` can be carried.
    async fn build(&self, own: &Section, peers: &[Listed]) -> Result<(Entry, Bytes, Load)> {
        let mut load = self.load(own);
        self.take_along(&mut load).await;
        self.carry(&mut load, peers).await;
        match self.entry_of(&load.sections).await {
            Ok((entry, body)) => Ok((entry, body, load)),
            // Whatever is wrong with what is others' is no reason to fail.
            Err(_) if load.sections.len() > 1 => {
                load.aboard.ashore();
                let load = self.load(own);
                let (entry, body) = self.entry_of(&load.sections).await?;
                Ok((entry, body, load))
            }
            Err(error) => Err(error),
        }
    }

    async fn entry_of(&self, sections: &[Section]) -> Result<(Entry, Bytes)> {
        let (ledger, env) = (self.ledger, &self.ledger.env);
        let writer = Writer { clone: ledger.clone, instance: ledger.instance, time: env.now() };
        let entry = EntryId::random(env);
        let (body, _) =
            format::build_entry(&self.base, sections, entry, writer, &ledger.info.params, &self.pages).await?;
        // Nothing goes out that this version could not read back.
        let own = format::decode_entry(self.base.seq.next(), &body)?;
        Ok((own, body))
    }

    fn lost(self, why: Dead) -> Commit {
        Commit::Lost { passed: self.passed, why }
    }

    async fn moved(&self) -> Result<Option<Dead>> {
        let units: Vec<&Unit> = self.draft.units.iter().map(|planned| &planned.unit).collect();
        let rows = format::unit_rows(&self.base, &units, &self.pages).await?;
        let moved = self
            .draft
            .units
            .iter()
            .zip(rows)
            .find(|(planned, row)| row.as_ref().map(|row| row.last_seq) != planned.expected);
        Ok(moved.map(|(planned, _)| Dead::Moved(planned.unit.clone())))
    }

    /// Contents first (A5). Nothing was committed yet, so a failure is simply an error. `Some` when the store refuses.
    async fn upload(&self, section: &Section) -> Result<Option<Error>> {
        let packs = section.packs.iter().map(|(pack, body)| upload::put(self.ledger, pack, body, self.give_up));
        match stream::iter(packs).buffer_unordered(upload::PARALLEL).boxed().try_collect::<()>().await {
            Err(error) if error.kind() == Kind::Denied || error.code() == STORE_MISSING => Ok(Some(error)),
            done => done.map(|()| None),
        }
    }

    /// How long to wait before asking once more; `None` when that cannot help in time.
    fn pause(&self, error: &Error, tries: u32) -> Option<Duration> {
        self.ledger.pause_for(error, tries, self.give_up)
    }

    /// The slot after the base holds the transaction; the entry becomes the outcome if the slot is valid.
    async fn committed(&mut self, entry: Box<Entry>) -> Result<Commit> {
        let valid = match self.ledger.follows(&self.base, &entry).await? {
            Stop::Behind => Ok(false),
            _ => self.valid(entry.state.seq).await,
        };
        match valid {
            Ok(true) => {
                self.ledger.saw(entry.state.seq);
                self.ledger.local.publish(&entry);
                Ok(Commit::Committed { passed: std::mem::take(&mut self.passed), entry })
            }
            Ok(false) => Ok(void()),
            Err(error) if error.kind() == Kind::Offline => {
                Ok(Commit::Unknown { passed: std::mem::take(&mut self.passed), error })
            }
            Err(error) => Err(error),
        }
    }
}

/// The base lies behind the floor: nothing that was read or created on it counts (R6, A12).
fn void() -> Commit {
    Commit::Lost { passed: Vec::new(), why: Dead::Gone }
}

/// Whether an entry holds this attempt.
fn holds(ledger: &Ledger, entry: &Entry, draft: &Draft) -> bool {
    !ledger.env.mutated(Mutation::NoTxid) && entry.txs.iter().any(|tx| tx.tx == draft.tx)
}

impl Ledger {
    /// How long to wait before asking once more; `None` when that cannot help in time.
    pub(super) fn pause_for(&self, error: &Error, tries: u32, give_up: Duration) -> Option<Duration> {
        let env = &self.env;
        let asked = error.retry_after().unwrap_or_default();
        let may_pass =
            error.kind() == Kind::Offline && error.code() != STORE_MISSING && env.monotonic() + asked < give_up;
        may_pass.then(|| asked + env.jitter(pause(tries)))
    }
}

fn pause(tries: u32) -> Duration {
    PAUSE.saturating_mul(2_u32.saturating_pow(tries)).min(PAUSE_MAX)
}
