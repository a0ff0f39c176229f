//! Files that were changed again while what was made from them waited: the newest bytes stay where they are.

use std::path::Path;

use super::*;
use peat_engine::report::StatusReport;
use support::Machine;

/// Adds files; the process is killed at a step.
async fn leave(ann: &Machine, step: &'static str, path: &Path, request: AddRequest) {
    let mut host = ann.host.clone();
    let died = Arc::new(Notify::new());
    host.env = Env::system([]).with_steps(Arc::new(Dies(step, died.clone())));
    let dying = Repo::find(host).unwrap();
    let paths = [path.to_str().unwrap().to_owned()];
    tokio::select! {
        _ = dying.add(&paths, request) => panic!("not killed"),
        () = died.notified() => {}
    }
}

/// What was changed by hand: names of files and kinds.
fn by_hand(status: &StatusReport) -> Vec<(&str, &str)> {
    let files = status.by_hand.iter();
    files.map(|file| (file.path.rsplit('/').next().unwrap_or_default(), file.kind.as_str())).collect()
}

#[tokio::test]
async fn a_file_edited_again_while_its_change_waits_stays_as_it_is() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    let file = raw(&repo, 1).await;
    for (waits, newest) in [(r#"{"n":2}"#, r#"{"n":3}"#), (r#"{"n":4}"#, r#"{"n":55}"#)] {
        fs::write(&file, waits).unwrap();
        leave(&ann, "journal.added", &file, AddRequest::default()).await;
        fs::write(&file, newest).unwrap();
        let synced = repo.sync(false, false).await.unwrap();
        assert_eq!((synced.changes_committed, synced.aside.len(), synced.by_hand), (Some(1), 0, 1), "{synced:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), newest);
        let status = repo.status().await.unwrap();
        assert_eq!(by_hand(&status), [("raw", "modified")]);
        let fresh = DataGet { fresh: true, ..get("result") };
        let there = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(repo_b.data_get(&fresh).await.unwrap().content.unwrap(), there(waits));
        // And goes on from what was committed.
        assert_eq!(repo.synchronise(PUSH).await.unwrap().files_pushed, Some(1));
        assert_eq!(repo_b.data_get(&fresh).await.unwrap().content.unwrap(), there(newest));
        assert!(repo.status().await.unwrap().by_hand.is_empty());
    }
    // It was put there, so its removal is one.
    fs::remove_file(&file).unwrap();
    assert_eq!(by_hand(&repo.status().await.unwrap()), [("raw", "missing")]);
}

/// The process that sent the change was killed before it could see to its files; others of the machine hear of it by a pull.
#[tokio::test]
async fn a_pull_that_brings_what_this_machine_sent_leaves_what_was_made_from_it() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let file = raw(&repo, 1).await;
    for lazy in [false, true] {
        if lazy {
            let marker = ann.dir.path().join(".peat.yaml");
            let text = fs::read_to_string(&marker).unwrap();
            fs::write(&marker, text.replace("datastore:", "datastore:\n  hydration: lazy")).unwrap();
        }
        let (waits, newest) = if lazy { (r#"{"n":4}"#, r#"{"n":55}"#) } else { (r#"{"n":2}"#, r#"{"n":33}"#) };
        fs::write(&file, waits).unwrap();
        leave(&ann, "commit.sent", &file, AddRequest::default()).await;
        fs::write(&file, newest).unwrap();
        let repo = ann.repo();
        let pulled = repo.sync(true, false).await.unwrap();
        assert!(pulled.files_pulled > Some(0) && pulled.aside.is_empty() && pulled.by_hand == 1, "{pulled:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), newest);
        let synced = repo.synchronise(PUSH).await.unwrap();
        assert!(synced.errors.is_empty() && synced.aside.is_empty() && synced.by_hand == 0, "{synced:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), newest);
        assert_eq!(repo.data_get(&get("result")).await.unwrap().content.unwrap().to_string(), newest);
    }
}

#[tokio::test]
async fn what_others_made_of_it_meanwhile_is_still_told_apart() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    repo_b.sync(true, false).await.unwrap();
    let (mine, theirs) = (raw(&repo, 1).await, raw(&repo_b, 1).await);
    fs::write(&mine, r#"{"mine":1}"#).unwrap();
    leave(&ann, "journal.added", &mine, AddRequest::default()).await;
    fs::write(&theirs, r#"{"n":9}"#).unwrap();
    repo_b.synchronise(PUSH).await.unwrap();
    fs::write(&mine, r#"{"mine":2}"#).unwrap();
    let conflicts = repo.sync_plan(SyncRequest::default()).await.unwrap().conflicts;
    assert!(conflicts.len() == 2 && conflicts[0].contains("will be put aside"), "{conflicts:?}");
    assert!(conflicts[1].ends_with("which was made from what it was, is refused"), "{conflicts:?}");
    let synced = repo.sync(false, false).await.unwrap();
    assert_eq!((synced.parked.len(), synced.aside.len()), (1, 1), "{synced:?}");
    assert_eq!(fs::read_to_string(&synced.aside[0].kept).unwrap(), r#"{"mine":2}"#);
    assert_eq!(fs::read_to_string(&mine).unwrap(), r#"{"n":9}"#);
}

#[tokio::test]
async fn a_file_made_again_while_its_deletion_waits_stays() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    go(&repo, json!({"n": 2})).await;
    let file = raw(&repo, 1).await;
    let folder = file.parent().unwrap();
    fs::remove_dir_all(folder).unwrap();
    leave(&ann, "journal.added", folder, AddRequest { allow_deletes: true, ..DELETES }).await;
    fs::create_dir_all(folder).unwrap();
    fs::write(&file, "mine").unwrap();
    let asked = SyncRequest { allow_deletes: true, ..SyncRequest::default() };
    let synced = repo.synchronise(asked).await.unwrap();
    assert_eq!((synced.changes_committed, synced.aside.len()), (Some(1), 0), "{synced:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let status = repo.status().await.unwrap();
    assert!(status.notes.iter().any(|note| note.contains("/1/raw")), "{:?}", status.notes);
}
