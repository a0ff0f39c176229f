//! The AWS tools' own way to credentials: profiles with all they can refer to, web identity, containers, instances.
//!
//! Beside `azure::credentials` this is the only place where a library reads environment variables, files of the home folder
//! and metadata services by itself. It is entered only when the variables given do not hold the keys.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aws_config::ecs::EcsCredentialsProvider;
use aws_config::imds;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials as AwsCredentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_types::os_shim_internal::{Env as ProcessEnv, Fs};
use aws_types::service_config::ServiceConfigKey;
use peat_types::{Env, Error, Kind};

use super::aws_http::AwsHttp;
use super::clock::ServerClock;
use super::credentials::login;
use crate::OpenOptions;
use crate::remote::client::Settings;
use crate::remote::wire::causes;

/// The whole chain. A program of the user's may ask for a code, so it is not short.
const LIMIT: Duration = Duration::from_secs(60);
/// An instance answers at once; elsewhere nobody does, and the user should not wait for that.
const METADATA_LIMIT: Duration = Duration::from_millis(700);
/// How long a metadata service that did not answer is left alone.
const METADATA_PAUSE: Duration = Duration::from_secs(60);
/// Where STS is asked when nothing says which region.
const DEFAULT_REGION: &str = "us-east-1";

/// Why there are no credentials, in a form that can be told to everybody who waits for them.
#[derive(Clone, Debug)]
pub(in crate::remote) struct Refused {
    kind: Kind,
    code: &'static str,
    message: String,
    hint: String,
    cause: Option<String>,
}

impl Refused {
    pub fn error(&self) -> Error {
        let error = Error::new(self.kind, &self.message).with_code(self.code).with_hint(&self.hint);
        match &self.cause {
            Some(cause) => error.with_source(cause.clone()),
            None => error,
        }
    }
}

impl From<&Error> for Refused {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind(),
            code: error.code(),
            message: error.to_string(),
            hint: error.hints().join("; "),
            cause: std::error::Error::source(error).map(causes),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What a profile says about the server.
#[derive(Debug, Default)]
pub(in crate::remote) struct Profile {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub ca_bundle: Option<String>,
}

/// The sources of credentials, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Profile,
    WebIdentity,
    Container,
    Instance,
}

/// Asks one source after the other.
pub(in crate::remote) struct Sources {
    settings: Settings,
    options: OpenOptions,
    http: OnceLock<AwsHttp>,
    clock: ServerClock,
    env: Env,
    /// Monotonic time before which the metadata service is not asked again.
    metadata_after: Mutex<Duration>,
}

impl Sources {
    pub fn new(settings: Settings, options: OpenOptions, clock: ServerClock, env: &Env) -> Self {
        let (http, metadata_after) = (OnceLock::new(), Mutex::default());
        Self { settings, options, http, clock, env: env.clone(), metadata_after }
    }

    /// Made only when it is needed: reading the system's certificates takes its time.
    fn http(&self) -> peat_types::Result<AwsHttp> {
        if let Some(http) = self.http.get() {
            return Ok(http.clone());
        }
        let (direct, outside) = (self.settings.metadata()?, self.settings.http_outside(&self.options)?);
        Ok(self.http.get_or_init(|| AwsHttp::new(direct, outside, &self.env)).clone())
    }

    fn config(&self, http: AwsHttp, region: &str) -> ProviderConfig {
        let seconds = Duration::from_secs;
        let limits = TimeoutConfig::builder().connect_timeout(seconds(3)).operation_attempt_timeout(seconds(10));
        ProviderConfig::without_region()
            .with_behavior_version(Some(BehaviorVersion::latest()))
            .with_region(Some(Region::new(region.to_owned())))
            .with_http_client(http)
            .with_time_source(self.clock.clone())
            .with_retry_config(RetryConfig::standard().with_max_attempts(2))
            .with_timeout_config(limits.build())
    }

    /// What the profile says about the server.
    pub async fn profile(&self, name: Option<&str>) -> peat_types::Result<Profile> {
        let mut region = ProfileFileRegionProvider::builder();
        if let Some(name) = name {
            region = region.profile_name(name);
        }
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .no_credentials()
            .http_client(self.http()?)
            .region(region.build());
        if let Some(name) = name {
            loader = loader.profile_name(name);
        }
        let config = Box::pin(loader.load()).await;
        let setting = |variable, name| {
            let key = ServiceConfigKey::builder().service_id("s3").env(variable).profile(name).build().ok()?;
            config.service_config()?.load_config(key).filter(|value| !value.is_empty())
        };
        Ok(Profile {
            endpoint: setting("AWS_ENDPOINT_URL", "endpoint_url"),
            region: config.region().map(ToString::to_string),
            ca_bundle: setting("AWS_CA_BUNDLE", "ca_bundle"),
        })
    }

    /// Loads credentials. Files are read and services asked each time, so that a login elsewhere is noticed.
    pub async fn load(&self, profile: Option<&str>) -> Result<AwsCredentials, Refused> {
        match Box::pin(self.env.timeout(LIMIT, self.ask(profile))).await {
            Some(loaded) => loaded,
            None => Err(Refused {
                kind: Kind::Offline,
                code: "no_credentials",
                message: format!("no credentials came within {} s", LIMIT.as_secs()),
                hint: "try 'aws sts get-caller-identity', which asks the same sources".to_owned(),
                cause: None,
            }),
        }
    }

    async fn ask(&self, profile: Option<&str>) -> Result<AwsCredentials, Refused> {
        let region = match ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| self.env.var(name)) {
            Some(region) => Some(region.to_owned()),
            None => Box::pin(self.profile(profile)).await.map_err(|e| Refused::from(&e))?.region,
        };
        let http = self.http().map_err(|e| Refused::from(&e))?;
        let config = self.config(http, region.as_deref().unwrap_or(DEFAULT_REGION));
        for step in [Step::Profile, Step::WebIdentity, Step::Container, Step::Instance] {
            let answer = match step {
                Step::Profile => {
                    let mut builder = ProfileFileCredentialsProvider::builder().configure(&config);
                    if let Some(name) = profile {
                        builder = builder.profile_name(name);
                    }
                    Box::pin(builder.build().provide_credentials()).await
                }
                Step::WebIdentity => {
                    let source = WebIdentityTokenCredentialsProvider::builder().configure(&config).build();
                    Box::pin(source.provide_credentials()).await
                }
                Step::Container => {
                    let source = EcsCredentialsProvider::builder().configure(&config).build();
                    Box::pin(source.provide_credentials()).await
                }
                Step::Instance => match Box::pin(self.instance(&config)).await {
                    Some(answer) => answer,
                    None => break,
                },
            };
            match answer {
                Ok(keys) => return Ok(keys),
                Err(error @ CredentialsError::CredentialsNotLoaded(_)) => {
                    let why = causes(&error);
                    if step == Step::Profile
                        && let Some(name) = profile
                        && (why.contains("was not defined") || no_profiles().await)
                    {
                        return Err(missing_profile(name, &why));
                    }
                }
                Err(error) if step == Step::Instance => {
                    tracing::debug!(error = causes(&error), "no credentials from the metadata service");
                }
                Err(error) => return Err(explain(step, profile, &error)),
            }
        }
        Err(none(profile))
    }

    /// Asks the metadata service of the machine, unless it did not answer a moment ago.
    async fn instance(&self, config: &ProviderConfig) -> Option<Result<AwsCredentials, CredentialsError>> {
        let after = || self.metadata_after.lock().unwrap_or_else(PoisonError::into_inner);
        if self.env.monotonic() < *after() {
            return None;
        }
        let client = imds::Client::builder()
            .configure(config)
            .max_attempts(1)
            .connect_timeout(METADATA_LIMIT)
            .read_timeout(METADATA_LIMIT)
            .build();
        let source = ImdsCredentialsProvider::builder().configure(config).imds_client(client).build();
        let answer = source.provide_credentials().await;
        if answer.is_err() {
            *after() = self.env.monotonic() + METADATA_PAUSE;
        }
        Some(answer)
    }
}

/// Whether the files hold no profile at all. The library says the same then as of a profile without credentials, whose
/// user may mean the machine's own.
async fn no_profiles() -> bool {
    let (fs, env) = (Fs::real(), ProcessEnv::real());
    let found = Box::pin(aws_config::profile::load(&fs, &env, &Default::default(), None)).await;
    found.is_ok_and(|found| found.is_empty())
}

fn none(profile: Option<&str>) -> Refused {
    let message = match profile {
        Some(name) => format!("the profile '{name}' holds no credentials, and there are none elsewhere"),
        None => "no credentials found".to_owned(),
    };
    Refused {
        kind: Kind::Denied,
        code: "no_credentials",
        message,
        hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile that 'aws configure list-profiles' shows".to_owned(),
        cause: None,
    }
}

fn missing_profile(name: &str, why: &str) -> Refused {
    let (message, hint) = match why.split('`').nth(1) {
        Some(other) if other != name => (
            format!("the profile '{name}' refers to the profile '{other}', which does not exist"),
            format!("correct '{name}' in ~/.aws/config; 'aws configure list-profiles' shows the names"),
        ),
        _ => (
            format!("there is no profile '{name}'"),
            "correct AWS_PROFILE or --profile; 'aws configure list-profiles' shows the names".to_owned(),
        ),
    };
    Refused { kind: Kind::Denied, code: "no_credentials", message, hint, cause: None }
}

/// A source that is set up and failed.
fn explain(step: Step, profile: Option<&str>, error: &CredentialsError) -> Refused {
    // The outermost level only says that something failed.
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), causes);
    let cause = cause.trim_start_matches("an error occurred while loading credentials: ").to_owned();
    let has = |parts: &[&str]| parts.iter().any(|part| cause.contains(part));
    let of_profile = match profile {
        Some(name) => format!("the profile '{name}'"),
        None => "the default profile".to_owned(),
    };
    let at = match profile {
        Some(name) => format!(" --profile {name}"),
        None => String::new(),
    };
    let same = format!("'aws sts get-caller-identity{at}' asks the same source");
    let (kind, code, message, hint) = match step {
        _ if has(&["dispatch failure", "timeout", "timed out"]) && !has(&["SSO token has expired"]) => (
            Kind::Offline,
            "unreachable",
            format!("the server that gives out the credentials of {} cannot be reached", where_from(step, &of_profile)),
            format!("check the network and the proxy; {same}"),
        ),
        Step::Profile if has(&["SSO token has expired", "UnauthorizedException"]) => {
            (Kind::Denied, "credentials_expired", format!("the login of {of_profile} has ended"), login(profile))
        }
        Step::Profile if has(&["cached SSO token", "sso/cache"]) => {
            let mut hint = login(profile);
            if has(&["expiresAt"]) {
                hint.push_str("; when that does not help, the AWS CLI that wrote the login is too old");
            }
            (Kind::Denied, "credentials_expired", format!("{of_profile} has no login that can be used"), hint)
        }
        Step::Profile if has(&["ForbiddenException"]) => (
            Kind::Denied,
            "denied",
            format!("the login of {of_profile} may not use its account and role"),
            "check sso_account_id and sso_role_name in ~/.aws/config, or ask for access".to_owned(),
        ),
        Step::Profile if has(&["AssumeRole", "AccessDenied"]) => (
            Kind::Denied,
            "denied",
            format!("the role of {of_profile} may not be assumed"),
            format!("check its role_arn and who the role trusts; {same}"),
        ),
        Step::Profile if matches!(error, CredentialsError::InvalidConfiguration(_)) => (
            Kind::Denied,
            "no_credentials",
            format!("{of_profile} cannot be used"),
            "correct it in ~/.aws/config or ~/.aws/credentials".to_owned(),
        ),
        Step::Profile => (
            Kind::Denied,
            "no_credentials",
            format!("{of_profile} gave no credentials"),
            format!("{same}, and says more"),
        ),
        Step::WebIdentity => (
            Kind::Denied,
            "no_credentials",
            "the web identity gave no credentials".to_owned(),
            "check AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, and whom the role trusts".to_owned(),
        ),
        Step::Container => (
            Kind::Denied,
            "no_credentials",
            "the container service gave no credentials".to_owned(),
            "check the role of the task or pod, and AWS_CONTAINER_CREDENTIALS_FULL_URI".to_owned(),
        ),
        Step::Instance => (
            Kind::Denied,
            "no_credentials",
            "the instance gave no credentials".to_owned(),
            "check the role of the instance".to_owned(),
        ),
    };
    Refused { kind, code, message, hint, cause: Some(cause) }
}

fn where_from(step: Step, profile: &str) -> &str {
    match step {
        Step::Profile => profile,
        Step::WebIdentity => "the web identity",
        Step::Container => "the container",
        Step::Instance => "the instance",
    }
}
