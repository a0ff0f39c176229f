use peat_types::{Result, Seq};

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{bytes, count, names, or_dash};
use crate::printer::{Render, plain};
use peat_engine::report::{ContentDiff, HistoryItem, ShowReport};

/// Show what an entry of the ledger did
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of the entry
    #[arg(value_name = "ENTRY", allow_negative_numbers = true)]
    seq: u64,
    /// Also how short texts differ from the version before
    #[arg(long)]
    content: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.show(Seq(args.seq), args.content).await?)?;
    Ok(Exit::Success)
}

impl Render for ShowReport {
    fn render(&self, page: &mut Page) {
        page.field("entry", format_args!("{}, {}", self.seq, bytes(self.size)));
        page.field("written", self.written);
        page.field("by clone", self.writer);
        for transaction in &self.transactions {
            let about = &transaction.about;
            page.line("");
            page.field("change", about.change);
            page.field("kind", &about.kind);
            page.field("who", plain(&about.author));
            page.field("made", about.time);
            if !about.message.is_empty() {
                page.field("message", plain(&about.message));
            }
            page.field("what of", plain(&names(if about.models.is_empty() { &about.units } else { &about.models })));
            items(&transaction.items, page);
        }
    }
}

/// Items as a list, each with what is known of its content.
pub(super) fn items(items: &[HistoryItem], page: &mut Page) {
    for item in items {
        let size = match (item.size_before, item.size) {
            (Some(before), Some(after)) if item.change != "put" => format!("{} → {}", bytes(before), bytes(after)),
            (_, size) => or_dash(size.or(item.size_before).map(bytes)),
        };
        let data = item.data.as_ref().map_or_else(String::new, |data| format!("  {}@{}", data.name, data.version));
        page.line(plain(&format!("  {:<8} {}  {size}{data}", item.change, item.path)));
        if let Some(diff) = &item.diff {
            difference(diff, page);
        }
    }
}

fn difference(diff: &ContentDiff, page: &mut Page) {
    if let Some(against) = &diff.against {
        page.line(plain(&format!("    against {against}")));
    }
    for line in diff.text.iter().flat_map(|text| text.lines()) {
        page.line(format_args!("    {}", plain(line)));
    }
    if let Some(note) = &diff.note {
        page.line(format_args!("    ({note})"));
    }
}

/// Items that a terminal shows of a plan or a comparison.
pub(super) const SHOWN: usize = 100;

/// The first items, and how many there are more.
pub(super) fn first_items(all: &[HistoryItem], page: &mut Page) {
    items(all.get(..SHOWN).unwrap_or(all), page);
    if all.len() > SHOWN {
        page.line(format_args!("  … {} more; --json lists all", count((all.len() - SHOWN) as u64, "item")));
    }
}
