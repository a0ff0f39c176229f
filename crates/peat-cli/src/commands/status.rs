use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Show where this repo stands: its store, the last sync, pending changes, leases
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pull first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
