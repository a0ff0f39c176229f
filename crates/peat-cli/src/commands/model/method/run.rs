use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::inputs::InputArgs;

/// Run a method of a model
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
    /// Method
    method: String,
    #[command(flatten)]
    inputs: InputArgs,
    /// A tag for the data this produces
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// Stop the method after this time: seconds, or 30s, 5m, 1h
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// How long to wait for somebody else's lease on this model [default: 60s] [env: PEAT_LOCK_TIMEOUT_MS]
    #[arg(long, value_name = "TIME")]
    lock_timeout: Option<String>,
    /// Run without the store: no lease, the result is committed later and marked unleased
    #[arg(long)]
    offline: bool,
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
