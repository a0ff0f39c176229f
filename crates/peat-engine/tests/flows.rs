//! Runs and what they leave behind, on one machine and on two.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use peat_engine::report::RunStatus;
use peat_engine::{Cancel, DataGet, OutputDataGet, Quiet, Reason, Repo, RunRequest, report};
use peat_types::Kind;
use serde_json::json;
use support::{World, get, go, hints, request};

#[tokio::test]
async fn a_run_leaves_data_output_and_log() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    let init = machine.init().await;
    assert_eq!(init.created, ["models/", ".peat.yaml"]);
    let repo = machine.repo();
    let made = machine.model(&repo, "m");
    let mut tagged = request("m", json!({"n": "1"}));
    tagged.tags.insert("env".into(), "dev".into());
    let ran = repo.run(&tagged, &Cancel::default(), &Quiet).await.unwrap();
    assert!(ran.error.is_none(), "{:?}", ran.error);
    assert_eq!(ran.report.status, RunStatus::Succeeded);
    assert_eq!(ran.report.method_arguments["n"], 1);
    let artifact = &ran.report.data_artifacts[0];
    assert_eq!((artifact.name.as_str(), artifact.version), ("result", Some(1)));
    assert_eq!(artifact.attributes, Some(json!({"n": 1})));
    assert_eq!(artifact.path.as_deref(), Some(&*format!("data/test/fake/{}/result/1/raw", made.id)));
    go(&repo, json!({"n": 2})).await;

    // Another process reads it.
    let repo = machine.repo();
    let data = report::json(&repo.data_get(&get("result")).await.unwrap());
    assert_eq!((&data["version"], &data["content"]), (&json!(2), &json!({"n": 2})));
    assert_eq!(data["tags"], json!({"type": "resource", "specName": "result", "modelName": "m"}));
    assert_eq!(data["ownerDefinition"]["ownerRef"], made.id);
    let path = data["contentPath"].as_str().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "{\"n\":2}");
    let first = repo.data_get(&DataGet { version: Some(1), ..get("result") }).await.unwrap();
    assert_eq!((first.id.as_str(), first.tags["env"].as_str()), (data["id"].as_str().unwrap(), "dev"));
    assert_eq!(first.checksum.unwrap().len(), 64);
    assert!(repo.data_get(&DataGet { no_content: true, ..get("result") }).await.unwrap().content.is_none());
    let versions = repo.data_versions("m", "result", false).await.unwrap();
    let list: Vec<_> = versions.versions.iter().map(|v| (v.version, v.is_latest)).collect();
    assert_eq!(list, [(2, true), (1, false)]);
    let list = repo.data_list("m", None, false).await.unwrap();
    assert_eq!((list.total, list.groups[0].data_type.as_str()), (1, "resource"));
    assert_eq!(repo.data_list("m", Some("file"), false).await.unwrap().total, 0);

    let output = report::json(&repo.output_get("m", false).await.unwrap());
    assert_eq!(output["status"], "succeeded");
    assert_eq!(output["provenance"]["triggeredBy"], "manual");
    assert_eq!(output["provenance"]["initiatedBy"], "ann@ann-host");
    assert_eq!(output["artifacts"]["dataArtifacts"][0]["version"], 2);
    assert_eq!(output["type"], "test/fake");
    let id = output["id"].as_str().unwrap();
    assert_eq!(repo.output_get(&id[..13], false).await.unwrap().id, id);
    let logs = repo.output_logs(id, None, false).await.unwrap();
    assert_eq!((logs.total_lines, logs.lines[0].ends_with("info    working")), (1, true), "{:?}", logs.lines);
    let history = repo.output_search("", 100, false).await.unwrap();
    assert_eq!(history.results.len(), 2);
    assert_eq!(history.results[0].id, id);
    assert_eq!(repo.output_search("failed", 100, false).await.unwrap().results.len(), 0);
    let field = OutputDataGet { output: ran.report.output_id, field: Some("n".into()), ..OutputDataGet::default() };
    assert_eq!(repo.output_data(&field).await.unwrap().data, 1);

    let status = report::json(&repo.status().await.unwrap());
    assert_eq!((&status["private"], &status["pending"], &status["leases"]), (&json!(true), &json!([]), &json!([])));
    assert!(
        repo.log(&peat_engine::LogRequest::default())
            .await
            .unwrap()
            .entries
            .iter()
            .any(|entry| { entry.transactions.iter().any(|tx| tx.message == "m go: succeeded" && tx.models == ["m"]) })
    );
    for path in walk(machine.dir.path()) {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let record = path.to_string_lossy().contains(".peat/tree/") && path.extension().is_some_and(|e| e == "yaml");
        assert!(!record || !text.contains(&*machine.dir.path().to_string_lossy()), "{}", path.display());
    }
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { out.extend(walk(&path)) } else { out.push(path) }
    }
    out
}

#[tokio::test]
async fn what_is_wrong_before_the_method_leaves_nothing() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    machine.init().await;
    let repo = machine.repo();
    machine.model(&repo, "m");
    let run = async |request: RunRequest| repo.run(&request, &Cancel::default(), &Quiet).await.unwrap_err();
    assert_eq!(run(request("nope", json!({}))).await.code(), "model_not_found");
    let unknown = RunRequest { method: "og".into(), ..request("m", json!({})) };
    assert_eq!(run(unknown).await.code(), "unknown_method");
    let error = run(request("m", json!({"n": "many", "wiat": true}))).await;
    assert_eq!(error.code(), "validation_failed");
    assert!(
        error.to_string().contains("n: is 'many', not an integer") && error.to_string().contains("did you mean 'wait'"),
        "{error}"
    );
    let error = run(request("m", json!({"n": "${{ 1 + 1 }}"}))).await;
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("not supported yet"), "{error}");
    assert!(repo.output_search("", 10, false).await.unwrap().results.is_empty());
    let error = repo.output_get("m", false).await.unwrap_err();
    assert_eq!(error.code(), "not_found");
}

#[tokio::test]
async fn a_failed_run_keeps_what_it_wrote() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    machine.init().await;
    let repo = machine.repo();
    machine.model(&repo, "m");
    let ran = go(&repo, json!({"fail": true, "n": 3})).await;
    let error = ran.error.unwrap();
    assert_eq!((error.code(), ran.report.status), ("method_execution_failed", RunStatus::Failed));
    assert!(error.to_string().contains("told to fail"));
    assert_eq!(repo.data_get(&get("result")).await.unwrap().content.unwrap()["n"], 3);
    let output = repo.output_get("m", false).await.unwrap();
    assert_eq!((output.status, output.error.unwrap().message.as_str()), (RunStatus::Failed, "told to fail"));
}

#[tokio::test]
async fn read_methods_need_no_lease() {
    let world = World::new();
    let (_machine, repo) = world.shared("ann").await;
    let look = RunRequest { method: "look".into(), ..request("m", json!({"n": 1})) };
    let ran = repo.run(&look, &Cancel::default(), &Quiet).await.unwrap();
    assert!(ran.error.is_none() && !ran.report.unleased, "{:?}", ran.error);
    assert!(!repo.lock_status().await.unwrap().held);
    assert_eq!(repo.data_get(&get("result")).await.unwrap().version, 1);
}

#[tokio::test]
async fn two_machines_share_one_history() {
    let world = World::new();
    let (ann, repo_a) = world.shared("ann").await;
    let (bob, repo_b) = world.checkout(&ann, "bob");
    // A clone that never saw anything looks once before it says "not here"; after that it answers from what it knows.
    repo_b.data_get(&get("result")).await.unwrap_err();
    repo_b.sync(true, false).await.unwrap();
    go(&repo_a, json!({"n": 1})).await;
    let error = repo_b.data_get(&get("result")).await.unwrap_err();
    assert_eq!(error.code(), "not_found");
    assert!(hints(&error).contains("peat datastore sync --pull"), "{}", hints(&error));
    let fresh = repo_b.data_get(&DataGet { fresh: true, ..get("result") }).await.unwrap();
    assert_eq!(fresh.content.unwrap()["n"], 1);
    let ran = go(&repo_b, json!({"n": 2})).await;
    assert_eq!(ran.report.data_artifacts[0].version, Some(2));
    let pulled = repo_a.sync(true, false).await.unwrap();
    assert_eq!(pulled.mode, "pull");
    assert_eq!(repo_a.data_get(&get("result")).await.unwrap().version, 2);
    assert!(!bob.dir.path().join(".peat").exists());
    let status = repo_b.datastore_status(false).await.unwrap();
    assert!(status.healthy && !status.private);
}

#[tokio::test]
async fn a_whole_run_takes_three_requests() {
    let world = World::new();
    let (_ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let before = world.cloud.requests();
    go(&repo, json!({"n": 2})).await;
    assert_eq!(world.cloud.requests() - before, 3);
}

#[tokio::test]
async fn the_second_of_two_runs_waits() {
    let world = World::new();
    let (ann, repo_a) = world.shared("ann").await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    let env = ann.host.env.clone();
    ann.during(move || {
        let env = env.clone();
        async move { env.sleep(Duration::from_millis(400)).await }
    });
    let (first, second) = tokio::join!(go(&repo_a, json!({"n": 1})), async {
        ann.host.env.sleep(Duration::from_millis(100)).await;
        go(&repo_b, json!({"n": 2})).await
    });
    assert!(first.error.is_none() && second.error.is_none(), "{:?} {:?}", first.error, second.error);
    assert_eq!(first.report.data_artifacts[0].version, Some(1));
    assert_eq!(second.report.data_artifacts[0].version, Some(2));
}

#[tokio::test]
async fn a_holder_is_named_when_the_wait_is_over() {
    let world = World::new();
    let (ann, repo_a) = world.shared("ann").await;
    let (bob, repo_b) = world.checkout(&ann, "bob");
    let cancel = Cancel::default();
    let holding = request("m", json!({"wait": true}));
    let (held, refused) = tokio::join!(repo_a.run(&holding, &cancel, &Quiet), async {
        bob.host.env.sleep(Duration::from_millis(200)).await;
        let status = repo_b.lock_status().await.unwrap();
        assert_eq!((status.held, status.leases[0].model_name.as_deref()), (true, Some("m")));
        let impatient = RunRequest { lock_timeout: Some(Duration::from_millis(300)), ..request("m", json!({})) };
        let refused = repo_b.run(&impatient, &Cancel::default(), &Quiet).await;
        let delete = repo_b.model_delete("m", true).await;
        cancel.cancel(Reason::Interrupt);
        (refused, delete)
    });
    let error = refused.0.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Contended, "lock_timeout"));
    assert!(error.chain().join(": ").contains("ann@ann-host"), "{error:?}");
    assert_eq!(refused.1.unwrap_err().kind(), Kind::Contended);
    let held = held.unwrap();
    assert_eq!((held.report.status, held.error.unwrap().kind()), (RunStatus::Cancelled, Kind::Cancelled));
    assert!(!repo_b.lock_status().await.unwrap().held);
    assert_eq!(repo_b.output_get("m", true).await.unwrap().status, RunStatus::Cancelled);
}

#[tokio::test]
async fn a_time_out_fails_the_run() {
    let world = World::new();
    let (_ann, repo) = world.shared("ann").await;
    let short = RunRequest { timeout: Some(Duration::from_millis(100)), ..request("m", json!({"wait": true})) };
    let ran = repo.run(&short, &Cancel::default(), &Quiet).await.unwrap();
    assert!(ran.error.unwrap().to_string().contains("100 ms"));
    assert!(!repo.lock_status().await.unwrap().held);
}

#[tokio::test]
async fn a_cancel_before_the_start_leaves_nothing_held() {
    let world = World::new();
    let (_ann, repo) = world.shared("ann").await;
    let cancel = Cancel::default();
    cancel.cancel(Reason::Interrupt);
    let ran = repo.run(&request("m", json!({})), &cancel, &Quiet).await;
    assert!(ran.is_err_and(|e| e.kind() == Kind::Cancelled) || !repo.lock_status().await.unwrap().held);
}

#[tokio::test]
async fn a_method_may_call_peat_on_its_own_model() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let (host, hook) = (ann.host.clone(), ann.hook.clone());
    let seen = Arc::new(std::sync::Mutex::new(None));
    let result = seen.clone();
    *ann.hook.lock().unwrap() = Some(Arc::new(move |_, variables| {
        let (mut host, hook, result) = (host.clone(), hook.clone(), result.clone());
        Box::pin(async move {
            // The inner call is an ordinary one.
            *hook.lock().unwrap() = None;
            host.env = peat_types::Env::system(variables);
            let repo = Repo::find(host).unwrap();
            let mut inner = request("m", json!({"n": 1}));
            inner.lock_timeout = Some(Duration::from_millis(500));
            let ran = repo.run(&inner, &Cancel::default(), &Quiet).await;
            *result.lock().unwrap() = Some(ran);
        })
    }));
    let outer = go(&repo, json!({"n": 2})).await;
    assert!(outer.error.is_none(), "{:?}", outer.error);
    let inner = seen.lock().unwrap().take().unwrap().unwrap();
    assert!(inner.error.is_none(), "{:?}", inner.error);
    assert_eq!(inner.report.data_artifacts[0].version, Some(1));
    assert_eq!(outer.report.data_artifacts[0].version, Some(2));
    let output = repo.output_get(&inner.report.output_id, true).await.unwrap();
    assert_eq!(output.provenance.triggered_by, "model");
    assert_eq!(output.provenance.rest["parentOutputId"], outer.report.output_id);
    assert!(!repo.lock_status().await.unwrap().held);
}

#[tokio::test]
async fn only_the_newest_are_current() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    machine.init().await;
    let repo = machine.repo();
    let made = machine.model(&repo, "m");
    for n in 0..23 {
        go(&repo, json!({"n": n})).await;
    }
    let clone = repo.clone_of().await.unwrap();
    let items = clone.items(&peat_types::Unit::model(&made.id).unwrap(), "").unwrap();
    let current = |end: &str| {
        items.iter().filter(|i| i.rank == peat_clone::Rank::Current && i.path.as_str().ends_with(end)).count()
    };
    assert_eq!((current("/raw"), current("metadata.yaml")), (1, 1));
    assert_eq!(current(".log"), 20);
    let outputs =
        items.iter().filter(|i| i.path.as_str().starts_with("outputs/") && i.path.as_str().ends_with(".yaml"));
    assert_eq!(outputs.clone().count(), 23);
    assert_eq!(outputs.filter(|i| i.rank == peat_clone::Rank::Current).count(), 20);
    assert_eq!(repo.data_get(&get("result")).await.unwrap().version, 23);
}

#[tokio::test]
async fn delete_is_refused_with_data_and_takes_it_along_with_force() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    go(&repo, json!({"n": 1})).await;
    let error = repo_b.model_delete("m", false).await.unwrap_err();
    assert_eq!(error.code(), "has_data");
    let deleted = repo_b.model_delete("m", true).await.unwrap();
    assert_eq!((deleted.data_deleted, deleted.outputs_deleted), (1, 1));
    assert!(repo_b.model_get("m").is_err());
    // The other checkout still has the file, but the data is gone for it too.
    assert!(repo.data_get(&DataGet { fresh: true, ..get("result") }).await.is_err());
    let machine = world.machine("cat", &[]);
    machine.init().await;
    let repo = machine.repo();
    machine.model(&repo, "x");
    assert_eq!(repo.model_delete("x", false).await.unwrap().data_deleted, 0);
    assert!(!machine.dir.path().join("models/test").exists());
}

/// A lease lives for 900 ms here. What is large takes longer to be sent, and the run beats until it is.
#[tokio::test]
async fn a_run_lives_until_its_results_are_sent_however_long_that_takes() {
    let world = World::new();
    let (_ann, repo) = world.shared("ann").await;
    world.cloud.hold_packs(5);
    let ran = go(&repo, json!({"text": "x".repeat(100_000)})).await;
    assert!(ran.error.is_none(), "{:?}", ran.error);
    assert_eq!(ran.report.data_artifacts[0].version, Some(1));
    assert!(!world.cloud.has("ops/beat/").await, "the last beat is taken back");
}
