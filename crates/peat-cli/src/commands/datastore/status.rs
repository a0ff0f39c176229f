use peat_types::Result;

use crate::context::Context;
use crate::exit::{self, CHECK_FAILED, Exit};
use crate::page::Page;
use crate::page::{bytes, count, dollars, millis};
use crate::printer::Render;
use peat_engine::report::{CommandCost, DatastoreStatus};

/// Show the store, and whether it answers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Count what the namespace holds in the store: one LIST for each thousand objects
    #[arg(long)]
    size: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let report = cx.repo()?.datastore_status(args.size).await?;
    cx.report(&report)?;
    exit::end(report.healthy, CHECK_FAILED, format!("the datastore is not healthy: {}", report.message))
}

impl Render for DatastoreStatus {
    fn render(&self, page: &mut Page) {
        let private = if self.private { " (private)" } else { "" };
        page.field("store", format_args!("{}{private}", self.url));
        page.field("namespace", &self.namespace);
        page.field("hydration", &self.hydration);
        let health = page.word(if self.healthy { "healthy" } else { "failed" });
        page.field("health", format_args!("{health}: {}", self.message));
        page.optional("answered in", self.latency_ms.map(millis));
        page.optional("head", self.head);
        page.optional("complete to", self.position);
        let here = &self.contents;
        page.field(
            "contents here",
            format_args!(
                "{} of {}, {} of {}",
                here.local_items,
                count(here.items, "item"),
                bytes(here.local_bytes),
                bytes(here.bytes)
            ),
        );
        if let Some(size) = &self.size {
            page.field("in the store", format_args!("{}, {}", count(size.objects, "object"), bytes(size.bytes)));
        }
        if self.pending > 0 {
            page.field("pending", format_args!("{}: 'peat pending list'", count(self.pending, "change")));
        }
        if self.leases > 0 {
            page.field("leases", format_args!("{}: 'peat datastore lock status'", count(self.leases, "lease")));
        }
        if let Some(maintenance) = &self.maintenance {
            super::maintenance(maintenance, page);
        }
        costs(&self.recent, page);
    }
}

/// What the last commands cost.
fn costs(recent: &[CommandCost], page: &mut Page) {
    for cost in recent {
        let price = cost.estimated_usd.map(|usd| format!(", about {}", dollars(usd))).unwrap_or_default();
        page.field(
            "cost",
            format_args!(
                "{}: {}, {} sent, {} received, {}{price}",
                cost.command,
                count(cost.requests, "request"),
                bytes(cost.bytes_sent),
                bytes(cost.bytes_received),
                millis(cost.duration_ms)
            ),
        );
    }
}
