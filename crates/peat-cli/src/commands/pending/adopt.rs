use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Commit a refused change as new versions on top of what is there
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change id, or the unique start of one
    change: String,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
