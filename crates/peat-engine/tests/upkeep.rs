//! Maintenance that runs by itself: when it is started, and what it never does to a command.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_futures,
    clippy::needless_pass_by_value
)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use peat_engine::{Keeper, KeptUp, Repo};
use peat_types::{Error, Result};
use serde_json::json;
use support::{World, go};

/// Notes what it is asked to start.
#[derive(Default)]
struct Noted {
    roots: Mutex<Vec<PathBuf>>,
    fails: bool,
}

impl Keeper for Noted {
    fn start(&self, root: &Path) -> Result<()> {
        self.roots.lock().unwrap().push(root.to_owned());
        if self.fails { Err(Error::internal("no more processes")) } else { Ok(()) }
    }
}

/// Entries without a command each.
async fn entries(repo: &Repo, many: u32) {
    for n in 0..many {
        if n % 2 == 0 {
            repo.pin_add("here", None).await.unwrap();
        } else {
            repo.pin_remove("here").await.unwrap();
        }
    }
}

fn kept_by(host: &peat_engine::Host, keeper: &Arc<Noted>) -> Repo {
    Repo::find(peat_engine::Host { keeper: Some(keeper.clone()), ..host.clone() }).unwrap()
}

#[tokio::test]
async fn maintenance_is_started_once_it_is_due_and_only_by_who_committed() {
    let world = World::new();
    let (machine, repo) = world.shared("ann").await;
    let keeper = Arc::new(Noted::default());
    go(&kept_by(&machine.host, &keeper), json!({})).await;
    assert_eq!(kept_by(&machine.host, &keeper).keep_up().await.unwrap(), KeptUp::No);
    let small = kept_by(&machine.host, &keeper);
    go(&small, json!({})).await;
    assert_eq!(small.keep_up().await.unwrap(), KeptUp::No, "nothing is due");

    entries(&repo, 128).await;
    let reader = kept_by(&machine.host, &keeper);
    reader.sync(true, false).await.unwrap();
    assert_eq!(reader.keep_up().await.unwrap(), KeptUp::No, "it committed nothing");
    assert!(reader.status().await.unwrap().maintenance.unwrap().checkpoint_due);
    let before = world.cloud.requests();
    let writer = kept_by(&machine.host, &keeper);
    let ran = go(&writer, json!({})).await;
    let cost = world.cloud.requests() - before;
    assert_eq!(writer.keep_up().await.unwrap(), KeptUp::Elsewhere);
    assert_eq!(world.cloud.requests() - before, cost, "starting it costs no request");
    assert_eq!(*keeper.roots.lock().unwrap(), [machine.dir.path()]);
    assert_eq!(ran.report.status, peat_engine::report::RunStatus::Succeeded);

    // What is started does it, once.
    repo.maintain_by_itself().await.unwrap();
    let after = kept_by(&machine.host, &keeper);
    go(&after, json!({})).await;
    assert_eq!(after.keep_up().await.unwrap(), KeptUp::No);
    let now = after.status().await.unwrap().maintenance.unwrap();
    assert!(now.last_checkpoint.is_some() && !now.checkpoint_due && now.tail_entries < 10, "{now:?}");
    assert_eq!(keeper.roots.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn far_behind_the_command_makes_the_checkpoint_itself() {
    let world = World::new();
    let (machine, repo) = world.shared("ann").await;
    entries(&repo, 512).await;
    let keeper = Arc::new(Noted::default());
    let writer = kept_by(&machine.host, &keeper);
    go(&writer, json!({})).await;
    assert_eq!(writer.keep_up().await.unwrap(), KeptUp::Here);
    assert!(keeper.roots.lock().unwrap().is_empty());
    writer.sync(true, false).await.unwrap();
    assert!(writer.status().await.unwrap().maintenance.unwrap().tail_entries < 10);
}

#[tokio::test]
async fn a_failure_of_maintenance_is_told_and_fails_nothing() {
    let world = World::new();
    let (machine, repo) = world.shared("ann").await;
    entries(&repo, 128).await;
    let keeper = Arc::new(Noted { fails: true, ..Noted::default() });
    let writer = kept_by(&machine.host, &keeper);
    go(&writer, json!({})).await;
    let error = writer.keep_up().await.unwrap_err();
    assert!(error.to_string().contains("no more processes"), "{error}");
    // In line, the store goes away just then.
    entries(&repo, 384).await;
    let writer = kept_by(&machine.host, &keeper);
    go(&writer, json!({})).await;
    world.cloud.off(true);
    writer.keep_up().await.unwrap_err();
    world.cloud.off(false);
    assert!(repo.ledger_verify(true).await.unwrap().passed);
}

#[tokio::test]
async fn it_can_be_turned_off_in_the_marker() {
    let world = World::new();
    let (machine, repo) = world.shared("ann").await;
    entries(&repo, 128).await;
    let marker = machine.dir.path().join(peat_engine::MARKER);
    let text = std::fs::read_to_string(&marker).unwrap();
    std::fs::write(&marker, text.replace("datastore:\n", "datastore:\n  maintenance: off\n")).unwrap();
    let keeper = Arc::new(Noted::default());
    let writer = kept_by(&machine.host, &keeper);
    go(&writer, json!({})).await;
    assert_eq!(writer.keep_up().await.unwrap(), KeptUp::No);
    let now = writer.status().await.unwrap().maintenance.unwrap();
    assert!(!now.by_itself && now.checkpoint_due && now.notes[0].contains("peat ledger maintain"), "{now:?}");
}
