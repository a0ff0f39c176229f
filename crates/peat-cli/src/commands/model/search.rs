use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// List definitions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only names, types or ids that hold this text
    query: Option<String>,
    /// Internal types too
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
