//! The `peat` command. Everything is in the library so that tests and the manual can use the same grammar.

use std::process::ExitCode;

#[allow(clippy::disallowed_methods)] // the one place that takes the snapshot of the environment
fn main() -> ExitCode {
    peat_cli::run(std::env::args_os(), std::env::vars_os())
}
