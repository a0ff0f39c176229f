use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::report::{DoctorFinding, DoctorReport};

/// Check repo, clone and store; says what is wrong and what helps
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Try again what the store can do, as setup does: some thirty small objects are written and removed
    #[arg(long)]
    probe: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let report = cx.repo()?.doctor_datastores(args.probe).await?;
    cx.report(&report)?;
    Ok(if report.overall_status == "pass" { Exit::Success } else { Exit::Failure })
}

impl Render for DoctorReport {
    fn render(&self, page: &mut Page) {
        findings(&self.health_findings, page);
        page.warnings(&self.warnings);
    }
}

/// What a check looked at, and what helps.
pub(crate) fn findings(findings: &[DoctorFinding], page: &mut Page) {
    for finding in findings {
        let verdict = page.word(if finding.passed { "ok" } else { "failed" });
        page.line(format_args!("{verdict}  {}: {}", finding.check, finding.message));
        if let Some(hint) = &finding.hint {
            page.line(format_args!("    hint: {hint}"));
        }
    }
}
