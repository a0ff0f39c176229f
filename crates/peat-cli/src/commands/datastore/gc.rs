use std::time::Duration;

use peat_engine::duration;
use peat_types::Result;

use crate::context::Context;
use crate::exit::{Exit, USAGE};
use crate::page::Page;
use crate::page::{bytes, count};
use crate::printer::Render;
use peat_engine::report::{DatastoreGc, FreedObjects};

/// Free what no state of the last days needs: old entries, dropped packs, uploads that came to nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Say what would be freed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep the states of this time: 30d, 36h; at least a day [default: datastore.retention of .peat.yaml, or 30d]
    #[arg(long, value_name = "TIME")]
    keep: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let keep = args.keep.as_deref().map(duration::parse).transpose().map_err(|error| error.with_code(USAGE))?;
    let report = cx.repo()?.datastore_gc(keep, args.dry_run).await?;
    cx.report(&report)?;
    Ok(Exit::Success)
}

impl Render for DatastoreGc {
    fn render(&self, page: &mut Page) {
        let keep = duration::human(Duration::from_millis(self.keep_ms));
        let [from, to] = self.floor;
        let before = if from == to { String::new() } else { format!(", until now from entry {from} on") };
        page.field("kept", format_args!("the states of the last {keep}: from entry {to} on{before}"));
        page.optional("held by pin", self.held_by.as_ref());
        let verb = if self.dry_run { "would free" } else { "freed" };
        objects(page, verb, &self.freed);
        if !self.left.is_empty() {
            objects(page, "could free", &self.left);
        }
        if let Some(why) = &self.denied {
            page.line(format_args!("{} the store does not let this client delete: {why}", page.word("warning")));
            page.line("run it where there is a right to delete, or leave it: nothing else is affected");
        }
        page.field("stays", bytes(self.retained_bytes));
        page.warnings(&self.warnings);
    }
}

pub(super) fn objects(page: &mut Page, verb: &str, objects: &[FreedObjects]) {
    if objects.is_empty() {
        page.field(verb, "nothing");
    }
    for FreedObjects { kind, objects, bytes: size } in objects {
        let noun = match kind.as_str() {
            "entries" => "entry",
            "packs" => "pack",
            "staged" => "staged change",
            _ => "heartbeat",
        };
        page.field(verb, format_args!("{}, {}", count(*objects, noun), bytes(*size)));
    }
}
