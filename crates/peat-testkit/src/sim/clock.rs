use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use peat_types::{Clock, Timestamp};
use tokio::time::Instant;

/// Noon of some day: what clocks without skew show when a schedule starts.
const EPOCH_MS: i64 = 1_784_548_800_000;

/// The clocks of one machine in virtual time; clones are the same clocks.
#[derive(Clone, Debug)]
pub struct SimClock {
    start: Instant,
    /// What the wall clock is ahead.
    skew_ms: Arc<AtomicI64>,
    /// What the monotonic clock is ahead: it begins anew with every boot.
    ahead_ms: Arc<AtomicI64>,
}

impl SimClock {
    /// Clocks of a machine that booted `booted` before now and whose wall clock is `skew_ms` ahead. Must be made inside
    /// a runtime whose time is paused.
    pub fn new(booted: Duration, skew_ms: i64) -> Self {
        let ahead_ms = i64::try_from(booted.as_millis()).unwrap_or(i64::MAX);
        Self { start: Instant::now(), skew_ms: Arc::new(skew_ms.into()), ahead_ms: Arc::new(ahead_ms.into()) }
    }

    /// Sets the wall clock forward or back.
    pub(super) fn jump(&self, by_ms: i64) {
        self.skew_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// The machine boots: its monotonic clock begins anew.
    pub(super) fn boot(&self) {
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.ahead_ms.store(-passed, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(EPOCH_MS.saturating_add(self.skew_ms.load(Ordering::Relaxed)).saturating_add(passed))
    }

    fn monotonic(&self) -> Duration {
        let ahead = self.ahead_ms.load(Ordering::Relaxed);
        let by = Duration::from_millis(ahead.unsigned_abs());
        if ahead < 0 { self.start.elapsed().saturating_sub(by) } else { self.start.elapsed() + by }
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}
