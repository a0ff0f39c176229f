//! The command line of Peat: grammar, settings, printing. Business rules live in `peat-engine`.

#![allow(dead_code)] // until the engine is connected

mod args;
mod commands;
mod complete;
mod context;
mod error;
mod exit;
mod inputs;
mod interrupt;
mod logging;
mod page;
mod printer;
mod progress;
mod settings;
mod stats;
mod tree;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};
use peat_types::{Env, Result};

use crate::args::Cli;
use crate::context::Context;
pub use crate::exit::Exit;
use crate::printer::Printer;
use crate::settings::Settings;

/// The whole grammar, as the manual and the tests see it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs one invocation and says how it ended. Never panics, never exits by itself.
pub fn run(args: impl IntoIterator<Item = OsString>, vars: impl IntoIterator<Item = (OsString, OsString)>) -> Exit {
    let args: Vec<OsString> = args.into_iter().collect();
    // A variable that is not UTF-8 cannot be one of ours, and a child gets the real environment anyway.
    let vars = vars.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let env = Env::system(vars);
    if env.var(complete::VARIABLE).is_some() {
        return complete::answer(&args, &env);
    }
    let matches = command().color(settings::colour(&args, &env)).try_get_matches_from(&args);
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(refusal) => return error::usage(&refusal, &Printer::before_parsing(&args, &env)),
    };
    let settings = Settings::resolve(cli.global, &env);
    let printer = Printer::new(&settings);
    logging::start(&settings);
    let outcome =
        Context::new(settings, printer.clone(), env).and_then(|context| commands::dispatch(cli.command, &context));
    finish(outcome, &printer)
}

fn finish(outcome: Result<Exit>, printer: &Printer) -> Exit {
    match outcome {
        Ok(exit) => exit,
        Err(error) => {
            printer.error(&error);
            Exit::of(&error)
        }
    }
}
