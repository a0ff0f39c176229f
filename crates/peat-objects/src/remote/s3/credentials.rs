//! Credentials of one store: where they come from, and when they are loaded again.

use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials as AwsCredentials;
use aws_smithy_runtime_api::client::identity::Identity;
use peat_types::{Env, Error, Result, Timestamp};
use tokio::sync::Mutex;

use super::clock::ServerClock;
use super::sources::{Profile, Refused, Sources};

/// Credentials are loaded again this long before they end, or in the second half of a shorter life.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// How long a failed renewal is not tried again while the old credentials still hold.
const PAUSE: Duration = Duration::from_secs(15);

/// How the credentials of a store are chosen.
#[derive(Debug)]
pub(in crate::remote) enum Source {
    /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`: nothing else is loaded.
    Given(AwsCredentials),
    /// Whatever the AWS tools would use.
    Chain {
        /// As set in options or variables.
        profile: Option<String>,
    },
}

impl Source {
    /// Chooses as the AWS tools do: a profile that was asked for, keys in variables, then the rest of the chain.
    pub fn choose(profile: Option<&str>, env: &Env) -> Result<Self> {
        if let Some(profile) = profile {
            return Ok(Self::Chain { profile: Some(profile.to_owned()) });
        }
        let half = |has: &str, lacks: &str| {
            Err(Error::invalid(format!("{has} is set, but {lacks} is not"))
                .with_hint(format!("set {lacks} too, or unset {has} to use a profile")))
        };
        match (env.var("AWS_ACCESS_KEY_ID"), env.var("AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => {
                let token = env.var("AWS_SESSION_TOKEN").map(str::to_owned);
                Ok(Self::Given(AwsCredentials::new(id, secret, token, None, "variables")))
            }
            (Some(_), None) => half("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            (None, Some(_)) => half("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
            (None, None) => Ok(Self::Chain { profile: env.var("AWS_PROFILE").map(str::to_owned) }),
        }
    }

    /// The profile that is used when its name was given.
    pub fn profile(&self) -> Option<&str> {
        match self {
            Self::Given(_) => None,
            Self::Chain { profile } => profile.as_deref(),
        }
    }

    /// Where a wrong access key stands.
    pub fn key_hint(&self) -> String {
        match self {
            Self::Given(_) => "correct AWS_ACCESS_KEY_ID; it goes before any profile".to_owned(),
            Self::Chain { profile: Some(name) } => format!("correct the profile '{name}'"),
            Self::Chain { profile: None } => "see which one it is with 'aws configure list'".to_owned(),
        }
    }

    /// Where a wrong secret stands.
    pub fn secret_hint(&self) -> String {
        match self {
            Self::Given(_) => "correct AWS_SECRET_ACCESS_KEY".to_owned(),
            Self::Chain { .. } => self.key_hint(),
        }
    }

    /// The remedy for credentials that have ended.
    pub fn expired_hint(&self) -> String {
        match self {
            Self::Given(_) => "AWS_SESSION_TOKEN has ended: get fresh AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or unset them to use a profile".to_owned(),
            Self::Chain { profile: Some(name) } => {
                format!("renew the credentials of the profile '{name}'; with single sign-on: aws sso login --profile {name}")
            }
            Self::Chain { profile: None } => {
                "renew the credentials; 'aws configure list' shows where they come from".to_owned()
            }
        }
    }
}

/// The command that starts a new session of single sign-on.
pub(super) fn login(profile: Option<&str>) -> String {
    match profile {
        Some(profile) => format!("log in again: aws sso login --profile {profile}"),
        None => "log in again: aws sso login".to_owned(),
    }
}

/// What one load gave.
pub(in crate::remote) struct Keys {
    /// For the signer.
    pub identity: Identity,
    /// Which load it was, for [`Credentials::renew`].
    pub load: u64,
    keys: AwsCredentials,
    renew_at: Option<Timestamp>,
    ends: Option<Timestamp>,
}

impl Keys {
    fn new(keys: AwsCredentials, load: u64, now: Timestamp) -> Self {
        let ends = keys.expiry().and_then(timestamp);
        let renew_at = ends.map(|ends| {
            let half = ends.millis_since(now).max(0) / 2;
            let margin = i64::try_from(MARGIN.as_millis()).unwrap_or(i64::MAX).min(half);
            Timestamp::from_millis(ends.as_millis().saturating_sub(margin))
        });
        Self { identity: keys.clone().into(), load, keys, renew_at, ends }
    }

    fn same(&self, other: &Self) -> bool {
        let parts = |keys: &AwsCredentials| {
            let text = |text: &str| text.to_owned();
            (text(keys.access_key_id()), text(keys.secret_access_key()), keys.session_token().map(text))
        };
        parts(&self.keys) == parts(&other.keys)
    }
}

#[derive(Default)]
struct State {
    keys: Option<Arc<Keys>>,
    /// The store refused the keys.
    refused: bool,
    /// How often loading was tried.
    loads: u64,
    /// What the last try came to, when it failed.
    failure: Option<Refused>,
    /// Monotonic time before which a failed renewal is not tried again.
    pause_until: Duration,
}

/// The credentials of one store. However many requests wait for them, they are loaded once.
pub(in crate::remote) struct Credentials {
    source: Source,
    sources: Sources,
    clock: ServerClock,
    env: Env,
    state: StdMutex<State>,
    loading: Mutex<()>,
}

impl Credentials {
    pub fn new(source: Source, sources: Sources, clock: ServerClock, env: &Env) -> Self {
        let mut state = State::default();
        if let Source::Given(keys) = &source {
            state.keys = Some(Arc::new(Keys::new(keys.clone(), 0, clock.now())));
        }
        Self { source, sources, clock, env: env.clone(), state: StdMutex::new(state), loading: Mutex::default() }
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What the profile says about the server.
    ///
    /// # Errors
    /// When no HTTP client can be set up.
    pub async fn profile(&self) -> Result<Profile> {
        self.sources.profile(self.source.profile()).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys, if nothing has to be loaded for them.
    fn at_hand(&self) -> Option<Arc<Keys>> {
        let state = self.state();
        let keys = state.keys.as_ref().filter(|_| !state.refused)?;
        keys.renew_at.is_none_or(|at| self.clock.now() < at).then(|| keys.clone())
    }

    /// The keys that should be renewed but have not ended yet.
    fn still_good(&self) -> Option<Arc<Keys>> {
        let state = self.state();
        let keys = state.keys.as_ref().filter(|_| !state.refused)?;
        keys.ends.is_none_or(|ends| self.clock.now() < ends).then(|| keys.clone())
    }

    /// The keys to sign with.
    ///
    /// # Errors
    /// Says which source failed and what helps. A failure is not remembered: somebody may log in elsewhere meanwhile.
    pub async fn load(&self) -> Result<Arc<Keys>> {
        if let Some(keys) = self.at_hand() {
            return Ok(keys);
        }
        let seen = self.state().loads;
        let still_good = self.still_good();
        let _guard = match still_good.clone() {
            // One renews, the others go on with what they have.
            Some(keys) => match self.loading.try_lock() {
                Ok(_) if self.env.monotonic() < self.state().pause_until => return Ok(keys),
                Ok(guard) => guard,
                Err(_) => return Ok(keys),
            },
            None => self.loading.lock().await,
        };
        if let Some(keys) = self.at_hand() {
            return Ok(keys);
        }
        {
            let state = self.state();
            if let Some(failure) = state.failure.as_ref().filter(|_| state.loads > seen) {
                // This is the answer that was waited for.
                return Err(failure.error());
            }
        }
        let loaded = Box::pin(self.sources.load(self.source.profile())).await;
        let mut state = self.state();
        state.loads += 1;
        match loaded {
            Ok(keys) => {
                let keys = Arc::new(Keys::new(keys, state.loads, self.clock.now()));
                *state = State { keys: Some(keys.clone()), loads: state.loads, ..State::default() };
                Ok(keys)
            }
            Err(failure) => match still_good {
                Some(keys) => {
                    tracing::debug!(%failure, "credentials could not be renewed yet; the old ones still hold");
                    state.pause_until = self.env.monotonic() + PAUSE;
                    Ok(keys)
                }
                None => {
                    let error = failure.error();
                    state.failure = Some(failure);
                    Err(error)
                }
            },
        }
    }

    /// Loads again, because the store refused the keys of this load. Whether there are other keys now, so that the
    /// request may be sent again.
    pub async fn renew(&self, load: u64) -> bool {
        if matches!(self.source, Source::Given(_)) {
            return false;
        }
        let refused = {
            let mut state = self.state();
            match &state.keys {
                Some(keys) if keys.load == load => {
                    let keys = keys.clone();
                    state.refused = true;
                    keys
                }
                // Somebody else did already.
                _ => return true,
            }
        };
        // A failure is found again, and told, by the request itself.
        self.load().await.is_ok_and(|keys| !keys.same(&refused))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("source", &self.source).finish_non_exhaustive()
    }
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
}
