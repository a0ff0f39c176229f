use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Show a definition
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
