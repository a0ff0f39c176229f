pub(crate) mod describe;
mod run;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Methods of models
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Run(run::Args),
    Describe(describe::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["model", "method"], cx),
        Some(Sub::Run(args)) => cx.block_on(run::run(args, cx)),
        Some(Sub::Describe(args)) => cx.block_on(describe::run(args, cx)),
    }
}
