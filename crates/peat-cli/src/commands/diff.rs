use peat_types::Result;

use super::show::{first_items, items};
use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::DiffReport;
use peat_engine::{DiffRequest, When};

/// Show what differs between two states of the ledger
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The state before: the number of an entry, an age such as 2d, or a time
    #[arg(value_name = "FROM")]
    from: When,
    /// The state after; the newest when left out
    #[arg(value_name = "TO")]
    to: Option<When>,
    /// Only this model: name, id, or the unique start of an id
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Also how short texts differ
    #[arg(long)]
    content: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let request = DiffRequest { from: args.from, to: args.to, model: args.model, content: args.content };
    cx.report(&cx.repo()?.diff(&request).await?)?;
    Ok(Exit::Success)
}

impl Render for DiffReport {
    fn render(&self, page: &mut Page) {
        page.field("from", format_args!("entry {}, written {}", self.from, self.from_written));
        page.field("to", format_args!("entry {}, written {}", self.to, self.to_written));
        page.optional("model", self.model.as_ref());
        page.field("items", format_args!("{} added, {} changed, {} removed", self.added, self.changed, self.removed));
        if self.items.iter().any(|item| item.diff.is_some()) {
            items(&self.items, page);
        } else {
            first_items(&self.items, page);
        }
    }
}
