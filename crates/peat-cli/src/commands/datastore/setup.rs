use std::path::PathBuf;

use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Move this repo to a shared store, after probing that the store is safe
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// s3://bucket/prefix or file:///folder; or the word filesystem
    #[arg(value_name = "URL|filesystem")]
    target: String,
    /// Folder of a filesystem store
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Address of the service, for anything but AWS
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long)]
    region: Option<String>,
    /// Put the bucket in the path instead of the host name; most services other than AWS need it
    #[arg(long)]
    path_style: bool,
    /// Name of this repo's part of the store
    #[arg(long, value_name = "SLUG")]
    namespace: Option<String>,
    /// Fetch contents when they are needed instead of at once
    #[arg(long)]
    lazy: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
