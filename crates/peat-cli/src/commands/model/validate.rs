use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Check one definition, or all of them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id; all definitions when left out
    model: Option<String>,
    /// Check the arguments of this method only
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
