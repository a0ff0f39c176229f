//! Getting a maintenance entry into the log.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_objects::Created;
use peat_types::{ChangeId, EntryId, Error, Kind, Mutation, Result, Seq, TxId};

use crate::format::maintain::{self, Maintenance};
use crate::format::{self, Writer};
use crate::ledger::pages::Pages;
use crate::ledger::read::{LOOKS, Stop};
use crate::ledger::{Ledger, key};
use crate::model::{Entry, Segment, State};

/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Full jitter starts here and doubles.
const PAUSE: Duration = Duration::from_millis(20);
/// Slots read at once after a loss.
const AHEAD: u64 = 4;
/// Bodies of passed entries kept at hand for their pages.
const HELD: usize = 32 << 20;

/// Identity of one attempt at maintenance, and whose it is.
pub(super) struct Mark {
    pub(super) tx: TxId,
    pub(super) change: ChangeId,
    pub(super) author: String,
}

impl Mark {
    pub(super) fn new(ledger: &Ledger, author: &str) -> Self {
        let env = &ledger.env;
        Self { tx: TxId::random(env), change: ChangeId::random(env), author: author.to_owned() }
    }
}

/// What became of it.
pub(super) enum Entered {
    /// It is in the log, and counts. With the head as it was read after it.
    Yes(Box<Entry>, Box<Entry>),
    /// There is nothing to do any more on the newest state, or the plan does not fit it: look again.
    Void,
    /// Others were faster until patience ran out: it is not in the log.
    Late(Error),
    /// The entry may be there or not; both are right.
    Unknown(Error),
}

/// What is to be entered, and how it adapts to what others entered first.
#[async_trait]
pub(super) trait Build: Send {
    /// Takes note of an entry that came first. False when that makes the plan void.
    fn pass(&mut self, entry: &Entry) -> bool;

    /// Whether it belongs to the end of a ledger, so that it may follow the entry by which that moved.
    fn closes(&self) -> bool {
        false
    }

    /// The entry after `base`. `None` when there is nothing to do.
    async fn build(&mut self, base: &State, pages: &Pages<'_>) -> Result<Option<Maintenance>>;
}

pub(super) async fn enter(
    ledger: &Ledger,
    mut base: State,
    mut pages: Pages<'_>,
    build: &mut dyn Build,
    give_up: Duration,
) -> Result<Entered> {
    let env = &ledger.env;
    let mut held = 0;
    let mut losses = 0;
    loop {
        if !build.closes() {
            ledger.may_write(&base)?;
        }
        let what = match build.build(&base, &pages).await {
            Ok(Some(what)) => what,
            Ok(None) => return Ok(Entered::Void),
            // Not the head any more, and already below the floor.
            Err(error) if Ledger::is_gone(&error) => return Ok(Entered::Void),
            Err(error) => return Err(error),
        };
        let writer = Writer { clone: ledger.clone, instance: ledger.instance, time: env.now() };
        let id = EntryId::random(env);
        let (body, _) = maintain::build(&base, what, id, writer, &ledger.info.params, &pages).await?;
        // Nothing goes out that this version could not read back.
        let own = format::decode_entry(base.seq.next(), &body)?;
        let first = match create(ledger, &own, &body, give_up).await? {
            Slot::Mine(entry) => return confirm(ledger, entry).await,
            Slot::Other(entry) => *entry,
            Slot::Void => return Ok(Entered::Void),
            Slot::Unknown(error) => return Ok(Entered::Unknown(error)),
        };
        losses += 1;
        if env.monotonic() >= give_up {
            let error = Error::new(Kind::Contended, format!("others were faster at {losses} entries"));
            return Ok(Entered::Late(error));
        }
        if ledger.follows(&base, &first).await? == Stop::Behind {
            return Ok(Entered::Void);
        }
        let mut entries = vec![first];
        loop {
            let last = entries.last().map_or(&base, |entry| &entry.state).clone();
            let mut more = Vec::new();
            let stop = ledger.extend(&last, &mut more, AHEAD).await?;
            entries.extend(more);
            for entry in entries.drain(..) {
                if !build.pass(&entry) {
                    return Ok(Entered::Void);
                }
                held += entry.body.len();
                if held <= HELD {
                    pages.hold_object(Segment::Log(entry.state.seq), entry.body.clone());
                }
                base = entry.state;
            }
            match stop {
                Stop::Full => {}
                Stop::End => break,
                Stop::Behind => return Ok(Entered::Void),
            }
        }
    }
}

/// R6: a slot below K is void, even for who created it. Only the head tells.
async fn confirm(ledger: &Ledger, entry: Box<Entry>) -> Result<Entered> {
    let seq = entry.state.seq;
    ledger.env.step("maintain.entered").await;
    match listed_head(ledger, seq).await {
        Ok(head) if head.state.root.keep > seq && !ledger.env.mutated(Mutation::NoFloorCheck) => Ok(Entered::Void),
        Ok(head) => Ok(Entered::Yes(entry, Box::new(head))),
        Err(error) if error.kind() == Kind::Offline => Ok(Entered::Unknown(error)),
        Err(error) => Err(error),
    }
}

/// The head as the store lists it. What this process created itself proves nothing here, so a listing that does not show
/// it yet is no answer.
async fn listed_head(ledger: &Ledger, least: Seq) -> Result<Entry> {
    for _ in 0..LOOKS {
        let asked = ledger.env.monotonic();
        let Some(head) = ledger.list_head().await?.filter(|head| *head >= least) else { break };
        // As in `glance_head`: what was listed long ago counts when it is still the newest.
        if let Some(entry) = ledger.entry(head).await?
            && (ledger.is_fresh(asked) || ledger.list_head().await? == Some(head))
        {
            return Ok(entry);
        }
    }
    Err(Error::new(Kind::Offline, format!("the listing of {} does not show entry {least} yet", ledger.store)))
}

enum Slot {
    Mine(Box<Entry>),
    Other(Box<Entry>),
    /// It lies behind the floor.
    Void,
    Unknown(Error),
}

/// Creates a slot, with the same bytes until it is taken by somebody. Any reply but a success proves nothing (A3).
async fn create(ledger: &Ledger, own: &Entry, body: &Bytes, give_up: Duration) -> Result<Slot> {
    let env = &ledger.env;
    let key = key::log(own.state.seq);
    let limit = Duration::from_millis(ledger.info.params.create_timeout_ms);
    let mut tries = 0;
    loop {
        env.step("maintain.create").await;
        let error = match env.timeout(limit, ledger.store.create(&key, body.clone())).await {
            Some(Ok(Created::Created(_))) => return Ok(Slot::Mine(Box::new(own.clone()))),
            Some(Ok(Created::Exists)) => Error::new(Kind::Offline, format!("{key} exists, yet cannot be read")),
            Some(Err(error)) => error,
            None => Error::new(Kind::Offline, format!("no answer while creating {key} in {}", ledger.store)),
        };
        env.step("maintain.unknown").await;
        match ledger.entry(own.state.seq).await {
            // The mark of the entry is its own: nobody else ever sends it.
            Ok(Some(stored)) if stored.state.entry == own.state.entry => return Ok(Slot::Mine(Box::new(stored))),
            Ok(Some(stored)) => return Ok(Slot::Other(Box::new(stored))),
            Ok(None) if error.kind() != Kind::Offline => return Err(error),
            Err(error) if error.kind() != Kind::Offline => match ledger.unless_void(own.state.seq, error).await {
                None => return Ok(Slot::Void),
                Some(error) => return Err(error),
            },
            Ok(None) | Err(_) => {}
        }
        if env.monotonic() >= give_up {
            return Ok(Slot::Unknown(error));
        }
        env.sleep(env.jitter(pause(tries))).await;
        tries += 1;
    }
}

pub(super) fn pause(tries: u32) -> Duration {
    PAUSE.saturating_mul(2_u32.saturating_pow(tries)).min(PAUSE_MAX)
}
