//! Reading the log: head, entries, following.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use peat_objects::{Meta, Object, Range};
use peat_types::{Error, Kind, Mutation, Result, Seq, Timestamp};

use super::aside::aside;
use super::{Follow, Ledger, key};
use crate::format;
use crate::model::{Entry, Mark, Ref, Segment, State, TxHead};

/// A read of this many bytes holds header, ring and, as a rule, all directory pages of an entry.
pub(super) const PREFIX: u64 = 16 << 10;
/// Reads in flight at once when following.
const WINDOWS: [u64; 6] = [1, 1, 1, 2, 4, 8];
const WIDE: u64 = 16;
/// Further behind than this, comparing directories is cheaper than reading forward.
const FORWARD: u64 = 512;
/// More than this is not kept in memory while reading forward.
const FORWARD_BYTES: usize = 64 << 20;
/// How often the head is looked for while it moves on, or is not there yet.
pub(super) const LOOKS: u32 = 8;

/// Entries that are read whole at once, bytes that they may have together, and reads in flight.
const SLOTS: usize = 160;
const SLOT_BYTES: u64 = 32 << 20;
const SLOT_READS: usize = 16;

/// What the first bytes of an entry told.
#[derive(Debug)]
pub(super) struct Glance {
    pub state: State,
    pub txs: Vec<TxHead>,
    pub time: Timestamp,
    /// When the slot was written: by the store's clock, or by its writer's where the store does not say.
    pub written: Timestamp,
    pub size: u64,
    /// The bytes that were read, from offset 0.
    pub prefix: Bytes,
    /// The whole entry, when the prefix was all of it.
    pub entry: Option<Entry>,
    /// Times of the reply.
    pub meta: Meta,
}

/// How reading forward ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Every slot asked for was there.
    Full,
    /// A slot was absent.
    End,
    /// The entries read are void: the place they were read from lies behind the floor (R6).
    Behind,
}

impl State {
    /// Whether the hash of the entry is known, so that the next one can be checked against it and built upon it.
    pub fn is_whole(&self) -> bool {
        self.hash != [0; 16]
    }

    /// Where it stands in the log.
    pub fn mark(&self) -> Mark {
        Mark { seq: self.seq, hash: self.hash }
    }
}

impl From<&State> for Mark {
    fn from(state: &State) -> Self {
        state.mark()
    }
}

impl Ledger {
    fn fork(&self, seq: Seq, why: &str) -> Error {
        Error::damaged(format!("{} in {} {why}", key::log(seq), self.store))
            .with_code("fork")
            .with_hint("the bucket holds another history than the one seen here: stop all writers, then compare")
    }

    /// Takes a state that was read for one of this ledger: it was written here, or came along when the ledger was moved.
    pub(super) fn adopt(&self, state: &mut State) -> Result<()> {
        let expected = self.info.ledger_at(state.seq);
        if state.ledger != expected {
            let why = format!("belongs to ledger {}, not {expected}", state.ledger);
            return Err(self.fork(state.seq, &why));
        }
        state.ledger = self.info.ledger;
        Ok(())
    }

    /// One entry, whole; `None` only for a definite 404. Damaged bytes are fetched once more before they are believed.
    pub(super) async fn entry(&self, seq: Seq) -> Result<Option<Entry>> {
        Ok(self.entry_seen(seq).await?.map(|(entry, _)| entry))
    }

    /// As [`entry`](Self::entry), with the server's times.
    pub(super) async fn entry_seen(&self, seq: Seq) -> Result<Option<(Entry, Meta)>> {
        let key = key::log(seq);
        let mut again = true;
        loop {
            let Some(object) = self.store.get(&key, Range::All).await? else { return Ok(None) };
            let body = object.bytes;
            match aside(body.len(), move || format::decode_entry(seq, &body)).await? {
                Ok(mut entry) => {
                    self.adopt(&mut entry.state)?;
                    self.noticed(&entry.state, &entry.txs, &object.meta);
                    return Ok(Some((entry, object.meta)));
                }
                Err(error) if again && error.kind() == Kind::Damaged => again = false,
                Err(error) => return Err(self.unreadable(&key, error)),
            }
        }
    }

    /// When an entry was written, as far as that can be told. `time` is what its writer says: of an entry that was copied
    /// here with a ledger the store only knows when that was.
    pub(super) fn written(&self, state: &State, time: Timestamp, meta: &Meta) -> Timestamp {
        let own = self.info.ledger_at(state.seq) == self.info.ledger;
        meta.last_modified.filter(|_| own).unwrap_or(time)
    }

    /// Several entries, whole, unless they are very many or may be very large: then what is needed of them is read for
    /// itself. One that is gone is left out; it is missed when something in it is needed.
    pub(super) async fn entries_at(&self, state: &State, slots: &BTreeSet<Seq>) -> Result<Vec<Entry>> {
        if slots.len() > SLOTS || state.root.tail > SLOT_BYTES {
            return Ok(Vec::new());
        }
        let reads = slots.iter().map(|seq| self.entry(*seq));
        let read: Vec<Option<Entry>> = stream::iter(reads).buffered(SLOT_READS).boxed().try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }

    pub(super) fn unreadable(&self, key: &str, error: Error) -> Error {
        if error.kind() == Kind::Damaged { error.context(format!("{key} in {} is damaged", self.store)) } else { error }
    }

    /// Header and ring of one entry, and the entry itself when it is short.
    pub(super) async fn glance(&self, seq: Seq) -> Result<Option<Glance>> {
        let key = key::log(seq);
        let Some(object) = self.store.get(&key, Range::Part { offset: 0, len: PREFIX }).await? else { return Ok(None) };
        match self.decode_glance(seq, &key, object).await {
            Err(error) if error.kind() == Kind::Damaged && error.code() != "fork" => {
                let Some(object) = self.store.get(&key, Range::Part { offset: 0, len: PREFIX }).await? else {
                    return Ok(None);
                };
                self.decode_glance(seq, &key, object).await.map(Some)
            }
            read => read.map(Some),
        }
    }

    async fn decode_glance(&self, seq: Seq, key: &str, object: Object) -> Result<Glance> {
        let Object { bytes: mut prefix, size, meta } = object;
        while (prefix.len() as u64) < size {
            match format::decode_prefix(seq, &prefix, size).map_err(|e| self.unreadable(key, e))? {
                Ok((mut state, txs, time)) => {
                    self.adopt(&mut state)?;
                    self.saw(seq);
                    self.noticed(&state, &txs, &meta);
                    let written = self.written(&state, time, &meta);
                    return Ok(Glance { state, txs, time, written, size, prefix, entry: None, meta });
                }
                Err(needed) => {
                    let len = needed.min(size).max(prefix.len() as u64 + 1);
                    let longer = self.store.get(key, Range::Part { offset: 0, len }).await?;
                    let longer = longer.map(|object| object.bytes).unwrap_or_default();
                    if longer.len() <= prefix.len() {
                        return Err(Error::damaged(format!("{key} in {} became shorter", self.store)));
                    }
                    prefix = longer;
                }
            }
        }
        let mut entry = format::decode_entry(seq, &prefix).map_err(|e| self.unreadable(key, e))?;
        self.adopt(&mut entry.state)?;
        self.saw(seq);
        self.noticed(&entry.state, &entry.txs, &meta);
        Ok(Glance {
            state: entry.state.clone(),
            txs: entry.txs.clone(),
            time: entry.time,
            written: self.written(&entry.state, entry.time, &meta),
            size,
            prefix,
            entry: Some(entry),
            meta,
        })
    }

    /// The newest entry by LIST and a prefix GET.
    ///
    /// R6: what was listed longer ago than `fresh` may have been cleared away, and created again, before it was read. It
    /// counts only when it is still the newest after that: the head is never cleared away.
    pub(super) async fn glance_head(&self, known: Seq) -> Result<Glance> {
        let mut asked = self.env.monotonic();
        let mut head = self.listed(known).await?;
        for _ in 0..LOOKS {
            let read = match self.glance(head).await {
                Err(error) if error.kind() != Kind::Damaged => return Err(error),
                read => read,
            };
            if self.is_fresh(asked)
                && let Ok(Some(glance)) = read
            {
                return Ok(glance);
            }
            asked = self.env.monotonic();
            let newest = self.listed(head).await?;
            if newest == head {
                match read {
                    Ok(Some(glance)) => return Ok(glance),
                    Ok(None) => {}
                    Err(error) => return Err(error),
                }
            }
            head = newest;
        }
        match self.glance(head).await? {
            None => Err(self.missing(head)),
            Some(_) => Err(Error::new(Kind::Offline, format!("{} moves on faster than it can be read", self.store))),
        }
    }

    /// Whether what was asked for at `asked`, on the monotonic clock, still holds: nothing is cleared away so soon.
    pub(super) fn is_fresh(&self, asked: Duration) -> bool {
        self.env.monotonic().saturating_sub(asked) <= Duration::from_millis(self.info.params.fresh_ms)
    }

    /// The newest entry, whole.
    pub(super) async fn head_entry(&self, known: Seq) -> Result<Entry> {
        Ok(self.head_seen(known).await?.0)
    }

    /// The newest entry, whole, with the server's times.
    pub(super) async fn head_seen(&self, known: Seq) -> Result<(Entry, Meta)> {
        let mut known = known;
        for _ in 0..LOOKS {
            let glance = self.glance_head(known).await?;
            if let Some(entry) = glance.entry {
                return Ok((entry, glance.meta));
            }
            known = glance.state.seq;
            let (id, seq) = (glance.state.entry, glance.state.seq);
            // Cleared away since it was glanced at, and perhaps created again.
            match self.entry_seen(seq).await {
                Ok(Some((entry, meta))) if entry.state.entry == id => return Ok((entry, meta)),
                Ok(_) => {}
                Err(error) => match self.unless_void(seq, error).await {
                    None => {}
                    Some(error) => return Err(error),
                },
            }
        }
        Err(self.missing(known))
    }

    /// What an error about slot `seq`, or about what lies in it, comes to: nothing when that slot is below K by now, and
    /// so void. Only then does "damaged" not mean that something is.
    pub(super) async fn unless_void(&self, seq: Seq, error: Error) -> Option<Error> {
        if error.kind() != Kind::Damaged || error.code() == "fork" || error.code() == "rollback" {
            return Some(error);
        }
        match self.glance_head(self.known(seq)).await {
            Ok(head) if head.state.root.keep > seq => None,
            Ok(_) => Some(error),
            // Whether it is damaged cannot be told.
            Err(unknown) => Some(unknown),
        }
    }

    /// A state that came from a prefix, with the hash of its entry.
    ///
    /// # Errors
    /// `object_gone` when it lies behind the floor.
    pub(super) async fn whole(&self, state: &State) -> Result<State> {
        let error = match self.entry(state.seq).await {
            Ok(Some(entry)) if entry.state.entry == state.entry => return Ok(entry.state),
            Ok(Some(_)) => self.fork(state.seq, "is not the entry that was seen here"),
            Ok(None) => self.missing(state.seq),
            Err(error) => error,
        };
        if error.kind() == Kind::Damaged && self.glance_head(self.known(state.seq)).await?.state.root.keep > state.seq {
            return Err(self.gone(&Ref { segment: Segment::Log(state.seq), off: 0, len: 0 }));
        }
        Err(error)
    }

    pub(super) fn missing(&self, seq: Seq) -> Error {
        Error::damaged(format!("{} is missing in {} although later entries exist", key::log(seq), self.store))
            .with_hint("run 'peat ledger verify' to see what else is missing")
    }

    /// Whether `entry` is the one after `mark`. `Behind` when that lies behind the floor, so that the slot is void.
    ///
    /// # Errors
    /// `fork` when it is not, and the slot is valid.
    pub(super) async fn follows(&self, mark: impl Into<Mark>, entry: &Entry) -> Result<Stop> {
        let mark = mark.into();
        if mark.hash == [0; 16] || entry.prev == mark.hash {
            return Ok(Stop::Full);
        }
        let head = self.glance_head(self.known(mark.seq)).await?;
        if self.env.mutated(Mutation::NoReaderFloor) {
            return Err(self.fork(entry.state.seq, "does not follow the entry before it as seen here"));
        }
        // Not only when the entry is void: what was read before it may have been, too, and then it does not fit.
        if head.state.root.keep > mark.seq {
            return Ok(Stop::Behind);
        }
        Err(self.fork(entry.state.seq, "does not follow the entry before it as seen here"))
    }

    /// Reads up to `width` entries after the newest of `entries` (or after `mark`) at once.
    pub(super) async fn extend(&self, mark: impl Into<Mark>, entries: &mut Vec<Entry>, width: u64) -> Result<Stop> {
        let mark = mark.into();
        let from = entries.last().map_or(mark.seq, |entry| entry.state.seq).next();
        let reads = join_all((0..width).map(|n| self.entry(Seq(from.0 + n)))).await;
        for read in reads {
            let last = entries.last().map_or(mark, |entry| entry.state.mark());
            let entry = match read {
                Ok(Some(entry)) => entry,
                // What lies after a hole was written after the hole was read.
                Ok(None) => return Ok(Stop::End),
                Err(error) => match self.unless_void(last.seq.next(), error).await {
                    None => return Ok(Stop::Behind),
                    Some(error) => return Err(error),
                },
            };
            if self.follows(last, &entry).await? == Stop::Behind {
                return Ok(Stop::Behind);
            }
            self.saw(entry.state.seq);
            entries.push(entry);
        }
        Ok(Stop::Full)
    }

    pub(super) async fn still_holds(&self, state: &State) -> Result<()> {
        let head = self.glance_head(self.known(state.seq)).await?;
        if head.state.root.keep > state.seq {
            return Ok(());
        }
        let there = self.entry(state.seq).await?;
        let same = there.is_some_and(|entry| !state.is_whole() || entry.state.hash == state.hash);
        if same { Ok(()) } else { Err(self.fork(state.seq, "is not the entry seen here")) }
    }

    pub(super) async fn follow_from(&self, state: &State, list: bool) -> Result<Follow> {
        let mut entries = Vec::new();
        if !list {
            let known = self.known(state.seq);
            for width in WINDOWS {
                match self.extend(state, &mut entries, width).await? {
                    Stop::Full => {}
                    Stop::Behind => return self.jump(state.seq).await,
                    // Somebody else in this process has seen more: an absent slot needs an explanation.
                    Stop::End if entries.last().map_or(state.seq, |e| e.state.seq) < known => break,
                    Stop::End => return self.followed(state, entries),
                }
            }
        }
        self.follow_listed(state, entries).await
    }

    /// Reads up to the head as listed, in exact windows.
    pub(super) async fn follow_listed(&self, state: &State, mut entries: Vec<Entry>) -> Result<Follow> {
        let asked = self.env.monotonic();
        let head = self.listed(self.known(state.seq)).await?;
        if head.0.saturating_sub(state.seq.0) > FORWARD {
            return self.jump(head).await;
        }
        loop {
            let at = entries.last().map_or(state.seq, |entry| entry.state.seq);
            if at >= head {
                let blind = self.env.mutated(Mutation::NoReaderFloor);
                if !entries.is_empty() && !self.is_fresh(asked) && !blind {
                    // R6: slots that were listed so long ago may have been cleared away and created again, void, before
                    // they were read.
                    let head = self.head_entry(self.known(at)).await?;
                    if head.state.root.keep > state.seq.next() {
                        return Ok(Follow::Jump(Box::new(head.state)));
                    }
                }
                return self.followed(state, entries);
            }
            if entries.iter().map(|entry| entry.body.len()).sum::<usize>() > FORWARD_BYTES {
                return self.jump(head).await;
            }
            match self.extend(state, &mut entries, WIDE.min(head.0 - at.0)).await? {
                Stop::Full => {}
                Stop::Behind => return self.jump(head).await,
                Stop::End => {
                    let missing = entries.last().map_or(state.seq, |entry| entry.state.seq).next();
                    let head = self.head_entry(head).await?;
                    if head.state.root.keep > missing && !self.env.mutated(Mutation::NoReaderFloor) {
                        return Ok(Follow::Jump(Box::new(head.state)));
                    }
                    return Err(self.missing(missing));
                }
            }
        }
    }

    fn followed(&self, state: &State, entries: Vec<Entry>) -> Result<Follow> {
        Ok(match entries.last() {
            None => Follow::Unchanged,
            // R6: slots below K are void, even when they happen to be there still.
            Some(last) if last.state.root.keep > state.seq.next() && !self.env.mutated(Mutation::NoReaderFloor) => {
                Follow::Jump(Box::new(last.state.clone()))
            }
            Some(_) => Follow::Entries(entries),
        })
    }

    async fn jump(&self, known: Seq) -> Result<Follow> {
        Ok(Follow::Jump(Box::new(self.head_entry(known).await?.state)))
    }
}
