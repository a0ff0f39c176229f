//! Azure Blob Storage.

mod account;
mod credentials;

use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderName;
use object_store::azure::{AzureAuthorizer, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::client::{CredentialProvider, HttpRequestBody, HttpService};
use object_store::path::Path;
use peat_types::{Env, Error, Kind, Result};
use reqwest::Url;
use serde::Deserialize;

use super::client::{Settings, no_retries};
use super::dialect::{Amendment, Bucket, Dialect, Library, Verdict, Words};
use super::explain::Subject;
use super::reply::{ErrorDocument, Listing, Reply, http_date};
use super::wire::{Wire, causes};
use crate::{Listed, Op, OpenOptions};
use account::Account;
use credentials::{Credentials, Source};

const WORDS: Words = Words {
    protocol: "an Azure Blob Storage",
    service: "Azure Blob Storage",
    bucket: "container",
    foreign: "not_azure",
    example: "https://ACCOUNT.blob.core.windows.net",
    ca_variables: &["SSL_CERT_FILE"],
};

/// A container of Azure Blob Storage.
#[derive(Debug)]
pub(super) struct Azure {
    account: String,
    container: String,
    credentials: Arc<Credentials>,
}

impl Azure {
    pub fn new(container: &str, options: &OpenOptions, env: &Env) -> Result<(Self, Settings)> {
        let account = Account::find(options.endpoint.as_deref(), env)?;
        let settings = Settings::new(&WORDS, Some(&account.endpoint), options, env)?;
        let source = Source::choose(&account, env)?;
        let login = Settings::new(&WORDS, None, options, env)?;
        let credentials = Arc::new(Credentials::new(source, login, options, env));
        Ok((Self { account: account.name, container: container.to_owned(), credentials }, settings))
    }
}

/// The library's client, and what is needed to delete beside it: the library deletes in batches, whose replies hide
/// those to the single deletes, and which some accounts do not take.
struct Container {
    library: MicrosoftAzure,
    wire: Wire,
    credentials: Arc<Credentials>,
    account: String,
    /// Of the container.
    url: Url,
}

#[async_trait]
impl Bucket for Container {
    fn library(&self) -> &dyn Library {
        &self.library
    }

    async fn delete(&self, path: Path) {
        // The exchange has learnt why when there are none.
        let Ok(credential) = self.credentials.get_credential().await else { return };
        let url = format!("{}/{path}", self.url.as_str().trim_end_matches('/'));
        let request = http::Request::delete(url).body(HttpRequestBody::empty());
        let Ok(mut request) = request else { return };
        if AzureAuthorizer::new(&credential, &self.account).try_authorize(&mut request).is_ok() {
            let _ = self.wire.call(request).await;
        }
    }
}

#[async_trait]
impl Dialect for Azure {
    fn words(&self) -> &'static Words {
        &WORDS
    }

    fn bucket(&self) -> &str {
        &self.container
    }

    fn condition(&self) -> (HeaderName, &'static str) {
        (http::header::IF_NONE_MATCH, "*")
    }

    async fn connect(&self, settings: &Settings, wire: Wire) -> Result<Box<dyn Bucket>> {
        let no = |why: String| Error::invalid("the client of Azure Blob Storage cannot be set up").with_source(why);
        let endpoint = settings.endpoint.as_ref().map(Url::as_str).unwrap_or_default().trim_end_matches('/').to_owned();
        let url = Url::parse(&format!("{endpoint}/{}", self.container)).map_err(|e| no(e.to_string()))?;
        let library = MicrosoftAzureBuilder::new()
            .with_account(&self.account)
            .with_container_name(&self.container)
            .with_endpoint(endpoint)
            .with_allow_http(settings.plain())
            .with_credentials(self.credentials.clone())
            .with_http_connector(wire.clone())
            .with_retry(no_retries())
            .build()
            .map_err(|e| no(causes(&e)))?;
        let (credentials, account) = (self.credentials.clone(), self.account.clone());
        Ok(Box::new(Container { library, wire, credentials, account, url }))
    }

    fn knows_suffixes(&self) -> bool {
        false
    }

    fn is_absent(&self, code: &str) -> bool {
        code == "BlobNotFound"
    }

    async fn amend(&self, reply: &Reply, _signed_by: Option<u64>, done: &[Amendment]) -> Option<Amendment> {
        let ended = reply.status.as_u16() == 401
            || reply.error().is_some_and(|error| error.code == "ExpiredAuthenticationToken");
        if !ended || !self.credentials.source().renewable() || done.contains(&Amendment::Credentials) {
            return None;
        }
        self.credentials.renew().await;
        Some(Amendment::Credentials)
    }

    fn listing(&self, reply: &Reply) -> Result<Listing, String> {
        listing(reply)
    }

    fn verdict(&self, subject: &Subject<'_>, error: &ErrorDocument, reply: &Reply) -> Option<Verdict> {
        let Self { account, container, .. } = self;
        let source = self.credentials.source();
        let denied = |hint: String| (Kind::Denied, "denied", vec![hint]);
        // What exactly is wrong with the signature or the token stands only there.
        let detail = format!("{} {}", error.message, error.details.as_deref().unwrap_or_default()).to_lowercase();
        Some(match error.code.as_str() {
            "ContainerNotFound" => subject.missing_bucket(),
            "ContainerBeingDeleted" | "ContainerDisabled" | "AccountBeingCreated" => (
                Kind::Offline,
                "offline",
                vec![format!("the container '{container}' is being removed or made: try again in a minute")],
            ),
            _ if detail.contains("date header too old") => (Kind::Denied, "clock_skew", vec![subject.skew(reply)]),
            "AuthenticationFailed" if source.is_sas() && detail.contains("time frame") => {
                (Kind::Denied, "credentials_expired", vec![source.expired_hint()])
            }
            "AuthenticationFailed" | "InvalidAuthenticationInfo" if source.renewable() => {
                (Kind::Denied, "credentials_expired", vec![source.expired_hint()])
            }
            "AuthenticationFailed" | "InvalidAuthenticationInfo" => {
                (Kind::Denied, "wrong_key", vec![source.wrong_hint(account)])
            }
            "AuthorizationFailure" => {
                let mut hints = vec![format!(
                    "the firewall of the account '{account}' may not let this network in: look at its networking rules"
                )];
                hints.extend(self.rights(subject.op));
                (Kind::Denied, "denied", hints)
            }
            "KeyBasedAuthenticationNotPermitted" => denied(format!(
                "the account '{account}' takes no keys and SAS of keys: unset them, and run 'az login' or use an identity"
            )),
            "AuthorizationSourceIPMismatch"
            | "AuthorizationProtocolMismatch"
            | "AuthorizationResourceTypeMismatch"
            | "AuthorizationServiceMismatch" => {
                denied("the SAS does not cover this address, protocol or kind of resource: make another one".to_owned())
            }
            "AccountIsDisabled" => denied(format!("the account '{account}' is disabled: look at its subscription")),
            "BlobImmutableDueToPolicy" => denied(format!(
                "a retention policy keeps the objects of '{container}': Peat replaces and deletes some of its own there"
            )),
            "BlobArchived" | "BlobBeingRehydrated" => (
                Kind::Invalid,
                "store_answer",
                vec![format!(
                    "a rule moved objects of '{container}' to the archive tier: move them back, end the rule"
                )],
            ),
            "ServerBusy" | "OperationTimedOut" | "InternalError" => subject.busy(),
            _ => return None,
        })
    }

    fn rights(&self, op: Op) -> Vec<String> {
        let (action, letter) = match op {
            Op::Get => ("read", "read (r)"),
            Op::Create | Op::Put => ("write", "create and write (cw)"),
            Op::Delete => ("delete", "delete (d)"),
            Op::List => ("read", "list (l)"),
        };
        vec![format!(
            "blobs/{action} on the container '{}' is needed: the role 'Storage Blob Data Contributor' has it; a SAS must allow {letter}",
            self.container
        )]
    }
}

/// One page of `List Blobs`. Objects and prefixes come in one order, mixed.
#[derive(Debug, Deserialize)]
#[serde(rename = "EnumerationResults", rename_all = "PascalCase")]
struct EnumerationResults {
    blobs: Blobs,
    #[serde(default)]
    next_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Blobs {
    #[serde(rename = "$value", default)]
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
enum Item {
    Blob(Blob),
    BlobPrefix(BlobPrefix),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Blob {
    name: String,
    properties: Properties,
}

#[derive(Debug, Deserialize)]
struct Properties {
    #[serde(rename = "Content-Length")]
    length: u64,
    #[serde(rename = "Last-Modified", default)]
    last_modified: Option<String>,
    /// Accounts with real folders list these as well.
    #[serde(rename = "ResourceType", default)]
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BlobPrefix {
    name: String,
}

fn listing(reply: &Reply) -> Result<Listing, String> {
    let text = std::str::from_utf8(&reply.body).map_err(|e| e.to_string())?.trim_start_matches('\u{feff}');
    // Another document could be read as a listing of nothing.
    if !text.contains("<EnumerationResults") {
        return Err("it is not a listing".to_owned());
    }
    let list: EnumerationResults = quick_xml::de::from_str(text).map_err(|e| e.to_string())?;
    let mut listing = Listing { token: list.next_marker.filter(|marker| !marker.is_empty()), ..Listing::default() };
    for item in list.blobs.items {
        match item {
            Item::Blob(Blob { properties: Properties { kind: Some(kind), .. }, .. }) if kind == "directory" => {}
            Item::Blob(Blob { name, properties }) => listing.objects.push(Listed {
                key: name,
                size: properties.length,
                last_modified: properties.last_modified.as_deref().and_then(http_date),
            }),
            Item::BlobPrefix(prefix) => listing.prefixes.push(prefix.name),
        }
    }
    Ok(listing)
}
