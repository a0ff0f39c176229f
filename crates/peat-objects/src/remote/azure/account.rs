//! Which account, and where: from the endpoint, a connection string, or variables.

use peat_types::{Env, Error, Result};
use reqwest::Url;

use crate::remote::client::first_of;

pub(super) const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
const ACCOUNTS: [&str; 2] = ["AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"];
const ENDPOINT: &str = "AZURE_STORAGE_SERVICE_ENDPOINT";
const SUFFIX: &str = "core.windows.net";

/// The account of every emulator, as the documentation of Azurite gives it. It opens nothing else.
const EMULATOR: [&str; 3] = [
    "devstoreaccount1",
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "http://127.0.0.1:10000/devstoreaccount1",
];

/// An account of Azure Storage.
pub(super) struct Account {
    pub name: String,
    /// Address of its blobs.
    pub endpoint: String,
    /// Key of the connection string.
    pub key: Option<String>,
    /// Shared access signature of the connection string.
    pub sas: Option<String>,
}

impl Account {
    /// The endpoint given wins over the variables, and names its account when it can.
    pub fn find(endpoint: Option<&str>, env: &Env) -> Result<Self> {
        let given = env.var(CONNECTION).is_some();
        let connection = first_of(env, &[CONNECTION]).map(|text| Connection::parse(&text)).unwrap_or_default();
        let from_variable = || first_of(env, &[ENDPOINT]);
        let endpoint = endpoint.map(str::to_owned).or_else(|| connection.endpoint.clone()).or_else(from_variable);
        let named = endpoint.as_deref().and_then(account_of);
        let name = named.or(connection.account).or_else(|| first_of(env, &ACCOUNTS)).ok_or_else(|| {
            if given {
                return Error::invalid(format!("{CONNECTION} names no storage account"))
                    .with_hint("copy it whole, as 'az storage account show-connection-string' shows it, or unset it");
            }
            Error::invalid("the storage account is not known")
                .with_hint("set AZURE_STORAGE_ACCOUNT, or give --endpoint https://ACCOUNT.blob.core.windows.net")
        })?;
        if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
            return Err(Error::invalid(format!("'{name}' is not the name of a storage account"))
                .with_hint("it has 3 to 24 lowercase letters and digits: look at AZURE_STORAGE_ACCOUNT"));
        }
        let suffix = connection.suffix.as_deref().unwrap_or(SUFFIX);
        let scheme = connection.protocol.as_deref().unwrap_or("https");
        let endpoint = endpoint.unwrap_or_else(|| format!("{scheme}://{name}.blob.{suffix}"));
        Ok(Self { name, endpoint, key: connection.key, sas: connection.sas })
    }
}

/// `https://ACCOUNT.blob.core.windows.net` and its likes in other clouds, or `http://host:port/ACCOUNT` of an emulator.
fn account_of(endpoint: &str) -> Option<String> {
    let url = Url::parse(endpoint).ok()?;
    let in_path = url.path_segments()?.next().filter(|segment| !segment.is_empty()).map(str::to_owned);
    let in_host = || {
        let (account, rest) = url.domain()?.split_once('.')?;
        rest.split('.').any(|part| part == "blob").then(|| account.to_owned())
    };
    in_path.or_else(in_host)
}

/// What a connection string says.
#[derive(Default)]
struct Connection {
    protocol: Option<String>,
    account: Option<String>,
    key: Option<String>,
    sas: Option<String>,
    suffix: Option<String>,
    endpoint: Option<String>,
}

impl Connection {
    fn parse(text: &str) -> Self {
        let mut connection = Self::default();
        for (name, value) in text.split(';').filter_map(|part| part.trim().split_once('=')) {
            let value = Some(value.to_owned()).filter(|value| !value.is_empty());
            match name.to_ascii_lowercase().as_str() {
                "usedevelopmentstorage" if value.as_deref() == Some("true") => {
                    let [account, key, endpoint] = EMULATOR.map(|text| Some(text.to_owned()));
                    connection = Self { account, key, endpoint, ..Self::default() };
                }
                "defaultendpointsprotocol" => connection.protocol = value,
                "accountname" => connection.account = value,
                "accountkey" => connection.key = value,
                "sharedaccesssignature" => connection.sas = value,
                "endpointsuffix" => connection.suffix = value,
                "blobendpoint" => connection.endpoint = value,
                _ => {}
            }
        }
        connection
    }
}
