use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::PendingDone;

/// Commit a refused change as new versions on top of what is there
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change id, or the unique start of one
    change: String,
    /// As it is, under its lease, instead of as a change that never had one
    #[arg(long)]
    retry: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.pending_adopt(&args.change, args.retry).await?)?;
    Ok(Exit::Success)
}

impl Render for PendingDone {
    fn render(&self, page: &mut Page) {
        match self.seq {
            Some(seq) => page.line(format_args!("{} {} in entry {seq}", self.change, self.status)),
            None => page.line(format_args!("{} {}", self.change, self.status)),
        }
    }
}
