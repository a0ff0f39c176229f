use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Read the whole ledger and check every hash and reference
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
