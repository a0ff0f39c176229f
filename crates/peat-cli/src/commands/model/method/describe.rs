use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::{MethodReport, MethodView, SpecView};
use serde_json::Value;

/// Show the arguments of a method
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
    /// Method
    method: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.method_describe(&args.model, &args.method)?)?;
    Ok(Exit::Success)
}

impl Render for MethodReport {
    fn render(&self, page: &mut Page) {
        page.field("model", format_args!("{} ({})", self.model_name, self.model_type));
        page.line("");
        method(&self.method, page);
        specs(&self.data_output_specs, page);
    }
}

/// A method and its arguments.
pub(crate) fn method(method: &MethodView, page: &mut Page) {
    page.heading(&format!("Method {} ({})", method.name, method.kind));
    page.line(format_args!("  {}", method.description));
    arguments(&method.arguments, page);
}

/// The properties of a JSON Schema, one line each.
pub(crate) fn arguments(schema: &Value, page: &mut Page) {
    let required = schema["required"].as_array();
    let properties = schema["properties"].as_object();
    let rows = properties.into_iter().flatten().map(|(name, property)| {
        let needed = required.is_some_and(|names| names.iter().any(|known| known == name));
        vec![
            format!("  {name}"),
            property["type"].as_str().unwrap_or("any").to_owned(),
            if needed { "required" } else { "" }.to_owned(),
            property["description"].as_str().unwrap_or_default().to_owned(),
        ]
    });
    page.table(&["  argument", "type", "", "meaning"], rows.collect(), "  no arguments");
}

/// What methods produce.
pub(crate) fn specs(specs: &[SpecView], page: &mut Page) {
    if specs.is_empty() {
        return;
    }
    page.line("");
    page.heading("Data");
    let rows = specs.iter().map(|spec| {
        vec![format!("  {}", spec.spec_name), spec.kind.clone(), spec.content_type.clone(), spec.description.clone()]
    });
    page.table(&["  name", "kind", "content", "meaning"], rows.collect(), "");
}
