use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::ModelSearch;

/// List definitions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only names, types or ids that hold this text
    query: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.model_search(args.query.as_deref().unwrap_or_default())?)?;
    Ok(Exit::Success)
}

impl Render for ModelSearch {
    fn render(&self, page: &mut Page) {
        let rows = self.results.iter().map(|row| vec![row.name.clone(), row.type_name.clone(), row.id.clone()]);
        page.table(&["name", "type", "id"], rows.collect(), "No definitions found.");
        page.warnings(&self.warnings);
    }
}
