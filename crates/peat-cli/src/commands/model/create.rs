use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Write a new definition
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Type, such as command/shell
    #[arg(value_name = "TYPE")]
    r#type: String,
    /// Name of the new definition
    name: String,
    /// A global argument: key=text, key.sub=text, key:json=[1,2]
    #[arg(long = "global-arg", value_name = "KEY=VALUE")]
    global_args: Vec<String>,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
