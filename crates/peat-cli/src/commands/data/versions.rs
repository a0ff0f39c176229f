use peat_types::Result;

use super::{DataArgs, Target};
use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{bytes, or_dash};
use crate::printer::Render;
use peat_engine::report::DataVersions;

/// List the versions of data
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let Target { model, name } = args.data.target();
    cx.report(&cx.repo()?.data_versions(&model, &name, args.fresh).await?)?;
    Ok(Exit::Success)
}

impl Render for DataVersions {
    fn render(&self, page: &mut Page) {
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
