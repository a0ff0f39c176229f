//! The one seam to clock, sleep, randomness and environment variables.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::Timestamp;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time as one machine sees it.
pub trait Clock: Send + Sync {
    /// Wall-clock time. May be wrong, may jump.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment, counting suspension; never goes back.
    fn monotonic(&self) -> Duration;
    /// Resolves after `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture;
}

/// Named points that the code passes. In production nothing happens there; a simulation may stop a process at one.
pub trait Steps: Send + Sync {
    /// Called when the point `name` is reached; never resolves when the process "dies" here.
    fn reach(&self, name: &'static str) -> BoxFuture;
}

/// A safety rule that a test can switch off to prove that the schedules notice its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Mutation {
    NoTxid,
    AdoptOwn,
    NoPrecond,
    ReplanNoChangeId,
    LeaseFreeDeletes,
    NoGuard,
    ResubmitStart,
    OlderReplyIsRollback,
    Starve,
    NoHorizon,
    NoTable,
    NoFloorCheck,
    NoMinlog,
    StaleLive,
    NoRebase,
    NoVoid,
    NoReaderFloor,
    NoFloorObj,
    NoExt,
}

/// Clock, sleep, randomness and a snapshot of the environment variables, handed to every room.
#[derive(Clone)]
pub struct Env(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    rng: Mutex<ChaCha12Rng>,
    vars: BTreeMap<String, String>,
    steps: Option<Arc<dyn Steps>>,
    #[cfg(feature = "mutate")]
    mutation: Option<Mutation>,
}

impl Env {
    /// The real machine: system clocks, randomness of the operating system, and the given variables.
    #[allow(clippy::disallowed_methods)] // the one place where randomness enters
    pub fn system(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut seed = [0; 32];
        if getrandom::fill(&mut seed).is_err() {
            // Without any source of randomness the addresses and times of this process are the best that is left.
            seed[..16].copy_from_slice(&SystemClock.monotonic().as_nanos().to_le_bytes());
            seed[16..20].copy_from_slice(&std::process::id().to_le_bytes());
        }
        Self::new(Arc::new(SystemClock), ChaCha12Rng::from_seed(seed), vars)
    }

    /// An environment whose randomness is fixed by `seed`: for tests and simulations.
    pub fn seeded(clock: Arc<dyn Clock>, seed: u64, vars: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::new(clock, ChaCha12Rng::seed_from_u64(seed), vars)
    }

    fn new(clock: Arc<dyn Clock>, rng: ChaCha12Rng, vars: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(Arc::new(Inner {
            clock,
            rng: Mutex::new(rng),
            vars: vars.into_iter().collect(),
            steps: None,
            #[cfg(feature = "mutate")]
            mutation: None,
        }))
    }

    /// This environment with named points observed by `steps`, and with randomness split off from it.
    #[must_use]
    pub fn with_steps(&self, steps: Arc<dyn Steps>) -> Self {
        Self(Arc::new(Inner { steps: Some(steps), ..self.split() }))
    }

    /// This environment with one safety rule switched off.
    #[cfg(feature = "mutate")]
    #[must_use]
    pub fn with_mutation(&self, mutation: Option<Mutation>) -> Self {
        Self(Arc::new(Inner { mutation, ..self.split() }))
    }

    fn split(&self) -> Inner {
        Inner {
            clock: self.0.clock.clone(),
            rng: Mutex::new(ChaCha12Rng::from_seed(self.random_bytes())),
            vars: self.0.vars.clone(),
            steps: self.0.steps.clone(),
            #[cfg(feature = "mutate")]
            mutation: self.0.mutation,
        }
    }

    /// Wall-clock time; informational.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Time since some fixed moment on this machine; never goes back.
    pub fn monotonic(&self) -> Duration {
        self.0.clock.monotonic()
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.0.clock.sleep(duration).await;
    }

    /// Runs `future` for at most `limit`; `None` when the time was over first.
    pub async fn timeout<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            value = future => Some(value),
            () = self.sleep(limit) => None,
        }
    }

    /// `N` random bytes.
    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.rng.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut bytes);
        bytes
    }

    /// A number in `[0, 1)`.
    pub fn random_unit(&self) -> f64 {
        self.0.rng.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    /// A uniformly random duration between zero and `limit`: full jitter.
    pub fn jitter(&self, limit: Duration) -> Duration {
        limit.mul_f64(self.random_unit())
    }

    /// The value of an environment variable; an empty one counts as unset.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.0.vars.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All environment variables of the snapshot.
    pub fn vars(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.vars.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Passes the named point.
    pub async fn step(&self, name: &'static str) {
        if let Some(steps) = &self.0.steps {
            steps.reach(name).await;
        }
    }

    /// Whether a test switched `mutation` on. Always false in a release.
    pub fn mutated(&self, mutation: Mutation) -> bool {
        #[cfg(feature = "mutate")]
        return self.0.mutation == Some(mutation);
        #[cfg(not(feature = "mutate"))]
        {
            let _ = mutation;
            false
        }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").finish_non_exhaustive()
    }
}

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Timestamp::from_millis(time.tv_sec * 1000 + time.tv_nsec / 1_000_000)
    }

    fn monotonic(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    #[allow(clippy::disallowed_methods)] // the one place where real time passes
    fn sleep(&self, duration: Duration) -> BoxFuture {
        Box::pin(tokio::time::sleep(duration))
    }
}
