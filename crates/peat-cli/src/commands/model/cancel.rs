use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::CancelReport;

/// Stop the running method of a model on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    model: Option<String>,
    /// Every run of this machine
    #[arg(long)]
    all: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let reason = args.reason.unwrap_or_default();
    cx.report(&cx.repo()?.model_cancel(args.model.as_deref(), &reason).await?)?;
    Ok(Exit::Success)
}

impl Render for CancelReport {
    fn render(&self, page: &mut Page) {
        for run in &self.cancelled {
            let status = page.word(&run.status);
            page.line(format_args!("{} {}: {status}", run.model_name, run.method));
        }
        if self.cancelled.is_empty() {
            page.line("Nothing is running on this machine.");
        }
    }
}
