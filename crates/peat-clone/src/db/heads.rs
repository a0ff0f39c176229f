//! Position and head: how far this clone has seen everything, and the newest state it knows of.

use std::time::Duration;

use peat_ledger::State;
use peat_ledger::format::{decode_state, encode_state};
use peat_types::{Env, Error, Result, Seq, Timestamp};
use rusqlite::types::FromSql;
use rusqlite::{OptionalExtension, ToSql, Transaction, params};
use serde::{Deserialize, Serialize};

use super::{Db, sql};

const SUSPECT: &str = "suspect";

/// A point in time by both clocks, so that neither a reboot nor a changed wall clock makes it look younger.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Moment {
    mono_ms: u64,
    wall: Timestamp,
}

impl Moment {
    pub(crate) fn now(env: &Env) -> Self {
        let mono_ms = u64::try_from(env.monotonic().as_millis()).unwrap_or(u64::MAX);
        Self { mono_ms, wall: env.now() }
    }

    pub(crate) fn wall(self) -> Timestamp {
        self.wall
    }

    /// How long ago, at least.
    pub(crate) fn age(self, env: &Env) -> Duration {
        let now = Self::now(env);
        let Some(mono) = now.mono_ms.checked_sub(self.mono_ms) else { return Duration::MAX };
        let wall = u64::try_from(now.wall.millis_since(self.wall)).unwrap_or(0);
        Duration::from_millis(mono.max(wall))
    }
}

/// What is known of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads {
    /// Everything up to here has been seen.
    pub(crate) position: Option<State>,
    /// The newest state known (perhaps without its hash); never older than `position`.
    pub(crate) head: Option<State>,
    /// When the store last said that `head` is (or was) the newest.
    pub(crate) read: Option<Moment>,
    /// When the log was last listed.
    pub(crate) listed: Option<Moment>,
    /// Whether this clone wrote `head`: then creating the next entry is as good as asking for it.
    pub(crate) mine: bool,
    /// Whether the store was seen not to be what it was, and nothing has shown since that it is again.
    pub(crate) suspect: bool,
}

impl Heads {
    pub(crate) fn position_seq(&self) -> Option<Seq> {
        self.position.as_ref().map(|state| state.seq)
    }

    pub(crate) fn head_seq(&self) -> Option<Seq> {
        self.head.as_ref().map(|state| state.seq)
    }
}

/// A head that was read, or written.
pub(crate) struct NewHead<'a> {
    pub(crate) state: &'a State,
    pub(crate) at: Moment,
    pub(crate) listed: bool,
    pub(crate) mine: bool,
}

impl Db {
    pub(crate) fn heads(&self) -> Result<Heads> {
        self.read(heads)
    }

    /// Notes whether the store was set back or replaced.
    pub(crate) fn suspect(&self, suspect: bool) -> Result<()> {
        self.write(|tx| if suspect { set_json(tx, SUSPECT, &true) } else { clear(tx, SUSPECT) })
    }

    /// Notes that the store said at `at` that there was nothing after `seq`.
    pub(crate) fn seen(&self, seq: Seq, at: Moment, listed: bool) -> Result<()> {
        self.write(|tx| {
            if head_seq(tx)? == Some(seq) {
                set_json(tx, "read", &at)?;
            }
            if listed { set_listed(tx, seq, &at) } else { Ok(()) }
        })
    }
}

pub(crate) fn heads(tx: &Transaction<'_>) -> Result<Heads> {
    let state = |key| get::<Vec<u8>>(tx, key)?.map(|bytes| decode_state(&bytes)).transpose();
    let head = state("head")?;
    let position = match get::<i64>(tx, "position_is_head")? {
        Some(1) => head.clone(),
        _ => state("position")?,
    };
    Ok(Heads {
        position,
        head,
        read: get_json(tx, "read")?,
        listed: get_json(tx, "listed")?,
        mine: get::<i64>(tx, "mine")? == Some(1),
        suspect: get_json(tx, SUSPECT)?.unwrap_or_default(),
    })
}

/// The stored position, without decoding the state around it.
pub(crate) fn position_seq(tx: &Transaction<'_>) -> Result<Option<Seq>> {
    Ok(get::<i64>(tx, "position_seq")?.map(|seq| Seq(super::uint(seq))))
}

pub(crate) fn head_seq(tx: &Transaction<'_>) -> Result<Option<Seq>> {
    Ok(get::<i64>(tx, "head_seq")?.map(|seq| Seq(super::uint(seq))))
}

/// The newest entry that a listing showed.
pub(crate) fn shown_seq(tx: &Transaction<'_>) -> Result<Option<Seq>> {
    Ok(get::<i64>(tx, "shown_seq")?.map(|seq| Seq(super::uint(seq))))
}

/// A listing showed the entry `seq`.
fn set_listed(tx: &Transaction<'_>, seq: Seq, at: &Moment) -> Result<()> {
    if shown_seq(tx)?.is_none_or(|shown| shown < seq) {
        set(tx, "shown_seq", super::int(seq.0))?;
    }
    set_json(tx, "listed", at)
}

/// Moves the head forward. An older one is ignored: it is a late reply, not news (A8).
pub(crate) fn set_head(tx: &Transaction<'_>, new: &NewHead<'_>) -> Result<()> {
    if new.listed {
        set_listed(tx, new.state.seq, &new.at)?;
    }
    let stored = head_seq(tx)?;
    if stored.is_some_and(|seq| seq > new.state.seq) {
        return Ok(());
    }
    if stored == Some(new.state.seq) {
        let known = get::<Vec<u8>>(tx, "head")?.map(|known| decode_state(&known)).transpose()?;
        match known {
            Some(known) if known.is_whole() && new.state.is_whole() && known.hash != new.state.hash => {
                return Err(fork(new.state.seq));
            }
            // Only the start of the entry was known, now all of it is.
            Some(known) if !known.is_whole() && new.state.is_whole() => set(tx, "head", encode_state(new.state))?,
            _ => {}
        }
        set_json(tx, "read", &new.at)?;
        return if new.mine { set(tx, "mine", 1_i64) } else { Ok(()) };
    }
    if get::<i64>(tx, "position_is_head")? == Some(1)
        && let Some(known) = get::<Vec<u8>>(tx, "head")?
    {
        set(tx, "position", known)?;
        set(tx, "position_is_head", 0_i64)?;
    }
    set(tx, "head", encode_state(new.state))?;
    set(tx, "head_seq", super::int(new.state.seq.0))?;
    set(tx, "mine", i64::from(new.mine))?;
    set_json(tx, "read", &new.at)
}

/// Moves the position forward; never backwards (A8).
pub(crate) fn set_position(tx: &Transaction<'_>, state: &State) -> Result<()> {
    if position_seq(tx)?.is_some_and(|seq| seq >= state.seq) {
        return Ok(());
    }
    set(tx, "position_seq", super::int(state.seq.0))?;
    if head_seq(tx)? == Some(state.seq) {
        return set(tx, "position_is_head", 1_i64);
    }
    set(tx, "position", encode_state(state))?;
    set(tx, "position_is_head", 0_i64)
}

/// Begins with what another clone had seen, as if the store had never been asked.
pub(super) fn begin_at(tx: &Transaction<'_>, position: Option<&State>, head: Option<&State>) -> Result<()> {
    tx.execute("DELETE FROM meta", []).map_err(sql)?;
    if let Some(head) = head {
        set(tx, "head", encode_state(head))?;
        set(tx, "head_seq", super::int(head.seq.0))?;
    }
    position.map_or(Ok(()), |state| set_position(tx, state))
}

pub(crate) fn fork(seq: Seq) -> Error {
    Error::damaged(format!("the log holds another entry {seq} than this clone has seen"))
        .with_code("fork")
        .with_hint("the store was restored from a copy or replaced: nothing was changed here; run 'peat doctor'")
}

fn get<T: FromSql>(tx: &Transaction<'_>, key: &str) -> Result<Option<T>> {
    let mut statement = tx.prepare_cached("SELECT value FROM meta WHERE key = ?1").map_err(sql)?;
    statement.query_row([key], |row| row.get(0)).optional().map_err(sql)
}

fn set(tx: &Transaction<'_>, key: &str, value: impl ToSql) -> Result<()> {
    let mut statement = tx.prepare_cached("INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)").map_err(sql)?;
    statement.execute(params![key, value]).map(drop).map_err(sql)
}

pub(super) fn clear(tx: &Transaction<'_>, key: &str) -> Result<()> {
    tx.execute("DELETE FROM meta WHERE key = ?1", [key]).map(drop).map_err(sql)
}

pub(super) fn get_json<T: serde::de::DeserializeOwned>(tx: &Transaction<'_>, key: &str) -> Result<Option<T>> {
    // An unreadable time is an unknown one.
    Ok(get::<String>(tx, key)?.and_then(|text| serde_json::from_str(&text).ok()))
}

pub(super) fn set_json(tx: &Transaction<'_>, key: &str, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|e| Error::internal("cannot write JSON").with_source(e))?;
    set(tx, key, text)
}
