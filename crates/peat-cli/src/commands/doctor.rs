use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Check repo, clone and store; says what is wrong and what helps
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out the checks that ask the store
    #[arg(long)]
    offline: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
