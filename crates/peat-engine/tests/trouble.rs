//! Stores that go away, leases that are lost, processes that die.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod support;

use std::time::Duration;

use peat_engine::report::{RunStatus, json as machine};
use peat_engine::{Beats, Cancel, CreateModel, DataGet, Examination, Quiet, RunRequest};
use peat_objects::Store;
use peat_types::Kind;
use serde_json::json;
use support::{World, get, go, hints, request, setup};

#[tokio::test]
async fn without_the_store_a_run_does_not_begin() {
    let world = World::new();
    let (_ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    world.cloud.off(true);
    let error = repo.run(&request("m", json!({"n": 2})), &Cancel::default(), &Quiet).await.unwrap_err();
    assert_eq!(error.code(), "offline");
    assert!(hints(&error).contains("--offline"), "{}", hints(&error));
    // What is here can be read.
    assert_eq!(repo.data_get(&get("result")).await.unwrap().version, 1);
    assert!(repo.pending_list().await.unwrap().changes.is_empty());
    world.cloud.off(false);
    assert_eq!(repo.output_search("", 10, true).await.unwrap().results.len(), 1);
}

#[tokio::test]
async fn an_offline_run_is_unleased_and_committed_later() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    go(&repo, json!({"n": 1})).await;
    world.cloud.off(true);
    let offline = RunRequest { offline: true, ..request("m", json!({"n": 2})) };
    let ran = repo.run(&offline, &Cancel::default(), &Quiet).await.unwrap();
    assert!(ran.error.is_none(), "without the store is what was asked for: {:?}", ran.error);
    let error = ran.pending.unwrap();
    assert!(["commit_pending", "outcome_unknown"].contains(&error.code()), "{error:?}");
    assert_eq!((ran.report.status, ran.report.unleased), (RunStatus::Succeeded, true));
    assert!(hints(&error).contains("peat datastore sync --push"), "{}", hints(&error));
    let report = machine(&ran.report);
    assert_eq!(report["dataArtifacts"], json!([{"name": "result", "attributes": {"n": 2}}]));
    let pending = repo.pending_list().await.unwrap();
    assert_eq!((pending.total, pending.changes[0].models.as_slice()), (1, &["m".to_owned()][..]));
    world.cloud.off(false);
    // Somebody else was faster: the version is given at the commit.
    assert_eq!(go(&repo_b, json!({"n": 3})).await.report.data_artifacts[0].version, Some(2));
    let pushed = repo.sync(false, true).await.unwrap();
    assert_eq!((pushed.changes_committed, pushed.errors.len()), (Some(1), 0), "{pushed:?}");
    let data = repo.data_get(&get("result")).await.unwrap();
    assert_eq!((data.version, data.content.unwrap()), (3, json!({"n": 2})));
    let output = repo.output_get(&ran.report.output_id, false).await.unwrap();
    assert!(output.unleased);
    assert_eq!(output.status, RunStatus::Succeeded);
}

#[tokio::test]
async fn a_store_that_was_set_back_is_shown_by_status_once_it_was_seen() {
    let world = World::new();
    let (_ann, repo) = world.shared("ann").await;
    for n in 0..3 {
        go(&repo, json!({ "n": n })).await;
    }
    let status = || async { repo.status().await.unwrap().notes };
    assert!(status().await.is_empty());
    // (The newest come first.)
    for entry in world.cloud.keys("ops/log/").await.iter().take(2) {
        world.cloud.delete(entry).await.unwrap();
    }
    assert!(status().await.is_empty(), "status asks nothing");
    let found = repo.doctor(Examination::default()).await.unwrap().report;
    assert!(found.health_findings.iter().any(|found| found.check == "head" && !found.passed), "{found:?}");
    let notes = status().await;
    assert!(notes.len() == 1 && notes[0].contains("set back") && notes[0].contains("state.db"), "{notes:?}");
}

/// What `m` did without the store waits; then `other` runs, and the command after it is over.
async fn and_then_other(repo: &peat_engine::Repo, world: &World, ann: &support::Machine) -> peat_engine::Waited {
    world.cloud.off(true);
    let offline = RunRequest { offline: true, ..request("m", json!({"n": 2})) };
    assert!(repo.run(&offline, &Cancel::default(), &Quiet).await.unwrap().pending.is_some());
    world.cloud.off(false);
    let repo = ann.repo();
    assert!(repo.run(&request("other", json!({"n": 5})), &Cancel::default(), &Quiet).await.unwrap().error.is_none());
    repo.send_waiting().await.unwrap()
}

#[tokio::test]
async fn what_waits_goes_out_after_the_next_command_that_commits_anything() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    ann.model(&repo, "other");
    let waited = and_then_other(&repo, &world, &ann).await;
    assert_eq!((waited.committed.len(), waited.left.len()), (1, 0), "{waited:?}");
    assert!(waited.committed[0].contains("is committed in entry "), "{waited:?}");
    assert_eq!(repo.data_get(&get("result")).await.unwrap().content.unwrap(), json!({"n": 2}));
    // Nothing is asked when nothing waits, and by a command that only reads.
    let requests = world.cloud.requests();
    let waited = repo.send_waiting().await.unwrap();
    assert!(waited.committed.is_empty() && waited.left.is_empty());
    assert_eq!(world.cloud.requests(), requests);
    leave_a_deletion(&repo, &world).await;
    let reader = ann.repo();
    reader.data_get(&get("result")).await.unwrap();
    let requests = world.cloud.requests();
    assert!(reader.send_waiting().await.unwrap().left.is_empty());
    assert_eq!(world.cloud.requests(), requests);
    assert_eq!(repo.pending_list().await.unwrap().total, 1);
}

/// A deletion of all that `m` has, which waits.
async fn leave_a_deletion(repo: &peat_engine::Repo, world: &World) {
    let unit = repo.definition("m").unwrap().unit().unwrap();
    world.cloud.off(true);
    let mut change = peat_clone::NewChange::new("model.delete", vec![unit], json!({}));
    change.patience = Duration::from_millis(200);
    let error = repo.clone_of().await.unwrap().commit(change).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Offline, "{error:?}");
    world.cloud.off(false);
}

#[tokio::test]
async fn what_waits_and_deletes_is_told_and_left_to_a_person() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    ann.model(&repo, "other");
    for n in 0..4 {
        go(&repo, json!({ "n": n })).await;
    }
    leave_a_deletion(&repo, &world).await;
    let next = ann.repo();
    assert!(next.run(&request("other", json!({"n": 1})), &Cancel::default(), &Quiet).await.unwrap().error.is_none());
    let waited = next.send_waiting().await.unwrap();
    assert_eq!((waited.committed.len(), waited.left.len()), (0, 1), "{waited:?}");
    assert!(
        waited.left[0].contains("what deletes is not sent") && waited.left[0].contains("'peat pending drop "),
        "{waited:?}"
    );
    assert_eq!(repo.pending_list().await.unwrap().total, 1);
}

#[tokio::test]
async fn an_end_that_cannot_be_committed_is_kept() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let cloud = world.cloud.clone();
    ann.during(move || {
        cloud.off(true);
        async {}
    });
    let mut run = request("m", json!({"n": 1}));
    run.patience = Some(Duration::from_millis(300));
    let ran = repo.run(&run, &Cancel::default(), &Quiet).await.unwrap();
    let error = ran.error.unwrap();
    assert!(["commit_pending", "outcome_unknown"].contains(&error.code()), "{error:?}");
    assert_eq!(ran.report.status, RunStatus::Succeeded);
    assert!(hints(&error).contains("peat datastore sync --push"));
    world.cloud.off(false);
    let pushed = repo.sync(false, false).await.unwrap();
    assert_eq!((pushed.mode.as_str(), pushed.errors.len()), ("sync", 0), "{pushed:?}");
    assert_eq!(repo.data_get(&get("result")).await.unwrap().version, 1);
    assert_eq!(repo.output_get("m", false).await.unwrap().status, RunStatus::Succeeded);
    assert!(!repo.lock_status().await.unwrap().held);
    assert!(repo.pending_list().await.unwrap().changes.is_empty());
}

#[tokio::test]
async fn the_next_run_commits_what_the_last_one_could_not() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let cloud = world.cloud.clone();
    ann.during(move || {
        cloud.off(true);
        async {}
    });
    let run = RunRequest { patience: Some(Duration::from_millis(300)), ..request("m", json!({"n": 1})) };
    assert!(repo.run(&run, &Cancel::default(), &Quiet).await.unwrap().error.is_some());
    world.cloud.off(false);
    *ann.hook.lock().unwrap() = None;
    let ran = go(&ann.repo(), json!({"n": 2})).await;
    assert!(ran.error.is_none(), "{:?}", ran.error);
    assert_eq!(ran.report.data_artifacts[0].version, Some(2));
    let first = repo.data_get(&DataGet { version: Some(1), ..get("result") }).await.unwrap();
    assert_eq!(first.content.unwrap(), json!({"n": 1}));
    assert!(repo.pending_list().await.unwrap().changes.is_empty());
    assert_eq!(repo.output_search("succeeded", 10, false).await.unwrap().results.len(), 2);
}

#[tokio::test]
async fn results_of_a_lost_lease_are_kept_aside_until_somebody_decides() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let (bob, repo_b) = world.checkout(&ann, "bob");
    let force = repo_b.clone();
    ann.during(move || {
        let repo = force.clone();
        async move {
            assert!(repo.lock_release(Some("m"), false).await.is_err());
            let released = repo.lock_release(Some("m"), true).await.unwrap();
            assert_eq!(released.previous_holder.unwrap().holder, "ann@ann-host");
        }
    });
    let ran = go(&repo, json!({"n": 1})).await;
    let error = ran.error.unwrap();
    assert_eq!(error.code(), "lease_lost", "{error:?}");
    assert!(hints(&error).contains("peat pending"), "{}", hints(&error));
    assert_eq!(repo_b.output_get("m", true).await.unwrap().status, RunStatus::Interrupted);
    let _ = &bob;
    go(&repo_b, json!({"n": 2})).await;
    let pending = repo.pending_list().await.unwrap();
    assert_eq!((pending.total, pending.changes[0].status.as_str()), (1, "parked"));
    let id = pending.changes[0].change.to_string();
    let shown = machine(&repo.pending_show(&id[..8]).await.unwrap());
    assert_eq!(shown["content"][0]["text"], "{\"n\":1}");
    assert_eq!(shown["schema"], "peat.pending.show/1");
    let adopted = repo.pending_adopt(&id[..8], false).await.unwrap();
    assert!(adopted.seq.is_some());
    let data = repo.data_get(&get("result")).await.unwrap();
    assert_eq!((data.version, data.content.unwrap()), (2, json!({"n": 1})));
    assert!(repo.output_get(&ran.report.output_id, false).await.unwrap().unleased);
    assert!(repo.pending_drop(&id).await.is_err());
}

#[tokio::test]
async fn a_dead_run_is_interrupted_and_does_not_block() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let waiting = request("m", json!({"wait": true}));
    // Dropped in the middle, as a killed process would leave it.
    let dead = ann.repo();
    assert!(
        ann.host
            .env
            .timeout(Duration::from_millis(300), dead.run(&waiting, &Cancel::default(), &Quiet))
            .await
            .is_none()
    );
    drop(dead);
    let ran = go(&repo, json!({"n": 2})).await;
    assert!(ran.error.is_none(), "{:?}", ran.error);
    let history = repo.output_search("", 10, false).await.unwrap();
    let statuses: Vec<_> = history.results.iter().map(|row| row.status).collect();
    assert_eq!(statuses, [RunStatus::Succeeded, RunStatus::Interrupted]);
    let output = repo.output_get(&history.results[1].id, false).await.unwrap();
    assert_eq!(output.error.unwrap().code.as_deref(), Some("interrupted"));
}

#[tokio::test]
async fn a_run_notices_that_its_lease_is_lost_and_ends() {
    let world = World::new();
    for beats in [Beats::Thread, Beats::Inline] {
        let (mut ann, _) = world.on("ann", if beats == Beats::Thread { "one" } else { "two" }).await;
        ann.host.beats = beats;
        let repo = ann.repo();
        let (bob, repo_b) = world.checkout(&ann, "bob");
        let (waiting, cancel) = (request("m", json!({"wait": true})), Cancel::default());
        let (ran, released) = tokio::join!(repo.run(&waiting, &cancel, &Quiet), async {
            bob.host.env.sleep(Duration::from_millis(200)).await;
            repo_b.lock_release(None, true).await.unwrap()
        });
        assert!(released.released);
        let ran = ran.unwrap();
        assert_eq!(ran.error.unwrap().code(), "lease_lost");
        assert_eq!(repo.pending_list().await.unwrap().changes[0].code.as_deref(), Some("lease_lost"));
    }
}

#[tokio::test]
async fn a_run_that_hears_nothing_from_the_store_ends() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let waiting = RunRequest { patience: Some(Duration::from_millis(200)), ..request("m", json!({"wait": true})) };
    let cancel = Cancel::default();
    let (ran, ()) = tokio::join!(repo.run(&waiting, &cancel, &Quiet), async {
        ann.host.env.sleep(Duration::from_millis(200)).await;
        world.cloud.off(true);
    });
    let error = ran.unwrap().error.unwrap();
    assert!(["commit_pending", "outcome_unknown"].contains(&error.code()), "{error:?}");
    world.cloud.off(false);
    repo.sync(false, true).await.unwrap();
    assert!(repo.output_get("m", true).await.unwrap().error.unwrap().message.contains("heartbeat"));
}

#[tokio::test]
async fn two_processes_of_one_machine_take_turns() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let env = ann.host.env.clone();
    ann.during(move || {
        let env = env.clone();
        async move { env.sleep(Duration::from_millis(1200)).await }
    });
    // Longer than the lease lives without a beat.
    let other = ann.repo();
    let (first, second) = tokio::join!(go(&repo, json!({"n": 1})), async {
        ann.host.env.sleep(Duration::from_millis(100)).await;
        go(&other, json!({"n": 2})).await
    });
    assert!(first.error.is_none() && second.error.is_none(), "{:?} {:?}", first.error, second.error);
    assert_eq!(second.report.data_artifacts[0].version, Some(2));
    assert_eq!(repo.output_search("interrupted", 10, true).await.unwrap().results.len(), 0);
}

#[tokio::test]
async fn a_waiting_run_can_be_cancelled() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    let (stop, waiting) = (Cancel::default(), request("m", json!({"wait": true})));
    let (held, given_up) = tokio::join!(repo.run(&waiting, &stop, &Quiet), async {
        ann.host.env.sleep(Duration::from_millis(200)).await;
        let (blocked, quiet) = (request("m", json!({})), Cancel::default());
        let (blocked, cancelled) = tokio::join!(repo_b.run(&blocked, &quiet, &Quiet), async {
            ann.host.env.sleep(Duration::from_millis(300)).await;
            repo_b.model_cancel(Some("m"), "changed my mind").await.unwrap()
        });
        stop.cancel(peat_engine::Reason::Interrupt);
        assert_eq!(cancelled.status.as_deref(), Some("cancelled"));
        blocked.unwrap_err()
    });
    assert_eq!(given_up.kind(), Kind::Cancelled);
    assert!(given_up.to_string().contains("changed my mind"));
    assert_eq!(held.unwrap().report.status, RunStatus::Cancelled);
    assert!(!repo.lock_status().await.unwrap().held);
    assert!(go(&repo_b, json!({"n": 1})).await.error.is_none());
}

#[tokio::test]
async fn another_process_can_cancel_a_run() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let request_shell = CreateModel { type_name: "command/shell".into(), name: "s".into(), global_args: vec![] };
    repo.model_create(&request_shell, &|path| repo.read_input(path)).unwrap();
    let mut run = request("s", json!({"run": "echo begun; sleep 68.25"}));
    run.method = "execute".into();
    let other = ann.repo();
    let error = other.model_cancel(Some("s"), "").await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    let cancel = Cancel::default();
    let (ran, cancelled) = tokio::join!(repo.run(&run, &cancel, &Quiet), async {
        loop {
            ann.host.env.sleep(Duration::from_millis(50)).await;
            if let Ok(report) = other.model_cancel(Some("s"), "no longer needed").await {
                return report;
            }
        }
    });
    assert_eq!((cancelled.count, cancelled.cancelled[0].status.as_str()), (1, "cancelled"));
    let ran = ran.unwrap();
    assert_eq!((ran.report.status, ran.error.unwrap().kind()), (RunStatus::Cancelled, Kind::Cancelled));
    let output = repo.output_get("s", false).await.unwrap();
    assert_eq!(output.error.unwrap().message, "cancelled on request: no longer needed");
    assert_eq!(other.model_cancel(None, "").await.unwrap().count, 0);
}

#[tokio::test]
async fn a_lazy_clone_without_the_store_tells_what_it_knows_and_what_is_elsewhere() {
    let world = World::new();
    let ann = world.machine("ann", &[]);
    ann.init().await;
    let mut request = setup("memory:", "ops");
    request.datastore.hydration = Some("lazy".into());
    ann.repo().datastore_setup(&request).await.unwrap();
    let repo = ann.repo();
    ann.model(&repo, "m");
    for n in 1..4 {
        go(&repo, json!({ "n": n })).await;
    }
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    repo_b.sync(true, false).await.unwrap();
    world.cloud.off(true);
    let versions = repo_b.data_versions("m", "result", false).await.unwrap();
    let known: Vec<_> = versions.versions.iter().map(|v| (v.version, v.size.is_some(), v.is_latest)).collect();
    assert_eq!(known, [(3, true, true), (2, true, false), (1, true, false)]);
    assert!(versions.versions[2].created_at.is_none(), "bob never read the first");
    let error = repo_b.data_get(&DataGet { version: Some(1), ..get("result") }).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Offline, "not_local"), "{error:?}");
    assert!(error.to_string().contains("/result/1/"), "{error:?}");
    world.cloud.off(false);
    assert!(repo_b.data_versions("m", "result", false).await.unwrap().versions[2].created_at.is_some());
    world.cloud.off(true);
    assert!(repo_b.data_versions("m", "result", false).await.unwrap().versions[2].created_at.is_some(), "it is kept");
}

#[tokio::test]
async fn lists_that_the_store_lost_are_written_again_by_the_doctor_of_a_machine_that_was_in_step() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let (_bob, bob) = world.checkout(&ann, "bob");
    for n in 0..3 {
        go(&repo, json!({"n": n})).await;
    }
    repo.ledger_maintain(true, true).await.unwrap();
    bob.sync(true, false).await.unwrap();
    for pack in world.cloud.keys("ops/pack/").await {
        world.cloud.delete(&pack).await.unwrap();
    }
    let how = Examination { references: true, ..Examination::default() };
    let found = bob.doctor(how).await.unwrap();
    let pages = found.report.health_findings.iter().find(|f| f.check == "pages").unwrap();
    assert!(pages.message.contains("the list of all models") && pages.message.contains("(m)"), "{pages:?}");
    assert!(pages.repair.as_deref().unwrap().starts_with("write the table of 1 model"), "{pages:?}");
    let report = bob.doctor_repair(&found, how).await.unwrap();
    assert_eq!(report.overall_status, "pass", "{report:?}");
    assert!(report.repaired[0].starts_with("wrote the table of 1 model"), "{report:?}");
    let again = bob.doctor(how).await.unwrap().report;
    assert!(again.health_findings.iter().all(|f| f.passed && f.repair.is_none()), "{again:?}");
    // Everybody goes on.
    assert_eq!(go(&repo, json!({"n": 3})).await.report.data_artifacts[0].version, Some(4));
    let (_carl, carl) = world.checkout(&ann, "carl");
    carl.sync(true, false).await.unwrap();
    assert_eq!(carl.data_get(&get("result")).await.unwrap().version, 4);
}
