//! What happens in the demo, step by step.

use std::path::Path;

use peat_engine::report::{LogTransaction, RunStatus};
use peat_engine::{
    Cancel, CreateModel, DataGet, Datastore, InitRequest, LogRequest, Quiet, Ran, Repo, RunRequest, SetupRequest,
};
use peat_objects::StoreUrl;
use peat_types::{Error, Result};
use serde_json::{Map, Value};

use super::Step;
use super::machine::Machine;
use crate::context::Context;
use crate::page::{count, millis};
use crate::stats::Stats;

/// Tells the story in `folder`.
pub(super) async fn tell(folder: &Path, cx: &Context) -> Result<Vec<Step>> {
    let store = folder.join("store");
    std::fs::create_dir(&store).map_err(|e| Error::io("make the folder", &store, e))?;
    let (ann, bob) = (Machine::new("ann", folder, cx)?, Machine::new("bob", folder, cx)?);
    let mut told = Told { cx, steps: Vec::new() };
    prepare(&ann, &StoreUrl::File { root: store }.to_string(), &mut told).await?;
    take_git_files(&ann, &bob, &mut told)?;

    told.step(&ann, "model method run web execute --input 'run=echo hello'", run(&ann, "web", "echo hello")).await?;
    told.step(&bob, "data get web result --fresh", get(&bob, "web", 1, "hello")).await?;
    told.step(&bob, "datastore sync --pull", pull(&bob, false)).await?;
    told.step(&bob, "datastore sync --pull", pull(&bob, true)).await?;
    both(&ann, &bob, ["web", "db"], "different models at once: nobody waits", &mut told).await?;
    both(&ann, &bob, ["web", "web"], "the same model at once: they take turns", &mut told).await?;
    told.step(&bob, "data versions web result --fresh", versions(&bob)).await?;
    told.step(&ann, "log", log(&ann)).await?;
    told.step(&ann, "ledger verify --deep", verify(&ann)).await?;
    Ok(told.steps)
}

/// The steps so far, said as they happen.
struct Told<'a> {
    cx: &'a Context,
    steps: Vec<Step>,
}

impl Told<'_> {
    async fn step(
        &mut self,
        machine: &Machine<'_>,
        command: &str,
        does: impl Future<Output = Result<(String, bool)>>,
    ) -> Result<()> {
        let step = Box::pin(machine.step(command, does)).await?;
        self.push(step)
    }

    fn push(&mut self, step: Step) -> Result<()> {
        if !self.cx.printer.is_json() {
            let Step { who, command, outcome, passed, cost } = &step;
            let mark = if *passed { "→" } else { "✗" };
            let cost = format!("{}, {}", count(cost.requests, "request"), millis(cost.duration_ms));
            self.cx.printer.text(&format!("{who}$ {command}\n     {mark} {outcome}   [{cost}]\n"))?;
        }
        self.steps.push(step);
        Ok(())
    }
}

/// Ann makes the repo and moves it to the shared store.
async fn prepare(ann: &Machine<'_>, url: &str, told: &mut Told<'_>) -> Result<()> {
    told.step(ann, "init", async {
        Repo::init(ann.host(), &InitRequest::default()).await?;
        Ok(("a repo with a private ledger".to_owned(), true))
    })
    .await?;
    for name in ["web", "db"] {
        told.step(ann, &format!("model create command/shell {name}"), async {
            let request = CreateModel { type_name: "command/shell".into(), name: name.into(), global_args: Vec::new() };
            let repo = ann.repo()?;
            let made = repo.model_create(&request, &|path| repo.read_input(path))?;
            Ok((made.path, true))
        })
        .await?;
    }
    told.step(ann, &format!("datastore setup {url} --namespace infra"), async {
        let namespace = Some("infra".to_owned());
        let datastore = Datastore { url: url.to_owned(), namespace, ..Datastore::default() };
        let made = ann.repo()?.datastore_setup(&SetupRequest { datastore, ..SetupRequest::default() }).await?;
        Ok(("the store was probed, and the namespace made".to_owned(), made.created))
    })
    .await
}

/// Bob gets what git would give him: the marker and the definitions.
fn take_git_files(ann: &Machine<'_>, bob: &Machine<'_>, told: &mut Told<'_>) -> Result<()> {
    let began = told.cx.env.monotonic();
    for file in [".peat.yaml", "models/command/shell/web.yaml", "models/command/shell/db.yaml"] {
        let (from, to) = (ann.root.join(file), bob.root.join(file));
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(|e| Error::io("make the folder", parent, e))?;
        }
        std::fs::copy(&from, &to).map_err(|e| Error::io("copy", &from, e))?;
    }
    let took = told.cx.env.monotonic().saturating_sub(began);
    told.push(Step {
        who: bob.name,
        command: "git clone … ops".to_owned(),
        outcome: "marker and definitions, nothing else".to_owned(),
        passed: true,
        cost: Stats::new(&peat_objects::Counts::default(), took, None),
    })
}

fn request(model: &str, command: &str) -> RunRequest {
    RunRequest {
        model: model.to_owned(),
        method: "execute".to_owned(),
        inputs: Map::from_iter([("run".to_owned(), Value::from(command))]),
        ..RunRequest::default()
    }
}

async fn run_once(machine: &Machine<'_>, model: &str, command: &str) -> Result<Ran> {
    Box::pin(machine.repo()?.run(&request(model, command), &Cancel::default(), &Quiet)).await
}

async fn run(machine: &Machine<'_>, model: &str, command: &str) -> Result<(String, bool)> {
    let ran = run_once(machine, model, command).await?;
    let entry = ran.report.seq.map(|seq| format!(", committed in entry {seq}")).unwrap_or_default();
    Ok((format!("{}{entry}", ran.report.status.as_str()), ran.report.status == RunStatus::Succeeded))
}

async fn get(machine: &Machine<'_>, model: &str, version: u64, expected: &str) -> Result<(String, bool)> {
    let request = DataGet { model: model.into(), name: "result".into(), fresh: true, ..DataGet::default() };
    let view = machine.repo()?.data_get(&request).await?;
    let stdout = view.content.as_ref().and_then(|content| content["stdout"].as_str()).unwrap_or_default();
    let passed = (view.version, stdout) == (version, expected);
    Ok((format!("version {}: {stdout:?}", view.version), passed))
}

/// A pull; `quiet` when nothing is new, which must not cost more than one request.
async fn pull(machine: &Machine<'_>, quiet: bool) -> Result<(String, bool)> {
    let before = machine.counted();
    let report = machine.repo()?.sync(true, false).await?;
    let requests = machine.cost(&before, std::time::Duration::ZERO).requests;
    let outcome = match report.to {
        Some(to) if quiet => format!("nothing new since entry {to}"),
        Some(to) => format!("at entry {to}"),
        None => "no entry".to_owned(),
    };
    Ok((outcome, !quiet || requests <= 1))
}

/// Both machines run something at the same time.
async fn both(ann: &Machine<'_>, bob: &Machine<'_>, models: [&str; 2], what: &str, told: &mut Told<'_>) -> Result<()> {
    const COMMAND: &str = "sleep 0.3; echo done";
    let (ann_before, bob_before) = (ann.counted(), bob.counted());
    let began = told.cx.env.monotonic();
    let (ran_ann, ran_bob) = futures::join!(run_once(ann, models[0], COMMAND), run_once(bob, models[1], COMMAND));
    let took = told.cx.env.monotonic().saturating_sub(began);
    let (ran_ann, ran_bob) = (ran_ann?.report, ran_bob?.report);
    let passed = [&ran_ann, &ran_bob].iter().all(|ran| ran.status == RunStatus::Succeeded);
    let (a, b) = (ann.cost(&ann_before, took), bob.cost(&bob_before, took));
    told.push(Step {
        who: "ann+bob",
        command: format!("peat model method run {}, peat model method run {}", models[0], models[1]),
        outcome: what.to_owned(),
        passed,
        cost: a.plus(b),
    })
}

async fn versions(machine: &Machine<'_>) -> Result<(String, bool)> {
    let report = machine.repo()?.data_versions("web", "result", true).await?;
    let list: Vec<String> = report.versions.iter().rev().map(|version| version.version.to_string()).collect();
    Ok((format!("versions {}", list.join(", ")), list == ["1", "2", "3", "4"]))
}

async fn log(machine: &Machine<'_>) -> Result<(String, bool)> {
    let report = machine.repo()?.log(&LogRequest::default()).await?;
    let changes: Vec<&LogTransaction> = report.entries.iter().flat_map(|entry| &entry.transactions).collect();
    let by = |name: &str| changes.iter().filter(|tx| tx.author.starts_with(name)).count();
    let (ann, bob) = (by("ann@"), by("bob@"));
    Ok((format!("{} entries, {ann} changes by ann, {bob} by bob", report.entries.len()), ann > 0 && bob > 0))
}

async fn verify(machine: &Machine<'_>) -> Result<(String, bool)> {
    let report = machine.repo()?.ledger_verify(true).await?;
    Ok((format!("{} entries and {} contents are sound", report.entries, report.contents), report.passed))
}
