use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::or_dash;
use crate::printer::Render;
use peat_engine::report::LedgerLs;

/// List the objects of the ledger, newest entries first
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this folder
    #[arg(value_name = "log|pack|tx|beat", value_parser = ["log", "pack", "tx", "beat"], hide_possible_values = true)]
    folder: Option<String>,
    /// At most this many
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.ledger_ls(args.folder.as_deref().unwrap_or_default(), args.limit as usize).await?)?;
    Ok(Exit::Success)
}

impl Render for LedgerLs {
    fn render(&self, page: &mut Page) {
        let rows = self
            .objects
            .iter()
            .map(|object| vec![object.key.clone(), object.size.to_string(), or_dash(object.last_modified)]);
        page.table(&["key", "size", "written"], rows.collect(), "No objects.");
        if self.limited {
            page.line("… there are more: raise --limit");
        }
    }
}
