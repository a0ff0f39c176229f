use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::names;
use crate::printer::Render;
use peat_engine::report::LogReport;

/// Show the newest entries of the ledger: who changed what, and when
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many entries
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    limit: u16,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.log(args.limit).await?)?;
    Ok(Exit::Success)
}

impl Render for LogReport {
    fn render(&self, page: &mut Page) {
        let rows = self.entries.iter().flat_map(|entry| {
            entry.transactions.iter().map(move |tx| {
                let what = if tx.message.is_empty() { &tx.kind } else { &tx.message };
                let units = if tx.models.is_empty() { &tx.units } else { &tx.models };
                vec![entry.seq.to_string(), tx.time.to_string(), tx.author.clone(), names(units), what.clone()]
            })
        });
        page.table(&["entry", "time", "who", "what of", "change"], rows.collect(), "The ledger is empty.");
    }
}
