mod release;
mod status;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Leases on models
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Status(status::Args),
    Release(release::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["datastore", "lock"], cx),
        Some(Sub::Status(args)) => cx.block_on(status::run(args, cx)),
        Some(Sub::Release(args)) => cx.block_on(release::run(args, cx)),
    }
}
