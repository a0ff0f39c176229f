//! Beats: a run that takes longer shows that it lives, and looks whether it still holds what it works under.

use std::time::Duration;

use peat_ledger::Beat;
use peat_types::Unit;

use super::{LeaseMode, Run};
use crate::Event;
use crate::sync::Look;

/// Runs shorter than this never beat.
const FIRST: Duration = Duration::from_secs(5);

impl Run {
    pub(super) async fn keep_beating(&self) {
        if self.mode == LeaseMode::Unleased {
            return std::future::pending().await;
        }
        let env = &self.inner.env;
        // A third of the time-to-live leaves two tries before contenders conclude anything. (At the usual 30 s that is
        // 10 s; a time-to-live below 15 s would not survive the 5 s that are the rule otherwise.)
        let period = self.ttl / 3;
        env.sleep(FIRST.min(period)).await;
        loop {
            let tick = env.monotonic();
            Box::pin(self.tick(period)).await;
            let took = env.monotonic().saturating_sub(tick);
            env.sleep(period.saturating_sub(took).max(Duration::from_millis(1))).await;
        }
    }

    async fn tick(&self, period: Duration) {
        let env = &self.inner.env;
        let runs = &self.inner.runs;
        // Nested runs live as long as their parent, which beats for itself.
        if !self.own.is_empty() {
            let beating = self.beating.lock().await;
            if !*beating {
                return;
            }
            let now = env.monotonic();
            if let Some(count) = runs.next_beat(now, period / 2) {
                let beat = Beat { count, nonces: runs.live() };
                let put = self.inner.ledger.beat_put(runs.base(), &beat);
                // Whatever the store says instead of yes, 429 included: this beat is skipped.
                match env.timeout(period / 2, put).await {
                    Some(Ok(())) => runs.beaten(now),
                    Some(Err(error)) => tracing::debug!(%error, "a beat did not get through"),
                    None => tracing::debug!("no answer to a beat"),
                }
            }
            let silence = env.monotonic().saturating_sub(runs.last_beat().unwrap_or_default().max(self.begun));
            if silence > self.ttl * 2 / 3 {
                self.inner.options.reporter.report(Event::BeatLate { silence });
                self.silent.send_replace(true);
            }
        }
        let units: Vec<Unit> = self.grants.iter().map(|grant| grant.unit.clone()).collect();
        let look = Box::pin(self.inner.base(&units, Look::Now));
        match env.timeout(period / 2, look).await {
            Some(Ok(_)) => {}
            // Not knowing is no reason to stop: the guard of the end decides.
            Some(Err(error)) => return tracing::debug!(%error, "the lease could not be looked at"),
            None => return,
        }
        for grant in &self.grants {
            if let Ok(Some(error)) = self.inner.guard_failure(grant).await {
                self.lost.send_replace(Some(error.to_string()));
            }
        }
    }
}
