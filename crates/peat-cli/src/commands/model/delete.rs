use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Delete a definition, and with --force its data and outputs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Delete its data and outputs too; does not ask
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
