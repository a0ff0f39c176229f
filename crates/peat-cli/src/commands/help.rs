use clap::Command;
use peat_types::Result;

use crate::context::Context;
use crate::error::usage_error;
use crate::exit::Exit;
use crate::tree;

/// Print the grammar of all commands, or of one, as JSON
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command, one word after the other
    path: Vec<String>,
    /// The manual's page of all commands instead
    #[arg(long, conflicts_with = "path")]
    markdown: bool,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<Exit> {
    if args.markdown {
        cx.printer.text(&tree::markdown())?;
        return Ok(Exit::Success);
    }
    let path: Vec<&str> = args.path.iter().map(String::as_str).collect();
    cx.printer.document(tree::document(&find(&path)?), None)?;
    Ok(Exit::Success)
}

/// What a group says when no command of it is named.
pub(crate) fn group(path: &[&str], cx: &Context) -> Result<Exit> {
    let mut command = find(path)?;
    if cx.printer.is_json() {
        cx.printer.document(tree::document(&command), None)?;
    } else {
        let help = command.render_help();
        let text = if cx.settings.colour_out { help.ansi().to_string() } else { help.to_string() };
        cx.printer.text(&text)?;
    }
    Ok(Exit::Success)
}

fn find(path: &[&str]) -> Result<Command> {
    let mut command = crate::command();
    // Gives subcommands their full names and the global options.
    command.build();
    for name in path {
        let next = command.find_subcommand(name).cloned();
        command = next.ok_or_else(|| {
            let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            usage_error(format!("'{}' has no command '{name}'", command.get_name()))
                .with_hint(format!("its commands: {}", known.join(", ")))
        })?;
    }
    Ok(command)
}
