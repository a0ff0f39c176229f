//! A repository that moves from store to store, killed on the way at random points.

use std::sync::Arc;

use peat_engine::SetupRequest;
use peat_types::Env;
use serde_json::json;

use super::{folder, items, store_of, with_runs};
use crate::support::{World, go, setup};

/// Moves a repository from place to place, each time killed at a random point, and looks at what it finds then.
async fn wander(mut places: impl FnMut(usize) -> SetupRequest, killed: usize, seed: u64) {
    let world = World::quick();
    let mut machine = world.machine("ann", &[]);
    let trap = world.stores.trap.clone();
    machine.host.env = Env::system([]).with_steps(Arc::new(trap.clone()));
    let mut expected = with_runs(&machine).await;
    let mut dice = seed;
    let (mut kills, mut longest, mut n) = (0, 60, 0);
    while kills < killed {
        n += 1;
        assert!(n < killed * 4, "{kills} kills in {n} moves of up to {longest} points");
        let to = places(n);
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        trap.arm(1 + (dice >> 33) % longest);
        let repo = machine.repo();
        let run = trap.run(repo.datastore_setup(&to)).await;
        let points = trap.disarm();
        drop(repo);
        match run {
            Some(report) => {
                report.unwrap();
                longest = longest.max(points);
            }
            None => kills += 1,
        }
        // Whatever happened: everything can be read where the marker leads.
        assert_eq!(items(&machine.repo()).await, expected, "read after {points} points of move {n}");
        // And the same command finishes it.
        let finished = machine.repo().datastore_setup(&to).await.unwrap_or_else(|e| panic!("{points} of {n}: {e:?}"));
        assert_eq!(store_of(&machine).unwrap().namespace, to.datastore.namespace);
        let repo = machine.repo();
        assert_eq!(items(&repo).await, expected, "after {points} points of move {n}: {finished:?}");
        if n.is_multiple_of(8) {
            go(&repo, json!({ "n": n })).await;
            assert!(repo.ledger_verify(true).await.unwrap().passed);
            expected = items(&repo).await;
        }
    }
}

fn to_cloud(_: &std::path::Path, n: usize) -> SetupRequest {
    setup("memory:", &format!("ops{n}"))
}

fn to_folder(root: &std::path::Path, n: usize) -> SetupRequest {
    folder(root, &format!("store{n}"))
}

/// Each direction has every other move.
fn there_and_back(root: &std::path::Path, n: usize) -> SetupRequest {
    if n.is_multiple_of(2) { to_folder(root, n) } else { to_cloud(root, n) }
}

/// Killed at 25 points of random moves; as many seeds as make fifty for each direction.
async fn killed_on_the_way(places: fn(&std::path::Path, usize) -> SetupRequest, seed: u64) {
    let dir = World::quick().folder();
    wander(|n| places(dir.path(), n), 25, seed).await;
}

#[tokio::test]
async fn setup_killed_from_cloud_to_folder_and_back_never_loses_an_item_1() {
    killed_on_the_way(there_and_back, 1).await;
}

#[tokio::test]
async fn setup_killed_from_cloud_to_folder_and_back_never_loses_an_item_2() {
    killed_on_the_way(there_and_back, 2).await;
}

#[tokio::test]
async fn setup_killed_from_cloud_to_folder_and_back_never_loses_an_item_3() {
    killed_on_the_way(there_and_back, 3).await;
}

#[tokio::test]
async fn setup_killed_from_cloud_to_folder_and_back_never_loses_an_item_4() {
    killed_on_the_way(there_and_back, 4).await;
}

#[tokio::test]
async fn setup_killed_from_cloud_to_cloud_never_loses_an_item_1() {
    killed_on_the_way(to_cloud, 5).await;
}

#[tokio::test]
async fn setup_killed_from_cloud_to_cloud_never_loses_an_item_2() {
    killed_on_the_way(to_cloud, 6).await;
}

#[tokio::test]
async fn setup_killed_from_folder_to_folder_never_loses_an_item_1() {
    killed_on_the_way(to_folder, 7).await;
}

#[tokio::test]
async fn setup_killed_from_folder_to_folder_never_loses_an_item_2() {
    killed_on_the_way(to_folder, 8).await;
}
