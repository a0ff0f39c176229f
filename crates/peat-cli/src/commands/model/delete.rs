use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::count;
use crate::printer::Render;
use peat_engine::report::ModelDeleted;

/// Delete a definition, and with --force its data and outputs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Delete its data and outputs too; does not ask
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    let model = repo.definition(&args.model)?;
    let question = format!("Delete {} ({})?", model.name, model.rel);
    if !args.force && !cx.confirmed(args.yes, &question)? {
        return cx.declined();
    }
    cx.report(&repo.model_delete(&args.model, args.force).await?)?;
    Ok(Exit::Success)
}

impl Render for ModelDeleted {
    fn render(&self, page: &mut Page) {
        page.line(format_args!("Deleted {} ({})", self.deleted.name, self.deleted.input_path));
        if self.data_deleted + self.outputs_deleted > 0 {
            let (data, outputs) = (count(self.data_deleted, "data version"), count(self.outputs_deleted, "output"));
            page.line(format_args!("and {data}, {outputs}"));
        }
    }
}
