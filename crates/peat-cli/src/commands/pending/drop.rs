use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Throw a change away for ever
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change id, or the unique start of one
    change: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
