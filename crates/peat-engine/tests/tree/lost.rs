//! A clone that lost its index or its tree.

use std::fs;

use peat_engine::{AddRequest, Repo, SyncRequest};
use peat_types::Kind;

use super::{DELETES, PULL, PUSH, lay};
use crate::support::{Machine, World};

/// Spoils `state.db`, as a crash or another version would.
async fn forget(machine: &Machine) {
    let repo = machine.repo();
    let tree = repo.clone_of().await.unwrap().tree();
    drop(repo);
    fs::write(tree.with_file_name("state.db"), "x").unwrap();
}

#[tokio::test]
async fn what_was_deleted_does_not_come_back_from_a_tree_whose_index_was_lost() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    let (bob, _) = world.checkout(&ann, "bob");
    for (round, add) in [false, true].into_iter().enumerate() {
        let n = round as u64;
        for id in ["secret", "undone"] {
            lay(&repo, &format!("{id}-{n}"), 1, "{}").await;
        }
        let laid = repo.synchronise(PUSH).await.unwrap();
        assert_eq!(laid.files_pushed, Some(4));
        bob.repo().sync(true, false).await.unwrap();
        // One is gone for good, the other by an undo, before bob hears of it.
        let tree = repo.clone_of().await.unwrap().tree();
        fs::remove_dir_all(tree.join(format!("data/test/fake/undone-{n}"))).unwrap();
        repo.synchronise(SyncRequest { deletes: true, allow_deletes: true, ..PUSH }).await.unwrap();
        let secret = peat_types::Unit::model(&format!("secret-{n}")).unwrap();
        let folder = [format!("data/test/fake/secret-{n}").parse().unwrap()];
        repo.clone_of().await.unwrap().purge(&secret, &folder).await.unwrap();
        let items = repo.status().await.unwrap().items;

        forget(&bob).await;
        let repo_b = bob.repo();
        let tree = repo_b.clone_of().await.unwrap().tree();
        let old = tree.join(format!("data/test/fake/secret-{n}/result/1/raw"));
        assert!(old.exists());
        let status = repo_b.status().await.unwrap();
        assert!(status.by_hand.is_empty(), "{:?}", status.by_hand);
        assert!(status.notes.iter().any(|note| note.contains("built anew")), "{:?}", status.notes);
        assert_eq!(repo_b.sync_plan(PUSH).await.unwrap().puts, 0);
        let doctor = repo_b.doctor(peat_engine::Examination::default()).await.unwrap().report;
        assert!(doctor.health_findings.iter().all(|f| f.passed), "{doctor:?}");
        // What is made from now on is somebody's.
        lay(&repo_b, &format!("new-{n}"), 1, "{\"new\":true}").await;
        if add {
            repo_b.add(&[], AddRequest::default()).await.unwrap();
        } else {
            repo_b.synchronise(PUSH).await.unwrap();
        }
        assert!(!old.exists());
        let aside = repo_b.clone_of().await.unwrap().take_aside();
        assert!(add == (aside.len() == 4), "what was there before is kept: {aside:?}");
        let status = repo_b.status().await.unwrap();
        assert!(status.by_hand.is_empty() && status.notes.iter().all(|note| note.contains("aside")), "{status:?}");
        repo.sync(true, false).await.unwrap();
        assert_eq!(repo.status().await.unwrap().items, items + 2);
        assert!(repo.ledger_verify(true).await.unwrap().passed);
    }
}

#[tokio::test]
async fn a_tree_that_went_away_as_a_whole_says_nothing_about_its_files() {
    let world = World::new();
    let (_ann, repo) = world.shared("ann").await;
    for id in ["one", "two"] {
        lay(&repo, id, 1, "{}").await;
    }
    repo.synchronise(PUSH).await.unwrap();
    let tree = repo.clone_of().await.unwrap().tree();
    let host = repo.host().clone();
    drop(repo);
    let open = || Repo::find(host.clone()).unwrap();
    let asked = SyncRequest { deletes: true, allow_deletes: true, ..PUSH };
    let away = tree.with_file_name("elsewhere");
    // Moved away; an empty folder where a disk is not mounted; and removed, so that the next one may get its inode.
    for (moved, empty) in [(true, false), (true, true), (false, true), (false, false)] {
        if moved {
            fs::rename(&tree, &away).unwrap();
        } else {
            fs::remove_dir_all(&tree).unwrap();
        }
        if empty {
            fs::create_dir(&tree).unwrap();
        }
        let request = AddRequest { allow_deletes: true, ..DELETES };
        for error in [
            open().synchronise(asked).await.unwrap_err(),
            open().sync_plan(asked).await.unwrap_err(),
            open().add(&["data".to_owned()], request).await.unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.code()), (Kind::Conflict, "tree_missing"), "{error:?}");
        }
        let status = open().status().await.unwrap();
        assert!(status.by_hand.is_empty() && status.items == 4, "{status:?}");
        assert!(status.notes.iter().any(|note| note.contains("was not there")), "{:?}", status.notes);
        let plan = open().sync_plan(PULL).await.unwrap().pull.unwrap();
        let pulled = open().synchronise(PULL).await.unwrap();
        let done = (pulled.files_pulled, pulled.bytes_pulled);
        assert_eq!((done, plan.puts, plan.bytes > 0), ((Some(4), Some(plan.bytes)), 4, true), "{plan:?} {pulled:?}");
        assert!(tree.join("data/test/fake/one/result/1/raw").exists());
        // It is mounted again: all that was pulled meanwhile is compared.
        if moved {
            fs::remove_dir_all(&tree).unwrap();
            fs::rename(&away, &tree).unwrap();
        }
        let status = open().status().await.unwrap();
        assert!(status.by_hand.is_empty() && status.notes.is_empty(), "{status:?}");
    }
    // What is removed from it is somebody's doing again.
    fs::remove_dir_all(tree.join("data/test/fake/one")).unwrap();
    assert_eq!(open().synchronise(asked).await.unwrap().files_deleted, Some(2));
}
