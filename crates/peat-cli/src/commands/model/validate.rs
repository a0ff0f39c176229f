use peat_types::{Kind, Result};

use crate::context::Context;
use crate::exit::{self, Exit};
use crate::page::{Page, count};
use crate::printer::Render;
use peat_engine::report::{ModelValidated, ModelValidatedAll};

/// Check one definition, or all of them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id; all definitions when left out
    model: Option<String>,
    /// Check the arguments of this method only
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    let failed = if let Some(model) = &args.model {
        let report = repo.model_validate(model, args.method.as_deref())?;
        cx.report(&report)?;
        u64::from(!report.passed)
    } else {
        let report = repo.model_validate_all()?;
        cx.report(&report)?;
        report.total_failed
    };
    exit::end(failed == 0, Kind::Invalid.code(), format!("{} failed validation", count(failed, "definition")))
}

impl Render for ModelValidated {
    fn render(&self, page: &mut Page) {
        let verdict = page.word(if self.passed { "passed" } else { "failed" });
        page.line(format_args!("{} ({}): {verdict}", self.model_name, self.type_name));
        for check in self.validations.iter().filter(|check| !check.passed) {
            page.line(format_args!("  {}:", check.name));
            for line in check.error.iter().flat_map(|error| error.lines()) {
                page.line(format_args!("    {line}"));
            }
        }
        page.warnings(&self.warnings);
    }
}

impl Render for ModelValidatedAll {
    fn render(&self, page: &mut Page) {
        for model in &self.models {
            model.render(page);
        }
        page.line(format_args!("{} passed, {} failed", self.total_passed, self.total_failed));
    }
}
