use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{bytes, names, value};
use crate::printer::Render;
use peat_engine::report::PendingShow;

/// Show what a change holds and why it was refused
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change id, or the unique start of one
    change: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.pending_show(&args.change).await?)?;
    Ok(Exit::Success)
}

impl Render for PendingShow {
    fn render(&self, page: &mut Page) {
        let change = &self.change;
        page.field("change", change.change);
        page.field("status", page.word(&change.status));
        page.field("what", &change.message);
        page.field("of", names(if change.models.is_empty() { &change.units } else { &change.models }));
        page.field("who", &change.author);
        page.field("when", change.time);
        page.field("attempts", change.attempts);
        page.field("contents", format_args!("{}, {}", change.contents, bytes(change.bytes)));
        page.optional("code", change.code.as_ref());
        page.optional("reason", change.reason.as_ref());
        page.line("");
        page.block(&value(&self.payload));
    }
}
