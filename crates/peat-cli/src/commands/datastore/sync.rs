use peat_types::Result;

use crate::context::Context;
use crate::exit::{self, Exit, INCOMPLETE};
use crate::inputs::time;
use crate::page::Page;
use crate::page::{bytes, count, or_dash};
use crate::printer::Render;
use peat_engine::SyncRequest;
use peat_engine::report::{AsideFile, SyncPlan, SyncReport};

/// Bring clone and store together: settle pending changes, then pull
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only pull
    #[arg(long, conflicts_with = "push")]
    pull: bool,
    /// Only send: pending changes, and files of the tree that were changed by hand
    #[arg(long)]
    push: bool,
    /// Say what would be sent and fetched, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete items whose file was in the tree and was removed from there by hand; '--dry-run' shows them
    #[arg(long, requires = "push")]
    deletes: bool,
    /// However much is deleted by this
    #[arg(long)]
    allow_deletes: bool,
    /// Stop after this time: seconds, or 30s, 5m, 1h; the same command goes on where it stopped
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Nothing is asked, so this changes nothing: the plan is shown by '--dry-run'
    #[arg(short, long, alias = "confirm")]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let (pull, push) = (args.pull, args.push);
    let limit = time(args.timeout.as_deref())?;
    let request = SyncRequest { pull, push, deletes: args.deletes, allow_deletes: args.allow_deletes };
    if args.dry_run {
        let plan = cx.within(limit, Box::pin(cx.repo()?.sync_plan(request))).await?;
        cx.report(&plan)?;
        return exit::end(plan.blocked.is_none(), "many_deletes", "this synchronisation would be refused");
    }
    let report = cx.within(limit, Box::pin(cx.repo()?.synchronise(request))).await?;
    cx.report(&report)?;
    let first = report.errors.first().map_or("", String::as_str);
    let more = report.errors.len().saturating_sub(1);
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    exit::end(report.errors.is_empty(), INCOMPLETE, format!("not everything was done: {first}{more}"))
}

impl Render for SyncPlan {
    fn render(&self, page: &mut Page) {
        for change in &self.changes {
            page.line(format_args!("{} {} {}", page.word("pending"), change.change, change.message));
        }
        for file in &self.by_hand {
            page.line(format_args!("{} {}, {}", page.word(&file.kind), file.path, bytes(file.size)));
        }
        for file in &self.skipped {
            page.line(format_args!("{} {}: {}", page.word("skipped"), file.path, file.why));
        }
        if self.mode != "pull" {
            let deletes = count(self.deletes, "delete");
            page.field("would send", format_args!("{}, {}, {deletes}", count(self.puts, "item"), bytes(self.bytes)));
        }
        if let Some(pull) = &self.pull {
            let range = format!("{} → {}", or_dash(pull.from), pull.to);
            if pull.exact {
                let deletes = count(pull.deletes, "delete");
                let puts = count(pull.puts, "item");
                page.field("would fetch", format_args!("{range}: {puts}, {}, {deletes}", bytes(pull.bytes)));
            } else {
                page.field("would fetch", format_args!("{range}: so far behind that directories are compared"));
            }
        }
        page.field("requests", format_args!("{} at least", self.requests));
        for conflict in &self.conflicts {
            page.line(format_args!("{} {conflict}", page.word("conflict")));
        }
        if let Some(why) = &self.blocked {
            page.line(format_args!("{} {why}", page.word("refused")));
        }
    }
}

impl Render for SyncReport {
    fn render(&self, page: &mut Page) {
        if let Some(committed) = self.changes_committed {
            page.field("settled", count(committed, "change"));
        }
        for change in &self.settled {
            page.line(format_args!("{} {} {}", page.word("committed"), change.change, change.message));
        }
        if let Some(deleted) = self.files_deleted.filter(|deleted| *deleted > 0) {
            page.field("deleted", count(deleted, "item"));
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
        // Each of them was a warning when it was moved.
        if let Some(folder) = self.aside.first().and_then(AsideFile::folder) {
            let files = count(self.aside.len() as u64, "file");
            page.field("put aside", format_args!("{files}, to {}", folder.display()));
        }
        if self.by_hand > 0 {
            let files = count(self.by_hand, "file");
            page.line(format_args!(
                "{files} changed by hand: 'peat datastore sync --push' or 'peat add <path>' commits them"
            ));
        }
        if self.missing > 0 {
            let files = count(self.missing, "file");
            page.line(format_args!(
                "{files} removed by hand, and still in the datastore: 'peat datastore sync --push --deletes' or \
                 'peat add --deletes <path>' deletes them there, too"
            ));
        }
        for error in &self.errors {
            page.line(format_args!("{} {error}", page.word("failed")));
        }
    }
}
