use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::names;
use crate::printer::Render;
use peat_engine::report::ModelView;

/// Show a definition
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.model_get(&args.model)?)?;
    Ok(Exit::Success)
}

impl Render for ModelView {
    fn render(&self, page: &mut Page) {
        page.field("name", &self.name);
        page.field("type", &self.type_name);
        page.field("id", &self.id);
        page.field("file", &self.path);
        if let Some(methods) = &self.methods {
            let methods: Vec<&str> = methods.iter().map(|method| method.name.as_str()).collect();
            page.field("methods", names(&methods));
        }
        if self.auto_created == Some(true) {
            page.field("origin", "made by a direct run");
        }
        page.line("");
        page.block(&self.source);
    }
}
