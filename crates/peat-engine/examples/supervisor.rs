//! The supervisor as a program of its own, for the tests of programs that methods run.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    ExitCode::from(peat_engine::supervise(&peat_types::Env::system([]), &args))
}
