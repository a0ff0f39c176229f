mod get;
mod list;
mod versions;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;

/// Data that methods produced
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Get(get::Args),
    List(list::Args),
    Versions(versions::Args),
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["data"], cx),
        Some(Sub::Get(args)) => cx.block_on(get::run(args, cx)),
        Some(Sub::List(args)) => cx.block_on(list::run(args, cx)),
        Some(Sub::Versions(args)) => cx.block_on(versions::run(args, cx)),
    }
}

/// Which data is meant: by position, or by flags, not by a mixture.
#[derive(Debug, clap::Args)]
struct DataArgs {
    /// Name, id, or the unique start of an id
    #[arg(required_unless_present = "model_flag", requires = "name")]
    model: Option<String>,
    /// Name of the data
    #[arg(required_unless_present = "name_flag")]
    name: Option<String>,
    /// The model, as a flag
    #[arg(long = "model", value_name = "MODEL", conflicts_with_all = ["model", "name"], requires = "name_flag", hide = true)]
    model_flag: Option<String>,
    /// The name, as a flag
    #[arg(long = "name", value_name = "NAME", conflicts_with_all = ["model", "name"], requires = "model_flag", hide = true)]
    name_flag: Option<String>,
}

/// A model and the name of its data.
struct Target {
    model: String,
    name: String,
}

impl DataArgs {
    fn target(self) -> Target {
        // The grammar demands one form of each.
        Target {
            model: self.model.or(self.model_flag).unwrap_or_default(),
            name: self.name.or(self.name_flag).unwrap_or_default(),
        }
    }
}
