use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::OutputLogs;

/// Show the log of a run
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output id, or a model for its newest output
    #[arg(value_name = "OUTPUT|MODEL")]
    output: String,
    /// Only the last lines
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    tail: Option<usize>,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.output_logs(&args.output, args.tail, args.fresh).await?)?;
    Ok(Exit::Success)
}

impl Render for OutputLogs {
    fn render(&self, page: &mut Page) {
        for line in &self.lines {
            page.line(line);
        }
    }
}
