use peat_types::Result;

use crate::context::Context;
use crate::exit::{self, Exit, INCOMPLETE};
use crate::page::Page;
use crate::page::{bytes, count};
use crate::printer::Render;
use peat_engine::AddRequest;
use peat_engine::report::AddReport;

/// Commit files of the tree that were changed by hand
///
/// All of them become one change. Nothing is deleted by this, unless '--deletes' says so: a file that is missing is fetched
/// again when it is read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files or folders of the tree, or paths of items
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<String>,
    /// Say what would be committed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete items whose file was in the tree and was removed from there by hand; '--dry-run' shows them
    #[arg(long)]
    deletes: bool,
    /// However much is deleted by this
    #[arg(long)]
    allow_deletes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let request = AddRequest { dry_run: args.dry_run, deletes: args.deletes, allow_deletes: args.allow_deletes };
    let report = Box::pin(cx.repo()?.add(&args.paths, request)).await?;
    cx.report(&report)?;
    let skipped = count(report.skipped.len() as u64, "file");
    exit::end(report.skipped.is_empty(), INCOMPLETE, format!("{skipped} cannot be committed"))
}

impl Render for AddReport {
    fn render(&self, page: &mut Page) {
        for file in &self.files {
            page.line(format_args!("{} {}", page.word(&file.kind), file.path));
        }
        for file in &self.skipped {
            page.line(format_args!("{} {}: {}", page.word("skipped"), file.path, file.why));
        }
        let verb = if self.dry_run { "would commit" } else { "committed" };
        let files = count(self.files.len() as u64 - self.deletes, "file");
        page.field(verb, format_args!("{files}, {}, {}", bytes(self.bytes), count(self.deletes, "delete")));
    }
}
