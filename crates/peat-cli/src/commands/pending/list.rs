use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// List pending and refused changes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
