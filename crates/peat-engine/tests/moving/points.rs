//! Setups killed at every point they pass: each step on this machine, and each request, before and after it had its effect.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;

use peat_engine::report::SetupAction;
use peat_engine::{Cancel, LogRequest, Quiet, Repo, RunRequest, SetupRequest};
use peat_types::{Env, Kind, Result};
use serde_json::json;
use tempfile::TempDir;

use super::{folder, items};
use crate::support::{Machine, Trap, World, get, go, hints, request, setup};

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Folder,
    Cloud,
}

/// A world with a repository of two runs, whose contents lie in entries and in packs.
struct Scene {
    world: World,
    ann: Machine,
    room: TempDir,
}

impl Scene {
    /// The repository is in its private folder or in the cloud.
    async fn new(at: At) -> Self {
        let world = World::quick();
        let room = world.folder();
        let mut ann = world.machine("ann", &[]);
        ann.host.params.inline_file = 1000;
        ann.host.params.fresh_ms = 0;
        ann.init().await;
        ann.model(&ann.repo(), "m");
        if at == At::Cloud {
            ann.repo().datastore_setup(&setup("memory:", "first")).await.unwrap();
        }
        let repo = ann.repo();
        go(&repo, json!({"n": 0})).await;
        go(&repo, json!({"n": 1, "text": "x".repeat(1200)})).await;
        let mut scene = Self { world, ann, room };
        scene.ann.host.env = scene.trapped();
        scene
    }

    fn trap(&self) -> Trap {
        self.world.stores.trap.clone()
    }

    fn trapped(&self) -> Env {
        Env::system([]).with_steps(Arc::new(self.trap()))
    }

    fn to(&self, at: At) -> SetupRequest {
        match at {
            At::Folder => folder(self.room.path(), "store"),
            At::Cloud => setup("memory:", "second"),
        }
    }

    /// A colleague with the same files, who has heard of everything.
    async fn bob(&self) -> Machine {
        let (mut bob, repo) = self.world.checkout(&self.ann, "bob");
        repo.sync(true, false).await.unwrap();
        bob.host.env = self.trapped();
        bob
    }
}

/// What came of it, unless the process died at the `nth` point.
async fn until<T>(trap: &Trap, nth: u64, what: impl Future<Output = Result<T>>) -> Option<T> {
    trap.arm(nth);
    let ended = trap.run(what).await;
    trap.disarm();
    ended.map(Result::unwrap)
}

/// Tells how many points there were; fewer than these would mean that most of them are not seen any more.
fn enough(points: u64, least: u64, what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}: killed at each of {points} points");
    assert!(points >= least, "{what} has only {points} points");
}

async fn keys(repo: &Repo, prefix: &str) -> BTreeSet<String> {
    repo.ledger_ls(prefix, usize::MAX).await.unwrap().objects.into_iter().map(|object| object.key).collect()
}

/// Whether a ledger has every entry and every change once, nothing that belongs to nobody, and whole contents.
async fn is_whole(repo: &Repo) {
    let verified = repo.ledger_verify(true).await.unwrap();
    assert!(verified.passed, "{verified:?}");
    let log = repo.log(&LogRequest { limit: Some(1000), ..LogRequest::default() }).await.unwrap();
    let mut changes = BTreeSet::new();
    for tx in log.entries.iter().flat_map(|entry| &entry.transactions) {
        assert!(changes.insert(tx.change), "{} is there twice: {log:?}", tx.change);
    }
    let keys = keys(repo, "").await;
    let seqs = keys.iter().filter_map(|key| key.strip_prefix("log/")?.split_once('.')?.1.parse::<u64>().ok());
    let mut seqs: Vec<u64> = seqs.collect();
    seqs.sort_unstable();
    assert!(seqs.iter().copied().eq(0..=log.entries[0].seq.0), "{seqs:?}");
    let others: Vec<_> = keys.iter().filter(|key| !["log/", "pack/"].iter().any(|dir| key.starts_with(dir))).collect();
    assert_eq!(others, ["ns.json"]);
    assert!(repo.status().await.unwrap().pending.is_empty());
}

async fn is_told_that_it_moved(old: &Repo) {
    let error = old.run(&request("m", json!({"n": 8})), &Cancel::default(), &Quiet).await.unwrap_err();
    assert_eq!(error.code(), "moved", "{error:?}");
    assert!(old.status().await.unwrap().pending.is_empty());
}

/// Moves, killed at every point; then everything can be read, nobody writes into a ledger that does not go on, and the same
/// command finishes the move, however often it is killed itself.
async fn moves(from: At, to: At, what: &str) {
    let mut nth = 0;
    loop {
        nth += 1;
        let scene = Scene::new(from).await;
        let (trap, to) = (scene.trap(), scene.to(to));
        let (ann, old) = (&scene.ann, scene.ann.repo());
        let mut expected = items(&old).await;
        let moving = ann.repo();
        if until(&trap, nth, moving.datastore_setup(&to)).await.is_some() {
            break enough(nth - 1, 40, what);
        }
        drop(moving);
        let at = format!("{what}, killed at {nth}");
        assert_eq!(items(&ann.repo()).await, expected, "{at}");
        let mut wrote = false;
        if nth % 2 == 0 {
            let repo = ann.repo();
            match repo.run(&request("m", json!({"n": 7})), &Cancel::default(), &Quiet).await {
                Ok(_) => (wrote, expected) = (true, items(&repo).await),
                Err(error) => assert_eq!(error.code(), "moved", "{at}: {error:?}"),
            }
            assert!(repo.status().await.unwrap().pending.is_empty(), "{at}");
        }
        if nth % 3 == 0 {
            let again = ann.repo();
            until(&trap, 1 + nth * 7 % 40, again.datastore_setup(&to)).await;
        }
        let done = ann.repo().datastore_setup(&to).await.unwrap_or_else(|e| panic!("{at}: {e:?}"));
        let new = ann.repo();
        assert_eq!(new.marker().datastore.as_ref().unwrap().url, to.datastore.url, "{at}: {done:?}");
        assert_eq!(items(&new).await, expected, "{at}");
        is_whole(&new).await;
        let (ours, theirs) = (keys(&new, "pack/").await, keys(&old, "pack/").await);
        assert!(if wrote { ours.is_superset(&theirs) } else { ours == theirs }, "{at}: {ours:?} {theirs:?}");
        is_told_that_it_moved(&old).await;
        let again = ann.repo().datastore_setup(&to).await.unwrap();
        assert_eq!((again.action, again.objects_copied), (SetupAction::Join, 0), "{at}");
        let versions = new.data_versions("m", "result", false).await.unwrap().total as u64;
        assert_eq!(go(&new, json!({"n": 9})).await.report.data_artifacts[0].version, Some(versions + 1), "{at}");
    }
}

#[tokio::test]
async fn a_move_from_folder_to_cloud_is_killed_at_every_point() {
    moves(At::Folder, At::Cloud, "folder to cloud").await;
}

#[tokio::test]
async fn a_move_from_cloud_to_cloud_is_killed_at_every_point() {
    moves(At::Cloud, At::Cloud, "cloud to cloud").await;
}

#[tokio::test]
async fn a_move_from_cloud_to_folder_is_killed_at_every_point() {
    moves(At::Cloud, At::Folder, "cloud to folder").await;
}

#[tokio::test]
async fn a_move_from_folder_to_folder_is_killed_at_every_point() {
    moves(At::Folder, At::Folder, "folder to folder").await;
}

/// What one machine left half done another one finishes, and the first one finds its way.
#[tokio::test]
async fn whoever_gives_the_command_finishes_a_move() {
    let mut nth = 0;
    loop {
        nth += 1;
        let scene = Scene::new(At::Cloud).await;
        let (ann, bob, to) = (&scene.ann, scene.bob().await, scene.to(At::Folder));
        let expected = items(&ann.repo()).await;
        let moving = ann.repo();
        if until(&scene.trap(), nth, moving.datastore_setup(&to)).await.is_some() {
            break enough(nth - 1, 40, "finished by another");
        }
        drop(moving);
        bob.repo().datastore_setup(&to).await.unwrap_or_else(|e| panic!("{nth}: {e:?}"));
        assert_eq!(items(&bob.repo()).await, expected, "{nth}");
        let followed = ann.repo().datastore_setup(&to).await.unwrap_or_else(|e| panic!("{nth}: {e:?}"));
        assert!([SetupAction::Follow, SetupAction::Join].contains(&followed.action), "{nth}: {followed:?}");
        assert_eq!(items(&ann.repo()).await, expected, "{nth}");
        is_whole(&ann.repo()).await;
        go(&bob.repo(), json!({"n": 2})).await;
        go(&ann.repo(), json!({"n": 3})).await;
        assert_eq!(ann.repo().data_versions("m", "result", false).await.unwrap().total, 4);
    }
}

/// Who follows takes a change along that it could not commit; its contents were uploaded to the store it leaves.
#[tokio::test]
async fn following_is_killed_at_every_point() {
    let mut nth = 0;
    loop {
        nth += 1;
        let scene = Scene::new(At::Cloud).await;
        let (ann, bob, to) = (&scene.ann, scene.bob().await, scene.to(At::Folder));
        let change = RunRequest { offline: true, ..request("m", json!({"n": 5, "text": "y".repeat(1300)})) };
        let old = bob.repo();
        old.sync(true, false).await.unwrap();
        if nth % 2 == 0 {
            // Before the move, and it could not be sent.
            scene.world.cloud.off(true);
            old.run(&change, &Cancel::default(), &Quiet).await.unwrap();
            scene.world.cloud.off(false);
            ann.repo().datastore_setup(&to).await.unwrap();
        } else {
            // So soon after the move that its contents are uploaded before it is heard of.
            ann.repo().datastore_setup(&to).await.unwrap();
            let late = old.run(&change, &Cancel::default(), &Quiet).await.unwrap();
            assert!(
                late.error.as_ref().is_some_and(|error| hints(error).contains("'peat datastore setup ")),
                "{late:?}"
            );
        }
        let late = old.sync(false, true).await.unwrap();
        assert!(late.errors[0].contains("moved"), "{late:?}");
        drop(old);
        let following = bob.repo();
        if until(&scene.trap(), nth, following.datastore_setup(&to)).await.is_some() {
            break enough(nth - 1, 15, "following");
        }
        drop(following);
        bob.repo().datastore_setup(&to).await.unwrap_or_else(|e| panic!("{nth}: {e:?}"));
        let repo = bob.repo();
        let sent = repo.sync(false, true).await.unwrap();
        assert_eq!((sent.changes_committed, sent.errors.len()), (Some(1), 0), "{nth}: {sent:?}");
        is_whole(&repo).await;
        let seen = ann.repo();
        seen.sync(true, false).await.unwrap();
        assert_eq!(items(&seen).await, items(&repo).await, "{nth}");
        assert_eq!(seen.data_versions("m", "result", false).await.unwrap().total, 3, "{nth}");
        assert_eq!(seen.data_get(&get("result")).await.unwrap().content.unwrap()["n"], 5, "{nth}");
    }
}

#[tokio::test]
async fn making_and_joining_a_namespace_are_killed_at_every_point() {
    for to in [At::Folder, At::Cloud] {
        let mut nth = 0;
        loop {
            nth += 1;
            let world = World::quick();
            let room = world.folder();
            let to = if to == At::Folder { folder(room.path(), "store") } else { setup("memory:", "ops") };
            let mut ann = world.machine("ann", &[]);
            ann.init().await;
            ann.model(&ann.repo(), "m");
            ann.host.env = Env::system([]).with_steps(Arc::new(world.stores.trap.clone()));
            let making = ann.repo();
            let made = until(&world.stores.trap, nth, making.datastore_setup(&to)).await;
            drop(making);
            ann.repo().datastore_setup(&to).await.unwrap_or_else(|e| panic!("{nth}: {e:?}"));
            let repo = ann.repo();
            go(&repo, json!({"n": 1})).await;
            is_whole(&repo).await;
            // Joining, by a colleague whose files do not name the store yet.
            let (mut bob, _) = world.checkout(&ann, "bob");
            bob.host.env = ann.host.env.clone();
            let marker = std::fs::read_to_string(bob.dir.path().join(".peat.yaml")).unwrap();
            let private = marker.split("datastore:").next().unwrap();
            std::fs::write(bob.dir.path().join(".peat.yaml"), private).unwrap();
            let joining = bob.repo();
            let joined = until(&world.stores.trap, nth, joining.datastore_setup(&to)).await;
            drop(joining);
            let again = bob.repo().datastore_setup(&to).await.unwrap_or_else(|e| panic!("{nth}: {e:?}"));
            assert_eq!(again.action, SetupAction::Join);
            assert_eq!(items(&bob.repo()).await, items(&repo).await, "{nth}");
            if made.is_some() && joined.is_some() {
                break enough(nth - 1, 8, "making and joining");
            }
        }
    }
}

#[tokio::test]
async fn cleaning_up_is_killed_at_every_point() {
    let mut nth = 0;
    loop {
        nth += 1;
        let scene = Scene::new(At::Cloud).await;
        let (ann, bob) = (&scene.ann, scene.bob().await);
        let stale = bob.repo();
        ann.repo().datastore_setup(&scene.to(At::Folder)).await.unwrap();
        let repo = ann.repo();
        let expected = items(&repo).await;
        if until(&scene.trap(), nth, repo.datastore_cleanup(false)).await.is_some() {
            break enough(nth - 1, 15, "cleaning up");
        }
        is_told_that_it_moved(&stale).await;
        let done = ann.repo().datastore_cleanup(false).await.unwrap_or_else(|e| panic!("{nth}: {e:?}"));
        assert_eq!((done.left, &done.denied), (0, &None), "{nth}");
        let left = scene.world.cloud.keys("first/").await;
        assert!(left.len() == 2 && left.contains(&"first/ns.json".to_owned()), "{nth}: {left:?}");
        let error = ann.repo().datastore_cleanup(false).await.unwrap_err();
        assert!(error.kind() == Kind::NotFound, "{nth}: {error:?} {}", hints(&error));
        assert_eq!(items(&ann.repo()).await, expected, "{nth}");
        is_whole(&ann.repo()).await;
        is_told_that_it_moved(&stale).await;
    }
}
