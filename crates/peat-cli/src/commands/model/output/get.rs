use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::millis;
use crate::printer::Render;
use peat_engine::report::OutputView;

/// Show an output: status, times, provenance, what it produced
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output id, or a model for its newest output
    #[arg(value_name = "OUTPUT|MODEL")]
    output: String,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.output_get(&args.output, args.fresh).await?)?;
    Ok(Exit::Success)
}

impl Render for OutputView {
    fn render(&self, page: &mut Page) {
        page.field("output", &self.id);
        page.field("model", self.model_name.as_ref().unwrap_or(&self.definition_id));
        page.field("type", &self.type_name);
        page.field("method", &self.method_name);
        page.field("status", page.word(self.status.as_str()));
        page.field("started", self.started_at);
        page.optional("ended", self.completed_at);
        page.optional("took", self.duration_ms.map(millis));
        page.optional("by", self.provenance.initiated_by.as_ref());
        page.field("triggered by", &self.provenance.triggered_by);
        if self.unleased {
            page.field("lease", "none");
        }
        page.optional("error", self.error.as_ref().map(|error| &error.message));
        page.optional("log", self.log_file.as_ref());
        for artifact in self.artifacts.iter().flat_map(|artifacts| &artifacts.data_artifacts) {
            page.field("data", format_args!("{} version {}", artifact.name, artifact.version));
        }
    }
}
