use peat_types::Result;

use crate::commands::model::method::describe;
use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::TypeView;

/// Show methods, arguments and data of a type
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Type, such as command/shell
    #[arg(value_name = "TYPE")]
    r#type: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.type_describe(&args.r#type)?)?;
    Ok(Exit::Success)
}

impl Render for TypeView {
    fn render(&self, page: &mut Page) {
        page.field("type", &self.type_name.normalized);
        page.field("version", &self.version);
        page.line(&self.description);
        if let Some(schema) = &self.global_arguments {
            page.line("");
            page.heading("Global arguments");
            describe::arguments(schema, page);
        }
        for method in &self.methods {
            page.line("");
            describe::method(method, page);
        }
        describe::specs(&self.data_output_specs, page);
    }
}
