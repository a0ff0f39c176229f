//! What differs from service to service.

use std::fmt;

use async_trait::async_trait;
use futures::StreamExt;
use http::HeaderName;
use object_store::ObjectStore;
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use peat_types::{Kind, Result};

use super::client::Settings;
use super::explain::Subject;
use super::reply::{ErrorDocument, Listing, Reply};
use super::wire::Wire;
use crate::Op;

/// What a reply means for people: kind and code of the error, and the remedies.
pub(super) type Verdict = (Kind, &'static str, Vec<String>);

/// What a service and its parts are called.
#[derive(Debug)]
pub(super) struct Words {
    /// The protocol, with its article: "an S3".
    pub protocol: &'static str,
    /// The service itself, when no server of one's own is set.
    pub service: &'static str,
    /// What a bucket is called.
    pub bucket: &'static str,
    /// Code of an error for an answer that this service would not give.
    pub foreign: &'static str,
    /// What an endpoint looks like.
    pub example: &'static str,
    /// The variables that may name a file of certificates.
    pub ca_variables: &'static [&'static str],
}

/// What was set right after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amendment {
    /// Other credentials are used.
    Credentials,
    /// The server's clock is followed.
    Clock,
    /// The bucket is asked where it is: the client must be made anew.
    Place,
}

/// What the library offers for every service.
pub(super) trait Library: ObjectStore + PaginatedListStore {}
impl<T: ObjectStore + PaginatedListStore> Library for T {}

/// The client of one bucket. Results of its requests are of no interest: the exchange has the raw ones.
#[async_trait]
pub(super) trait Bucket: Send + Sync {
    fn library(&self) -> &dyn Library;

    async fn delete(&self, path: Path) {
        let paths = futures::stream::once(async move { Ok(path) }).boxed();
        let _ = self.library().delete_stream(paths).next().await;
    }
}

/// One service: how its requests are made, and what its replies mean where they mean something of their own.
#[async_trait]
pub(super) trait Dialect: fmt::Debug + Send + Sync {
    fn words(&self) -> &'static Words;

    /// The name of the bucket.
    fn bucket(&self) -> &str;

    /// Whether the bucket stands in the name of the host that is asked.
    fn bucket_in_host(&self, _settings: &Settings) -> bool {
        false
    }

    /// The header and its value that make a PUT a create.
    fn condition(&self) -> (HeaderName, &'static str);

    /// The settings, with what is known only after looking into files.
    async fn complete(&self, settings: &Settings) -> Result<Settings> {
        Ok(settings.clone())
    }

    /// The client of the bucket. It never repeats a request: that is decided where the reply is understood.
    async fn connect(&self, settings: &Settings, wire: Wire) -> Result<Box<dyn Bucket>>;

    /// Whether the last bytes of an object can be asked for without knowing its size.
    fn knows_suffixes(&self) -> bool {
        true
    }

    /// Whether the service names its object with this code, and nothing larger, when it says that something is missing.
    fn is_absent(&self, code: &str) -> bool;

    /// Sets right what made the store refuse a request before it did anything, such as credentials that have ended. Then
    /// the request may be sent again, whatever it is; each amendment helps once.
    async fn amend(&self, reply: &Reply, signed_by: Option<u64>, done: &[Amendment]) -> Option<Amendment>;

    /// The page in the body, or what is wrong with it.
    fn listing(&self, reply: &Reply) -> Result<Listing, String>;

    /// What an error document means here. None: what its status means everywhere.
    fn verdict(&self, subject: &Subject<'_>, error: &ErrorDocument, reply: &Reply) -> Option<Verdict>;

    /// The same for a status without an error document.
    fn bare_verdict(&self, _reply: &Reply) -> Option<Verdict> {
        None
    }

    /// The right that an operation needs, and what else its absence may look like.
    fn rights(&self, op: Op) -> Vec<String>;
}
