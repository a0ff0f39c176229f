use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// List the versions of data
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    #[arg(required_unless_present = "model_flag", requires = "name")]
    model: Option<String>,
    /// Name of the data
    #[arg(required_unless_present = "name_flag")]
    name: Option<String>,
    /// The model, as a flag
    #[arg(long = "model", id = "model_flag", value_name = "MODEL", conflicts_with_all = ["model", "name"], requires = "name_flag", hide = true)]
    model_flag: Option<String>,
    /// The name, as a flag
    #[arg(long = "name", id = "name_flag", value_name = "NAME", conflicts_with_all = ["model", "name"], requires = "model_flag", hide = true)]
    name_flag: Option<String>,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
