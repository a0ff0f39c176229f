use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// List the types there are
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only names, types or ids that hold this text
    query: Option<String>,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
