//! An [`Env`] on tokio's clock: real time as a rule, no time at all in a test with `start_paused`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use peat_types::{Clock, Env, Timestamp};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z: where the wall clock of tests starts.
pub const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(START.as_millis() + i64::try_from(self.monotonic().as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    #[allow(clippy::disallowed_methods)] // with a paused clock no time passes here
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// An environment on tokio's clock with fixed randomness and no variables. Call it inside a runtime.
pub fn tokio_env(seed: u64) -> Env {
    tokio_env_with(seed, [])
}

/// Like [`tokio_env`], with environment variables.
pub fn tokio_env_with<const N: usize>(seed: u64, vars: [(&str, &str); N]) -> Env {
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Env::seeded(Arc::new(TokioClock(Instant::now())), seed, vars)
}
