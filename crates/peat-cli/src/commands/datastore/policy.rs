use clap::ValueEnum;
use peat_engine::Datastore;
use peat_engine::report::{DatastorePolicy, Role};
use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;

/// Print the rights that somebody needs in the store, for S3 as a policy; nothing is asked of the store
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// s3://bucket/prefix, gs://bucket/prefix or az://container/prefix; this repo's store when left out
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Whose rights
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Who,
    /// With a URL: name of the repo's part of the store; 'default' when left out
    #[arg(long, value_name = "SLUG", requires = "url")]
    namespace: Option<String>,
    /// With a URL of S3: region of the bucket; China and GovCloud have names of their own
    #[arg(long, requires = "url")]
    region: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Who {
    /// Pulls and reads
    Reader,
    /// Runs methods and commits
    Writer,
    /// A writer who also frees what is not needed any more
    Gc,
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    let role = match args.role {
        Who::Reader => Role::Reader,
        Who::Writer => Role::Writer,
        Who::Gc => Role::Gc,
    };
    let report = match args.url {
        None => cx.repo()?.datastore_policy(role)?,
        Some(url) => {
            let Args { namespace, region, .. } = args;
            Datastore { url, namespace, region, ..Datastore::default() }.policy(role)?
        }
    };
    cx.report(&report)?;
    Ok(Exit::Success)
}

impl Render for DatastorePolicy {
    fn render(&self, page: &mut Page) {
        // Alone, so that it can go into a file.
        if let Some(policy) = &self.policy {
            page.block(&format!("{policy:#}"));
            return;
        }
        page.field(if self.kind == "az" { "container" } else { "bucket" }, &self.bucket);
        page.field("folder", format_args!("{}/", self.folder));
        page.optional("role", self.service_role.as_ref());
        page.field("rights", self.rights.join("\n"));
    }
}
