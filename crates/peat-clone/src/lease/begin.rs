//! Beginning a run: the start transaction takes the leases; nothing else counts as having them.

use std::sync::Arc;
use std::time::Duration;

use peat_ledger::Lease;
use peat_types::{Error, Kind, Result, RunNonce, Unit, operation};
use tokio::sync::watch;

use super::{Grant, LeaseMode, NewRun, Run};
use crate::commit::{AGAIN, Dead, How, Outcome, Start};
use crate::files::Lock;
use crate::handle::Inner;
use crate::journal::{Locked, Role};
use crate::sync::Look;
use crate::{Committed, Event, Holder, NewChange};

const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// However little time is left for waiting, a start that goes out is given this long.
const SEND: Duration = Duration::from_secs(10);

/// A run on its way.
struct Begin {
    inner: Arc<Inner>,
    start: NewChange,
    nonce: RunNonce,
    parent: Vec<Grant>,
    /// The units to be leased.
    leases: Vec<Unit>,
    began: Duration,
    wait: Duration,
    ttl: Duration,
    /// Once the start was journalled.
    sent: Option<(Locked, Lock)>,
}

impl Inner {
    pub(crate) async fn begin(this: &Arc<Self>, new: NewRun) -> Result<Run> {
        let parent = new.start.capability.as_ref().map(|held| held.grants().to_vec()).unwrap_or_default();
        let mut leases = new.start.units.clone();
        leases.sort_unstable();
        leases.dedup();
        leases.retain(|unit| !parent.iter().any(|grant| grant.unit == *unit));
        let begin = Begin {
            inner: this.clone(),
            nonce: RunNonce::random(&this.env),
            parent,
            leases,
            began: this.env.monotonic(),
            wait: new.wait,
            ttl: Duration::from_millis(this.ledger.info().params.lease_ttl_ms),
            start: new.start,
            sent: None,
        };
        match new.lease {
            LeaseMode::Unleased => Ok(begin.run(None, Vec::new(), LeaseMode::Unleased)),
            LeaseMode::Leased => Box::pin(begin.leased()).await,
        }
    }
}

impl Begin {
    fn run(mut self, started: Option<Committed>, taken: Vec<Grant>, mode: LeaseMode) -> Run {
        let own = taken.iter().map(|grant| grant.unit.clone()).collect();
        let mut grants = std::mem::take(&mut self.parent);
        grants.extend(taken);
        Run {
            started,
            nonce: self.nonce,
            grants,
            own,
            mode,
            begun: self.inner.env.monotonic(),
            ttl: self.ttl,
            lost: watch::Sender::new(None),
            silent: watch::Sender::new(false),
            beating: tokio::sync::Mutex::new(true),
            alive: self.sent.take().map(|(_, lock)| lock),
            inner: self.inner,
        }
    }

    async fn leased(mut self) -> Result<Run> {
        let inner = self.inner.clone();
        let env = &inner.env;
        let mut units = self.start.units.clone();
        units.extend(self.parent.iter().map(|grant| grant.unit.clone()));
        units.sort_unstable();
        units.dedup();
        let (mut look, mut pause, mut again) = (Look::IfOld, PAUSE, 0);
        // Open from the first holder that is met until the lease is had or given up.
        let mut waiting = None;
        loop {
            Box::pin(inner.base(&units, look)).await.map_err(not_started)?;
            let mut dead = Dead::new();
            let mut held = self.holder(&mut dead).await.map_err(not_started)?;
            if held.is_none() {
                match Box::pin(self.send(&dead)).await? {
                    Outcome::Committed(started, taken) => return self.started(*started, taken).await,
                    Outcome::Refused(error) if error.code() == AGAIN && again < 100 => {
                        again += 1;
                        look = Look::Now;
                        continue;
                    }
                    Outcome::Refused(error) => {
                        self.forget()?;
                        return Err(error);
                    }
                    Outcome::Held(unit, lease) => held = Some((unit, *lease)),
                    Outcome::Later(error) => return Box::pin(self.give_up(error)).await,
                }
            }
            let Some((unit, lease)) = held else { continue };
            let holder = Holder::of(&unit, &lease);
            let waited = env.monotonic().saturating_sub(self.began);
            if let Some(error) = self.no_more_waiting(&holder, waited) {
                self.forget()?;
                return Err(error);
            }
            waiting.get_or_insert_with(|| operation!("lease.wait", peat.unit = %unit));
            inner.options.reporter.report(Event::Waiting { holder: &holder, waited, limit: self.wait });
            // Often enough to see a death within the holder's time-to-live, and never beyond the deadline.
            let limit = PAUSE_MAX.min(Duration::from_millis(lease.ttl_ms) / 4).min(self.wait - waited);
            env.sleep((pause / 2 + env.jitter(pause / 2)).min(limit)).await;
            pause = (pause * 2).min(PAUSE_MAX);
            look = Look::Now;
        }
    }

    /// A holder to wait for, if there is one; those proven dead are put into `dead`.
    async fn holder(&self, dead: &mut Dead) -> Result<Option<(Unit, Lease)>> {
        let inner = self.inner.clone();
        let mut waits = None;
        let (mut at, mut settled) = (0, None);
        while let Some(unit) = self.leases.get(at).cloned() {
            at += 1;
            let Some(lease) = inner.lease(&unit).await?.filter(|lease| lease.held && lease.nonce != self.nonce) else {
                continue;
            };
            if lease.clone == inner.id && settled != Some(at) && inner.runs.is_dead(lease.nonce)? {
                // A run of this clone whose process is gone. Its end may lie in the journal, and comes before us. When
                // another process is at it, or the store cannot be reached, the next poll tries again.
                settled = Some(at);
                Box::pin(inner.settle_units(Some(std::slice::from_ref(&unit)))).await?;
                at -= 1;
                continue;
            }
            if inner.holder_is_dead(&unit, &lease).await? {
                inner.options.reporter.report(Event::TakingOver { holder: &Holder::of(&unit, &lease) });
                dead.insert(unit, lease.nonce);
            } else {
                waits.get_or_insert((unit, lease));
            }
        }
        Ok(waits)
    }

    fn no_more_waiting(&self, holder: &Holder, waited: Duration) -> Option<Error> {
        let named = |unit| self.inner.planner.name_of(unit);
        let unit = named(&holder.unit);
        let who = format!("the lease of {unit} is held by {}@{} since {}", holder.user, holder.host, holder.since);
        if let Some(parent) = self.parent.first() {
            return Some(
                Error::new(
                    Kind::Contended,
                    format!("{who}, and this process works under the lease of {}", named(&parent.unit)),
                )
                .with_hint("a run that holds a lease does not wait for another one: take both in one run"),
            );
        }
        (waited >= self.wait).then(|| {
            Error::new(Kind::Contended, format!("{who}; waited {:.1} s", waited.as_secs_f64()))
                .with_code("lock_timeout")
                .with_hint("wait longer with --lock-timeout, or see 'peat model output search' for what runs")
        })
    }

    async fn send(&mut self, dead: &Dead) -> Result<Outcome> {
        let inner = self.inner.clone();
        if self.sent.is_none() {
            inner.runs.set_base(inner.head_seq()?);
            let role = Role::Start {
                nonce: self.nonce,
                leases: self.leases.clone(),
                ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            };
            let locked = inner.journal_change(self.start.clone(), role, self.parent.clone(), false)?;
            let lock = inner.runs.announce(self.nonce, locked.id(), &self.leases)?;
            self.sent = Some((locked, lock));
            inner.env.step("begin.journalled").await;
        }
        let Some((locked, _)) = &mut self.sent else { return Err(Error::internal("a start was not journalled")) };
        let deadline = (self.began + self.wait).max(inner.env.monotonic() + SEND);
        Box::pin(inner.work(locked, How { look: Look::IfOld, deadline, dead })).await
    }

    async fn started(self, started: Committed, taken: Vec<Grant>) -> Result<Run> {
        self.inner.env.step("begin.committed").await;
        if taken.len() != self.leases.len() {
            // Committed while nobody looked, and taken over since.
            self.inner.runs.retire(self.nonce);
            return Err(
                Error::new(Kind::Contended, "the lease was taken over before the run began").with_code("contended")
            );
        }
        self.inner.runs.enter(self.nonce);
        Ok(self.run(Some(started), taken, LeaseMode::Leased))
    }

    /// The start is not known to be in the log. The method must not begin; so the start must not land later either.
    async fn give_up(mut self, error: Error) -> Result<Run> {
        let Some((mut locked, lock)) = self.sent.take() else { return Err(not_started(error)) };
        let deadline = self.inner.env.monotonic() + SEND;
        match Box::pin(self.inner.resolve_start(&mut locked, deadline)).await {
            Ok(Start::Committed(seq)) => {
                let answer = locked.state().answer.clone();
                let started = Committed { seq, change: locked.id(), answer, items: Vec::new() };
                let taken = self.inner.grants_of(&self.leases, self.nonce).await?;
                self.sent = Some((locked, lock));
                self.started(started, taken).await
            }
            Ok(Start::Aborted) => {
                self.inner.runs.retire(self.nonce);
                Err(not_started(error))
            }
            // The row stays: the next settling resolves it.
            Err(_) => Err(not_started(error)),
        }
    }

    /// No attempt can get into the log.
    fn forget(&mut self) -> Result<()> {
        if let Some((mut locked, lock)) = self.sent.take() {
            locked.remove()?;
            self.inner.runs.retire(self.nonce);
            drop(lock);
        }
        Ok(())
    }
}

fn not_started(error: Error) -> Error {
    let code = if error.has_code("moved") { "moved" } else { error.kind().code() };
    error.context("the run was not started").with_code(code)
}
