use peat_engine::report::CatalogPull;
use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::{Page, names};
use crate::printer::Render;

/// Learn what is new in other namespaces; contents are fetched when they are read, as 'peat data get NAMESPACE:MODEL NAME'
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of the namespaces
    #[arg(long, value_name = "A,B", required = true, value_delimiter = ',')]
    namespaces: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&Box::pin(cx.repo()?.catalog_pull(&args.namespaces)).await?)?;
    Ok(Exit::Success)
}

impl Render for CatalogPull {
    fn render(&self, page: &mut Page) {
        let rows = self.namespaces.iter().map(|row| {
            let models: Vec<&str> = row.models.iter().map(String::as_str).collect();
            vec![row.namespace.to_string(), row.items.to_string(), row.changed.to_string(), names(&models)]
        });
        page.table(&["namespace", "items", "changed", "models"], rows.collect(), "No namespace was named.");
    }
}
