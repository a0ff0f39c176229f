use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::millis;
use crate::printer::Render;
use peat_engine::report::LockStatus;

/// Show who holds what
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.damaged_repo().await?.lock_status().await?)?;
    Ok(Exit::Success)
}

impl Render for LockStatus {
    fn render(&self, page: &mut Page) {
        let rows = self.leases.iter().map(|lease| {
            vec![
                lease.model_name.clone().unwrap_or_else(|| lease.unit.clone()),
                lease.holder.clone(),
                lease.acquired_at.to_string(),
                millis(lease.ttl_ms),
                if lease.alive_here { "runs here" } else { "" }.to_owned(),
            ]
        });
        page.table(&["model", "holder", "since", "ttl", ""], rows.collect(), "No lease is held.");
        for note in &self.notes {
            page.line(note);
        }
    }
}
