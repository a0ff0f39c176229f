use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::When;
use peat_engine::report::PinDone;

/// Keep a state, and all later ones, readable under a name
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its name: a-z, 0-9, '.', '_' and '-'
    name: String,
    /// The state after this entry or at this time: 57, 2d, 2026-11-30T10:00:00Z; the newest when left out
    #[arg(long, value_name = "WHEN")]
    at: Option<When>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.pin_add(&args.name, args.at).await?)?;
    Ok(Exit::Success)
}

impl Render for PinDone {
    fn render(&self, page: &mut Page) {
        let (name, seq) = (&self.name, self.seq);
        if self.pinned {
            page.line(format_args!(
                "The state of entry {seq} and all later ones are kept as long as pin '{name}' is there."
            ));
        } else {
            page.line(format_args!(
                "Pin '{name}' on entry {seq} is gone; what nothing else keeps goes with a collection."
            ));
        }
    }
}
