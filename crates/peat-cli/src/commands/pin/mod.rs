mod add;
mod list;
mod rm;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// States that stay readable under a name, however old they get
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Add(add::Args),
    List(list::Args),
    Rm(rm::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["pin"], cx),
        Some(Sub::Add(args)) => cx.block_on(add::run(args, cx)),
        Some(Sub::List(args)) => cx.block_on(list::run(args, cx)),
        Some(Sub::Rm(args)) => cx.block_on(rm::run(args, cx)),
    }
}
