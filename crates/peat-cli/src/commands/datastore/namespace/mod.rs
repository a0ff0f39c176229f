pub(super) mod list;
mod rename;
mod set;
mod unset;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// The parts of a store
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    List(list::Args),
    Set(set::Args),
    Unset(unset::Args),
    #[command(visible_alias = "migrate")]
    Rename(rename::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["datastore", "namespace"], cx),
        Some(Sub::List(args)) => cx.block_on(list::run(args, cx)),
        Some(Sub::Set(args)) => cx.block_on(set::run(args, cx)),
        Some(Sub::Unset(args)) => cx.block_on(unset::run(args, cx)),
        Some(Sub::Rename(args)) => cx.block_on(rename::run(args, cx)),
    }
}
