use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Show methods, arguments and data of a type
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Type, such as command/shell
    #[arg(value_name = "TYPE")]
    r#type: String,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
