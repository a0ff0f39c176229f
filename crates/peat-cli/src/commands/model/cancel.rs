use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Stop the running method of a model on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    model: Option<String>,
    /// Every run of this machine
    #[arg(long)]
    all: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
