use clap::ValueEnum;
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use peat_types::{Error, Result};

use crate::complete::VARIABLE;
use crate::context::Context;
use crate::exit::Exit;

/// Print the completion script of a shell
///
/// Bash: put `source <(peat completions bash)` into ~/.bashrc. The script asks peat itself, so names of models complete too.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    Powershell,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<Exit> {
    let completer: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
        Shell::Elvish => &Elvish,
        Shell::Powershell => &Powershell,
    };
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, "peat", "peat", "peat", &mut script)
        .map_err(|e| Error::internal("cannot write the completion script").with_source(e))?;
    cx.printer.bytes(&script)?;
    Ok(Exit::Success)
}
