mod cat;
mod ls;
mod maintain;
mod verify;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// A look inside the ledger, for the curious and for emergencies
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Ls(ls::Args),
    Cat(cat::Args),
    Verify(verify::Args),
    Maintain(maintain::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["ledger"], cx),
        Some(Sub::Ls(args)) => cx.block_on(ls::run(args, cx)),
        Some(Sub::Cat(args)) => cx.block_on(cat::run(args, cx)),
        Some(Sub::Verify(args)) => cx.block_on(verify::run(args, cx)),
        Some(Sub::Maintain(args)) => cx.block_on(maintain::run(args, cx)),
    }
}
