use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Take a lease away from its holder
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this model; every held lease when left out
    #[arg(long)]
    model: Option<String>,
    /// Required: the holder may still be running, and what it did outside happens twice if run again
    #[arg(long, required = true)]
    force: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
