use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Bring clone and store together: settle pending changes, then pull
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only pull
    #[arg(long, conflicts_with = "push")]
    pull: bool,
    /// Only settle pending changes
    #[arg(long)]
    push: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
