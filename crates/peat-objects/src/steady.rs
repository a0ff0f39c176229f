//! A store that is asked again, and not by too many at once: what every store on a network is wrapped in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{Env, Error, Kind, Result};

use crate::pace::{Answer, Pace};
use crate::traced::resent;
use crate::{Created, List, Meta, Object, Op, Page, Range, Store};

/// First wait before a repetition, with full jitter; it doubles up to the last.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(10);
/// Some stores take one write a second to one key, and say so with 429.
const KEY_PAUSE: Duration = Duration::from_secs(1);
/// A put up to this size does not wait for its turn.
const SMALL: usize = 64 << 10;

/// How patient a store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often a request is repeated, at most.
    pub retries: u32,
    /// No repetition begins later than this after the first try began. A server that asks for a longer pause gets no
    /// repetition at all: the caller is told at once.
    pub total: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { retries: 5, total: Duration::from_secs(60) }
    }
}

/// Decorates a store on a network.
///
/// *Repetitions*: a request whose error says that the store is busy or silent is repeated with full jitter, after at
/// least the pause the server asked for. Never a create: its outcome is unknown, so its caller looks the key up first
/// (invariant A3).
///
/// *Turns*: requests that run at once share a limit that adapts to what the store can take (see `pace`). Creates and
/// small puts go at once, so neither a commit nor a heartbeat stands behind bulk transfers. Nobody holds a turn while
/// waiting for the next try.
pub struct SteadyStore {
    inner: Arc<dyn Store>,
    env: Env,
    patience: Patience,
    pace: Pace,
}

impl SteadyStore {
    /// Decorates `inner`, whose requests are single tries.
    pub fn new(inner: Arc<dyn Store>, env: &Env, patience: Patience) -> Self {
        Self { inner, env: env.clone(), patience, pace: Pace::new() }
    }

    async fn run<T, F: Future<Output = Result<T>>>(&self, op: Op, at_once: bool, request: impl Fn() -> F) -> Result<T> {
        let mut begun = None;
        let mut tries = 0;
        loop {
            let turn = if at_once { self.pace.at_once() } else { self.pace.turn().await };
            let begun = *begun.get_or_insert_with(|| self.env.monotonic());
            let outcome = resent(tries, request()).await;
            turn.end(answer(&outcome));
            let error = match outcome {
                Err(error) if tries < self.repetitions(op, &error) => error,
                outcome => return outcome,
            };
            let wait = self.wait(op, &error, tries);
            if self.env.monotonic().saturating_sub(begun) + wait > self.patience.total {
                return Err(error);
            }
            tracing::debug!(%error, ?wait, "asking again");
            self.env.sleep(wait).await;
            tries += 1;
        }
    }

    /// How often a request that failed like this may be repeated.
    fn repetitions(&self, op: Op, error: &Error) -> u32 {
        match error.code() {
            _ if op == Op::Create || error.kind() != Kind::Offline => 0,
            "offline" | "store_busy" => self.patience.retries,
            // Nobody there: somebody waiting wants to know soon.
            "unreachable" => self.patience.retries.min(1),
            _ => 0,
        }
    }

    fn wait(&self, op: Op, error: &Error, tries: u32) -> Duration {
        let same_key = matches!(op, Op::Put | Op::Delete) && error.code() == "store_busy";
        let least = error.retry_after().unwrap_or(if same_key { KEY_PAUSE } else { Duration::ZERO });
        let back_off = FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(tries)).min(LAST_BACKOFF);
        least + self.env.jitter(back_off)
    }
}

fn answer<T>(outcome: &Result<T>) -> Answer {
    match outcome {
        Err(error) if error.kind() != Kind::Offline => Answer::Fine,
        Err(error) if matches!(error.code(), "offline" | "store_busy") => Answer::Busy,
        Err(_) => Answer::Other,
        Ok(_) => Answer::Fine,
    }
}

#[async_trait]
impl Store for SteadyStore {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.run(Op::Get, false, || self.inner.get(key, range)).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.run(Op::Create, true, || self.inner.create(key, body.clone())).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.run(Op::Put, body.len() <= SMALL, || self.inner.put(key, body.clone())).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        self.run(Op::List, false, || self.inner.list(list)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.run(Op::Delete, false, || self.inner.delete(key)).await
    }
}

impl fmt::Display for SteadyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for SteadyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteadyStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
