//! Committing: create the next slot; whatever the reply, only the stored entry tells what happened.

use std::time::Duration;

use bytes::Bytes;
use peat_objects::Created;
use peat_types::{EntryId, Error, Kind, Mutation, PackId, Result, Seq};

use super::pages::Pages;
use super::read::Stop;
use super::{Commit, Dead, Follow, Ledger, key};
use crate::format::{self, Section, Writer};
use crate::model::{Draft, Entry, PageCache, State};

/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Full jitter starts here and doubles.
const PAUSE: Duration = Duration::from_millis(20);
/// Full jitter after the second and every later loss of a slot.
const LOST_PAUSE: Duration = Duration::from_millis(40);
/// Slots read at once after several losses in a row.
const AHEAD: u64 = 8;

/// What became of a slot.
enum Slot {
    /// It holds the transaction; this is the *stored* entry.
    Mine(Box<Entry>),
    /// It holds something else.
    Other(Box<Entry>),
    /// Nothing is known.
    Unknown(Error),
    /// The store refused, and the slot is empty.
    Refused(Error),
}

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
        Ok(Self { ledger, draft, pages, base, read_at, give_up, passed: Vec::new() })
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
        // Seam for the next slice: from the first loss on, the section is staged under `tx/` and what others staged is
        // carried along in `sections`; everything below works on the entry as a whole already.
        let sections = [section];
        let mut losses = 0;
        loop {
            self.may_write()?;
            let [section] = &sections;
            if (losses == 0 || !env.mutated(Mutation::NoPrecond))
                && let Some(why) = format::check(section, &self.base, &self.pages).await?
            {
                return Ok(self.lost(why));
            }
            let writer =
                Writer { clone: self.ledger.clone, instance: self.ledger.instance, time: self.ledger.env.now() };
            let entry = EntryId::random(env);
            let (body, _) = format::build_entry(&self.base, &sections, entry, writer, params, &self.pages).await?;
            // Nothing goes out that this version could not read back.
            let own = format::decode_entry(self.base.seq.next(), &body)?;
            match Box::pin(self.slot(&own, &body)).await? {
                Slot::Mine(entry) => return self.committed(entry).await,
                Slot::Other(entry) => {
                    losses += 1;
                    if let Some(outcome) = self.step_over(*entry, losses).await? {
                        return Ok(outcome);
                    }
                    if env.monotonic() >= self.give_up {
                        let error = Error::new(Kind::Contended, format!("{losses} other entries came first"));
                        return Ok(Commit::Unknown { passed: self.passed, error });
                    }
                    // The head was read a moment ago: as good a chance as anybody's. Pausing longer and longer would
                    // hand every round to those who just arrive.
                    if losses > 1 {
                        env.sleep(env.jitter(LOST_PAUSE)).await;
                    }
                }
                Slot::Unknown(error) => return Ok(Commit::Unknown { passed: self.passed, error }),
                Slot::Refused(error) => return Ok(Commit::Refused { passed: self.passed, error }),
            }
        }
    }

    fn lost(self, why: Dead) -> Commit {
        Commit::Lost { passed: self.passed, why }
    }

    async fn moved(&self) -> Result<Option<Dead>> {
        for planned in &self.draft.units {
            let row = self.pages.unit(&self.base, &planned.unit).await?;
            if row.map(|row| row.last_seq) != planned.expected {
                return Ok(Some(Dead::Moved(planned.unit.clone())));
            }
        }
        Ok(None)
    }

    fn may_write(&self) -> Result<()> {
        if self.base.min_writer > format::VERSION {
            return Err(Error::new(
                Kind::Unsupported,
                format!("{} may only be written by format {} or newer", self.ledger.store, self.base.min_writer),
            )
            .with_code("unsupported_version")
            .with_hint("install a newer version of peat; reading still works"));
        }
        Ok(())
    }

    /// Contents first (A5). Nothing was committed yet, so a failure is simply an error. `Some` when the store refuses.
    async fn upload(&self, section: &Section) -> Result<Option<Error>> {
        let env = &self.ledger.env;
        for (base, id, body) in &section.packs {
            let key = key::pack(*base, *id);
            let mut tries = 0;
            loop {
                env.step("commit.pack").await;
                match self.ledger.store.put(&key, body.clone()).await {
                    Ok(_) => break,
                    Err(error) if error.kind() == Kind::Denied => return Ok(Some(error)),
                    Err(error) if error.kind() != Kind::Offline || env.monotonic() >= self.give_up => {
                        return Err(error);
                    }
                    Err(_) => env.sleep(env.jitter(pause(tries))).await,
                }
                tries += 1;
            }
        }
        Ok(None)
    }

    /// Creates the slot after the base, with the same bytes until it is taken by somebody.
    async fn slot(&self, own: &Entry, body: &Bytes) -> Result<Slot> {
        let ledger = self.ledger;
        let env = &ledger.env;
        let seq = own.state.seq;
        let key = key::log(seq);
        let limit = Duration::from_millis(ledger.info.params.create_timeout_ms);
        let mut tries = 0;
        let mut only_refusals = true;
        loop {
            env.step("commit.create").await;
            let error = match env.timeout(limit, ledger.store.create(&key, body.clone())).await {
                Some(Ok(Created::Created(_))) => return Ok(Slot::Mine(Box::new(own.clone()))),
                Some(Ok(Created::Exists)) => Error::new(Kind::Offline, format!("{key} exists, yet cannot be read")),
                Some(Err(error)) => error,
                None => Error::new(Kind::Offline, format!("no answer while creating {key} in {}", ledger.store)),
            };
            // Any other reply proves nothing: the slot tells (A3).
            env.step("commit.unknown").await;
            match self.read_slot(seq).await {
                Ok(Some(stored)) if !holds(ledger, &stored, self.draft) => return Ok(Slot::Other(Box::new(stored))),
                Ok(Some(_)) if env.mutated(Mutation::AdoptOwn) => return Ok(Slot::Mine(Box::new(own.clone()))),
                Ok(Some(stored)) => return Ok(Slot::Mine(Box::new(stored))),
                Ok(None) => {}
                Err(error) if error.kind() == Kind::Damaged => return Err(error),
                Err(error) => return Ok(Slot::Unknown(error)),
            }
            only_refusals &= error.kind() == Kind::Denied;
            if only_refusals {
                return Ok(Slot::Refused(error));
            }
            // Only what may pass by itself is worth another try.
            if error.kind() != Kind::Offline || env.monotonic() >= self.give_up {
                return Ok(Slot::Unknown(error));
            }
            env.sleep(env.jitter(pause(tries))).await;
            tries += 1;
        }
    }

    async fn read_slot(&self, seq: Seq) -> Result<Option<Entry>> {
        let env = &self.ledger.env;
        let mut tries = 0;
        loop {
            match self.ledger.entry(seq).await {
                Err(error) if error.kind() == Kind::Offline && env.monotonic() < self.give_up => {
                    env.sleep(env.jitter(pause(tries))).await;
                    tries += 1;
                }
                read => return read,
            }
        }
    }

    /// Whether slots at and after `slot` are valid. Within `fresh` of a look at the head they are: nothing that young is
    /// ever removed. Later, the head is asked (R6).
    async fn valid(&self, slot: Seq) -> Result<bool> {
        let age = self.ledger.env.monotonic().saturating_sub(self.read_at);
        if age < Duration::from_millis(self.ledger.info.params.fresh_ms) {
            return Ok(true);
        }
        let head = self.ledger.glance_head(self.ledger.known(self.base.seq)).await?;
        Ok(head.state.root.keep <= slot)
    }

    /// The slot after the base holds the transaction; the entry becomes the outcome if the slot is valid.
    async fn committed(self, entry: Box<Entry>) -> Result<Commit> {
        let valid = match self.ledger.follows(&self.base, &entry).await? {
            Stop::Behind => Ok(false),
            _ => self.valid(entry.state.seq).await,
        };
        match valid {
            Ok(true) => {
                self.ledger.saw(entry.state.seq);
                Ok(Commit::Committed { passed: self.passed, entry })
            }
            Ok(false) => Ok(void()),
            Err(error) if error.kind() == Kind::Offline => Ok(Commit::Unknown { passed: self.passed, error }),
            Err(error) => Err(error),
        }
    }

    /// Moves the base over an entry that came first, and over more after several losses. `Some` when that ends it.
    async fn step_over(&mut self, entry: Entry, losses: u32) -> Result<Option<Commit>> {
        let taken = entry.state.seq;
        let read = async {
            let nothing: Result<Option<Vec<Entry>>> = Ok(None); // names the type
            if self.ledger.follows(&self.base, &entry).await? == Stop::Behind || !self.valid(taken).await? {
                return nothing;
            }
            let mut entries = vec![entry];
            let width = 2_u64.saturating_pow(losses.saturating_sub(1)).min(AHEAD);
            // After the first loss the create itself is the probe.
            if losses > 1 {
                let stop = self.ledger.extend(&self.base, &mut entries, width).await?;
                if stop == Stop::Full && width == AHEAD {
                    match self.ledger.follow_listed(&self.base, entries).await? {
                        Follow::Entries(all) => return Ok(Some(all)),
                        Follow::Unchanged | Follow::Jump(_) => return Ok(None),
                    }
                }
                if stop == Stop::Behind {
                    return Ok(None);
                }
            }
            Ok(Some(entries))
        };
        let entries = match read.await {
            Ok(Some(entries)) => entries,
            Ok(None) => return Ok(Some(void())),
            // The slot went to somebody else, and nothing was sent since.
            Err(error) if matches!(error.kind(), Kind::Offline | Kind::Denied) => {
                let passed = std::mem::take(&mut self.passed);
                return Ok(Some(Commit::Unknown { passed, error }));
            }
            Err(error) => return Err(error),
        };
        for entry in entries {
            if holds(self.ledger, &entry, self.draft) {
                // An earlier process sent it, or a peer carried it along.
                let passed = std::mem::take(&mut self.passed);
                self.ledger.saw(entry.state.seq);
                return Ok(Some(Commit::Committed { passed, entry: Box::new(entry) }));
            }
            self.ledger.saw(entry.state.seq);
            self.pages.hold(entry.state.seq, entry.body.clone());
            self.base = entry.state.clone();
            self.passed.push(entry);
        }
        Ok(None)
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

fn pause(tries: u32) -> Duration {
    PAUSE.saturating_mul(2_u32.saturating_pow(tries)).min(PAUSE_MAX)
}
