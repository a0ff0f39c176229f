mod adopt;
mod drop;
mod list;
mod show;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Changes of this clone that are not in the ledger yet
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    List(list::Args),
    Show(show::Args),
    Adopt(adopt::Args),
    Drop(drop::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["pending"], cx),
        Some(Sub::List(args)) => cx.block_on(list::run(args, cx)),
        Some(Sub::Show(args)) => cx.block_on(show::run(args, cx)),
        Some(Sub::Adopt(args)) => cx.block_on(adopt::run(args, cx)),
        Some(Sub::Drop(args)) => cx.block_on(drop::run(args, cx)),
    }
}
