use std::collections::BTreeMap;

use peat_types::Result;

use crate::commands::doctor;
use crate::context::Context;
use crate::exit::{self, CHECK_FAILED, Exit};
use crate::page::Page;
use crate::page::{bytes, count};
use crate::printer::Render;
use peat_engine::report::{LedgerOrphan, LedgerVerify};

/// Objects of one kind that the text names.
const LISTED: usize = 100;

/// Check the entries of the ledger and what they refer to
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read and hash every content too
    #[arg(long)]
    deep: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let report = cx.repo()?.ledger_verify(args.deep).await?;
    cx.report(&report)?;
    exit::end(report.passed, CHECK_FAILED, format!("the ledger is not whole: {}", doctor::failed(&report.findings)))
}

impl Render for LedgerVerify {
    fn render(&self, page: &mut Page) {
        doctor::findings(&self.findings, page);
        let mut kinds: BTreeMap<&str, Vec<&LedgerOrphan>> = BTreeMap::new();
        for orphan in &self.orphans {
            kinds.entry(&orphan.message).or_default().push(orphan);
        }
        for (message, orphans) in kinds {
            let (objects, size) =
                (count(orphans.len() as u64, "object"), orphans.iter().map(|orphan| orphan.size).sum());
            page.line(format_args!("note  {objects} of {} that nobody needs: {message}", bytes(size)));
            for orphan in orphans.iter().take(LISTED) {
                page.line(format_args!("    {}", orphan.key));
            }
            if let Some(more @ 1..) = orphans.len().checked_sub(LISTED) {
                page.line(format_args!("    and {more} more, which --json lists"));
            }
        }
        let verdict = page.word(if self.passed { "ok" } else { "failed" });
        let (entries, contents) = (count(self.entries, "entry"), count(self.contents, "content"));
        page.line(format_args!("{verdict}: {entries}, {contents} checked"));
    }
}
