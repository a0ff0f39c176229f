//! Moving a ledger from store to store, following it, and what is refused.
#![allow(clippy::unwrap_used, clippy::panic, clippy::large_futures, clippy::needless_pass_by_value)]

#[path = "moving/index.rs"]
mod index;
#[path = "moving/left.rs"]
mod left;
#[path = "moving/points.rs"]
mod points;
mod support;
#[path = "moving/swamp.rs"]
mod swamp;
#[path = "moving/wander.rs"]
mod wander;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use peat_clone::Scope;
use peat_engine::LogRequest;
use peat_engine::report::SetupAction;
use peat_engine::{Cancel, DataGet, Datastore, Quiet, Repo, RunRequest, SetupRequest};
use peat_types::{Env, Kind};
use serde_json::json;
use tokio::sync::Notify;

use support::{Machine, World, get, go, hints, request, setup};

/// Every item a repository knows, with its hash and whether it is current. Leases come and go.
async fn items(repo: &Repo) -> BTreeMap<String, (String, bool)> {
    let clone = repo.clone_of().await.unwrap();
    clone.pull(&Scope::All).await.unwrap();
    let mut all = BTreeMap::new();
    for info in clone.units().unwrap() {
        for item in clone.items(&info.unit, "").unwrap() {
            if !item.path.as_str().starts_with("leases/") {
                assert_eq!(peat_types::Hash::of(&clone.content(&item).await.unwrap()), item.hash());
                all.insert(format!("{}", item.path), (item.hash().to_string(), item.rank == peat_clone::Rank::Current));
            }
        }
    }
    all
}

fn folder(root: &std::path::Path, name: &str) -> SetupRequest {
    setup(&format!("file://{}", root.join(name).display()), "ops")
}

/// The file of the first version of the data.
async fn raw(repo: &Repo) -> std::path::PathBuf {
    let (tree, id) = (repo.clone_of().await.unwrap().tree(), repo.definition("m").unwrap().id);
    tree.join(format!("data/test/fake/{id}/result/1/raw"))
}

fn store_of(machine: &Machine) -> Option<Datastore> {
    machine.repo().marker().datastore.clone()
}

/// A private repository with two runs, and the items it has.
async fn with_runs(machine: &Machine) -> BTreeMap<String, (String, bool)> {
    machine.init().await;
    let repo = machine.repo();
    machine.model(&repo, "m");
    for n in 0..2 {
        go(&repo, json!({ "n": n })).await;
    }
    items(&repo).await
}

#[tokio::test]
async fn the_history_goes_along_and_who_writes_to_the_old_store_is_told() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    let before = with_runs(&machine).await;
    let old = machine.repo();
    let log = old.log(&LogRequest::default()).await.unwrap();
    let dry = SetupRequest { dry_run: true, ..setup("memory:", "ops") };
    let asked = world.cloud.requests();
    let plan = old.datastore_setup(&dry).await.unwrap();
    assert!(world.cloud.requests() > asked && store_of(&machine).is_none() && plan.ledger.is_none());
    let done = old.datastore_setup(&setup("memory:", "ops")).await.unwrap();
    assert_eq!(
        (plan.action, plan.objects_copied, plan.bytes_copied),
        (done.action, done.objects_copied, done.bytes_copied)
    );
    assert_eq!((done.action, done.objects_copied), (SetupAction::Move, log.entries.len() as u64));
    assert_ne!(done.ledger.unwrap(), old.clone_of().await.unwrap().info().ledger);

    let new = machine.repo();
    assert_eq!(items(&new).await, before);
    // The same entries, then a new one of the new ledger.
    let seqs = |log: &peat_engine::report::LogReport| log.entries.iter().map(|e| (e.seq, e.time)).collect::<Vec<_>>();
    assert_eq!(seqs(&new.log(&LogRequest::default()).await.unwrap()), seqs(&log));
    go(&new, json!({"n": 7})).await;
    assert!(new.ledger_verify(true).await.unwrap().passed);

    // The old one is read as before, and says where it went to whoever wants to write.
    assert_eq!(items(&old).await, before);
    for _ in 0..2 {
        let error = old.run(&request("m", json!({"n": 8})), &Cancel::default(), &Quiet).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Conflict, "moved"), "{error:?}");
        assert!(hints(&error).contains("'peat datastore setup memory: --namespace ops'"), "{}", hints(&error));
    }
    assert!(old.status().await.unwrap().pending.is_empty());
    assert_eq!(old.log(&LogRequest::default()).await.unwrap().entries[0].transactions[0].kind, "moved");
    // A place it did not go to is refused, too.
    let error = old.datastore_setup(&setup("memory:", "other")).await.unwrap_err();
    assert_eq!(error.code(), "moved", "{error:?}");
}

#[tokio::test]
async fn what_is_committed_while_the_copy_is_made_goes_along() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    // Bob commits after Ann's copy was checked, just before the ledger is closed.
    let mut host = ann.host.clone();
    host.env = Env::system([]).with_steps(Arc::new(At("move.leave", repo_b.clone())));
    let dir = tempfile::tempdir().unwrap();
    let moved = Repo::find(host).unwrap().datastore_setup(&folder(dir.path(), "store")).await.unwrap();
    assert_eq!(moved.action, SetupAction::Move);
    let repo = ann.repo();
    assert_eq!(repo.data_versions("m", "result", false).await.unwrap().total, 2);
    assert_eq!(go(&repo, json!({"n": 3})).await.report.data_artifacts[0].version, Some(3));
    assert!(repo.ledger_verify(true).await.unwrap().passed);
}

/// Runs a method elsewhere when a step is reached.
struct At(&'static str, Repo);

impl peat_types::Steps for At {
    fn reach(&self, name: &'static str) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let (hit, repo) = (name == self.0, self.1.clone());
        Box::pin(async move {
            if hit {
                go(&repo, json!({"n": 2})).await;
            }
        })
    }
}

#[tokio::test]
async fn who_follows_takes_pending_changes_along() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let (bob, repo_b) = world.checkout(&ann, "bob");
    repo_b.sync(true, false).await.unwrap();
    world.cloud.off(true);
    let offline = RunRequest { offline: true, ..request("m", json!({"n": 2})) };
    repo_b.run(&offline, &Cancel::default(), &Quiet).await.unwrap();
    world.cloud.off(false);
    let dir = tempfile::tempdir().unwrap();
    let to = folder(dir.path(), "store");
    repo.datastore_setup(&to).await.unwrap();

    let push = bob.repo().sync(false, true).await.unwrap();
    assert!(push.errors[0].contains("moved"), "{push:?}");
    let file = raw(&repo_b).await;
    let held = fs::read(&file).unwrap();
    fs::write(&file, "mine").unwrap();
    let followed = bob.repo().datastore_setup(&to).await.unwrap();
    assert_eq!((followed.action, followed.pending_taken), (SetupAction::Follow, 1));
    let told = |warning: &String| warning.contains("/result/1/raw") && !warning.contains("not in the datastore yet");
    assert!(followed.warnings.iter().any(told), "{followed:?}");
    let repo_b = bob.repo();
    // The tree went along, with what he had done to it.
    let file = raw(&repo_b).await;
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    fs::write(&file, held).unwrap();
    assert_eq!(repo_b.sync(false, true).await.unwrap().changes_committed, Some(1));
    let repo = ann.repo();
    repo.sync(true, false).await.unwrap();
    assert_eq!(repo.data_get(&get("result")).await.unwrap().content.unwrap(), json!({"n": 2}));
    let first = DataGet { version: Some(1), ..get("result") };
    assert_eq!(repo.data_get(&first).await.unwrap().content.unwrap(), json!({"n": 1}));
    // Once more: nothing to follow any more.
    let again = bob.repo().datastore_setup(&to).await.unwrap();
    assert_eq!((again.action, again.pending_taken), (SetupAction::Join, 0));
}

#[tokio::test]
async fn pending_changes_and_runs_keep_a_ledger_where_it_is_and_are_named() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let dir = tempfile::tempdir().unwrap();
    let to = folder(dir.path(), "store");
    // A run of another machine.
    let (bob, repo_b) = world.checkout(&ann, "bob");
    let (begun, over) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (begun.clone(), over.clone());
    bob.during(move || {
        tell.notify_one();
        let wait = wait.clone();
        async move { wait.notified().await }
    });
    // The plan foresees it, too.
    let dry = SetupRequest { dry_run: true, ..to.clone() };
    let refused = async {
        begun.notified().await;
        let mut errors = Vec::new();
        for to in [&to, &dry] {
            errors.push(ann.repo().datastore_setup(to).await.unwrap_err());
        }
        over.notify_one();
        errors
    };
    let (_, errors) = tokio::join!(go(&repo_b, json!({"n": 2})), refused);
    for error in errors {
        assert!(error.kind() == Kind::Contended && error.to_string().contains("bob@bob-host"), "{error:?}");
    }
    // A change that could not be sent.
    world.cloud.off(true);
    let offline = RunRequest { offline: true, ..request("m", json!({"n": 2})) };
    ann.repo().run(&offline, &Cancel::default(), &Quiet).await.unwrap();
    world.cloud.off(false);
    for to in [&to, &dry] {
        let error = ann.repo().datastore_setup(to).await.unwrap_err();
        assert!(error.kind() == Kind::Conflict && error.to_string().contains("1 changes"), "{error:?}");
    }
    // Whoever leaves it behind is told.
    for request in [setup("memory:", "zwei"), SetupRequest { skip_migration: true, ..to.clone() }] {
        let left = SetupRequest { skip_migration: true, dry_run: true, ..request };
        let plan = ann.repo().datastore_setup(&left).await.unwrap();
        assert!(plan.warnings.iter().any(|warning| warning.contains("not in the datastore yet: 1")), "{plan:?}");
    }
    assert!(!dir.path().join("store/ops/ns.json").exists());
    ann.repo().sync(false, true).await.unwrap();
    // A file that was changed by hand.
    let repo = ann.repo();
    let file = raw(&repo).await;
    fs::write(&file, "mine").unwrap();
    let plan = ann.repo().datastore_setup(&dry).await.unwrap();
    assert!(plan.warnings.iter().any(|warning| warning.contains("go along") && warning.contains("/result/1/raw")));
    // Unless the tree cannot go along: somebody has put something where it would be.
    let other = plan.clone_path.join("tree/notes.txt");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::write(&other, "mine").unwrap();
    for to in [&to, &dry] {
        let error = ann.repo().datastore_setup(to).await.unwrap_err();
        assert!(error.code() == "changed_by_hand" && error.to_string().contains("/result/1/raw"), "{error:?}");
    }
    assert!(!dir.path().join("store/ops").exists());
    let plan = ann.repo().namespace_set("zwei", true).await.unwrap();
    assert!(plan.warnings.iter().any(|warning| warning.contains("/result/1/raw")), "{plan:?}");
    fs::remove_file(&other).unwrap();
    let moved = ann.repo().datastore_setup(&to).await.unwrap();
    assert!(moved.warnings.iter().any(|warning| warning.contains("go along")), "{moved:?}");
    let repo = ann.repo();
    assert_eq!(repo.data_versions("m", "result", false).await.unwrap().total, 3);
    let file = raw(&repo).await;
    assert!(file.starts_with(&moved.clone_path) && fs::read_to_string(&file).unwrap() == "mine");
    assert_eq!(repo.status().await.unwrap().by_hand.len(), 1);
    repo.sync(false, true).await.unwrap();
    assert!(ann.repo().namespace_set("zwei", true).await.unwrap().warnings.len() == 1, "but where it stays");
}

#[tokio::test]
async fn contents_that_were_never_here_are_moved_all_the_same() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    for n in 0..3 {
        go(&repo, json!({ "n": n })).await;
    }
    let (bob, _) = world.checkout(&ann, "bob");
    let lazy = |request: SetupRequest| SetupRequest {
        datastore: Datastore { hydration: Some("lazy".into()), ..request.datastore },
        ..request
    };
    bob.repo().datastore_setup(&lazy(setup("memory:", "ops"))).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let before = items(&repo).await;
    let moved = bob.repo().datastore_setup(&lazy(folder(dir.path(), "store"))).await.unwrap();
    assert_eq!(moved.action, SetupAction::Move);
    assert_eq!(items(&bob.repo()).await, before);
}

#[tokio::test]
async fn only_a_store_that_was_left_long_ago_is_cleaned_up() {
    let world = World::new();
    let mut ann = world.machine("ann", &[]);
    ann.host.params.fresh_ms = 0;
    ann.init().await;
    let repo = ann.repo();
    ann.model(&repo, "m");
    assert_eq!(repo.datastore_cleanup(false).await.unwrap_err().kind(), Kind::NotFound);
    repo.datastore_setup(&setup("memory:", "ops")).await.unwrap();
    let repo = ann.repo();
    go(&repo, json!({"n": 1})).await;
    let (bob, stale) = world.checkout(&ann, "bob");
    stale.sync(true, false).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    ann.repo().datastore_setup(&folder(dir.path(), "store")).await.unwrap();
    let repo = ann.repo();
    let before = items(&repo).await;
    let plan = repo.datastore_cleanup(true).await.unwrap();
    let done = repo.datastore_cleanup(false).await.unwrap();
    assert!(done.objects >= plan.objects && plan.objects >= 3 && done.left == 0, "{plan:?} {done:?}");
    assert_eq!(repo.datastore_cleanup(false).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!((items(&repo).await, items(&ann.repo()).await), (before.clone(), before));
    // Who comes late is told, not damaged, and its writes do not count.
    let error = stale.run(&request("m", json!({"n": 8})), &Cancel::default(), &Quiet).await.unwrap_err();
    assert_eq!(error.code(), "moved", "{error:?}");
    let followed = bob.repo().datastore_setup(&folder(dir.path(), "store")).await.unwrap();
    assert_eq!(followed.action, SetupAction::Follow);
    assert_eq!(bob.repo().data_versions("m", "result", false).await.unwrap().total, 1);
}

#[tokio::test]
async fn a_store_that_was_left_just_now_is_not_cleaned_up() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    with_runs(&machine).await;
    machine.repo().datastore_setup(&setup("memory:", "ops")).await.unwrap();
    let error = machine.repo().datastore_cleanup(false).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Contended, "too_early"), "{error:?}");
    assert!(machine.dir.path().join(".peat/store/default/log").is_dir());
}

#[tokio::test]
async fn places_that_hold_something_else_are_refused_each_in_its_own_words() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    with_runs(&machine).await;
    let repo = machine.repo();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("file://{}", dir.path().join(name).display());
    let bare = |url: &str| SetupRequest {
        datastore: Datastore { url: url.to_owned(), ..Datastore::default() },
        ..SetupRequest::default()
    };
    for (path, text) in [
        ("swamp/.datastore-index.json", "{}"),
        ("swamp/data/x", "x"),
        ("swamp2/infra/.datastore-index.json", "{}"),
        ("photos/cat.jpg", "x"),
        ("ours/ops/notes.txt", "x"),
    ] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let requests = world.cloud.requests();
    for (request, code) in [
        (bare(&at("swamp")), "swamp_data"),
        (setup(&at("swamp2"), "infra"), "swamp_data"),
        (bare(&at("photos")), "not_peat_data"),
        (setup(&at("ours"), "ops"), "not_peat_data"),
        (setup("memory:", "log"), "validation_failed"),
        (setup("memory:", "Ops"), "validation_failed"),
        (setup("memory:", "-a"), "validation_failed"),
        (setup("memory:", "_control"), "validation_failed"),
        (setup("memory:", "a/b"), "validation_failed"),
    ] {
        let error = repo.datastore_setup(&request).await.unwrap_err();
        assert_eq!(error.code(), code, "{error:?}");
        assert!(!error.hints().is_empty(), "{error:?}");
    }
    assert_eq!(world.cloud.requests(), requests, "names are checked before anything is asked");
    // A namespace beside other data is fine when it is named; so is an empty folder, and one that is not there yet.
    repo.datastore_setup(&setup(&at("photos"), "ops")).await.unwrap();
    for inside in ["photos/ops", "photos/ops/log", "photos/ops/deeper/still"] {
        let error = machine.repo().datastore_setup(&setup(&at(inside), "ops")).await.unwrap_err();
        assert_eq!(error.code(), "inside_a_store", "{error:?}");
        assert!(hints(&error).contains(&format!("setup {} --namespace ops", at("photos"))), "{}", hints(&error));
    }
    for inside in ["photos/sub", "photos/sub/deeper"] {
        let error = machine.repo().datastore_setup(&setup(&at(inside), "ops")).await.unwrap_err();
        assert_eq!(error.code(), "inside_a_store", "{error:?}");
        assert!(error.to_string().contains("'ops'") && hints(&error).contains("--namespace NAME"), "{error:?}");
    }
    fs::create_dir(dir.path().join("empty")).unwrap();
    machine.repo().datastore_setup(&bare(&at("empty"))).await.unwrap();
    assert_eq!(fs::read(dir.path().join("photos/cat.jpg")).unwrap(), b"x");
}

#[tokio::test]
async fn a_store_with_namespaces_asks_which() {
    let world = World::new();
    let (ann, _repo) = world.on("ann", "ops").await;
    world.on("eve", "pay").await;
    let bare = SetupRequest {
        datastore: Datastore { url: "memory:".into(), ..Datastore::default() },
        ..SetupRequest::default()
    };
    let bob = world.machine("bob", &[]);
    bob.init().await;
    let error = bob.repo().datastore_setup(&bare).await.unwrap_err();
    assert_eq!(error.code(), "namespace_needed");
    assert!(error.to_string().contains("ops (") && error.to_string().contains("pay ("), "{error}");
    let error = bob.repo().datastore_setup(&setup("memory:", "pay")).await.unwrap_err();
    assert_eq!(error.code(), "namespace_taken");
    assert!(error.chain().join(" ").contains("its owner is repository"), "{error:?}");
    // Its own one is suggested.
    let error = ann.repo().datastore_setup(&bare).await.unwrap_err();
    assert!(hints(&error).contains("--namespace ops"), "{}", hints(&error));
}

#[tokio::test]
async fn half_a_copy_is_never_a_ledger_and_never_mixed_with_another() {
    let world = World::new();
    let mut ann = world.machine("ann", &[]);
    let trap = world.stores.trap.clone();
    let plain = ann.host.env.clone();
    ann.host.env = Env::system([]).with_steps(Arc::new(trap.clone()));
    let before = with_runs(&ann).await;
    // Killed half way through the copy.
    let asked = ann.repo();
    let mut nth = 60;
    loop {
        trap.arm(nth);
        let killed = trap.run(asked.datastore_setup(&setup("memory:", "ops"))).await.is_none();
        trap.disarm();
        assert!(killed, "the copy was made before {nth} points were passed");
        if asked.clone_of().await.unwrap().standing().await.unwrap().moved.is_none()
            && world.cloud.has("ops/log/").await
        {
            break;
        }
        nth -= 4;
    }
    ann.host.env = plain;
    // Nobody takes it for a ledger, and no other one is moved onto it.
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    let skip = SetupRequest { skip_migration: true, ..setup("memory:", "ops") };
    let error = repo_b.datastore_setup(&skip).await.unwrap_err();
    assert_eq!(error.code(), "half_a_ledger", "{error:?}");
    let eve = world.machine("eve", &[]);
    with_runs(&eve).await;
    let error = eve.repo().datastore_setup(&setup("memory:", "ops")).await.unwrap_err();
    assert_eq!(error.code(), "not_this_ledger", "{error:?}");
    // The one it belongs to goes on, without copying twice.
    let done = ann.repo().datastore_setup(&setup("memory:", "ops")).await.unwrap();
    assert!(done.objects_there > 0, "{done:?}");
    assert_eq!(items(&ann.repo()).await, before);
}
