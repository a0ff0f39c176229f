use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::LockReleased;

/// Take a lease away from its holder
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this model, by name, id or unit; every held lease when left out
    #[arg(long)]
    model: Option<String>,
    /// Required: the holder may still be running, and what it did outside happens twice if run again
    #[arg(long, required = true)]
    force: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.damaged_repo().await?.lock_release(args.model.as_deref(), args.force).await?)?;
    Ok(Exit::Success)
}

impl Render for LockReleased {
    fn render(&self, page: &mut Page) {
        match &self.previous_holder {
            Some(holder) if self.released => {
                let what = holder.model_name.as_ref().unwrap_or(&holder.unit);
                page.line(format_args!("Released {what}, held by {} since {}", holder.holder, holder.acquired_at));
            }
            _ => page.line(self.reason.as_deref().unwrap_or("No lease is held.")),
        }
    }
}
