//! Places that a ledger left, or could not take, and what stays with the repository wherever it goes.

use std::fs;

use peat_engine::SetupRequest;
use serde_json::json;

use super::{folder, store_of, with_runs};
use crate::support::{World, get, go, hints, setup};

#[tokio::test]
async fn of_two_private_ledgers_that_are_shared_at_once_under_one_name_one_is() {
    let world = World::new();
    let ann = world.machine("ann", &[]);
    with_runs(&ann).await;
    // Another checkout, which had begun a private ledger of its own.
    let (bob, repo) = world.checkout(&ann, "bob");
    go(&repo, json!({"n": 9})).await;
    let to = setup("memory:", "ops");
    let (repo_a, repo_b) = (ann.repo(), bob.repo());
    let (first, second) = tokio::join!(repo_a.datastore_setup(&to), repo_b.datastore_setup(&to));
    let (winner, loser, error) = match (first, second) {
        (Ok(_), Err(error)) => (&ann, &bob, error),
        (Err(error), Ok(_)) => (&bob, &ann, error),
        both => panic!("{both:?}"),
    };
    assert!(["not_this_ledger", "two_histories"].contains(&error.code()), "{error:?}");
    assert!(!hints(&error).contains("run it again"), "{error:?}");
    assert!(winner.repo().ledger_verify(true).await.unwrap().passed);
    // The other one is as it was, and may go elsewhere.
    go(&loser.repo(), json!({"n": 5})).await;
    assert_eq!(loser.repo().datastore_setup(&to).await.unwrap_err().code(), "two_histories");
    loser.repo().datastore_setup(&setup("memory:", "ops-2")).await.unwrap();
    assert!(loser.repo().ledger_verify(true).await.unwrap().passed);
}

#[tokio::test]
async fn a_place_that_was_left_is_named_as_one() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let dir = tempfile::tempdir().unwrap();
    repo.datastore_setup(&folder(dir.path(), "store")).await.unwrap();
    let repo = ann.repo();
    for dry_run in [true, false] {
        let back = SetupRequest { dry_run, ..setup("memory:", "ops") };
        let error = repo.datastore_setup(&back).await.unwrap_err();
        assert_eq!(error.code(), "left_behind", "{error:?}");
        assert!(hints(&error).contains("'peat datastore setup memory: --namespace NAME'"), "{error:?}");
    }
    repo.namespace_rename("drei", false).await.unwrap();
    assert_eq!(ann.repo().namespace_rename("ops", false).await.unwrap_err().code(), "left_behind");
    ann.repo().datastore_setup(&setup("memory:", "home")).await.unwrap();
    assert_eq!(ann.repo().data_versions("m", "result", false).await.unwrap().total, 1);
}

#[tokio::test]
async fn readers_hear_that_a_ledger_moved_and_nobody_joins_it() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1})).await;
    let (bob, repo_b) = world.checkout(&ann, "bob");
    repo_b.sync(true, false).await.unwrap();
    assert!(repo_b.moved().unwrap().is_none());
    let dir = tempfile::tempdir().unwrap();
    let to = folder(dir.path(), "store");
    repo.datastore_setup(&to).await.unwrap();
    let status = repo_b.datastore_status(false).await.unwrap();
    assert!(status.healthy && status.message.contains("moved"), "{status:?}");
    assert!(repo_b.moved().unwrap().is_none(), "not asked yet");
    repo_b.sync(true, false).await.unwrap();
    let told = repo_b.moved().unwrap().unwrap();
    assert!(told.code() == "moved" && hints(&told).contains("'peat datastore setup file:"), "{told:?}");
    assert!(repo_b.datastore_status(false).await.unwrap().message.contains("file:///"));
    // It is still read, and not joined, by whatever way.
    assert_eq!(repo_b.data_get(&get("result")).await.unwrap().version, 1);
    let left = SetupRequest { skip_migration: true, ..setup("memory:", "ops") };
    let error = ann.repo().datastore_setup(&left).await.unwrap_err();
    assert_eq!(error.code(), "moved", "{error:?}");
    bob.repo().namespace_set("other", false).await.unwrap();
    for dry_run in [true, false] {
        let error = bob.repo().namespace_set("ops", dry_run).await.unwrap_err();
        assert!(error.code() == "moved" && hints(&error).contains("'peat datastore setup file:"), "{error:?}");
    }
    bob.repo().datastore_setup(&SetupRequest { skip_migration: true, ..to }).await.unwrap();
    let repo_b = bob.repo();
    assert_eq!(repo_b.data_get(&get("result")).await.unwrap().version, 1);
    assert!(repo_b.moved().unwrap().is_none());
}

#[tokio::test]
async fn settings_that_do_not_say_where_stay_when_a_datastore_moves() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    go(&repo, json!({"n": 1, "text": "x".repeat(200)})).await;
    let (bob, _) = world.checkout(&ann, "bob");
    let marker = bob.dir.path().join(".peat.yaml");
    let text = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, format!("{text}  hydration: lazy\n  deleteLimit:\n    items: 3\n    percent: 4\n")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    bob.repo().datastore_setup(&folder(dir.path(), "store")).await.unwrap();
    let local = bob.repo().datastore_status(false).await.unwrap();
    assert_eq!(local.hydration, "lazy");
    let settings = store_of(&bob).unwrap();
    assert_eq!(settings.delete_limit.map(|limit| (limit.items, limit.percent)), Some((3, 4)));
    // Unless something else is said.
    let mut full = folder(dir.path(), "store");
    full.datastore.hydration = Some("full".into());
    bob.repo().datastore_setup(&full).await.unwrap();
    assert_eq!(bob.repo().datastore_status(false).await.unwrap().hydration, "full");
}
