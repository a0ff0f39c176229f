//! Files of the tree that people change by hand, and synchronising with a plan.
#![allow(clippy::unwrap_used, clippy::panic, clippy::large_futures, clippy::needless_pass_by_value)]

#[path = "tree/lost.rs"]
mod lost;
#[path = "tree/newer.rs"]
mod newer;
mod support;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use peat_engine::{AddRequest, Cancel, DataGet, Quiet, Repo, RunRequest, SyncRequest};
use peat_types::{Env, Kind};
use serde_json::{Value, json};
use tokio::sync::Notify;

use support::{World, get, go, hints, request};

const PUSH: SyncRequest = SyncRequest { pull: false, push: true, deletes: false, allow_deletes: false };
const PULL: SyncRequest = SyncRequest { pull: true, push: false, deletes: false, allow_deletes: false };
const DELETES: AddRequest = AddRequest { dry_run: false, deletes: true, allow_deletes: false };

/// The file of a version of the data `result`.
async fn raw(repo: &Repo, version: u64) -> PathBuf {
    let id = repo.definition("m").unwrap().id;
    let tree = repo.clone_of().await.unwrap().tree();
    tree.join(format!("data/test/fake/{id}/result/{version}/raw"))
}

#[tokio::test]
async fn a_file_changed_by_hand_is_found_by_content_and_committed_only_when_asked() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    assert!(repo.status().await.unwrap().by_hand.is_empty());
    let file = raw(&repo, 1).await;
    // Of the same size, and with the time it had.
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, r#"{"n":7}"#).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    let status = repo.status().await.unwrap();
    assert_eq!((status.by_hand.len(), status.by_hand[0].kind.as_str()), (1, "modified"));
    assert!(status.notes.iter().any(|note| note.contains("'peat add <path>'")), "{:?}", status.notes);
    // Neither a synchronisation nor a run takes it along.
    let synced = repo.sync(false, false).await.unwrap();
    assert_eq!((synced.files_pushed, synced.by_hand), (Some(0), 1));
    go(&repo, json!({"n": 2})).await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    let first = DataGet { version: Some(1), fresh: true, ..get("result") };
    assert_eq!(repo_b.data_get(&first).await.unwrap().content.unwrap(), json!({"n": 1}));

    let plan = repo.sync_plan(PUSH).await.unwrap();
    assert_eq!((plan.puts, plan.deletes, plan.bytes, plan.by_hand.len()), (1, 0, 7, 1));
    let pushed = repo.synchronise(PUSH).await.unwrap();
    assert_eq!((pushed.files_pushed, pushed.by_hand), (Some(plan.puts), 0));
    let there = repo_b.data_get(&first).await.unwrap();
    assert_eq!(there.content.unwrap(), json!({"n": 7}));
    // What is said about it is true.
    assert_eq!(there.size, Some(7));
    assert_eq!(there.checksum, repo.data_get(&first).await.unwrap().checksum);
    assert_eq!(repo.synchronise(PUSH).await.unwrap().files_pushed, Some(0));
    assert!(repo.ledger_verify(true).await.unwrap().passed);
}

#[tokio::test]
async fn new_files_are_added_and_missing_ones_are_never_deletes() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    for n in 0..3 {
        go(&repo, json!({ "n": n })).await;
    }
    fs::remove_file(raw(&repo, 1).await).unwrap();
    fs::remove_dir_all(raw(&repo, 2).await.parent().unwrap()).unwrap();
    let (old, new) = (raw(&repo, 3).await, raw(&repo, 4).await);
    fs::create_dir_all(new.parent().unwrap()).unwrap();
    fs::write(&new, r#"{"n":44}"#).unwrap();
    let stray = repo.clone_of().await.unwrap().tree().join("notes.txt");
    fs::write(&stray, "mine").unwrap();
    let status = repo.status().await.unwrap();
    assert!(status.notes.iter().any(|note| note.contains("notes.txt")), "{:?}", status.notes);
    let error = repo.add(&["data/nothing".to_owned()], AddRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    // What cannot be committed is named, and is not what the next push would commit.
    let pushed = repo.synchronise(PUSH).await.unwrap();
    assert_eq!((pushed.files_pushed, pushed.by_hand, pushed.errors.len()), (Some(0), 0, 2), "{pushed:?}");
    assert_eq!(repo.sync(false, false).await.unwrap().by_hand, 0);
    let half = repo.add(&[new.to_str().unwrap().to_owned()], AddRequest::default()).await.unwrap();
    assert!(half.files.is_empty() && half.skipped[0].why.contains("metadata.yaml"), "{half:?}");
    let metadata = fs::read_to_string(old.with_file_name("metadata.yaml")).unwrap();
    fs::write(new.with_file_name("metadata.yaml"), metadata.replace("version: 3", "version: 4")).unwrap();
    let folder = new.parent().unwrap().to_str().unwrap().to_owned();
    let plan =
        repo.add(std::slice::from_ref(&folder), AddRequest { dry_run: true, ..AddRequest::default() }).await.unwrap();
    assert_eq!((plan.files.len(), plan.entries.len()), (2, 0));
    let added = repo.add(&[folder], AddRequest::default()).await.unwrap();
    assert_eq!((added.files.len(), added.entries.len()), (2, 1));
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    let versions = repo_b.data_versions("m", "result", true).await.unwrap();
    assert_eq!(versions.total, 4, "what was missing was not deleted: {versions:?}");
    assert_eq!(repo_b.data_get(&get("result")).await.unwrap().content.unwrap(), json!({"n": 44}));
    assert!(fs::read_to_string(stray).unwrap() == "mine");
}

#[tokio::test]
async fn a_pull_puts_aside_what_it_would_overwrite_and_says_where() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    repo_b.sync(true, false).await.unwrap();
    // Both change one file.
    fs::write(raw(&repo_b, 1).await, r#"{"n":8}"#).unwrap();
    repo_b.synchronise(PUSH).await.unwrap();
    let mine = raw(&repo, 1).await;
    fs::write(&mine, r#"{"mine":1}"#).unwrap();
    let plan = repo.sync_plan(PULL).await.unwrap();
    let pull = plan.pull.unwrap();
    assert!(pull.exact && pull.deletes == 0 && pull.puts >= 1, "{pull:?}");
    assert!(plan.conflicts[0].contains("will be put aside"), "{:?}", plan.conflicts);
    let pulled = repo.synchronise(PULL).await.unwrap();
    assert_eq!(pulled.files_pulled, Some(pull.puts + pull.deletes));
    assert_eq!(fs::read_to_string(&pulled.aside[0].kept).unwrap(), r#"{"mine":1}"#);
    assert_eq!(fs::read_to_string(&mine).unwrap(), r#"{"n":8}"#);
    // What others did not touch stays where it is.
    fs::write(&mine, r#"{"mine":2}"#).unwrap();
    go(&repo_b, json!({"n": 2})).await;
    let pulled = repo.synchronise(PULL).await.unwrap();
    assert!(pulled.aside.is_empty() && pulled.by_hand == 1, "{pulled:?}");
    assert_eq!(fs::read_to_string(&mine).unwrap(), r#"{"mine":2}"#);
    // And what was made from an old one is not sent over a newer one.
    fs::write(raw(&repo_b, 1).await, r#"{"n":9}"#).unwrap();
    repo_b.synchronise(PUSH).await.unwrap();
    let error = repo.synchronise(PUSH).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error:?}");
    let (path, kept) = repo.clone_of().await.unwrap().take_aside().remove(0);
    assert!(mine.ends_with(path) && fs::read_to_string(kept).unwrap() == r#"{"mine":2}"#);
}

#[tokio::test]
async fn a_push_that_would_delete_much_stops_and_is_previewed() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    for n in 0..3 {
        go(&repo, json!({ "n": n })).await;
    }
    // Killed once the change was in the journal.
    let mut host = ann.host.clone();
    let died = Arc::new(Notify::new());
    host.env = Env::system([]).with_steps(Arc::new(Dies("journal.added", died.clone())));
    let dying = Repo::find(host).unwrap();
    tokio::select! {
        _ = dying.model_delete("m", true) => panic!("not killed"),
        () = died.notified() => {}
    }
    drop(dying);
    let plan = repo.sync_plan(PUSH).await.unwrap();
    assert_eq!((plan.changes.len(), plan.deletes), (1, 12), "{plan:?}");
    assert!(plan.blocked.as_ref().unwrap().contains("12 of 13 items"), "{plan:?}");
    let error = ann.repo().synchronise(PUSH).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Conflict, "many_deletes"), "{error:?}");
    assert!(hints(&error).contains("'peat pending list'"), "{}", hints(&error));
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    repo_b.sync(true, false).await.unwrap();
    let items = |repo: Repo| async move { repo.status().await.unwrap().items };
    assert_eq!(items(repo_b.clone()).await, 13, "nothing was sent");
    let allowed = SyncRequest { allow_deletes: true, ..PUSH };
    assert_eq!(ann.repo().sync_plan(allowed).await.unwrap().blocked, None);
    assert_eq!(ann.repo().synchronise(allowed).await.unwrap().changes_committed, Some(1));
    repo_b.sync(true, false).await.unwrap();
    assert_eq!(items(repo_b).await, 1, "the lease stays");
}

/// Ends a process at a step.
struct Dies(&'static str, Arc<Notify>);

impl peat_types::Steps for Dies {
    fn reach(&self, name: &'static str) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        if name != self.0 {
            return Box::pin(std::future::ready(()));
        }
        self.1.notify_one();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_plan_changes_nothing_and_the_run_does_what_it_said() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    repo_b.sync(true, false).await.unwrap();
    for n in 0..2 {
        go(&repo, json!({ "n": n })).await;
    }
    world.cloud.off(true);
    let offline = RunRequest { offline: true, ..request("m", json!({"n": 5})) };
    repo_b.run(&offline, &Cancel::default(), &Quiet).await.unwrap();
    world.cloud.off(false);
    let both = SyncRequest::default();
    let (position, keys) = (repo_b.status().await.unwrap().position, world.cloud.keys("ops/").await);
    let plan = repo_b.sync_plan(both).await.unwrap();
    assert_eq!((repo_b.status().await.unwrap().position, world.cloud.keys("ops/").await), (position, keys));
    let pull = plan.pull.clone().unwrap();
    assert_eq!((plan.changes.len(), pull.exact, pull.to.0 - pull.from.unwrap().0), (1, true, 4));
    assert!(plan.conflicts.is_empty(), "the change becomes the next version: {:?}", plan.conflicts);
    let done = repo_b.synchronise(both).await.unwrap();
    assert_eq!((done.changes_committed, done.files_pushed), (Some(plan.changes.len() as u64), Some(plan.puts)));
    // What came with the look before the change was sent was fetched, too; its own entry was not.
    assert_eq!((done.files_pulled, done.from), (Some(pull.puts + pull.deletes), pull.from), "{pull:?} {done:?}");
    assert_eq!((done.bytes_pulled, done.to), (Some(pull.bytes), Some(pull.to.next())));
    let nothing = repo_b.sync_plan(both).await.unwrap();
    assert_eq!((nothing.puts, nothing.requests, nothing.changes.len()), (0, 1, 0));
}

/// Lays a version of data of some model into the tree, as somebody would by hand.
async fn lay(repo: &Repo, id: &str, version: u64, content: &str) -> PathBuf {
    let folder = repo.clone_of().await.unwrap().tree().join(format!("data/test/fake/{id}/result/{version}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("raw"), content).unwrap();
    let metadata = format!(
        "id: d-{id}\nname: result\nversion: {version}\ncontentType: application/json\nlifetime: infinite\n\
         garbageCollection: 10\nownerDefinition:\n  ownerType: model-method\n  ownerRef: {id}\n\
         createdAt: 2026-07-20T09:15:02.100Z\n"
    );
    fs::write(folder.join("metadata.yaml"), metadata).unwrap();
    folder
}

#[tokio::test]
async fn one_push_is_one_change_in_one_entry_however_many_models_it_is_about() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    for n in 0..300 {
        lay(&repo, &format!("by-hand-{n}"), 1, &format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(1500))).await;
    }
    fs::write(raw(&repo, 1).await, r#"{"n":7}"#).unwrap();
    let before = (repo.status().await.unwrap().head.unwrap(), world.cloud.requests());
    let plan = repo.sync_plan(PUSH).await.unwrap();
    assert_eq!((plan.puts, plan.requests), (601, 1));
    let pushed = repo.synchronise(PUSH).await.unwrap();
    assert_eq!((pushed.changes_committed, pushed.files_pushed, pushed.by_hand), (Some(1), Some(601), 0));
    assert_eq!(repo.status().await.unwrap().head.unwrap().0, before.0.0 + 1, "one entry");
    // A look at the head, a pack of contents, the entry.
    let requests = world.cloud.requests() - before.1;
    assert!(requests <= 4, "{requests} requests");
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    repo_b.sync(true, false).await.unwrap();
    let tree = repo_b.clone_of().await.unwrap().tree();
    for n in [0, 123, 299] {
        let text = fs::read_to_string(tree.join(format!("data/test/fake/by-hand-{n}/result/1/raw"))).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["n"], n);
    }
    assert!(repo_b.status().await.unwrap().by_hand.is_empty());
    // One that does not fit any more keeps all of them back.
    fs::write(raw(&repo_b, 1).await, r#"{"n":8}"#).unwrap();
    repo_b.synchronise(PUSH).await.unwrap();
    fs::write(raw(&repo, 1).await, r#"{"n":9}"#).unwrap();
    let mine = lay(&repo, "by-hand-0", 2, r#"{"n":10}"#).await;
    let head = repo.status().await.unwrap().head;
    let error = repo.synchronise(PUSH).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error:?}");
    assert!(repo.status().await.unwrap().pending.is_empty());
    // The file that was in the way was put aside; the other one is still there, and goes by itself.
    assert_eq!(repo.clone_of().await.unwrap().take_aside().len(), 1);
    assert!(repo.status().await.unwrap().head >= head);
    let added = repo.add(&[mine.to_str().unwrap().to_owned()], AddRequest::default()).await.unwrap();
    assert_eq!((added.files.len(), added.entries.len()), (2, 1));
    assert!(repo.ledger_verify(true).await.unwrap().passed);
}

#[tokio::test]
async fn removed_files_become_deletes_only_when_asked_and_the_newest_that_is_left_is_current() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    for n in 1..=3 {
        go(&repo, json!({ "n": n })).await;
    }
    let folder = raw(&repo, 3).await.parent().unwrap().to_owned();
    fs::remove_dir_all(&folder).unwrap();
    let status = repo.status().await.unwrap();
    assert_eq!(status.by_hand.iter().map(|file| file.kind.as_str()).collect::<Vec<_>>(), ["missing", "missing"]);
    assert!(status.notes.iter().any(|note| note.contains("--deletes")), "{:?}", status.notes);
    // Not by themselves, whatever is sent.
    let plan = repo.sync_plan(PUSH).await.unwrap();
    assert_eq!((plan.deletes, plan.requests, plan.by_hand.len()), (0, 0, 2));
    let pushed = repo.synchronise(PUSH).await.unwrap();
    assert_eq!((pushed.changes_committed, pushed.files_deleted, pushed.missing), (Some(0), Some(0), 2));
    let path = folder.to_str().unwrap().to_owned();
    let error = repo.add(std::slice::from_ref(&path), AddRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(hints(&error).contains("'peat add --deletes <path>'"), "{}", hints(&error));
    // The plan shows them, and leaves everything as it is.
    let plan = repo.add(std::slice::from_ref(&path), AddRequest { dry_run: true, ..DELETES }).await.unwrap();
    assert_eq!((plan.deletes, plan.files.len(), plan.entries.len()), (2, 2, 0));
    // Reading brings the metadata back, and a version that is half there is not deleted.
    assert_eq!(repo.data_get(&get("result")).await.unwrap().content.unwrap(), json!({"n": 3}));
    let half = repo.add(std::slice::from_ref(&path), DELETES).await.unwrap();
    assert!(half.deletes == 0 && half.skipped[0].why.contains("metadata.yaml was not removed"), "{half:?}");
    fs::remove_dir_all(&folder).unwrap();
    let done = repo.add(&[path], DELETES).await.unwrap();
    assert_eq!((done.deletes, done.entries.len()), (2, 1));
    assert!(repo.status().await.unwrap().by_hand.is_empty());
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    let fresh = DataGet { fresh: true, ..get("result") };
    assert_eq!(repo_b.data_get(&fresh).await.unwrap().content.unwrap(), json!({"n": 2}));
    assert_eq!(repo_b.data_versions("m", "result", true).await.unwrap().total, 2);
    // The next run counts on from what is there.
    go(&repo, json!({"n": 30})).await;
    assert_eq!(repo_b.data_get(&fresh).await.unwrap().version, 3);
    assert!(repo.ledger_verify(true).await.unwrap().passed);
}

#[tokio::test]
async fn what_was_never_put_here_is_never_deleted_and_much_has_to_be_allowed() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    for n in 0..4 {
        lay(&repo, &format!("by-hand-{n}"), 1, &format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(80_000))).await;
    }
    repo.synchronise(PUSH).await.unwrap();
    let (bob, _) = world.checkout(&ann, "bob");
    let marker = fs::read_to_string(bob.dir.path().join(".peat.yaml")).unwrap();
    fs::write(bob.dir.path().join(".peat.yaml"), marker.replace("  url:", "  hydration: lazy\n  url:")).unwrap();
    let repo_b = bob.repo();
    repo_b.sync(true, false).await.unwrap();
    assert_eq!(repo_b.datastore_status(false).await.unwrap().hydration, "lazy");
    let tree = repo_b.clone_of().await.unwrap().tree();
    let folder = |n: u64| tree.join(format!("data/test/fake/by-hand-{n}/result/1"));
    assert!(folder(0).join("metadata.yaml").exists() && !folder(0).join("raw").exists(), "large contents are not here");
    let asked = SyncRequest { deletes: true, ..PUSH };
    assert!(repo_b.status().await.unwrap().by_hand.is_empty());
    assert_eq!(repo_b.synchronise(asked).await.unwrap().files_deleted, Some(0));
    // Of two files that were here one is left: what is not gone whole stays.
    let clone = repo_b.clone_of().await.unwrap();
    let unit = peat_types::Unit::model("by-hand-1").unwrap();
    for item in clone.items(&unit, "").unwrap() {
        clone.content(&item).await.unwrap();
    }
    fs::remove_file(folder(1).join("metadata.yaml")).unwrap();
    let allowed = SyncRequest { allow_deletes: true, ..asked };
    let pushed = repo_b.synchronise(allowed).await.unwrap();
    assert_eq!((pushed.files_deleted, pushed.errors.len(), pushed.missing), (Some(0), 1, 0), "{pushed:?}");
    assert!(pushed.errors[0].contains("deleted whole"), "{pushed:?}");
    let metadata = "data/test/fake/by-hand-1/result/1/metadata.yaml".parse().unwrap();
    clone.content(&clone.item(&unit, &metadata).unwrap().unwrap()).await.unwrap();
    assert!(repo_b.status().await.unwrap().by_hand.is_empty());
    // All that was ever here of a version is gone, its content never was: both go, which is more than a fifth of eight.
    fs::remove_dir_all(folder(0)).unwrap();
    let status = repo_b.status().await.unwrap();
    assert_eq!((status.by_hand.len(), status.by_hand[0].kind.as_str()), (1, "missing"));
    let plan = repo_b.sync_plan(asked).await.unwrap();
    assert!(plan.deletes == 2 && plan.blocked.as_ref().unwrap().contains("2 of 8 items"), "{plan:?}");
    for error in [
        repo_b.synchronise(asked).await.unwrap_err(),
        repo_b.add(&[folder(0).to_str().unwrap().to_owned()], DELETES).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.code()), (Kind::Conflict, "many_deletes"), "{error:?}");
        assert!(hints(&error).contains("--deletes --allow-deletes"), "{}", hints(&error));
        assert!(!hints(&error).contains("pending list"), "nothing is pending: {}", hints(&error));
    }
    assert_eq!(repo_b.synchronise(allowed).await.unwrap().files_deleted, Some(2));
    repo.sync(true, false).await.unwrap();
    assert_eq!(repo.status().await.unwrap().items, 6);
    // What somebody else changed meanwhile is not deleted.
    let (mine, theirs) =
        (folder(1), repo.clone_of().await.unwrap().tree().join("data/test/fake/by-hand-1/result/1/raw"));
    fs::remove_dir_all(&mine).unwrap();
    fs::write(theirs, r#"{"newer":true}"#).unwrap();
    repo.synchronise(PUSH).await.unwrap();
    let error = repo_b.synchronise(allowed).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Conflict, "conflict"), "{error:?}");
    assert_eq!(repo.status().await.unwrap().items, 6);
}

#[tokio::test]
async fn a_run_in_progress_keeps_its_data_from_being_deleted_by_hand() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let folder = raw(&repo, 1).await.parent().unwrap().to_owned();
    let (began, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, waits) = (began.clone(), end.clone());
    ann.during(move || {
        let (told, waits) = (told.clone(), waits.clone());
        async move {
            told.notify_one();
            waits.notified().await;
        }
    });
    let running = tokio::spawn({
        let repo = repo.clone();
        async move { go(&repo, json!({"n": 2})).await }
    });
    began.notified().await;
    fs::remove_dir_all(&folder).unwrap();
    let request = AddRequest { allow_deletes: true, ..DELETES };
    let error = repo.add(&[folder.to_str().unwrap().to_owned()], request).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Contended, "{error:?}");
    end.notify_one();
    running.await.unwrap();
    assert_eq!(repo.data_versions("m", "result", false).await.unwrap().total, 2);
    fs::remove_dir_all(&folder).unwrap();
    let done = repo.add(&[folder.to_str().unwrap().to_owned()], request).await.unwrap();
    assert_eq!(done.deletes, 2);
}

#[tokio::test]
async fn a_push_that_was_stopped_says_what_waits_and_is_one_change_when_it_is_repeated() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    for id in ["one", "two", "three"] {
        lay(&repo, id, 1, "{}").await;
    }
    repo.synchronise(PUSH).await.unwrap();
    let tree = repo.clone_of().await.unwrap().tree();
    let gone = |id: &str| fs::remove_dir_all(tree.join(format!("data/test/fake/{id}"))).unwrap();
    gone("one");
    let asked = SyncRequest { deletes: true, allow_deletes: true, ..PUSH };
    let mut host = ann.host.clone();
    let died = Arc::new(Notify::new());
    host.env = Env::system([]).with_steps(Arc::new(Dies("journal.added", died.clone())));
    let since = host.env.now();
    let dying = Repo::find(host).unwrap();
    tokio::select! {
        _ = dying.synchronise(asked) => panic!("not killed"),
        () = died.notified() => {}
    }
    let left = dying.left_open(since);
    assert!(left.len() == 1 && left[0].contains("2 files removed by hand") && left[0].contains("'peat pending drop "));
    drop(dying);
    // It is counted, sent and told once.
    let plan = repo.sync_plan(asked).await.unwrap();
    assert_eq!((plan.changes.len(), plan.deletes, plan.by_hand.len()), (1, 2, 0), "{plan:?}");
    let clone = repo.clone_of().await.unwrap();
    let head = clone.head().unwrap().unwrap();
    let pushed = repo.synchronise(asked).await.unwrap();
    assert_eq!((pushed.changes_committed, pushed.files_deleted, pushed.missing), (Some(1), Some(2), 0), "{pushed:?}");
    assert_eq!(pushed.settled[0].message, "2 files removed by hand");
    assert_eq!(clone.head().unwrap().unwrap().0, head.0 + 1);
    // A plain synchronisation says so, too.
    assert!(repo.left_open(since).is_empty());
    // Two at once.
    gone("two");
    let other = Repo::find(ann.host.clone()).unwrap();
    let (one, two) = tokio::join!(repo.synchronise(asked), other.synchronise(asked));
    for pushed in [one.unwrap(), two.unwrap()] {
        assert!(pushed.errors.is_empty() && pushed.parked.is_empty() && pushed.missing == 0, "{pushed:?}");
    }
    repo.sync(true, false).await.unwrap();
    assert_eq!(clone.head().unwrap().unwrap().0, head.0 + 2);
    assert!(clone.pending().unwrap().is_empty());
    assert_eq!(repo.status().await.unwrap().items, 2);
}
