//! The command line of Peat: grammar, settings, printing. Business rules live in `peat-engine`.

mod args;
mod commands;
mod complete;
mod context;
mod error;
mod exit;
mod inputs;
mod interrupt;
mod keeper;
mod logging;
mod page;
mod printer;
mod progress;
mod settings;
mod stats;
mod traced;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use peat_types::Env;

use crate::args::{Cli, Global};
use crate::context::Context;
pub use crate::exit::Exit;
use crate::printer::Printer;
use crate::settings::Settings;

/// The whole grammar, as the manual and the tests see it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs one invocation and says how it ended. Never panics, never exits by itself.
pub fn run(args: impl IntoIterator<Item = OsString>, vars: impl IntoIterator<Item = (OsString, OsString)>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    // A variable that is not UTF-8 cannot be one of ours, and a child gets the real environment anyway.
    let vars = vars.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let env = Env::system(vars);
    if let [_, first, rest @ ..] = args.as_slice()
        && first == context::SUPERVISE
    {
        return peat_engine::supervise(&env, rest).into();
    }
    answer(&args, env).into()
}

fn answer(args: &[OsString], env: Env) -> Exit {
    if env.var(complete::VARIABLE).is_some() {
        let settings = Settings::resolve(Global::default(), &env);
        return complete::answer(args, &Context::new(settings.clone(), Printer::new(&settings), env));
    }
    let matches = command().color(settings::colour(args, &env)).try_get_matches_from(args);
    let name = matches.as_ref().map(name).unwrap_or_default();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(refusal) => return error::usage(&refusal, &Printer::before_parsing(args, &env)),
    };
    let settings = Settings::resolve(cli.global, &env);
    logging::start(&settings);
    let context = Context::new(settings.clone(), Printer::new(&settings), env);
    let exit = commands::dispatch(cli.command, &context).unwrap_or_else(|error| {
        context.printer.error(&error);
        Exit::of(&error)
    });
    context.remember_cost(&name);
    exit
}

/// The words of a command, without what it was given.
fn name(matches: &clap::ArgMatches) -> String {
    let mut words = Vec::new();
    let mut next = matches.subcommand();
    while let Some((word, of)) = next {
        words.push(word);
        next = of.subcommand();
    }
    words.join(" ")
}
