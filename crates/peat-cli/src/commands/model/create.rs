use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::names;
use crate::printer::Render;
use peat_engine::CreateModel;
use peat_engine::report::ModelCreated;

/// Write a new definition
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Type, such as command/shell
    #[arg(value_name = "TYPE")]
    r#type: String,
    /// Name of the new definition
    name: String,
    /// A global argument: key=text, key.sub=text, key:json=[1,2]
    #[arg(long = "global-arg", value_name = "KEY=VALUE")]
    global_args: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    let request = CreateModel { type_name: args.r#type, name: args.name, global_args: args.global_args };
    cx.report(&repo.model_create(&request, &|path| repo.read_input(path))?)?;
    Ok(Exit::Success)
}

impl Render for ModelCreated {
    fn render(&self, page: &mut Page) {
        page.line(format_args!("Created {} ({}) in {}", self.name, self.type_name, self.path));
        page.field("id", &self.id);
        let methods: Vec<&str> = self.methods.iter().map(|method| method.name.as_str()).collect();
        page.field("methods", names(&methods));
    }
}
