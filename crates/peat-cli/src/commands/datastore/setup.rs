use std::path::PathBuf;

use peat_types::Result;

use crate::context::Context;
use crate::error::usage_error;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{bytes, count};
use crate::printer::Render;
use peat_engine::report::DatastoreSetup;
use peat_engine::{Datastore, SetupRequest};
use peat_objects::StoreUrl;
use peat_types::Error;

/// Move this repo to a shared store, after probing that the store is safe
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder; or the word filesystem
    #[arg(value_name = "URL|filesystem")]
    target: String,
    /// Folder of a filesystem store
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Address of the service, where it is not the cloud's own; https://ACCOUNT.blob.core.windows.net names an account of Azure
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// S3: region of the bucket
    #[arg(long)]
    region: Option<String>,
    /// S3: put the bucket in the path instead of the host name, as most services other than AWS need it; so it is with --endpoint unless false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    path_style: Option<bool>,
    /// Name of this repo's part of the store
    #[arg(long, value_name = "SLUG")]
    namespace: Option<String>,
    /// S3: named set of credentials in the AWS configuration
    #[arg(long)]
    profile: Option<String>,
    /// Leave what the private ledger holds where it is
    #[arg(long)]
    skip_migration: bool,
    /// Fetch contents when they are needed instead of at once
    #[arg(long)]
    lazy: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let request = SetupRequest { datastore: args.datastore()?, skip_migration: args.skip_migration };
    cx.report(&Box::pin(cx.repo()?.datastore_setup(&request)).await?)?;
    Ok(Exit::Success)
}

impl Args {
    fn datastore(&self) -> Result<Datastore> {
        Ok(Datastore {
            url: self.url()?,
            namespace: self.namespace.clone(),
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            path_style: self.path_style,
            profile: self.profile.clone(),
            hydration: self.lazy.then(|| "lazy".to_owned()),
            ..Datastore::default()
        })
    }

    /// The URL, or the one of `filesystem --path`.
    fn url(&self) -> Result<String> {
        match (self.target.as_str(), &self.path) {
            ("filesystem", Some(path)) => {
                let path = std::path::absolute(path).map_err(|e| Error::io("find", path, e))?;
                Ok(StoreUrl::File { root: path }.to_string())
            }
            ("filesystem", None) => Err(usage_error("a filesystem store needs --path")),
            (url, None) if url.contains("://") => Ok(url.to_owned()),
            (_, Some(_)) => Err(usage_error("--path belongs to 'filesystem'; a URL names its folder itself")),
            (other, None) => Err(usage_error(format!("'{other}' is not a store")).with_hint(
                "give a URL: 'peat datastore setup s3://bucket/prefix', or gs://…, az://… or file:///folder",
            )),
        }
    }
}

impl Render for DatastoreSetup {
    fn render(&self, page: &mut Page) {
        let verb = if self.created { "Made" } else { "Joined" };
        page.line(format_args!("{verb} namespace {} in {}", self.namespace, self.url));
        page.field("ledger", self.ledger);
        page.field("clone", self.clone_path.display());
        if self.items_copied > 0 {
            let (units, items) = (count(self.units_copied, "unit"), count(self.items_copied, "item"));
            page.field("copied", format_args!("{units}, {items}, {}", bytes(self.bytes_copied)));
        }
        page.optional("kept", self.kept_private_store.as_ref().map(|path| path.display()));
        for warning in &self.warnings {
            page.line(format_args!("warning: {warning}"));
        }
    }
}
