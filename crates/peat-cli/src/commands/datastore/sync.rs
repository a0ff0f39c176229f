use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{bytes, count, or_dash};
use crate::printer::Render;
use peat_engine::report::SyncReport;

/// Bring clone and store together: settle pending changes, then pull
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only pull
    #[arg(long, conflicts_with = "push")]
    pull: bool,
    /// Only settle pending changes
    #[arg(long)]
    push: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let report = cx.repo()?.sync(args.pull, args.push).await?;
    cx.report(&report)?;
    Ok(if report.errors.is_empty() { Exit::Success } else { Exit::Failure })
}

impl Render for SyncReport {
    fn render(&self, page: &mut Page) {
        if let Some(committed) = self.changes_committed {
            page.field("settled", count(committed, "change"));
        }
        if self.interrupted > 0 {
            page.field("interrupted", count(self.interrupted, "run"));
        }
        if let Some(pulled) = self.files_pulled {
            let size = bytes(self.bytes_pulled.unwrap_or(0));
            page.field("pulled", format_args!("{}, {size}", count(pulled, "item")));
            page.field("position", format_args!("{} → {}", or_dash(self.from), or_dash(self.to)));
        }
        for change in self.parked.iter().chain(&self.pending) {
            let why = change.reason.as_deref().unwrap_or_default();
            page.line(format_args!("{} {} {}: {why}", page.word(&change.status), change.change, change.message));
        }
        for error in &self.errors {
            page.line(format_args!("{} {error}", page.word("failed")));
        }
    }
}
