use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// Throw a change away for ever
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change id, or the unique start of one
    change: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    let change = repo.pending_show(&args.change).await?.change;
    let question = format!("Throw away {} ({}), which exists nowhere else?", change.change, change.message);
    if !cx.confirmed(args.yes, &question)? {
        return cx.declined();
    }
    cx.report(&repo.pending_drop(&change.change.to_string()).await?)?;
    Ok(Exit::Success)
}
