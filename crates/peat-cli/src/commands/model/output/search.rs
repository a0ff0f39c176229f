use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{millis, or_dash};
use crate::printer::Render;
use peat_engine::report::OutputSearch;

/// List outputs, newest first
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only names, types or ids that hold this text
    query: Option<String>,
    /// At most this many
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(
        &cx.repo()?.output_search(args.query.as_deref().unwrap_or_default(), args.limit as usize, args.fresh).await?,
    )?;
    Ok(Exit::Success)
}

impl Render for OutputSearch {
    fn render(&self, page: &mut Page) {
        let rows = self.results.iter().map(|row| {
            vec![
                row.started_at.to_string(),
                row.model_name.clone().unwrap_or_else(|| row.definition_id.clone()),
                row.method_name.clone(),
                row.status.as_str().to_owned(),
                or_dash(row.duration_ms.map(millis)),
                row.id.clone(),
            ]
        });
        page.table(&["started", "model", "method", "status", "took", "id"], rows.collect(), "No outputs found.");
        page.warnings(&self.warnings);
    }
}
