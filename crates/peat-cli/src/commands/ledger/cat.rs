use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::value;
use crate::printer::Render;
use peat_engine::report::LedgerCat;

/// Show an object of the ledger as JSON
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of an entry, or an object's key
    #[arg(value_name = "SEQ|KEY")]
    object: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.ledger_cat(&args.object).await?)?;
    Ok(Exit::Success)
}

impl Render for LedgerCat {
    fn render(&self, page: &mut Page) {
        page.block(&value(&self.object));
    }
}
