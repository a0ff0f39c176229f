use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Remove a pin
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name
    name: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.pin_remove(&args.name).await?)?;
    Ok(Exit::Success)
}
