use std::path::{Path, PathBuf};

use peat_engine::report::Report;
use peat_types::{Error, Kind, Result};
use serde::Serialize;

use crate::context::Context;
use crate::exit::{self, CHECK_FAILED, Exit};
use crate::page::{bytes, count, millis};
use crate::stats::Stats;

mod machine;
mod story;

/// See the main job in half a minute: two clones of one ledger, step by step, in a temporary folder
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the folder for a look around
    #[arg(long)]
    keep: bool,
    /// Use this new folder instead of a temporary one; it is left
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What the demo did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DemoReport {
    /// The folder, when it was left.
    folder: Option<PathBuf>,
    steps: Vec<Step>,
    /// Whether every step came out as it should.
    passed: bool,
}

/// One step: who did what, what it cost, what came out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    who: &'static str,
    /// The command that does the same.
    command: String,
    outcome: String,
    passed: bool,
    #[serde(flatten)]
    cost: Stats,
}

impl Report for DemoReport {
    const SCHEMA: &'static str = "peat.demo/1";
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let folder = Folder::make(&args, &cx.settings.temporary)?;
    if !cx.printer.is_json() {
        cx.printer.text("Ann and Bob work on two machines with one shared store.\n\n")?;
    }
    let steps = Box::pin(story::tell(folder.path(), cx)).await?;
    let passed = steps.iter().all(|step| step.passed);
    let left = folder.leave()?;
    if cx.printer.is_json() {
        let report = DemoReport { folder: left, steps, passed };
        cx.printer.document(peat_engine::report::json(&report), None)?;
    } else {
        cx.printer.text(&closing(&steps, passed, left.as_deref()))?;
    }
    exit::end(passed, CHECK_FAILED, "not everything came out as promised")
}

fn closing(steps: &[Step], passed: bool, left: Option<&Path>) -> String {
    let sum = |of: fn(&Stats) -> u64| steps.iter().map(|step| of(&step.cost)).sum::<u64>();
    let verdict = if passed { "Everything came out as promised" } else { "NOT everything came out as promised" };
    let mut text = format!(
        "\n{verdict}: {} with {} and {} moved in {}.\n",
        count(u64::try_from(steps.len()).unwrap_or(u64::MAX), "step"),
        count(sum(|cost| cost.requests), "request"),
        bytes(sum(|cost| cost.bytes_sent + cost.bytes_received)),
        millis(sum(|cost| cost.duration_ms)),
    );
    if let Some(folder) = left {
        text.push_str(&format!(
            "The folder is {}: try 'peat -C {}/ann/ops log'.\n",
            folder.display(),
            folder.display()
        ));
    }
    text
}

/// Where the demo happens.
enum Folder {
    Temporary(tempfile::TempDir),
    Left(PathBuf),
}

impl Folder {
    fn make(args: &Args, temporary: &Path) -> Result<Self> {
        if let Some(dir) = &args.dir {
            if dir.exists() {
                let message = format!("{} is there already: the demo wants a new folder", dir.display());
                return Err(Error::new(Kind::AlreadyExists, message));
            }
            std::fs::create_dir_all(dir).map_err(|e| Error::io("make the folder", dir, e))?;
            return std::path::absolute(dir).map(Self::Left).map_err(|e| Error::io("find", dir, e));
        }
        let made = tempfile::Builder::new().prefix("peat-demo-").tempdir_in(temporary);
        let made = made.map_err(|e| Error::io("make a folder in", temporary, e))?;
        Ok(if args.keep { Self::Left(made.keep()) } else { Self::Temporary(made) })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(dir) => dir.path(),
            Self::Left(dir) => dir,
        }
    }

    /// Removes a temporary folder; gives the path of one that stays.
    fn leave(self) -> Result<Option<PathBuf>> {
        match self {
            Self::Left(dir) => Ok(Some(dir)),
            Self::Temporary(dir) => {
                let path = dir.path().to_owned();
                dir.close().map_err(|e| Error::io("remove", &path, e))?;
                Ok(None)
            }
        }
    }
}
