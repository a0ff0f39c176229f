//! The clock of the server, as far as it is known from its refusals.
//!
//! Signatures carry a time, and servers refuse those that are more than a quarter of an hour off. A machine whose clock
//! is wrong would be shut out, so the difference is learned from the reply that refuses and added from then on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use aws_smithy_async::time::TimeSource;
use peat_types::{Env, Timestamp};

/// Differences below a minute are not worth telling: headers carry whole seconds, and replies take time.
const NEWS: i64 = 60_000;

/// This machine's clock, put right by what the server said. Clones are the same clock.
#[derive(Clone)]
pub(in crate::remote) struct ServerClock {
    env: Env,
    /// Milliseconds that the server is ahead of this machine.
    ahead: Arc<AtomicI64>,
}

impl ServerClock {
    pub fn new(env: &Env) -> Self {
        Self { env: env.clone(), ahead: Arc::default() }
    }

    /// The time by the server's clock.
    pub fn now(&self) -> Timestamp {
        let ahead = self.ahead.load(Ordering::Relaxed);
        Timestamp::from_millis(self.env.now().as_millis().saturating_add(ahead))
    }

    /// Follows the server, whose clock showed `date` just now. When that is news, returns by how many milliseconds this
    /// machine's clock is ahead.
    pub fn follow(&self, date: Timestamp) -> Option<i64> {
        let ahead = date.millis_since(self.env.now());
        let before = self.ahead.swap(ahead, Ordering::Relaxed);
        ((ahead - before).abs() > NEWS).then_some(-ahead)
    }
}

impl TimeSource for ServerClock {
    fn now(&self) -> SystemTime {
        system_time(self.now())
    }
}

impl fmt::Debug for ServerClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerClock").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}

/// `time` for libraries; before 1970 there is nothing to sign.
pub(in crate::remote) fn system_time(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(0))
}
