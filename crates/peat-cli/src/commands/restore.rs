use peat_types::Result;

use super::show::first_items;
use super::undo::outcome;
use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::RestoreReport;
use peat_engine::{RestoreRequest, When};

/// Make the present equal to an older state, by one new entry
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The state: the number of an entry, an age such as 2d, or a time
    #[arg(long, value_name = "WHEN")]
    at: When,
    /// Only this model: name, id, or the unique start of an id
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove more than 500 items, or more than a fifth of what there is
    #[arg(long)]
    allow_deletes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let request =
        RestoreRequest { at: args.at, model: args.model, dry_run: args.dry_run, allow_deletes: args.allow_deletes };
    cx.report(&cx.repo()?.restore(&request).await?)?;
    Ok(Exit::Success)
}

impl Render for RestoreReport {
    fn render(&self, page: &mut Page) {
        page.field("state", format_args!("of entry {}, written {}", self.at, self.written));
        page.optional("model", self.model.as_ref());
        if self.puts + self.deletes == 0 {
            page.line("The present is equal to it already.");
            return;
        }
        outcome(page, self.dry_run, self.entry, self.puts, self.deletes);
        if self.dry_run && self.needs_allow_deletes {
            page.line(format_args!("{} so many removals need --allow-deletes", page.word("warning")));
        }
        first_items(&self.items, page);
    }
}
