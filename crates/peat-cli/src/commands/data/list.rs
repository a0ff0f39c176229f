use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// List the data of a model
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
