use std::path::PathBuf;

use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// See the main job in half a minute: two clones of one ledger, step by step, in a temporary folder
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the folder for a look around
    #[arg(long)]
    keep: bool,
    /// Use this new folder instead of a temporary one; it is left
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
