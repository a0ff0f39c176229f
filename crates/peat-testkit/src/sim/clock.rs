use std::pin::Pin;
use std::time::Duration;

use peat_types::{Clock, Timestamp};
use tokio::time::Instant;

/// Noon of some day: what clocks without skew show when a schedule starts.
const EPOCH_MS: i64 = 1_784_548_800_000;

/// The clocks of one machine in virtual time.
#[derive(Clone, Debug)]
pub struct SimClock {
    start: Instant,
    booted: Duration,
    skew_ms: i64,
}

impl SimClock {
    /// Clocks of a machine that booted `booted` before now and whose wall clock is `skew_ms` ahead. Must be made inside
    /// a runtime whose time is paused.
    pub fn new(booted: Duration, skew_ms: i64) -> Self {
        Self { start: Instant::now(), booted, skew_ms }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(EPOCH_MS.saturating_add(self.skew_ms).saturating_add(passed))
    }

    fn monotonic(&self) -> Duration {
        self.booted + self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}
