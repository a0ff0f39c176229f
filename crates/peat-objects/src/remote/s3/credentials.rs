//! Credentials: from the variables given, else from the AWS chain, kept until shortly before they end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_credential_types::provider::error::CredentialsError;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use peat_types::{Env, Error, Kind, Result, Timestamp};
use tokio::sync::Mutex;

use super::aws_chain;
use crate::remote::wire::{LOAD_LIMIT, causes, refuse};

/// Credentials are renewed this long before they end.
const MARGIN: Duration = Duration::from_secs(5 * 60);

/// Where the credentials of a store come from.
#[derive(Debug)]
pub(super) enum Source {
    /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`: nothing else is loaded.
    Given(Arc<AwsCredential>),
    /// Whatever the AWS tools would use.
    Chain { profile: Option<String> },
}

impl Source {
    /// Chooses by the variables, as the AWS tools do: keys given there go before any profile.
    pub fn choose(profile: Option<&str>, env: &Env) -> Result<Self> {
        let half = |has: &str, lacks: &str| {
            Err(Error::invalid(format!("{has} is set, but {lacks} is not"))
                .with_hint(format!("set {lacks} too, or unset {has} to use a profile")))
        };
        match (env.var("AWS_ACCESS_KEY_ID"), env.var("AWS_SECRET_ACCESS_KEY")) {
            (Some(key_id), Some(secret_key)) if profile.is_none() => Ok(Self::Given(Arc::new(AwsCredential {
                key_id: key_id.to_owned(),
                secret_key: secret_key.to_owned(),
                token: env.var("AWS_SESSION_TOKEN").map(str::to_owned),
            }))),
            (Some(_), None) => half("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            (None, Some(_)) => half("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
            _ => Ok(Self::Chain { profile: profile.or(env.var("AWS_PROFILE")).map(str::to_owned) }),
        }
    }

    /// Whether loading again may give other credentials.
    pub fn renewable(&self) -> bool {
        matches!(self, Self::Chain { .. })
    }

    pub fn profile(&self) -> Option<&str> {
        match self {
            Self::Given(_) => None,
            Self::Chain { profile } => profile.as_deref(),
        }
    }
}

#[derive(Debug)]
struct Loaded {
    credential: Arc<AwsCredential>,
    ends: Option<Timestamp>,
}

/// The credentials of one store.
#[derive(Debug)]
pub(super) struct Credentials {
    source: Source,
    loaded: Mutex<Option<Loaded>>,
    env: Env,
}

impl Credentials {
    pub fn new(source: Source, env: &Env) -> Self {
        Self { source, loaded: Mutex::new(None), env: env.clone() }
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Forgets what is loaded, because the store refused it.
    pub async fn renew(&self) {
        *self.loaded.lock().await = None;
    }

    async fn load(&self) -> Result<Arc<AwsCredential>> {
        let profile = match &self.source {
            Source::Given(credential) => return Ok(credential.clone()),
            Source::Chain { profile } => profile.as_deref(),
        };
        let mut loaded = self.loaded.lock().await;
        let left = |ends: Timestamp| ends.millis_since(self.env.now());
        let margin = i64::try_from(MARGIN.as_millis()).unwrap_or(i64::MAX);
        if let Some(now) = &*loaded
            && now.ends.is_none_or(|ends| left(ends) > margin)
        {
            return Ok(now.credential.clone());
        }
        let fresh = Box::pin(self.env.timeout(LOAD_LIMIT, aws_chain::credentials(profile))).await;
        match fresh.unwrap_or_else(|| Err(CredentialsError::provider_timed_out(LOAD_LIMIT))) {
            Ok((credential, ends)) => {
                let credential = Arc::new(credential);
                *loaded = Some(Loaded { credential: credential.clone(), ends });
                Ok(credential)
            }
            Err(error) => match &*loaded {
                // Not ended yet: good enough, and the next request tries again.
                Some(now) if now.ends.is_some_and(|ends| left(ends) > 0) => Ok(now.credential.clone()),
                _ => Err(explain(&error, profile)),
            },
        }
    }
}

#[async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.load().await.map_err(|error| refuse("S3", error))
    }
}

fn login(profile: Option<&str>) -> String {
    match profile {
        Some(profile) => format!("log in again: aws sso login --profile {profile}"),
        None => "log in again: aws sso login".to_owned(),
    }
}

/// The remedy for credentials that have ended.
pub(super) fn expired_hint(source: &Source) -> String {
    match source {
        Source::Given(_) => "AWS_SESSION_TOKEN has ended: get fresh AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or unset them to use a profile".to_owned(),
        Source::Chain { profile } => login(profile.as_deref()),
    }
}

fn explain(error: &CredentialsError, profile: Option<&str>) -> Error {
    let whole = causes(error);
    let lower = whole.to_lowercase();
    let error = match error {
        CredentialsError::CredentialsNotLoaded(_) => Error::new(Kind::Denied, "no credentials found")
            .with_code("no_credentials")
            .with_hint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or set AWS_PROFILE to a profile of ~/.aws/config, or run 'aws configure'"),
        _ if lower.contains("sso") || lower.contains("token") && lower.contains("expired") => {
            Error::new(Kind::Denied, "the login has ended").with_code("credentials_expired").with_hint(login(profile))
        }
        CredentialsError::InvalidConfiguration(_) => {
            Error::new(Kind::Denied, "the AWS configuration is wrong").with_code("no_credentials").with_hint(
                match profile {
                    Some(profile) => format!("look at the profile '{profile}' in ~/.aws/config and ~/.aws/credentials"),
                    None => "look at ~/.aws/config and ~/.aws/credentials".to_owned(),
                },
            )
        }
        _ => Error::new(Kind::Denied, "the credentials could not be loaded")
            .with_code("no_credentials")
            .with_hint("try 'aws sts get-caller-identity', which uses the same ones"),
    };
    error.with_source(whole)
}
