use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Show an object of the ledger as JSON
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of an entry, or an object's key
    #[arg(value_name = "SEQ|KEY")]
    object: String,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
