use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::millis;
use crate::printer::Render;
use peat_engine::report::DatastoreStatus;

/// Show the store, and whether it answers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args, cx: &Context) -> Result<Exit> {
    let report = cx.repo()?.datastore_status().await?;
    cx.report(&report)?;
    Ok(if report.healthy { Exit::Success } else { Exit::Failure })
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
    }
}
