use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Move the present namespace to another name, history included; without --yes, only show what that takes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The new name; no namespace may have it yet
    #[arg(value_name = "SLUG")]
    namespace: String,
    /// Do it
    #[arg(long, short = 'y', visible_alias = "confirm")]
    yes: bool,
    /// Only show what that takes, as without --yes
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&Box::pin(cx.repo()?.namespace_rename(&args.namespace, !args.yes)).await?)?;
    if !args.yes {
        cx.printer.note(&format!("to do it: 'peat datastore namespace rename {} --yes'", args.namespace));
    }
    Ok(Exit::Success)
}
