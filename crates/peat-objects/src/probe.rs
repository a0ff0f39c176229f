//! Asking a store, by trying, whether a ledger can live in it.
//!
//! Lists of vendors go out of date and contradict each other; what a server does is what counts. The probe writes a few
//! small objects into a folder of its own, of the same shape as those of a ledger, and removes them again as far as it is
//! allowed to.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{join_all, join3};
use futures::stream::{self, StreamExt};
use peat_types::{Env, Error, Kind, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Created, List, Meta, Pages, Range, Store};

/// Creates that run at once on one key.
const RIVALS: u8 = 16;
/// Keys they run for, at most and at least: some honest servers take seconds for one round.
const ROUNDS: u8 = 20;
const FEWEST_ROUNDS: u8 = 5;
/// Of them at once, so that a store far away is not waited for twice for each.
const ROUNDS_AT_ONCE: usize = 4;
/// No further round is begun after this time.
const RACE_TIME: Duration = Duration::from_secs(15);
/// `Date` may differ this much from `Last-Modified` of an object just written, and its own clock from one reply to the
/// next.
const CLOCK_SLACK: Duration = Duration::from_secs(5);
/// Tries of a step whose outcome the store leaves unknown.
const TRIES: u8 = 5;
/// Some stores take one write a second to one key, and say so.
const KEY_PAUSE: Duration = Duration::from_secs(1);
/// A store that asks for a longer pause is not probed now.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the probe found, to be kept with the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// When, by this machine's clock.
    pub at: Timestamp,
    /// Creates that were made at once, over all rounds.
    pub rival_creates: u32,
    /// Rivals that got an error instead of an answer; high under load, never a sign of damage.
    pub unanswered: u32,
    /// Whether `Date` and `Last-Modified` can be compared with each other.
    pub server_time: bool,
    /// Milliseconds by which this machine's clock is ahead of the server's, when it says the time.
    pub clock_ahead_ms: Option<i64>,
    /// Whether the probe was allowed to delete.
    pub may_delete: bool,
}

/// Tries everything a ledger relies on.
///
/// # Errors
/// Code `store_refused`, kind `Unsupported`, when the store is unfit: the message says which check failed, the hint what
/// that would do to a ledger. Any other error means that nothing is known, such as `Offline` or `Denied`.
pub async fn probe(store: &dyn Store, env: &Env) -> Result<Verdict> {
    let run = u64::from_le_bytes(env.random_bytes());
    let probe = Probe { store, env, folder: format!("probe/{run:016x}"), keys: Mutex::default() };
    let verdict = probe.run().await;
    let deleted = probe.clean().await;
    let mut verdict = verdict?;
    verdict.may_delete &= deleted;
    Ok(verdict)
}

struct Probe<'a> {
    store: &'a dyn Store,
    env: &'a Env,
    folder: String,
    /// What may be there now.
    keys: Mutex<BTreeSet<String>>,
}

/// One wrong answer.
fn refused(store: &dyn Store, check: &str, found: impl std::fmt::Display, meaning: &str) -> Error {
    Error::new(Kind::Unsupported, format!("{store} is unfit for a ledger: {check}: {found}"))
        .with_code("store_refused")
        .with_hint(meaning)
        .with_hint("use another store, or another version of this server")
}

const CREATE: &str = "create-if-absent";
const LOST_UPDATE: &str = "two writers would both believe to have committed, and one's work would be lost";
const BLIND: &str = "readers would miss what others committed";

impl Probe<'_> {
    fn refuse(&self, check: &str, found: impl std::fmt::Display, meaning: &str) -> Error {
        refused(self.store, check, found, meaning)
    }

    fn keys(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, key: String) -> String {
        self.keys().insert(key.clone());
        key
    }

    /// Keys apart from those of the log.
    fn other_key(&self, name: &str) -> String {
        self.key(format!("{}-other/{name}", self.folder))
    }

    /// Keys as the log has them: later ones sort first.
    fn log_key(&self, number: u8) -> String {
        self.key(format!("{}/{:016x}.{number}", self.folder, u64::MAX - u64::from(number)))
    }

    async fn run(&self) -> Result<Verdict> {
        let (written, read, ahead) = self.creates().await?;
        // All of them end, whatever one finds: nothing may be written after the probe has cleaned up.
        let (may_delete, ranges, lists) = join3(self.deletes(), self.ranges(), self.lists()).await;
        let may_delete = may_delete?;
        ranges.and(lists)?;
        let (rival_creates, unanswered) = self.races().await?;
        Ok(Verdict {
            at: self.env.now(),
            rival_creates,
            unanswered,
            server_time: sane(&written, &read),
            clock_ahead_ms: ahead,
            may_delete,
        })
    }

    async fn read(&self, key: &str) -> Result<Option<(Bytes, Meta)>> {
        Ok(self.store.get(key, Range::All).await?.map(|object| (object.bytes, object.meta)))
    }

    /// A create that got an answer, or whose outcome was looked up. `None`: somebody else's bytes are there.
    async fn create(&self, key: &str, body: &Bytes) -> Result<Option<Meta>> {
        let mut tries = 0;
        loop {
            let error = match self.store.create(key, body.clone()).await {
                Ok(Created::Created(meta)) => return Ok(Some(meta)),
                Ok(Created::Exists) => return Ok(None),
                Err(error) if error.kind() == Kind::Unsupported => {
                    return Err(self.refuse(CREATE, "the store says that it cannot", LOST_UPDATE).with_source(error));
                }
                Err(error) if error.kind() == Kind::Offline => error,
                Err(error) => return Err(error),
            };
            // Unknown: either it is there now, or it may be tried again.
            if let Some((bytes, meta)) = self.read(key).await? {
                return Ok((bytes == *body).then_some(meta));
            }
            tries += 1;
            let busy = if error.code() == "store_busy" { KEY_PAUSE } else { Duration::ZERO };
            let asked = error.retry_after().unwrap_or(busy);
            if tries == TRIES || asked > LONGEST_PAUSE {
                return Err(error);
            }
            self.env.sleep(asked + self.env.jitter(Duration::from_millis(200))).await;
        }
    }

    /// Times of the write and of a read, and how far this machine's clock is ahead. Absent before; a create makes it; a second one with other bytes does not; the first one's bytes are there at once.
    async fn creates(&self) -> Result<(Meta, Meta, Option<i64>)> {
        let key = self.log_key(0);
        let (first, second) = (Bytes::from_static(b"the first"), Bytes::from_static(b"the second one"));
        if self.read(&key).await?.is_some() {
            return Err(self.refuse("reading", "a key that nobody wrote is there", BLIND));
        }
        let Some(written) = self.create(&key, &first).await? else {
            return Err(match self.read(&key).await? {
                None => self.refuse(CREATE, "a create of a fresh key was refused", "nothing could ever be committed"),
                Some(_) => self.refuse(
                    CREATE,
                    "the first create was answered with 'exists'",
                    "nothing could ever be committed",
                ),
            });
        };
        let Some((bytes, read)) = self.read(&key).await? else {
            return Err(self.refuse("reading", "an object just created is not there", BLIND));
        };
        let ahead = read.date.map(|date| self.env.now().millis_since(date));
        if bytes != first {
            return Err(self.refuse("reading", "an object just created has other bytes", BLIND));
        }
        if self.create(&key, &second).await?.is_some() {
            return Err(self.refuse(CREATE, "a second create of the same key succeeded", LOST_UPDATE));
        }
        match self.read(&key).await? {
            Some((bytes, _)) if bytes == first => Ok((written, read, ahead)),
            Some(_) => Err(self.refuse(CREATE, "a second create was refused but replaced the object", LOST_UPDATE)),
            None => Err(self.refuse(CREATE, "a second create removed the object", LOST_UPDATE)),
        }
    }

    /// Deleted means absent, and a deleted key can be created again. Without the right nothing is claimed.
    async fn deletes(&self) -> Result<bool> {
        const CHECK: &str = "create after delete";
        const MEANING: &str = "keys would stay blocked, as in some versioned buckets";
        let key = self.other_key("deleted");
        let (first, second) = (Bytes::from_static(b"1"), Bytes::from_static(b"2"));
        self.create(&key, &first).await?;
        match self.store.delete(&key).await {
            Err(error) if error.kind() == Kind::Denied => return Ok(false),
            deleted => deleted?,
        }
        if self.read(&key).await?.is_some() {
            return Err(self.refuse(CHECK, "a deleted object is still there", BLIND));
        }
        if self.create(&key, &second).await?.is_none() {
            return Err(self.refuse(CHECK, "the create was refused", MEANING));
        }
        match self.read(&key).await? {
            Some((bytes, _)) if bytes == second => Ok(true),
            _ => Err(self.refuse(CHECK, "the object is not what was created", MEANING)),
        }
    }

    async fn ranges(&self) -> Result<()> {
        let key = self.other_key("ranges");
        let body = Bytes::from_static(b"0123456789");
        self.store.put(&key, body.clone()).await?;
        let part = |offset, len| Range::Part { offset, len };
        let wanted = [
            (part(2, 3), "234"),
            (part(0, 1), "0"),
            (part(8, 5), "89"),
            (part(10, 5), ""),
            (Range::Last { len: 3 }, "789"),
            (Range::Last { len: 99 }, "0123456789"),
        ];
        let reads = join_all(wanted.iter().map(|(range, _)| self.store.get(&key, *range))).await;
        for ((range, want), got) in wanted.into_iter().zip(reads) {
            let got = got?;
            let fits = got.as_ref().is_some_and(|o| o.bytes == want.as_bytes() && o.size == body.len() as u64);
            if !fits {
                let got = got.map_or_else(|| "nothing".to_owned(), |o| format!("{} bytes", o.bytes.len()));
                let found = format!("{range:?} of an object of ten bytes gave {got}");
                return Err(self.refuse("reading parts", found, "entries and packs could not be read in part"));
            }
        }
        Ok(())
    }

    /// Fresh objects are listed at once, in byte order, no more than asked for.
    async fn lists(&self) -> Result<()> {
        let body = Bytes::from_static(b"x");
        let keys = [3, 1, 4, 2].map(|number| self.log_key(number));
        let created = join_all(keys.iter().map(|key| self.create(key, &body))).await;
        created.into_iter().collect::<Result<Vec<_>>>()?;
        let mut want: Vec<String> =
            (0..=4).rev().map(|n: u64| format!("{}/{:016x}.{n}", self.folder, u64::MAX - n)).collect();
        let got = self.list(None).await?;
        let numbered: Vec<String> = got.iter().filter(|key| want.contains(*key)).cloned().collect();
        if let Some(missing) = want.iter().find(|key| !got.contains(*key)) {
            return Err(self.refuse("listing", format!("an object just created is not listed ({missing})"), BLIND));
        }
        if numbered != want {
            return Err(self.refuse(
                "listing",
                "keys of one folder do not come in byte order",
                "the newest entry would not come first",
            ));
        }
        want.truncate(2);
        if self.list(Some(2)).await? != want {
            return Err(self.refuse(
                "listing",
                "a page is not the first keys that were asked for",
                "finding the newest entry would not be one small request",
            ));
        }
        let beside = List { prefix: format!("{}-/", self.folder), ..List::default() };
        if !self.all_pages(beside, None).await?.is_empty() {
            return Err(self.refuse("listing", "a folder that nobody wrote to is not empty", BLIND));
        }
        Ok(())
    }

    /// Keys of the probe's folder, all or the first ones. Short and empty pages are no sin while they say how to go on.
    async fn list(&self, first: Option<u16>) -> Result<Vec<String>> {
        let list = List { prefix: format!("{}/", self.folder), max_keys: first, ..List::default() };
        self.all_pages(list, first).await
    }

    async fn all_pages(&self, list: List, first: Option<u16>) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        let mut pages = Pages::new(self.store, list);
        while first.is_none_or(|first| keys.len() < usize::from(first)) {
            let page = match pages.next().await {
                Err(error) if error.code() == "bad_listing" => return Err(self.refuse("listing", error, BLIND)),
                page => page?,
            };
            let Some(page) = page else { break };
            if first.is_some_and(|first| page.keys.len() > usize::from(first)) {
                return Err(self.refuse(
                    "listing",
                    "a page has more keys than were asked for",
                    "finding the newest entry would not be one small request",
                ));
            }
            keys.extend(page.keys.into_iter().map(|listed| listed.key));
        }
        keys.truncate(first.map_or(usize::MAX, usize::from));
        Ok(keys)
    }

    /// Many creates at once on one fresh key have one winner, and the bytes are the winner's. How many were made, and how
    /// many were not answered.
    async fn races(&self) -> Result<(u32, u32)> {
        let begin = self.env.monotonic();
        let rounds = stream::iter((0..ROUNDS).map(|round| self.race(round, begin))).buffer_unordered(ROUNDS_AT_ONCE);
        let replies: Vec<Option<u32>> = rounds.collect::<Vec<_>>().await.into_iter().collect::<Result<_>>()?;
        let (made, unanswered) = replies
            .into_iter()
            .flatten()
            .fold((0, 0), |(made, unanswered), more| (made + u32::from(RIVALS), unanswered + more));
        if unanswered == made {
            return Err(Error::new(
                Kind::Offline,
                format!("{} answered none of the creates that ran at once", self.store),
            ));
        }
        Ok((made, unanswered))
    }

    /// One round: how many were not answered. `None` when it is too late to begin one.
    async fn race(&self, round: u8, begin: Duration) -> Result<Option<u32>> {
        const CHECK: &str = "create-if-absent under contention";
        if round >= FEWEST_ROUNDS && self.env.monotonic().saturating_sub(begin) > RACE_TIME {
            return Ok(None);
        }
        let key = self.log_key(100 + round);
        // They are all polled before any reply is looked at, each on a connection of its own.
        let replies = join_all((0..RIVALS).map(|rival| self.store.create(&key, rival_body(round, rival)))).await;
        let (mut winners, mut unanswered) = (Vec::new(), 0);
        for (rival, reply) in (0..RIVALS).zip(replies) {
            match reply {
                Ok(Created::Created(_)) => winners.push(rival),
                Ok(Created::Exists) => {}
                Err(error) if error.kind() == Kind::Offline => unanswered += 1,
                Err(error) => return Err(error),
            }
        }
        if winners.len() > 1 {
            let found = format!("{} of {RIVALS} creates of one key were confirmed", winners.len());
            return Err(self.refuse(CHECK, found, LOST_UPDATE));
        }
        match (self.read(&key).await?, winners.first()) {
            (Some((bytes, _)), Some(winner)) if bytes == rival_body(round, *winner) => {}
            (Some((bytes, _)), None) if (0..RIVALS).any(|rival| bytes == rival_body(round, rival)) => {}
            (None, None) => {}
            _ => return Err(self.refuse(CHECK, "the object is not the winner's", LOST_UPDATE)),
        }
        Ok(Some(unanswered))
    }

    /// Removes the probe's objects. Whether that was allowed.
    async fn clean(&self) -> bool {
        let keys = self.keys().clone();
        let replies = join_all(keys.iter().map(|key| self.store.delete(key))).await;
        replies.iter().all(Result::is_ok)
    }
}

fn rival_body(round: u8, rival: u8) -> Bytes {
    Bytes::from(format!("{round} {rival}"))
}

/// Whether the server's `Date` and `Last-Modified` come from one clock that runs.
fn sane(written: &Meta, read: &Meta) -> bool {
    let slack = i64::try_from(CLOCK_SLACK.as_millis()).unwrap_or(i64::MAX);
    let near = |a: Timestamp, b: Timestamp| a.millis_since(b).abs() <= slack;
    match (written.date, read.date, read.last_modified) {
        (Some(written), Some(read), Some(modified)) => near(written, read) && near(written, modified),
        _ => false,
    }
}
