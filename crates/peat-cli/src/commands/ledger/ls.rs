use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// List the objects of the ledger, newest entries first
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this folder
    #[arg(value_name = "log|pack|tx|beat")]
    folder: Option<String>,
    /// At most this many
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
