use peat_types::Result;

use crate::context::Context;
use crate::error::usage_error;
use crate::exit::Exit;
use crate::inputs::{InputArgs, time};
use crate::page::Page;
use crate::page::millis;
use crate::printer::Printer;
use crate::printer::Render;
use peat_engine::report::RunReport;
use peat_engine::{Observer, Repo, RunRequest, Stream, input};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Run a method of a model
///
/// With --json and --stdin each run is one line of JSON, printed when it has ended.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
    /// Method
    method: String,
    #[command(flatten)]
    inputs: InputArgs,
    /// A tag for the data this produces
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// Stop the method after this time: seconds, or 30s, 5m, 1h
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// How long to wait for somebody else's lease on this model, 0 for not at all [default: 60s] [env: PEAT_LOCK_TIMEOUT_MS]
    #[arg(long, value_name = "TIME")]
    lock_timeout: Option<String>,
    /// Run without the store: no lease, the result is committed later and marked unleased
    #[arg(long)]
    offline: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    let lines = args.inputs.stdin;
    let runs = input::parse(&args.inputs.flags()?, &|path| repo.read_input(path))?;
    let tags = tags(&args.tags)?;
    let request = RunRequest {
        model: args.model,
        method: args.method,
        inputs: Map::new(),
        tags,
        timeout: time(args.timeout.as_deref())?,
        lock_timeout: wait(args.lock_timeout.as_deref())?,
        offline: args.offline,
        patience: None,
    };
    let ended = Box::pin(run_all(&repo, request, runs, lines, cx)).await;
    if lines {
        cx.printer.stats(cx.stats().as_ref());
    }
    ended
}

/// One run after another, up to the first that fails. `lines`: there may be several, so each report is a line of its own.
async fn run_all(
    repo: &Repo,
    request: RunRequest,
    runs: Vec<Map<String, Value>>,
    lines: bool,
    cx: &Context,
) -> Result<Exit> {
    let cancel = cx.cancel();
    for inputs in runs {
        let request = RunRequest { inputs, ..request.clone() };
        let ran = Box::pin(repo.run(&request, &cancel, &Lines(&cx.printer))).await?;
        if lines {
            cx.printer.event(&ran.report)?;
        } else {
            cx.report(&ran.report)?;
        }
        if let Some(pending) = ran.pending {
            let hint = pending.hints().last().map_or("", String::as_str);
            cx.printer.warning(&format!("{pending}; {hint}"));
        }
        if let Some(error) = ran.error {
            return Err(error);
        }
    }
    Ok(Exit::Success)
}

/// Shows what the method prints while it runs.
struct Lines<'a>(&'a Printer);

impl Observer for Lines<'_> {
    fn line(&self, _: Stream, line: &str) {
        self.0.note(line);
    }
}

/// A time to wait, which may be none at all.
fn wait(text: Option<&str>) -> Result<Option<Duration>> {
    if text == Some("0") { Ok(Some(Duration::ZERO)) } else { time(text) }
}

/// `key=value` labels.
fn tags(given: &[String]) -> Result<BTreeMap<String, String>> {
    let label = |text: &String| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(usage_error(format!("tag '{text}' is not of the form key=value"))),
    };
    given.iter().map(label).collect()
}

impl Render for RunReport {
    fn render(&self, page: &mut Page) {
        let status = page.word(self.status.as_str());
        let took = self.duration.map(|ms| format!(" in {}", millis(ms))).unwrap_or_default();
        page.line(format_args!("{} {}: {status}{took}", self.model_name, self.method_name));
        for artifact in &self.data_artifacts {
            let version = artifact.version.map_or("version not given yet".to_owned(), |n| format!("version {n}"));
            page.line(format_args!("  {} {version}", artifact.name));
        }
        if self.unleased {
            page.line("  ran without a lease");
        }
    }
}
