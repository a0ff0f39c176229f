use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Show an output: status, times, provenance, what it produced
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output id, or a model for its newest output
    #[arg(value_name = "OUTPUT|MODEL")]
    output: String,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
