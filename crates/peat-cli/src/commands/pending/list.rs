use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::names;
use crate::printer::Render;
use peat_engine::report::PendingList;

/// List pending and refused changes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.pending_list().await?)?;
    Ok(Exit::Success)
}

impl Render for PendingList {
    fn render(&self, page: &mut Page) {
        let rows = self.changes.iter().map(|change| {
            vec![
                change.change.to_string(),
                change.status.clone(),
                change.time.to_string(),
                names(if change.models.is_empty() { &change.units } else { &change.models }),
                change.message.clone(),
                change.reason.clone().unwrap_or_default(),
            ]
        });
        let header = ["change", "status", "time", "what of", "change", "reason"];
        page.table(&header, rows.collect(), "Nothing is pending.");
    }
}
