mod get;
mod list;
mod versions;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Data that methods produced
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Get(get::Args),
    List(list::Args),
    Versions(versions::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["data"], cx),
        Some(Sub::Get(args)) => cx.block_on(get::run(args, cx)),
        Some(Sub::List(args)) => cx.block_on(list::run(args, cx)),
        Some(Sub::Versions(args)) => cx.block_on(versions::run(args, cx)),
    }
}
