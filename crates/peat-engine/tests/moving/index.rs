//! What the clone of a ledger that moved takes over from the one before it.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use peat_engine::report::SetupAction;
use peat_engine::{Datastore, LogRequest, Repo, SetupRequest};
use peat_types::{Env, Seq};
use serde_json::json;
use tokio::sync::Notify;

use super::{folder, items, with_runs};
use crate::support::{Cloud, World, copy, go, setup};

fn kept(is_lazy: bool, request: SetupRequest) -> SetupRequest {
    let hydration = is_lazy.then(|| "lazy".to_owned());
    SetupRequest { datastore: Datastore { hydration, ..request.datastore }, ..request }
}

/// Notes how many requests there had been when the marker was switched.
struct AtSwitch(Cloud, Arc<AtomicU64>);

impl peat_types::Steps for AtSwitch {
    fn reach(&self, name: &'static str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        if name == "setup.switched" {
            self.1.store(self.0.requests(), Ordering::SeqCst);
        }
        Box::pin(std::future::ready(()))
    }
}

/// Whether the tree is what the index says, and nothing looks like a person's work.
async fn tree_is_right(repo: &Repo) {
    let clone = repo.clone_of().await.unwrap();
    let by_hand = clone.by_hand().unwrap();
    assert!(by_hand.changed.is_empty() && by_hand.missing.is_empty(), "{by_hand:?}");
    let findings = clone.examine().await.unwrap();
    assert!(findings.iter().all(|finding| finding.passed), "{findings:?}");
}

/// Entries that are known here without asking.
async fn known(repo: &Repo) -> Vec<Seq> {
    let local = LogRequest { local: true, ..LogRequest::default() };
    repo.log(&local).await.unwrap().entries.iter().map(|entry| entry.seq).collect()
}

/// Nothing is read again that was known before, in whatever way contents are kept here and there.
#[tokio::test]
async fn a_move_takes_the_index_along() {
    for (before, after) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new();
        let mut ann = world.machine("ann", &[]);
        ann.init().await;
        ann.repo().datastore_setup(&kept(before, setup("memory:", "one"))).await.unwrap();
        let repo = ann.repo();
        ann.model(&repo, "m");
        for n in 0..5 {
            go(&repo, json!({ "n": n, "text": "x".repeat(200) })).await;
        }
        let (expected, log) = (items(&repo).await, known(&repo).await);
        drop(repo);
        let switched = Arc::new(AtomicU64::new(0));
        ann.host.env = Env::system([]).with_steps(Arc::new(AtSwitch(world.cloud.clone(), switched.clone())));
        let done = ann.repo().datastore_setup(&kept(after, setup("memory:", "two"))).await.unwrap();
        assert_eq!((done.action, done.files_pulled), (SetupAction::Move, Some(0)), "{done:?}");
        let asked = world.cloud.requests() - switched.load(Ordering::SeqCst);
        assert!(asked <= 1, "{asked} requests to learn what was known, from lazy {before} to {after}");
        let repo = ann.repo();
        assert_eq!(known(&repo).await, log);
        tree_is_right(&repo).await;
        assert_eq!(items(&repo).await, expected);
        go(&repo, json!({"n": 9})).await;
        tree_is_right(&repo).await;
        assert!(repo.ledger_verify(true).await.unwrap().passed);
    }
}

/// Runs something once, as soon as the copy is made and the index was read.
struct Meanwhile {
    read: Notify,
    run: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl peat_types::Steps for Meanwhile {
    fn reach(&self, name: &'static str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match name {
            "take.begun" => self.read.notify_one(),
            "move.check" => return self.run.lock().unwrap().take().unwrap_or_else(|| Box::pin(std::future::ready(()))),
            _ => {}
        }
        Box::pin(std::future::ready(()))
    }
}

/// The index is copied while objects are; what the clone learns before the ledger is closed comes after it.
#[tokio::test]
async fn what_was_learnt_after_the_index_was_copied_comes_along() {
    let world = World::new();
    let mut ann = world.machine("ann", &[]);
    ann.init().await;
    ann.repo().datastore_setup(&setup("memory:", "one")).await.unwrap();
    let repo = ann.repo();
    ann.model(&repo, "m");
    for n in 0..3 {
        go(&repo, json!({ "n": n })).await;
    }
    let meanwhile = Arc::new(Meanwhile { read: Notify::new(), run: Mutex::default() });
    let seen = meanwhile.clone();
    *meanwhile.run.lock().unwrap() = Some(Box::pin(async move {
        seen.read.notified().await;
        go(&repo, json!({"n": 3})).await;
    }));
    ann.host.env = Env::system([]).with_steps(meanwhile);
    let done = ann.repo().datastore_setup(&setup("memory:", "two")).await.unwrap();
    assert_eq!((done.action, done.files_pulled), (SetupAction::Move, Some(0)), "{done:?}");
    let repo = ann.repo();
    assert!(items(&repo).await.keys().any(|path| path.ends_with("/result/4/raw")));
    // The last two are of the run that the copy of the index does not know.
    let expected: Vec<Seq> = (1..=8).rev().map(Seq).collect();
    assert_eq!(known(&repo).await, expected);
    tree_is_right(&repo).await;
    assert_eq!(leftovers(&done.clone_path), 0);
    go(&repo, json!({"n": 4})).await;
    assert!(repo.ledger_verify(true).await.unwrap().passed);
}

/// Indexes that nobody came to have.
fn leftovers(clone: &std::path::Path) -> usize {
    let names = std::fs::read_dir(clone).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("state.new-")).count()
}

/// A move that fails leaves no half of an index behind.
#[tokio::test]
async fn a_move_that_fails_takes_its_copy_of_the_index_away() {
    let world = World::new();
    let mut ann = world.machine("ann", &[]);
    with_runs(&ann).await;
    let to = setup("memory:", "two");
    let clone = ann.repo().datastore_setup(&SetupRequest { dry_run: true, ..to.clone() }).await.unwrap().clone_path;
    let meanwhile = Arc::new(Meanwhile { read: Notify::new(), run: Mutex::default() });
    let (seen, cloud) = (meanwhile.clone(), world.cloud.clone());
    *meanwhile.run.lock().unwrap() = Some(Box::pin(async move {
        seen.read.notified().await;
        cloud.off(true);
    }));
    ann.host.env = Env::system([]).with_steps(meanwhile);
    ann.repo().datastore_setup(&to).await.unwrap_err();
    assert!(clone.exists());
    assert_eq!(leftovers(&clone), 0);
    world.cloud.off(false);
    let done = ann.repo().datastore_setup(&to).await.unwrap();
    assert_eq!((done.action, done.files_pulled), (SetupAction::Move, Some(0)), "{done:?}");
}

/// Killed between the switch and the way of the tree, what somebody changed in it is taken along by the same command.
#[tokio::test]
async fn changes_by_hand_go_along_after_a_kill_at_the_switch() {
    let world = World::new();
    let mut ann = world.machine("ann", &[]);
    let expected = with_runs(&ann).await;
    let old = ann.repo().clone_of().await.unwrap().tree();
    let edited = expected.keys().find(|path| path.ends_with("/raw")).unwrap();
    std::fs::write(old.join(edited), "by hand").unwrap();
    let to = setup("memory:", "two");
    let (switched, before) = (Arc::new(Notify::new()), ann.host.env.clone());
    ann.host.env = Env::system([]).with_steps(Arc::new(Stop("setup.switched", switched.clone())));
    let repo = ann.repo();
    tokio::select! {
        done = repo.datastore_setup(&to) => panic!("{done:?}"),
        () = switched.notified() => {}
    }
    drop(repo);
    ann.host.env = before;
    let again = ann.repo().datastore_setup(&to).await.unwrap();
    assert!(again.already && again.warnings.is_empty(), "{again:?}");
    let clone = ann.repo().clone_of().await.unwrap().clone();
    assert_eq!(std::fs::read(clone.tree().join(edited)).unwrap(), b"by hand");
    let by_hand = clone.by_hand().unwrap();
    assert_eq!((by_hand.changed.len(), by_hand.missing.len()), (1, 0), "{by_hand:?}");
}

/// Stands still at a step for good, and tells that it is reached.
struct Stop(&'static str, Arc<Notify>);

impl peat_types::Steps for Stop {
    fn reach(&self, name: &'static str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        if name != self.0 {
            return Box::pin(std::future::ready(()));
        }
        self.1.notify_one();
        Box::pin(std::future::pending())
    }
}

/// A tree goes along. Where it cannot go, it stays, and contents are fetched.
#[tokio::test]
async fn the_tree_goes_along_unless_it_is_on_another_disk() {
    for elsewhere in [false, true] {
        let (world, other) = (World::new(), World::quick().folder());
        let mut ann = world.machine("ann", &[]);
        if elsewhere {
            ann.host.peat_home = Some(other.path().to_owned());
        }
        let expected = with_runs(&ann).await;
        let old = ann.repo();
        ann.repo().datastore_setup(&setup("memory:", "ops")).await.unwrap();
        let repo = ann.repo();
        for repo in [&old, &repo] {
            // Where it went from nothing looks as if somebody had removed it.
            let by_hand = repo.clone_of().await.unwrap().by_hand().unwrap();
            assert_eq!((by_hand.changed.len(), by_hand.missing.len()), (0, 0), "{elsewhere}");
            assert_eq!(items(repo).await, expected);
        }
    }
}

/// With what somebody did to it and did not give to the datastore yet: who moves a ledger is asked to do that first, who
/// follows it is not.
#[tokio::test]
async fn the_tree_of_who_follows_goes_along_with_what_was_done_by_hand() {
    let world = World::new();
    let (ann, repo) = world.shared("ann").await;
    for n in 0..2 {
        go(&repo, json!({ "n": n })).await;
    }
    let (bob, old) = world.checkout(&ann, "bob");
    old.sync(true, false).await.unwrap();
    let expected = items(&old).await;
    ann.repo().datastore_setup(&setup("memory:", "two")).await.unwrap();
    let clone = old.clone_of().await.unwrap();
    let at = |name: &str| clone.tree().join(expected.keys().find(|path| path.ends_with(name)).unwrap());
    std::fs::write(at("1/raw"), "by hand").unwrap();
    std::fs::remove_file(at("2/metadata.yaml")).unwrap();
    std::fs::write(clone.tree().join("new.txt"), "by hand").unwrap();
    bob.repo().datastore_setup(&setup("memory:", "two")).await.unwrap();
    let repo = bob.repo();
    let by_hand = repo.clone_of().await.unwrap().by_hand().unwrap();
    assert_eq!((by_hand.changed.len(), by_hand.missing.len()), (2, 1));
    let left = clone.by_hand().unwrap();
    assert_eq!((left.changed.len(), left.missing.len()), (0, 0));
    assert_eq!(items(&repo).await, expected);
}

/// Who follows may be behind, or may have seen the end, and what came after it.
#[tokio::test]
async fn who_follows_reads_what_it_had_not_seen() {
    for (runs, seen, cleaned) in
        [(0, false, false), (2, false, false), (0, true, false), (2, true, false), (2, true, true)]
    {
        let world = World::new();
        let mut ann = world.machine("ann", &[]);
        ann.host.params.fresh_ms = 0;
        ann.init().await;
        ann.repo().datastore_setup(&setup("memory:", "one")).await.unwrap();
        let repo = ann.repo();
        ann.model(&repo, "m");
        go(&repo, json!({"n": 0})).await;
        let (bob, old) = world.checkout(&ann, "bob");
        old.sync(true, false).await.unwrap();
        for n in 1..=runs {
            go(&repo, json!({ "n": n })).await;
        }
        let to = setup("memory:", "two");
        ann.repo().datastore_setup(&to).await.unwrap();
        let repo = ann.repo();
        if seen {
            old.sync(true, false).await.unwrap();
            go(&repo, json!({"n": 7})).await;
        }
        if cleaned {
            ann.repo().datastore_cleanup(false).await.unwrap();
            old.sync(true, false).await.unwrap();
        }
        drop(old);
        let followed = bob.repo().datastore_setup(&to).await.unwrap();
        let case = format!("{runs} runs, {seen}, {cleaned}: {followed:?}");
        assert_eq!((followed.action, followed.pending_taken), (SetupAction::Follow, 0), "{case}");
        let news = runs > 0 || seen;
        assert_eq!(followed.files_pulled != Some(0), news, "{case}");
        let repo_b = bob.repo();
        tree_is_right(&repo_b).await;
        assert_eq!(items(&repo_b).await, items(&repo).await, "{case}");
        go(&repo_b, json!({"n": 9})).await;
        assert!(repo_b.ledger_verify(true).await.unwrap().passed);
    }
}

/// A folder that was set back after bob had looked: what he saw is not what moved, be there fewer entries than he knows or more.
#[tokio::test]
async fn what_did_not_go_along_is_not_taken_over() {
    for runs in [1, 6] {
        let world = World::new();
        let ann = world.machine("ann", &[]);
        ann.init().await;
        let root = world.folder();
        ann.repo().datastore_setup(&folder(root.path(), "store")).await.unwrap();
        let repo = ann.repo();
        ann.model(&repo, "m");
        go(&repo, json!({"n": 1})).await;
        copy(&root.path().join("store"), &root.path().join("backup"));
        let (bob, old) = world.checkout(&ann, "bob");
        for n in 2..5 {
            go(&repo, json!({ "n": n })).await;
        }
        old.sync(true, false).await.unwrap();
        drop((repo, old));
        std::fs::remove_dir_all(root.path().join("store")).unwrap();
        std::fs::rename(root.path().join("backup"), root.path().join("store")).unwrap();
        // Eve knows nothing of it, and goes on.
        let (eve, repo_e) = world.checkout(&ann, "eve");
        for n in 0..runs {
            go(&repo_e, json!({ "n": 20 + n })).await;
        }
        let to = folder(root.path(), "new");
        eve.repo().datastore_setup(&to).await.unwrap();
        match bob.repo().datastore_setup(&to).await {
            // He has seen more than there is, so somebody has to say that it may be left.
            Err(error) => {
                assert!(runs == 1 && error.has_code("rollback"), "{error:?}");
                let left = SetupRequest { skip_migration: true, ..to.clone() };
                assert_eq!(bob.repo().datastore_setup(&left).await.unwrap().action, SetupAction::Join);
            }
            Ok(followed) => {
                assert_eq!(
                    (runs, followed.action, followed.warnings.len()),
                    (6, SetupAction::Follow, 0),
                    "{followed:?}"
                );
            }
        }
        let (repo_b, repo_e) = (bob.repo(), eve.repo());
        assert_eq!(items(&repo_b).await, items(&repo_e).await, "{runs}");
        tree_is_right(&repo_b).await;
    }
}
