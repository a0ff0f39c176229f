//! What a commit stands on: a head that is fresh enough, and units that are right as of it.

use std::time::Duration;

use peat_ledger::{Follow, Ledger, State};
use peat_types::{Error, Result, Unit};

use super::AtHand;
use crate::db::{self, Heads, Moment};
use crate::handle::Inner;

/// How old a look at the head may be before the next commit asks first.
pub(crate) const RECENT: Duration = Duration::from_secs(1);
const RETRIES: u32 = 3;
/// How long to wait for the answer that another task of this process waits for.
const SHARED: Duration = Duration::from_secs(2);

/// What to do about a store that is not what it was.
pub(crate) const ACCEPT: &str = "this clone writes nothing to it until it is what it was; if what is there now shall be it, \
                                 remove state.db from the folder of the clone, which 'peat status' names: what is only here \
                                 is put aside by the next pull, and pending changes are kept";

/// A head and when it was seen to be one.
pub(crate) struct Base {
    pub(crate) state: State,
    /// By `Env::monotonic`.
    pub(crate) read_at: Duration,
}

/// How hard to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Ask unless the head was read within the last second or written by this clone: then the create is the probe.
    IfOld,
    /// Ask.
    Now,
    /// Ask by LIST.
    List,
}

impl Inner {
    /// A head to build upon, with `units` right as of it.
    ///
    /// # Errors
    /// `Conflict` with code `moved` when the ledger went elsewhere: nothing can be built there any more.
    pub(crate) async fn base(&self, units: &[Unit], look: Look) -> Result<Base> {
        let mut look = look;
        for _ in 0..RETRIES {
            self.look(look).await?;
            match self.level(units).await {
                Ok(Some(base)) => {
                    return base
                        .state
                        .root
                        .moved
                        .as_ref()
                        .map_or(Ok(()), |to| Err(self.ledger.gone_to(to)))
                        .map(|()| base);
                }
                // Another process of this clone moved on meanwhile.
                Ok(None) => look = Look::IfOld,
                Err(error) if Ledger::is_gone(&error) => look = Look::List,
                Err(error) => return Err(error),
            }
        }
        Err(Error::damaged("the head of the log refers to objects that are gone").with_hint("run 'peat ledger verify'"))
    }

    /// Remembers that the store was set back or replaced, so that nothing is written to it until it is right again.
    pub(crate) fn watchful<T>(&self, seen: Result<T>) -> Result<T> {
        match seen {
            Err(error) if ["rollback", "fork"].iter().any(|code| error.has_code(code)) => {
                self.db.suspect(true)?;
                Err(error.with_hint(ACCEPT))
            }
            seen => seen,
        }
    }

    /// Makes sure that the store is still what it was, when there is doubt about that. No request otherwise.
    pub(crate) async fn trusted(&self) -> Result<()> {
        let heads = self.db.heads()?;
        let Some(head) = heads.head.filter(|_| heads.suspect) else { return Ok(()) };
        Box::pin(self.ledger.confirm(&head)).await.map_err(|error| error.with_hint(ACCEPT))?;
        self.db.suspect(false)
    }

    /// After maintenance wrote an entry of its own: what is said of it here is right at once. One request.
    pub(crate) async fn note_own_entry(&self) {
        if let Err(error) = Box::pin(self.look(Look::Now)).await {
            tracing::debug!(%error, "the index hears of it later");
        }
    }

    /// Does what writes to the store, unless that is not what it was.
    pub(crate) async fn guarded<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.trusted().await?;
        self.watchful(Box::pin(work).await)
    }

    /// Reads what is new after the head.
    pub(crate) async fn look(&self, look: Look) -> Result<()> {
        self.trusted().await?;
        self.watchful(Box::pin(self.look_now(look)).await)
    }

    async fn look_now(&self, look: Look) -> Result<()> {
        // What one task learns is recent enough for all that came meanwhile.
        let _turn = match look {
            Look::IfOld => self.env.timeout(SHARED, self.looking.lock()).await,
            Look::Now | Look::List => None,
        };
        let heads = self.db.heads()?;
        let at = Moment::now(&self.env);
        let Some(head) = &heads.head else {
            let entry = self.ledger.head().await?;
            return self.jump_head(&entry.state, at);
        };
        let recent = heads.read.is_some_and(|read| read.age(&self.env) <= RECENT);
        if look == Look::IfOld && (recent || heads.mine && !self.unlisted_for_long(&heads)) {
            return Ok(());
        }
        let list = look == Look::List || self.list_due(&heads);
        match self.ledger.follow(head, list).await? {
            Follow::Unchanged => self.db.seen(head.seq, at, list),
            Follow::Entries(entries) => {
                let applied = self.apply(&entries, at, list, false).await?;
                self.hydrate_at_hand(applied, &AtHand::entries(entries)).await;
                Ok(())
            }
            Follow::Jump(state) => self.jump_head(&state, at),
        }
    }

    /// Takes a head over without what lies between: only the units that are asked for will follow.
    pub(crate) fn jump_head(&self, state: &State, at: Moment) -> Result<()> {
        self.db.write(|tx| db::set_head(tx, &db::NewHead { state, at, listed: true, mine: false }))
    }

    /// Brings units up to the stored head. `None` when that moved meanwhile.
    async fn level(&self, units: &[Unit]) -> Result<Option<Base>> {
        let heads = self.db.heads()?;
        let read_at = self.read_at(&heads);
        let Some(state) = heads.head else { return Ok(None) };
        let mut behind = Vec::new();
        for unit in units {
            match self.db.read(|tx| db::known(tx, unit))?.1 {
                Some(as_of) if as_of == state.seq => {}
                Some(as_of) if as_of > state.seq => return Ok(None),
                _ => behind.push(unit.clone()),
            }
        }
        if behind.is_empty() {
            return Ok(Some(Base { state, read_at }));
        }
        let mut rows = Vec::new();
        for unit in &behind {
            rows.push((unit.clone(), self.ledger.unit(&state, unit, &self.db).await?));
        }
        let at = heads.read.unwrap_or_else(|| Moment::now(&self.env));
        self.take_units(&state, &behind, rows, at, false).await?;
        let same = self.db.read(db::head_seq)? == Some(state.seq);
        Ok(same.then_some(Base { state, read_at }))
    }

    /// When the head was read, on the monotonic clock; the beginning of time when that cannot be told.
    fn read_at(&self, heads: &Heads) -> Duration {
        let age = heads.read.map_or(Duration::MAX, |read| read.age(&self.env));
        self.env.monotonic().saturating_sub(age)
    }
}
