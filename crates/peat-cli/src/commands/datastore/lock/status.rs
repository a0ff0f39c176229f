use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Show who holds what
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this model
    #[arg(long)]
    model: Option<String>,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
