use std::collections::BTreeSet;

use clap::ValueEnum;
use peat_engine::Examination;
use peat_types::Result;

use crate::context::Context;
use crate::exit::{self, CHECK_FAILED, Exit};
use crate::page::{Page, count};
use crate::printer::Render;
use peat_engine::report::{DoctorFinding, DoctorReport};

/// Check repo, clone and store; says what is wrong and what helps
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// datastores: leave the definitions in models/ out
    #[arg(value_enum, value_name = "WHAT", hide_possible_values = true)]
    what: Option<What>,
    /// Try again what the store can do, as setup does: some thirty small objects are written and removed
    #[arg(long)]
    probe: bool,
    /// Read and hash every file of the clone and every content in the store
    #[arg(long)]
    deep: bool,
    /// Put right what was found, after asking: nothing that is only on this machine is removed
    #[arg(long)]
    repair: bool,
    /// With --repair: do not ask
    #[arg(short, long, requires = "repair")]
    yes: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    Datastores,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    // What is altered is only seen by reading.
    let how = Examination {
        definitions: args.what.is_none(),
        probe: args.probe,
        deep: args.deep || args.repair,
        references: args.repair,
        contents: args.deep,
    };
    let found = repo.doctor(how).await?;
    let repairs: Vec<&str> = found.report.health_findings.iter().filter_map(|f| f.repair.as_deref()).collect();
    if !args.repair || repairs.is_empty() {
        return end(&found.report, cx);
    }
    if !cx.printer.is_json() {
        cx.report(&found.report)?;
    }
    if !cx.confirmed(args.yes, &format!("Shall this be done: {}?", repairs.join("; ")))? {
        cx.declined()?;
        return failing(&found.report);
    }
    let mut report = repo.doctor_repair(&found, how).await?;
    if !cx.printer.is_json() {
        // What was all right is on the page already.
        let fine = |check: &str| found.report.health_findings.iter().any(|f| f.check == check && f.passed);
        report.health_findings.retain(|f| !f.passed || !fine(&f.check));
    }
    end(&report, cx)
}

fn end(report: &DoctorReport, cx: &Context) -> Result<Exit> {
    cx.report(report)?;
    failing(report)
}

fn failing(report: &DoctorReport) -> Result<Exit> {
    exit::end(report.overall_status == "pass", CHECK_FAILED, failed(&report.health_findings))
}

/// How many checks failed, and which.
pub(crate) fn failed(findings: &[DoctorFinding]) -> String {
    let failed: Vec<&DoctorFinding> = findings.iter().filter(|found| !found.passed).collect();
    let names: BTreeSet<&str> = failed.iter().map(|found| found.check.as_str()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    format!("{} failed: {names}", count(failed.len() as u64, "check"))
}

impl Render for DoctorReport {
    fn render(&self, page: &mut Page) {
        for line in &self.repaired {
            page.field("repaired", line);
        }
        findings(&self.health_findings, page);
        page.warnings(&self.warnings);
    }
}

/// What a check looked at, and what helps.
pub(crate) fn findings(findings: &[DoctorFinding], page: &mut Page) {
    for finding in findings {
        let verdict = page.word(if finding.passed { "ok" } else { "failed" });
        let about = finding.item.as_ref().map_or(String::new(), |item| format!("{item}: "));
        page.line(format_args!("{verdict}  {}: {about}{}", finding.check, finding.message));
        if let Some(hint) = &finding.hint {
            page.line(format_args!("    hint: {hint}"));
        }
        if let Some(repair) = &finding.repair {
            page.line(format_args!("    'peat doctor --repair' would {repair}"));
        }
    }
}
