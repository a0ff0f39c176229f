use peat_types::{Result, Seq};

use super::show::first_items;
use crate::context::Context;
use crate::exit::Exit;
use crate::page::{Page, count};
use crate::printer::{Render, plain};
use peat_engine::UndoRequest;
use peat_engine::report::UndoReport;

/// Take back what an entry did: its items become what they were before, by a new entry
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of the entry; of a run its start or its end, both are undone together
    #[arg(value_name = "ENTRY", allow_negative_numbers = true)]
    seq: u64,
    /// Which change, when the entry holds several: its id, or the start of it
    #[arg(long, value_name = "CHANGE")]
    change: Option<String>,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let request = UndoRequest { seq: Seq(args.seq), change: args.change, dry_run: args.dry_run };
    cx.report(&cx.repo()?.undo(&request).await?)?;
    Ok(Exit::Success)
}

impl Render for UndoReport {
    fn render(&self, page: &mut Page) {
        for undone in &self.undone {
            let about = &undone.about;
            let what = if about.message.is_empty() { &about.kind } else { &about.message };
            page.field("undone", plain(&format!("entry {} by {}: {what}", undone.seq, about.author)));
        }
        outcome(page, self.dry_run, self.entry, self.puts, self.deletes);
        first_items(&self.items, page);
    }
}

/// What a rewrite of items comes to.
pub(super) fn outcome(page: &mut Page, dry_run: bool, entry: Option<Seq>, puts: u64, deletes: u64) {
    let would = if dry_run { "would be " } else { "" };
    page.field("items", format_args!("{} {would}put back, {deletes} {would}removed", count(puts, "item")));
    page.optional("by entry", entry);
}
