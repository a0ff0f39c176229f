use std::path::PathBuf;

use clap::Subcommand;
use peat_types::Result;

use crate::commands::help;
use crate::context::Context;
use crate::exit::Exit;
use crate::page::{Page, names};
use crate::printer::Render;
use peat_engine::report::InitReport;
use peat_engine::{InitRequest, Repo};

/// Make a folder a repo: .peat.yaml, models/, .gitignore, and a private ledger in .peat/
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder; the current one when left out
    path: Option<PathBuf>,
    /// Write the marker and ignore rules again; ids and data stay
    #[arg(short, long)]
    force: bool,
}

/// Commands about the repo
#[derive(Debug, clap::Args)]
pub(crate) struct RepoArgs {
    #[command(subcommand)]
    command: Option<RepoCommand>,
}

#[derive(Debug, Subcommand)]
enum RepoCommand {
    Init(Args),
}

pub(crate) fn repo(args: RepoArgs, cx: &Context) -> Result<Exit> {
    match args.command {
        None => help::group(&["repo"], cx),
        Some(RepoCommand::Init(args)) => cx.block_on(run(args, cx)),
    }
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&Repo::init(cx.host()?, &InitRequest { path: args.path, force: args.force }).await?)?;
    Ok(Exit::Success)
}

impl Render for InitReport {
    fn render(&self, page: &mut Page) {
        let verb = if self.reinitialized { "Initialised again" } else { "Initialised" };
        page.line(format_args!("{verb} the repo in {}", self.path.display()));
        if !self.created.is_empty() {
            page.field("created", names(&self.created));
        }
        page.field("repo id", &self.repo_id);
        page.line("");
        page.line("Next:");
        for step in &self.next_steps {
            page.line(format_args!("  {step}"));
        }
    }
}
