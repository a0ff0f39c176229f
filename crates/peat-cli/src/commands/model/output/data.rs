use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::value;
use crate::printer::Render;
use peat_engine::OutputDataGet;
use peat_engine::report::OutputData;

/// Show data that a run produced
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output id, or a model for its newest output
    #[arg(value_name = "OUTPUT|MODEL")]
    output: String,
    /// Only this field of the content, such as stdout
    #[arg(long, value_name = "PATH")]
    field: Option<String>,
    /// This version instead of the one the run wrote
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    version: Option<u64>,
    /// Name of the data; needed when the run produced several
    #[arg(long)]
    name: Option<String>,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let Args { output, field, version, name, fresh } = args;
    cx.report(&cx.repo()?.output_data(&OutputDataGet { output, name, version, field, fresh }).await?)?;
    Ok(Exit::Success)
}

impl Render for OutputData {
    fn render(&self, page: &mut Page) {
        page.block(&value(&self.data));
    }
}
