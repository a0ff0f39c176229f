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
mod stores;
mod telemetry;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use peat_types::{ERROR_TYPE, Env, Error, number, operation};
use tracing::field::Empty;

use crate::args::{Cli, Global};
use crate::context::Context;
pub use crate::exit::Exit;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::telemetry::Telemetry;

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
    let printer = Printer::new(&settings);
    settings.misunderstood.iter().for_each(|line| printer.warning(line));
    let telemetry = Telemetry::start(&env);
    logging::start(&settings, &printer, &env, telemetry.part());
    let context = Context::new(settings, printer, env).handing_on(telemetry.hand_on());
    let span = operation!(
        "command",
        otel.name = format!("peat {name}").trim_end(),
        process.executable.name = "peat",
        process.pid = number(std::process::id()),
        process.exit.code = Empty,
    );
    telemetry.join(&span);
    let ended = span.in_scope(|| {
        let ended = commands::dispatch(cli.command, &context);
        context.remember_cost(&name);
        context.tell_moved(ended.as_ref().err());
        ended
    });
    let exit = ended.as_ref().map_or_else(Exit::of, |exit| *exit);
    span.record("process.exit.code", number(exit as u8));
    if exit != Exit::Success {
        span.record(ERROR_TYPE, ended.as_ref().map_or_else(Error::code, |exit| exit.word()));
    }
    drop(span);
    telemetry.end(exit, &context.printer);
    // An error is the last that is said.
    if let Err(error) = &ended {
        context.printer.error(error);
    }
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
