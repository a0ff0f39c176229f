//! One file per command: what it takes, what it does with the engine, how its report reads.

mod add;
mod completions;
mod data;
mod datastore;
mod demo;
mod diff;
mod doctor;
mod help;
mod init;
mod ledger;
mod log;
pub(crate) mod model;
mod pending;
mod pin;
mod restore;
mod show;
mod status;
mod undo;
mod version;

use clap::Subcommand;
use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(init::Args),
    Model(model::Args),
    Data(data::Args),
    Log(log::Args),
    Show(show::Args),
    Diff(diff::Args),
    Undo(undo::Args),
    Restore(restore::Args),
    Status(status::Args),
    Add(add::Args),
    Datastore(datastore::Args),
    Pending(pending::Args),
    Pin(pin::Args),
    Ledger(ledger::Args),
    Doctor(doctor::Args),
    Demo(demo::Args),
    Version(version::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Help(help::Args),
    #[command(hide = true)]
    Repo(init::RepoArgs),
}

/// Runs the command, or shows the help when there is none.
pub(crate) fn dispatch(command: Option<Command>, cx: &Context) -> Result<Exit> {
    let Some(command) = command else { return help::group(&[], cx) };
    match command {
        Command::Version(args) => version::run(&args, cx),
        Command::Completions(args) => completions::run(&args, cx),
        Command::Help(args) => help::run(&args, cx),
        Command::Init(args) => cx.block_on(init::run(args, cx)),
        Command::Repo(args) => init::repo(args, cx),
        Command::Model(args) => model::run(args, cx),
        Command::Data(args) => data::run(args, cx),
        Command::Log(args) => cx.block_on(log::run(args, cx)),
        Command::Show(args) => cx.block_on(show::run(args, cx)),
        Command::Diff(args) => cx.block_on(diff::run(args, cx)),
        Command::Undo(args) => cx.block_on(undo::run(args, cx)),
        Command::Restore(args) => cx.block_on(restore::run(args, cx)),
        Command::Status(args) => cx.block_on(status::run(args, cx)),
        Command::Add(args) => cx.block_on(add::run(args, cx)),
        Command::Datastore(args) => datastore::run(args, cx),
        Command::Pending(args) => pending::run(args, cx),
        Command::Pin(args) => pin::run(args, cx),
        Command::Ledger(args) => ledger::run(args, cx),
        Command::Doctor(args) => cx.block_on(doctor::run(args, cx)),
        Command::Demo(args) => cx.block_on(demo::run(args, cx)),
    }
}
