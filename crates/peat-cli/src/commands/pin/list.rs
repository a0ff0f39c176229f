use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::PinList;

/// List the pins
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.pin_list().await?)?;
    Ok(Exit::Success)
}

impl Render for PinList {
    fn render(&self, page: &mut Page) {
        let rows = self.pins.iter().map(|pin| vec![pin.name.clone(), pin.seq.to_string(), pin.time.to_string()]);
        page.table(&["name", "entry", "written"], rows.collect(), "No state is pinned.");
    }
}
