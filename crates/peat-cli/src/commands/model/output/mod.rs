mod data;
mod get;
mod logs;
mod search;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Records of method runs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    #[command(alias = "list")]
    Search(search::Args),
    Get(get::Args),
    Data(data::Args),
    Logs(logs::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["model", "output"], cx),
        Some(Sub::Search(args)) => cx.block_on(search::run(args, cx)),
        Some(Sub::Get(args)) => cx.block_on(get::run(args, cx)),
        Some(Sub::Data(args)) => cx.block_on(data::run(args, cx)),
        Some(Sub::Logs(args)) => cx.block_on(logs::run(args, cx)),
    }
}
