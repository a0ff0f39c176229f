use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Show the newest entries of the ledger: who changed what, and when
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many entries
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Read what this clone already has instead of asking the store
    #[arg(long)]
    local: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
