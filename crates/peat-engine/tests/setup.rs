//! Making repositories and choosing datastores.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod support;

use std::fs;
use std::sync::atomic::Ordering;

use peat_engine::report::SetupAction;
use peat_engine::{Datastore, InitRequest, Repo, SetupRequest};
use peat_types::Kind;
use serde_json::json;
use support::{World, copy, get, go, hints, setup};

#[tokio::test]
async fn init_once_and_again_with_force() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    fs::write(machine.dir.path().join(".gitignore"), "target/\n").unwrap();
    let first = machine.init().await;
    let again = Repo::init(machine.host.clone(), &InitRequest::default()).await.unwrap_err();
    assert_eq!((again.kind(), again.code()), (Kind::AlreadyExists, "already_exists"));
    let marker = machine.dir.path().join(".peat.yaml");
    fs::write(&marker, format!("{}owner: me\n", fs::read_to_string(&marker).unwrap())).unwrap();
    let force = InitRequest { force: true, ..InitRequest::default() };
    let second = Repo::init(machine.host.clone(), &force).await.unwrap();
    assert_eq!((second.repo_id.as_str(), second.initialized_at), (first.repo_id.as_str(), first.initialized_at));
    assert!(fs::read_to_string(&marker).unwrap().contains("owner: me"));
    let ignore = fs::read_to_string(machine.dir.path().join(".gitignore")).unwrap();
    assert!(ignore.starts_with("target/\n") && ignore.matches(".peat/").count() == 1, "{ignore}");
    assert!(machine.dir.path().join(".peat/store").is_dir());
}

#[test]
fn of_two_inits_at_once_one_makes_the_repository() {
    for _ in 0..20 {
        let world = World::quick();
        let machine = world.machine("ann", &[]);
        let together = std::sync::Barrier::new(2);
        let init = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            together.wait();
            runtime.block_on(Repo::init(machine.host.clone(), &InitRequest::default()))
        };
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(init);
            [init(), other.join().unwrap()]
        });
        let made: Vec<_> = both.iter().filter_map(|made| made.as_ref().ok()).collect();
        assert_eq!(made.len(), 1, "{both:?}");
        assert_eq!(machine.repo().marker().repo_id, made[0].repo_id);
    }
}

#[tokio::test]
async fn a_lost_marker_is_written_again_for_the_same_data() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    let first = machine.init().await;
    let repo = machine.repo();
    machine.model(&repo, "m");
    go(&repo, json!({"n": 1})).await;
    fs::remove_file(machine.dir.path().join(".peat.yaml")).unwrap();
    let error = Repo::init(machine.host.clone(), &InitRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), "half_initialised");
    let force = InitRequest { force: true, ..InitRequest::default() };
    assert_eq!(Repo::init(machine.host.clone(), &force).await.unwrap().repo_id, first.repo_id);
    assert_eq!(machine.repo().data_get(&get("result")).await.unwrap().version, 1);
}

#[tokio::test]
async fn a_second_checkout_says_that_it_knows_nothing_of_the_first() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    machine.init().await;
    let repo = machine.repo();
    machine.model(&repo, "m");
    go(&repo, json!({"n": 1})).await;
    assert!(repo.status().await.unwrap().notes.is_empty());
    let (second, repo) = world.checkout(&machine, "bob");
    let status = repo.status().await.unwrap();
    assert!(status.notes[0].contains("peat datastore setup"), "{:?}", status.notes);
    for repo in [repo, second.repo()] {
        let error = repo.data_get(&get("result")).await.unwrap_err();
        assert!(hints(&error).contains("peat datastore setup"), "{}", hints(&error));
    }
    // It works all the same.
    assert_eq!(go(&second.repo(), json!({"n": 5})).await.report.data_artifacts[0].version, Some(1));
}

#[tokio::test]
async fn setup_takes_the_private_history_along() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    machine.init().await;
    let repo = machine.repo();
    let made = machine.model(&repo, "m");
    machine.model(&repo, "empty");
    for n in 0..3 {
        go(&repo, json!({ "n": n })).await;
    }
    let before = repo.data_get(&get("result")).await.unwrap();
    let private = repo.clone_of().await.unwrap().items(&made_unit(&made.id), "").unwrap();
    let report = repo.datastore_setup(&setup("memory:", "ops")).await.unwrap();
    // Twelve items and the lease.
    assert_eq!((report.created, report.units_copied, report.items_copied), (true, 1, 13));
    assert!(report.kept.unwrap().ends_with("/.peat/store"));
    let marker = fs::read_to_string(machine.dir.path().join(".peat.yaml")).unwrap();
    assert!(marker.contains("url:") && marker.contains("namespace: ops"), "{marker}");

    let repo = machine.repo();
    let after = repo.data_get(&get("result")).await.unwrap();
    assert_eq!((after.version, &after.id, after.created_at), (3, &before.id, before.created_at));
    let shared = repo.clone_of().await.unwrap().items(&made_unit(&made.id), "").unwrap();
    let of = |items: &[peat_clone::Item]| -> Vec<_> {
        items
            .iter()
            .filter(|i| !i.path.as_str().starts_with("leases/"))
            .map(|i| (i.path.to_string(), i.hash(), i.rank == peat_clone::Rank::Current))
            .collect()
    };
    assert_eq!(of(&shared), of(&private));
    assert_eq!(repo.output_search("", 10, false).await.unwrap().results.len(), 3);
    assert_eq!(go(&repo, json!({"n": 9})).await.report.data_artifacts[0].version, Some(4));
    // Another machine joins by the marker alone.
    let (_bob, repo_b) = world.checkout(&machine, "bob");
    assert_eq!(repo_b.data_get(&get("result")).await.unwrap().version, 4);
}

fn made_unit(id: &str) -> peat_types::Unit {
    peat_types::Unit::model(id).unwrap()
}

#[tokio::test]
async fn setup_can_be_repeated_after_a_failure_and_changes_nothing_before() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    machine.init().await;
    let repo = machine.repo();
    machine.model(&repo, "m");
    go(&repo, json!({"n": 1})).await;
    let marker = machine.dir.path().join(".peat.yaml");
    let before = fs::read_to_string(&marker).unwrap();
    world.stores.unfit.store(true, Ordering::SeqCst);
    assert_eq!(repo.datastore_setup(&setup("memory:", "ops")).await.unwrap_err().code(), "store_refused");
    world.stores.unfit.store(false, Ordering::SeqCst);
    world.cloud.off(true);
    assert_eq!(repo.datastore_setup(&setup("memory:", "ops")).await.unwrap_err().kind(), Kind::Offline);
    world.cloud.off(false);
    for (url, namespace) in [("memory:", "Not A Slug"), ("nowhere", "ops"), ("/tmp/x", "ops"), ("s3://x", "ops")] {
        let error = repo.datastore_setup(&setup(url, namespace)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{url} {namespace}");
    }
    let own = format!("file://{}/.peat/store", machine.dir.path().display());
    assert_eq!(repo.datastore_setup(&setup(&own, "ops")).await.unwrap_err().kind(), Kind::Invalid);
    assert_eq!(fs::read_to_string(&marker).unwrap(), before);
    assert_eq!(machine.repo().data_get(&get("result")).await.unwrap().version, 1);

    repo.datastore_setup(&setup("memory:", "ops")).await.unwrap();
    fs::write(&marker, &before).unwrap();
    let again = machine.repo().datastore_setup(&setup("memory:", "ops")).await.unwrap();
    assert_eq!((again.created, again.action), (false, SetupAction::Follow));
    assert_eq!(machine.repo().data_versions("m", "result", false).await.unwrap().total, 1);
}

#[tokio::test]
async fn a_namespace_of_another_repository_is_refused() {
    let world = World::new();
    let (_ann, _repo) = world.shared("ann").await;
    let bob = world.machine("bob", &[]);
    bob.init().await;
    let repo = bob.repo();
    let error = repo.datastore_setup(&setup("memory:", "ops")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::AlreadyExists, "{error:?}");
    assert!(hints(&error).contains("--namespace"), "{}", hints(&error));
    assert_eq!(bob.repo().marker().datastore, None);
    repo.datastore_setup(&setup("memory:", "other")).await.unwrap();
}

#[tokio::test]
async fn two_histories_of_one_model_are_not_mixed() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    machine.init().await;
    let repo = machine.repo();
    machine.model(&repo, "m");
    let (bob, repo_b) = world.checkout(&machine, "bob");
    go(&repo, json!({"n": 1})).await;
    go(&repo_b, json!({"n": 2})).await;
    repo.datastore_setup(&setup("memory:", "ops")).await.unwrap();
    let error = repo_b.datastore_setup(&setup("memory:", "ops")).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Conflict, "two_histories"), "{error:?}");
    assert!(hints(&error).contains("--skip-migration"), "{}", hints(&error));
    assert_eq!(bob.repo().marker().datastore, None);
    let skip = SetupRequest { skip_migration: true, ..setup("memory:", "ops") };
    let report = repo_b.datastore_setup(&skip).await.unwrap();
    assert_eq!((report.items_copied, report.warnings.len()), (0, 1));
    assert_eq!(bob.repo().data_get(&get("result")).await.unwrap().content.unwrap(), json!({"n": 1}));
}

#[tokio::test]
async fn a_folder_can_be_shared() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    machine.init().await;
    let store = tempfile::tempdir().unwrap();
    let url = format!("file://{}/new/store", store.path().display());
    let repo = machine.repo();
    let request = SetupRequest {
        datastore: Datastore { url: url.clone(), hydration: Some("lazy".into()), ..Datastore::default() },
        ..SetupRequest::default()
    };
    let report = repo.datastore_setup(&request).await.unwrap();
    assert_eq!((report.kind.as_str(), report.namespace.as_str()), ("file", "default"));
    let repo = machine.repo();
    machine.model(&repo, "m");
    go(&repo, json!({"n": 1})).await;
    let (_bob, repo_b) = world.checkout(&machine, "bob");
    repo_b.sync(true, false).await.unwrap();
    let data = repo_b.data_get(&get("result")).await.unwrap();
    assert_eq!(data.content.unwrap(), json!({"n": 1}));
    assert_eq!(repo_b.datastore_status(false).await.unwrap().hydration, "lazy");
    // The disk is not mounted: nothing is taken for an empty store.
    fs::rename(store.path().join("new"), store.path().join("gone")).unwrap();
    assert!(repo_b.sync(true, false).await.is_err());
    assert!(!store.path().join("new").exists());
}

#[tokio::test]
async fn the_ledger_can_be_looked_into() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let ls = repo.ledger_ls("", 100).await.unwrap();
    assert!(ls.objects.iter().any(|o| o.key == "ns.json") && !ls.limited);
    let log = repo.ledger_ls("log/", 2).await.unwrap();
    assert_eq!((log.objects.len(), log.limited), (2, true));
    let cat = repo.ledger_cat(&log.objects[0].key).await.unwrap();
    assert!(cat.object.is_object());
    assert!(repo.ledger_cat("log/nothing").await.is_err());
    let verified = repo.ledger_verify(true).await.unwrap();
    assert!(verified.passed && verified.entries >= 3, "{verified:?}");
    let doctor = repo.doctor(peat_engine::Examination::default()).await.unwrap().report;
    assert_eq!(doctor.overall_status, "pass", "{doctor:?}");
    let other = tempfile::tempdir().unwrap();
    copy(ann.dir.path(), other.path());
}
