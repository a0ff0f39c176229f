mod catalog;
mod gc;
mod lock;
mod namespace;
mod policy;
mod purge;
mod setup;
mod status;
mod sync;
mod watch;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;
use crate::page::{Page, count};
use peat_engine::report::Maintenance;

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
    Purge(purge::Args),
}

/// How the ledger is kept in shape.
pub(crate) fn maintenance(now: &Maintenance, page: &mut Page) {
    let tail = count(now.tail_entries, "entry");
    let last = now.last_checkpoint.map_or(String::new(), |done| format!(" (entry {}, {})", done.seq, done.time));
    page.field("checkpoint", format_args!("{tail} since the last one{last}"));
    let last = now.last_collection.map_or("never".to_owned(), |done| format!("entry {}, {}", done.seq, done.time));
    let due = now.collect_due_since.map_or(String::new(), |since| format!("; due since {since}"));
    page.field("collected", format_args!("{last}{due}"));
    let (days, oldest) = (now.retention_days, now.oldest_state);
    page.field("kept", format_args!("states of {days} days; the oldest that can be read is that of entry {oldest}"));
    if !now.by_itself {
        page.field("maintenance", "does not run by itself");
    }
    for note in &now.notes {
        page.line(note);
    }
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
        Some(Sub::Purge(args)) => cx.block_on(purge::run(args, cx)),
    }
}
