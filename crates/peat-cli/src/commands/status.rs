use peat_types::Result;

use crate::commands::datastore;
use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{count, millis, or_dash};
use crate::printer::Render;
use peat_engine::report::StatusReport;

/// Show where this repo stands: its store, the last sync, pending changes, leases
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pull first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    if args.fresh {
        repo.sync(true, false).await?;
    }
    cx.report(&repo.status().await?)?;
    Ok(Exit::Success)
}

impl Render for StatusReport {
    fn render(&self, page: &mut Page) {
        page.field("repo", self.path.display());
        let private = if self.private { " (private)" } else { "" };
        page.field("store", format_args!("{}{private}", self.store));
        page.field("namespace", &self.namespace);
        page.field("clone", self.clone_path.display());
        page.field("newest entry", or_dash(self.head));
        // Without one the clone only ever pulled single models.
        page.optional("complete to", self.position);
        let age = self.last_sync_age_ms.map(|ms| format!("{} ago", millis(u64::try_from(ms).unwrap_or(0))));
        page.field("last sync", age.unwrap_or_else(|| "never".to_owned()));
        page.field("knows", format_args!("{}, {}", count(self.units, "unit"), count(self.items, "item")));
        for change in &self.pending {
            page.field("pending", format_args!("{} {} {}", change.change, page.word(&change.status), change.message));
        }
        for file in &self.by_hand {
            page.field(&file.kind, &file.path);
        }
        for lease in &self.leases {
            let what = lease.model_name.as_ref().unwrap_or(&lease.unit);
            page.field("lease", format_args!("{what}: {} since {}", lease.holder, lease.acquired_at));
        }
        if let Some(maintenance) = &self.maintenance {
            datastore::maintenance(maintenance, page);
        }
        for note in &self.notes {
            page.line(note);
        }
    }
}
