mod describe;
mod search;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Types of models
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    #[command(alias = "list")]
    Search(search::Args),
    #[command(alias = "get")]
    Describe(describe::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["model", "type"], cx),
        Some(Sub::Search(args)) => cx.block_on(search::run(args, cx)),
        Some(Sub::Describe(args)) => cx.block_on(describe::run(args, cx)),
    }
}
