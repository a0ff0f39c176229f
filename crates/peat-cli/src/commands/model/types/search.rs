use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::TypeSearch;

/// List the types there are
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only names, types or ids that hold this text
    query: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.type_search(args.query.as_deref().unwrap_or_default()))?;
    Ok(Exit::Success)
}

impl Render for TypeSearch {
    fn render(&self, page: &mut Page) {
        for name in &self.results {
            page.line(&name.normalized);
        }
        if self.results.is_empty() {
            page.line(self.hint.as_deref().unwrap_or("No types found."));
        }
    }
}
