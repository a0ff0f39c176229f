use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Use the namespace default again; what is in the present one stays there, unless it is moved
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Move what is in the present one there
    #[arg(long)]
    migrate: bool,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Nothing is asked, so this changes nothing
    #[arg(long, short = 'y', alias = "confirm")]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    let report = match args.migrate {
        true => Box::pin(repo.namespace_rename("default", args.dry_run)).await?,
        false => Box::pin(repo.namespace_set("default", args.dry_run)).await?,
    };
    cx.report(&report)?;
    Ok(Exit::Success)
}
