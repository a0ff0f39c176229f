use peat_engine::PurgeRequest;
use peat_engine::report::DatastorePurge;
use peat_types::{Error, Result};

use super::gc::objects;
use crate::context::Context;
use crate::exit::{self, Exit, INCOMPLETE};
use crate::page::{Page, bytes, count};
use crate::printer::Render;

/// Remove leaked data from the present and from history, for good; older states go with it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The model, by name, id or the unique start of an id; or a path in the ledger
    item: String,
    /// Name of the data, all versions of which go
    name: Option<String>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    let request = PurgeRequest { item: args.item, name: args.name };
    let plan = repo.purge_plan(&request).await?;
    if args.dry_run {
        cx.report(&plan)?;
        return Ok(Exit::Success);
    }
    let shown = !args.yes && !cx.printer.is_json();
    if shown {
        cx.printer.report(&plan, None)?;
    }
    if !cx.confirmed(args.yes, "Remove all of that for good?")? {
        return cx.declined();
    }
    let unfinished =
        format!("the purge is not finished, and its data may still be read: {} finishes it", again(&request));
    cx.if_interrupted(unfinished.clone());
    let purged = repo.purge(&request, plan).await;
    // One that is forbidden did not begin.
    let hint = |error: Error| if error.has_code("pinned") { error } else { error.with_hint(unfinished) };
    let mut report = purged.map_err(hint)?;
    if shown {
        report.out_of_reach.clear();
    }
    cx.report(&report)?;
    let whole = report.done.as_ref().is_none_or(|done| done.left.is_empty());
    exit::end(whole, INCOMPLETE, "not everything that may hold it could be overwritten or removed")
}

/// The command that goes on with a purge.
fn again(request: &PurgeRequest) -> String {
    let item = &request.item;
    match &request.name {
        Some(name) => format!("'peat datastore purge {item} {name}'"),
        None => format!("'peat datastore purge {item}'"),
    }
}

/// What is removed although it is not there now.
fn gone_already(purge: &DatastorePurge) -> String {
    let told = if purge.in_history { "from history only" } else { "what an earlier purge left" };
    format!("{} ({told})", purge.paths.join(", "))
}

fn out_of_reach(page: &mut Page, list: &[String]) {
    if !list.is_empty() {
        page.line("It does not reach:");
    }
    for what in list {
        page.line(format_args!("  - {what}"));
    }
}

impl Render for DatastorePurge {
    fn render(&self, page: &mut Page) {
        let Some(done) = &self.done else {
            for item in &self.items {
                page.field("removes", item);
            }
            if self.items.is_empty() {
                page.field("removes", gone_already(self));
            }
            page.field("stores again", format_args!("{}, {}", count(self.again, "item"), bytes(self.again_bytes)));
            page.field(
                "overwrites",
                format_args!("{}: no state before this can be read", count(self.entries, "entry")),
            );
            page.field("rewrites", format_args!("up to {} of packs", bytes(self.pack_bytes)));
            page.field("requests", format_args!("about {}", self.requests_about));
            for item in &self.elsewhere {
                page.line(format_args!("{} the same bytes stay as {item}", page.word("warning")));
            }
            for pin in &self.pins {
                page.line(format_args!(
                    "{} pin '{pin}' forbids it: 'peat pin rm {pin}' removes it",
                    page.word("warning")
                ));
            }
            out_of_reach(page, &self.out_of_reach);
            return;
        };
        if done.items > 0 {
            page.field("removed", count(done.items, "item"));
        } else {
            page.field("removed", gone_already(self));
        }
        if done.again > 0 {
            page.field("stored again", count(done.again, "item"));
        }
        page.field("overwritten", count(done.overwritten, "entry"));
        page.field("oldest state", format_args!("entry {}", done.oldest_state));
        objects(page, "freed", &done.freed);
        if !done.left.is_empty() {
            objects(page, "not freed", &done.left);
        }
        if let Some(why) = &done.denied {
            page.line(format_args!("{} the store refuses, and what is left may hold it: {why}", page.word("warning")));
            page.line("run it again where there is a right to overwrite and to delete");
        }
        for item in &self.elsewhere {
            page.line(format_args!("{} the same bytes stay as {item}", page.word("warning")));
        }
        out_of_reach(page, &self.out_of_reach);
    }
}
