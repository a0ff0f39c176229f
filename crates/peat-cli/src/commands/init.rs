use std::path::PathBuf;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Make a folder a repo: .peat.yaml, models/, .gitignore, and a private ledger in .peat/
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder; the current one when left out
    path: Option<PathBuf>,
    /// Write the marker and ignore rules again; ids and data stay
    #[arg(short, long)]
    force: bool,
}

/// Commands about the repo
#[derive(Debug, clap::Args)]
pub(crate) struct RepoArgs {
    #[command(subcommand)]
    command: Option<RepoCommand>,
}

#[derive(Debug, Subcommand)]
enum RepoCommand {
    Init(Args),
}

pub(crate) fn repo(args: RepoArgs, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["repo"], cx),
        Some(RepoCommand::Init(args)) => cx.block_on(run(args, cx)),
    }
}

pub(crate) async fn run(_args: Args, cx: &Context) -> Result<Exit> {
    cx.unwired()
}
