//! Credentials of Azure: keys and signatures from variables, else identities and logins, in the order of Azure's tools.
//!
//! Beside `s3::sources` this is the only place where a library may look around by itself: `az` runs with the environment
//! of this process, and `IDENTITY_HEADER` of App Service is read there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::azure::{
    AzureAccessKey, AzureConfigKey, AzureCredential, AzureCredentialProvider, MicrosoftAzureBuilder, split_sas,
};
use peat_types::{Env, Error, Kind, Result};
use tokio::sync::Mutex;

use super::account::{Account, CONNECTION};
use crate::OpenOptions;
use crate::remote::client::{Settings, first_of, no_retries};
use crate::remote::wire::{LOAD_LIMIT, Tokens, causes, refuse};

const KEYS: [&str; 2] = ["AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"];
const SAS: &str = "AZURE_STORAGE_SAS_TOKEN";
const CLIENT: &str = "AZURE_CLIENT_ID";
const SECRET: &str = "AZURE_CLIENT_SECRET";
const TENANT: &str = "AZURE_TENANT_ID";
const TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";

/// Where the credentials of a store come from.
pub(super) enum Source {
    /// The key of the account, and the variable it came from.
    Key(Arc<AzureCredential>, &'static str),
    /// A shared access signature, and the variable it came from.
    Sas(Arc<AzureCredential>, &'static str),
    /// An application with a secret, or with a token that its platform keeps in a file.
    Application(Vec<(AzureConfigKey, String)>),
    /// The identity of this machine.
    Machine(Vec<(AzureConfigKey, String)>),
    /// Who is logged in to `az` here.
    Login,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key(..) => "Key",
            Self::Sas(..) => "Sas",
            Self::Application(_) => "Application",
            Self::Machine(_) => "Machine",
            Self::Login => "Login",
        })
    }
}

impl Source {
    pub fn choose(account: &Account, env: &Env) -> Result<Self> {
        let found = |given: &Option<String>, names: &[&'static str]| match given {
            Some(value) => Some((value.clone(), CONNECTION)),
            None => names.iter().find_map(|name| Some((env.var(name)?.to_owned(), *name))),
        };
        // Whoever put a signature into the connection string did not mean a key that lies around beside it.
        let key = if account.sas.is_some() {
            account.key.clone().map(|k| (k, CONNECTION))
        } else {
            found(&account.key, &KEYS)
        };
        if let Some((key, variable)) = key {
            let key = AzureAccessKey::try_new(&key).map_err(|_| {
                Error::invalid(format!("{variable} does not hold the key of an account"))
                    .with_hint("it is 88 characters of base64: 'az storage account keys list' shows it")
            })?;
            return Ok(Self::Key(Arc::new(AzureCredential::AccessKey(key)), variable));
        }
        if let Some((sas, variable)) = found(&account.sas, &[SAS]) {
            let sas = split_sas(&sas).map_err(|_| {
                Error::invalid(format!("{variable} does not hold a shared access signature"))
                    .with_hint("it looks like sv=…&sp=…&sig=…: 'az storage container generate-sas' makes one")
            })?;
            return Ok(Self::Sas(Arc::new(AzureCredential::SASToken(sas)), variable));
        }
        Self::identity(env)
    }

    fn identity(env: &Env) -> Result<Self> {
        let known = |pairs: &[(AzureConfigKey, &str)]| -> Vec<(AzureConfigKey, String)> {
            pairs.iter().filter_map(|(key, name)| Some((*key, env.var(name)?.to_owned()))).collect()
        };
        let host = (AzureConfigKey::AuthorityHost, "AZURE_AUTHORITY_HOST");
        let (client, tenant) = ((AzureConfigKey::ClientId, CLIENT), (AzureConfigKey::AuthorityId, TENANT));
        for secret in [(AzureConfigKey::ClientSecret, SECRET), (AzureConfigKey::FederatedTokenFile, TOKEN_FILE)] {
            if env.var(secret.1).is_none() {
                continue;
            }
            for name in [CLIENT, TENANT] {
                if env.var(name).is_none() {
                    return Err(Error::invalid(format!("{} is set, but {name} is not", secret.1))
                        .with_hint(format!("set {name} too, or unset {}", secret.1)));
                }
            }
            return Ok(Self::Application(known(&[secret, client, tenant, host])));
        }
        let endpoint = ["IDENTITY_ENDPOINT", "MSI_ENDPOINT"].into_iter().find(|name| env.var(name).is_some());
        // Asking for the identity of a machine takes a second where there is none, so who is logged in goes first.
        let folder = first_of(env, &["AZURE_CONFIG_DIR"]).map(PathBuf::from);
        let folder = folder.or_else(|| Some(Path::new(env.var("HOME")?).join(".azure")));
        if endpoint.is_none() && folder.is_some_and(|folder| folder.join("azureProfile.json").is_file()) {
            return Ok(Self::Login);
        }
        let endpoint = (AzureConfigKey::MsiEndpoint, endpoint.unwrap_or("IDENTITY_ENDPOINT"));
        Ok(Self::Machine(known(&[client, endpoint])))
    }

    /// Whether loading again may give other credentials.
    pub fn renewable(&self) -> bool {
        !matches!(self, Self::Key(..) | Self::Sas(..))
    }

    pub fn is_sas(&self) -> bool {
        matches!(self, Self::Sas(..))
    }

    /// The remedy for credentials that have ended.
    pub fn expired_hint(&self) -> String {
        match self {
            Self::Key(_, variable) | Self::Sas(_, variable) => {
                format!(
                    "what {variable} holds has ended: make another one, for example by 'az storage container generate-sas'"
                )
            }
            Self::Application(_) => format!("check {CLIENT}, {TENANT} and {SECRET} or {TOKEN_FILE}"),
            Self::Machine(_) => "look at the managed identity of this machine".to_owned(),
            Self::Login => "log in again: az login".to_owned(),
        }
    }

    /// The remedy for credentials that the account does not know.
    pub fn wrong_hint(&self, account: &str) -> String {
        match self {
            Self::Key(_, variable) => {
                format!(
                    "the key in {variable} is not one of the account '{account}': 'az storage account keys list' shows them"
                )
            }
            Self::Sas(_, variable) => {
                format!("the signature in {variable} is not one of the account '{account}', or was cut or changed")
            }
            _ => self.expired_hint(),
        }
    }
}

/// The credentials of one store.
#[derive(Debug)]
pub(super) struct Credentials {
    source: Source,
    loaded: Mutex<Option<AzureCredentialProvider>>,
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

    async fn load(&self) -> Result<Arc<AzureCredential>> {
        if let Source::Key(credential, _) | Source::Sas(credential, _) = &self.source {
            return Ok(credential.clone());
        }
        let mut loaded = self.loaded.lock().await;
        let library = match &*loaded {
            Some(library) => library.clone(),
            None => self.connect()?,
        };
        *loaded = Some(library.clone());
        let get = async {
            match self.source {
                // The library waits for the program without letting anything else run.
                Source::Login => {
                    let runtime = tokio::runtime::Handle::current();
                    let run = move || runtime.block_on(async move { library.get_credential().await });
                    tokio::task::spawn_blocking(run).await.map_err(|e| e.to_string())?.map_err(|e| causes(&e))
                }
                _ => library.get_credential().await.map_err(|e| causes(&e)),
            }
        };
        let credential = Box::pin(self.env.timeout(LOAD_LIMIT, get)).await;
        credential.unwrap_or_else(|| Err("no answer in time".to_owned())).map_err(|why| self.failed(&why))
    }

    /// The library's way to tokens, which keeps and renews them.
    fn connect(&self) -> Result<AzureCredentialProvider> {
        let (kind, pairs) = match &self.source {
            Source::Application(pairs) if pairs.iter().any(|(key, _)| *key == AzureConfigKey::ClientSecret) => {
                ("client_secret", pairs.as_slice())
            }
            Source::Application(pairs) => ("workload_identity", pairs.as_slice()),
            Source::Machine(pairs) => ("managed_identity", pairs.as_slice()),
            Source::Key(..) | Source::Sas(..) | Source::Login => ("azure_cli", &[][..]),
        };
        let client = match self.source {
            Source::Machine(_) => self.login.metadata()?,
            _ => self.login.http(&self.options)?,
        };
        let builder = MicrosoftAzureBuilder::new()
            .with_account("any")
            .with_container_name("any")
            .with_credential_type(kind)
            .with_http_connector(Tokens(client))
            .with_retry(no_retries());
        let builder = pairs.iter().fold(builder, |builder, (key, value)| builder.with_config(*key, value));
        let library = builder.build().map_err(|e| self.failed(&causes(&e)))?;
        Ok(library.credentials().clone())
    }

    fn failed(&self, whole: &str) -> Error {
        let lower = whole.to_lowercase();
        let denied = |what: &str| Error::new(Kind::Denied, what);
        let ended = lower.contains("az login") || lower.contains("aadsts") && lower.contains("expired");
        let error = match &self.source {
            Source::Login if lower.contains("not installed") => denied("the program 'az' is not installed here")
                .with_code("no_credentials")
                .with_hint("install Azure's command line, or set AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_KEY"),
            Source::Login if ended => {
                denied("the login has ended").with_code("credentials_expired").with_hint("log in again: az login")
            }
            Source::Login => denied("the credentials could not be loaded")
                .with_code("no_credentials")
                .with_hint("try 'az account get-access-token --resource https://storage.azure.com', which uses the same ones"),
            Source::Machine(_) => denied("no credentials found").with_code("no_credentials").with_hint(
                "run 'az login', or set AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_KEY or AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET",
            ),
            Source::Application(_) if lower.contains("federated token file") => {
                denied("the token of the application cannot be read")
                    .with_code("no_credentials")
                    .with_hint(format!("correct {TOKEN_FILE}: it names the file with the token of the workload"))
            }
            source => denied("the credentials were refused").with_code("wrong_key").with_hint(source.expired_hint()),
        };
        // Where the library wraps what it was told, it adds nothing.
        let cause = whole.trim_start_matches("Generic MicrosoftAzure error: ");
        let cause = cause.trim_start_matches("Error performing token request: ");
        error.with_source(match &self.source {
            Source::Machine(_) => format!("nothing else is set up, and the managed identity of this machine: {cause}"),
            _ => cause.to_owned(),
        })
    }
}

#[async_trait]
impl CredentialProvider for Credentials {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        self.load().await.map_err(|error| refuse("MicrosoftAzure", error))
    }
}
