use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{bytes, or_dash};
use crate::printer::Render;
use peat_engine::report::DataList;
use peat_engine::{Reading, When};

/// List the data of a model
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
    /// Only data of this type, such as resource or file
    #[arg(long, value_name = "TYPE")]
    r#type: Option<String>,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
    /// As it was after this entry or at this time: 57, 2d, 2026-11-30T10:00:00Z
    #[arg(long, value_name = "WHEN", conflicts_with = "fresh")]
    at: Option<When>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let reading = Reading { fresh: args.fresh, at: args.at };
    cx.report(&cx.repo()?.data_list(&args.model, args.r#type.as_deref(), reading).await?)?;
    Ok(Exit::Success)
}

impl Render for DataList {
    fn render(&self, page: &mut Page) {
        page.optional("of entry", self.entry);
        let rows = self.groups.iter().flat_map(|group| &group.items).map(|item| {
            vec![
                item.name.clone(),
                item.data_type.clone(),
                item.version.to_string(),
                or_dash(item.size.map(bytes)),
                item.created_at.to_string(),
            ]
        });
        let empty = format!("{} has no data yet.", self.model_name);
        page.table(&["name", "type", "version", "size", "written"], rows.collect(), &empty);
        page.warnings(&self.warnings);
    }
}
