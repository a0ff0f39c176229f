mod catalog;
mod gc;
mod lock;
mod namespace;
mod policy;
mod setup;
mod status;
mod sync;
mod watch;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Where shared state lives
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Status(status::Args),
    Setup(setup::Args),
    Sync(sync::Args),
    Watch(watch::Args),
    Lock(lock::Args),
    Namespace(namespace::Args),
    #[command(hide = true)]
    Namespaces(namespace::list::Args),
    Catalog(catalog::Args),
    Gc(gc::Args),
    Policy(policy::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["datastore"], cx),
        Some(Sub::Status(args)) => cx.block_on(status::run(args, cx)),
        Some(Sub::Setup(args)) => cx.block_on(setup::run(args, cx)),
        Some(Sub::Sync(args)) => cx.block_on(sync::run(args, cx)),
        Some(Sub::Watch(args)) => cx.block_on(watch::run(args, cx)),
        Some(Sub::Lock(args)) => lock::run(args, cx),
        Some(Sub::Namespace(args)) => namespace::run(args, cx),
        Some(Sub::Namespaces(args)) => cx.block_on(namespace::list::run(args, cx)),
        Some(Sub::Catalog(args)) => catalog::run(args, cx),
        Some(Sub::Gc(args)) => cx.block_on(gc::run(args, cx)),
        Some(Sub::Policy(args)) => policy::run(args, cx),
    }
}
