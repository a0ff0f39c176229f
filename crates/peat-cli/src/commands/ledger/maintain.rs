use peat_types::Result;

use crate::context::Context;
use crate::exit::{self, Exit, INCOMPLETE};
use crate::page::Page;
use crate::page::{bytes, count};
use crate::printer::Render;
use peat_engine::report::LedgerMaintain;

/// Make a checkpoint when one is due, so that new clones start quickly and old entries can go
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make one even when none is due
    #[arg(long)]
    force: bool,
    /// Rewrite all metadata and join packs that are mostly dead
    #[arg(long)]
    full: bool,
    /// As started by another command, which does not wait: also collects garbage when it is time
    #[arg(long, hide = true, conflicts_with_all = ["force", "full"])]
    by_itself: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    if args.by_itself {
        // What ends the session of the command that started this does not end it. It may be a leader already.
        let _ = rustix::process::setsid();
        cx.repo()?.maintain_by_itself().await?;
        return Ok(Exit::Success);
    }
    let report = cx.repo()?.ledger_maintain(args.force, args.full).await?;
    cx.report(&report)?;
    let why = report.reason.as_deref().unwrap_or_default();
    exit::end(report.status != "later", INCOMPLETE, format!("no checkpoint was made: {why}"))
}

impl Render for LedgerMaintain {
    fn render(&self, page: &mut Page) {
        if let Some(made) = &self.checkpoint {
            let kind = if made.full { "full checkpoint" } else { "checkpoint" };
            page.field(kind, format_args!("entry {}; nothing below {} is needed for the state", made.seq, made.cut));
            let (metadata, contents) = (bytes(made.metadata_bytes), bytes(made.content_bytes));
            page.field("written", format_args!("{metadata} metadata, {contents} contents"));
            page.field("packs", format_args!("{} new, {} dropped", made.packs, made.packs_dropped));
        } else if let Some(reason) = &self.reason {
            page.line(format_args!("{} not now: {reason}", page.word("pending")));
        } else {
            let tail = count(self.tail_entries.unwrap_or(0), "entry");
            page.line(format_args!("{}: no checkpoint is needed, {tail} since the last one", page.word("ok")));
        }
    }
}
