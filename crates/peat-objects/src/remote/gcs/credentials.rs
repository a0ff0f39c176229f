//! Application Default Credentials: where Google's own tools and libraries look, in their order.
//!
//! Key files and logins are left to the library; the metadata service of a machine is asked here, because the library
//! would look for its address in the process environment and wait for it without a limit that suits a laptop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::gcp::{GcpCredential, GcpCredentialProvider, GoogleCloudStorageBuilder};
use peat_types::{Env, Error, Kind, Result, Timestamp};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::OpenOptions;
use crate::remote::client::{METADATA_LIMIT, Settings, first_of, no_retries};
use crate::remote::wire::{LOAD_LIMIT, Tokens, causes, refuse};

/// A token is renewed this long before it ends. The metadata service keeps giving out one until five minutes before.
const MARGIN: Duration = Duration::from_secs(4 * 60);

const KEY_FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const TOKENS: [&str; 2] = ["CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"];
/// By name, then by number: inside containers the name may not be known.
const METADATA_HOSTS: [&str; 2] = ["metadata.google.internal", "169.254.169.254"];

/// Where the credentials of a store come from.
#[derive(Debug)]
pub(super) enum Source {
    /// An emulator: none.
    Anonymous,
    /// A token in a variable.
    Given(String),
    /// The file of `GOOGLE_APPLICATION_CREDENTIALS`.
    File(PathBuf),
    /// The file that `gcloud auth application-default login` writes, when it is there; else this machine's identity.
    Default { login: Option<PathBuf>, metadata: Vec<String> },
}

impl Source {
    pub fn choose(env: &Env) -> Self {
        if let Some(token) = first_of(env, &TOKENS) {
            return Self::Given(token);
        }
        if let Some(path) = first_of(env, &[KEY_FILE]) {
            return Self::File(path.into());
        }
        let folder = first_of(env, &["CLOUDSDK_CONFIG"])
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(env.var("HOME")?).join(".config/gcloud")));
        Self::Default {
            login: folder.map(|folder| folder.join("application_default_credentials.json")),
            metadata: match first_of(env, &["GCE_METADATA_HOST"]) {
                Some(host) => vec![host],
                None => METADATA_HOSTS.map(str::to_owned).to_vec(),
            },
        }
    }

    /// Whether loading again may give other credentials.
    pub fn renewable(&self) -> bool {
        matches!(self, Self::File(_) | Self::Default { .. })
    }

    /// The remedy for credentials that the service does not take any more.
    pub fn expired_hint(&self) -> String {
        match self {
            Self::Anonymous => {
                "the server wants credentials: unset STORAGE_EMULATOR_HOST, and name it by --endpoint".to_owned()
            }
            Self::Given(_) => format!("the token has ended: get a fresh one into {}, or unset it", TOKENS.join(" or ")),
            Self::File(path) => format!("the key in {} is not valid any more: make another one", path.display()),
            Self::Default { .. } => LOGIN.to_owned(),
        }
    }
}

const LOGIN: &str = "log in again: gcloud auth application-default login";

/// Loaded credentials: from the library, which renews them itself, or a token and when it ends.
#[derive(Debug)]
enum Loaded {
    Library(GcpCredentialProvider),
    Token(Arc<GcpCredential>, Timestamp),
}

/// The credentials of one store.
#[derive(Debug)]
pub(super) struct Credentials {
    source: Source,
    loaded: Mutex<Option<Loaded>>,
    /// How to get to the service that gives out tokens.
    login: Settings,
    options: OpenOptions,
    env: Env,
}

impl Credentials {
    pub fn new(source: Source, login: Settings, options: &OpenOptions, env: &Env) -> Self {
        Self { source, loaded: Mutex::new(None), login, options: options.clone(), env: env.clone() }
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Forgets what is loaded, because the store refused it.
    pub async fn renew(&self) {
        *self.loaded.lock().await = None;
    }

    async fn load(&self) -> Result<Arc<GcpCredential>> {
        let bearer = |token: &str| Ok(Arc::new(GcpCredential { bearer: token.to_owned() }));
        let (file, metadata): (Option<&Path>, &[String]) = match &self.source {
            Source::Anonymous => return bearer("anonymous"),
            Source::Given(token) => return bearer(token),
            Source::File(path) => (Some(path), &[]),
            Source::Default { login, metadata } => (login.as_deref().filter(|path| path.is_file()), metadata),
        };
        let mut loaded = self.loaded.lock().await;
        if let Some(Loaded::Token(token, ends)) = &*loaded
            && ends.millis_since(self.env.now()) > i64::try_from(MARGIN.as_millis()).unwrap_or(i64::MAX)
        {
            return Ok(token.clone());
        }
        let Some(file) = file else {
            let (token, ends) = self.of_machine(metadata).await?;
            *loaded = Some(Loaded::Token(token.clone(), ends));
            return Ok(token);
        };
        let library = match &*loaded {
            Some(Loaded::Library(library)) => library.clone(),
            _ => self.of_file(file)?,
        };
        *loaded = Some(Loaded::Library(library.clone()));
        drop(loaded);
        let token = self.env.timeout(LOAD_LIMIT, library.get_credential()).await;
        token.ok_or_else(|| failed("no answer from Google's login service"))?.map_err(|e| failed(&causes(&e)))
    }

    fn of_file(&self, path: &Path) -> Result<GcpCredentialProvider> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(rename = "type")]
            kind: String,
        }
        let no = |error: Error| error.with_code("no_credentials");
        let text = std::fs::read_to_string(path)
            .map_err(|e| no(Error::io("read the credentials", path, e).with_hint(format!("correct {KEY_FILE}"))))?;
        let head: Head = serde_json::from_str(&text).map_err(|e| {
            no(Error::new(Kind::Denied, format!("{} holds no credentials of Google", path.display()))
                .with_hint(format!("name the JSON file of a key in {KEY_FILE}"))
                .with_source(e))
        })?;
        if !matches!(head.kind.as_str(), "service_account" | "authorized_user") {
            return Err(no(Error::new(
                Kind::Unsupported,
                format!(
                    "{} holds credentials of the kind {}, which this version cannot use",
                    path.display(),
                    head.kind
                ),
            )
            .with_hint(format!("get a token: export {}=\"$(gcloud auth print-access-token)\"", TOKENS[0]))));
        }
        let tokens = Tokens(self.login.http(&self.options)?);
        let library = GoogleCloudStorageBuilder::new()
            .with_bucket_name("any")
            .with_application_credentials(path.to_string_lossy())
            .with_http_connector(tokens)
            .with_retry(no_retries())
            .build()
            .map_err(|e| failed(&causes(&e)))?;
        Ok(library.credentials().clone())
    }

    /// A token of the service account of this machine, when it is one of Google's.
    async fn of_machine(&self, hosts: &[String]) -> Result<(Arc<GcpCredential>, Timestamp)> {
        #[derive(Deserialize)]
        struct Token {
            access_token: String,
            expires_in: u32,
        }
        let client = self.login.metadata()?;
        let mut why = String::new();
        for host in hosts {
            let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
            let asked = self.env.now();
            let ask = async {
                let reply = client.get(&url).header("metadata-flavor", "Google").send().await?.error_for_status()?;
                reply.bytes().await
            };
            match self.env.timeout(METADATA_LIMIT, ask).await {
                Some(Ok(body)) => match serde_json::from_slice::<Token>(&body) {
                    Ok(token) => {
                        let ends = Timestamp::from_millis(asked.as_millis() + i64::from(token.expires_in) * 1000);
                        return Ok((Arc::new(GcpCredential { bearer: token.access_token }), ends));
                    }
                    Err(e) => why = format!("{host} gave no token: {e}"),
                },
                Some(Err(e)) => why = format!("{host}: {}", causes(&e.without_url())),
                None => why = format!("{host} does not answer"),
            }
        }
        let why = format!("nothing else is set up, and the identity of this machine: {why}");
        Err(Error::new(Kind::Denied, "no credentials found")
            .with_code("no_credentials")
            .with_hint(format!("run 'gcloud auth application-default login', or name a key file in {KEY_FILE}"))
            .with_source(why))
    }
}

/// What the library could not do with a file that looked right.
fn failed(whole: &str) -> Error {
    let lower = whole.to_lowercase();
    let error = if lower.contains("invalid_grant") || lower.contains("invalid_rapt") {
        Error::new(Kind::Denied, "the login has ended").with_code("credentials_expired").with_hint(LOGIN)
    } else {
        Error::new(Kind::Denied, "the credentials could not be loaded")
            .with_code("no_credentials")
            .with_hint("try 'gcloud auth application-default print-access-token', which uses the same ones")
    };
    // Where the library wraps what it was told, it adds nothing.
    error.with_source(whole.trim_start_matches("Generic GCS error: ").to_owned())
}

#[async_trait]
impl CredentialProvider for Credentials {
    type Credential = GcpCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<GcpCredential>> {
        self.load().await.map_err(|error| refuse("GCS", error))
    }
}
