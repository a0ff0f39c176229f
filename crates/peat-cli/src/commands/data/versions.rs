use peat_types::Result;

use super::{DataArgs, Target};
use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{bytes, or_dash};
use crate::printer::Render;
use peat_engine::report::DataVersions;
use peat_engine::{Reading, When};

/// List the versions of data
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
    /// As it was after this entry or at this time: 57, 2d, 2026-11-30T10:00:00Z
    #[arg(long, value_name = "WHEN", conflicts_with = "fresh")]
    at: Option<When>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let reading = Reading { fresh: args.fresh, at: args.at };
    let Target { model, name } = args.data.target();
    cx.report(&cx.repo()?.data_versions(&model, &name, reading).await?)?;
    Ok(Exit::Success)
}

impl Render for DataVersions {
    fn render(&self, page: &mut Page) {
        page.optional("of entry", self.entry);
        let rows = self.versions.iter().map(|version| {
            vec![
                version.version.to_string(),
                or_dash(version.created_at),
                or_dash(version.size.map(bytes)),
                if version.is_latest { "latest" } else { "" }.to_owned(),
            ]
        });
        page.table(&["version", "written", "size", ""], rows.collect(), "No versions.");
    }
}
