use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Show what a change holds and why it was refused
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change id, or the unique start of one
    change: String,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
