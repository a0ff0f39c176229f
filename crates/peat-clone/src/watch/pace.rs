//! How long to wait before the next look.

use std::time::Duration;

use peat_types::Env;

/// Shortest pause: changes come in bursts (a run begins and ends), so it is worth looking again soon after one.
const SOON: Duration = Duration::from_millis(250);
/// Longest pause while the store does not answer.
const AWAY: Duration = Duration::from_secs(60);

/// Pauses grow while nothing happens and shrink when something does. All of them are jittered, so that many followers do
/// not come at once.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    next: Duration,
    failures: u32,
}

impl Pace {
    pub fn new(interval: Duration) -> Self {
        Self { interval, next: interval, failures: 0 }
    }

    /// Something was new.
    pub fn news(&mut self) {
        self.next = SOON.min(self.interval);
    }

    /// The store answered.
    pub fn answered(&mut self) {
        self.failures = 0;
    }

    /// Nothing was new: how long to wait, at most the interval.
    pub fn quiet(&mut self, env: &Env) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.interval);
        now.mul_f64(0.75) + env.jitter(now.mul_f64(0.25))
    }

    /// The store did not answer: how long to wait.
    pub fn failed(&mut self, env: &Env) -> Duration {
        let limit = AWAY.max(self.interval);
        let now = self.interval.saturating_mul(1 << self.failures.min(16)).min(limit);
        self.failures = self.failures.saturating_add(1);
        now / 2 + env.jitter(now / 2)
    }
}
