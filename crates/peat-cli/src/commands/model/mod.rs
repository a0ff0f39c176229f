mod cancel;
mod create;
mod delete;
mod edit;
mod get;
pub(crate) mod method;
mod output;
mod search;
mod types;
mod validate;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Definitions of things, and their methods
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Create(create::Args),
    Get(get::Args),
    #[command(alias = "list")]
    Search(search::Args),
    Edit(edit::Args),
    Validate(validate::Args),
    Delete(delete::Args),
    Cancel(cancel::Args),
    #[command(name = "type")]
    Type(types::Args),
    Method(method::Args),
    Output(output::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["model"], cx),
        Some(Sub::Create(args)) => cx.block_on(create::run(args, cx)),
        Some(Sub::Get(args)) => cx.block_on(get::run(args, cx)),
        Some(Sub::Search(args)) => cx.block_on(search::run(args, cx)),
        Some(Sub::Edit(args)) => cx.block_on(edit::run(args, cx)),
        Some(Sub::Validate(args)) => cx.block_on(validate::run(args, cx)),
        Some(Sub::Delete(args)) => cx.block_on(delete::run(args, cx)),
        Some(Sub::Cancel(args)) => cx.block_on(cancel::run(args, cx)),
        Some(Sub::Type(args)) => types::run(args, cx),
        Some(Sub::Method(args)) => method::run(args, cx),
        Some(Sub::Output(args)) => output::run(args, cx),
    }
}
