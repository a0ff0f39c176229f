use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Use another namespace of the store from now on; what is in the present one stays there
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name; it is made when there is none
    #[arg(value_name = "SLUG")]
    namespace: String,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&Box::pin(cx.repo()?.namespace_set(&args.namespace, args.dry_run)).await?)?;
    Ok(Exit::Success)
}
