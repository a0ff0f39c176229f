//! What lies where a datastore of swamp is, and what is said of its repositories. Nothing of theirs is ever changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use peat_engine::{Datastore, Examination, Repo, SetupRequest};
use peat_types::Error;

use super::with_runs;
use crate::support::{Machine, World, hints, setup};

const KEYS: &str = include_str!("swamp-keys.txt");

fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.lines().filter(|line| !line.starts_with('#'))
}

/// Every file below a folder.
fn all(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(all(&path));
        } else {
            found.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    found
}

fn at(url: &str, namespace: Option<&str>, dry_run: bool) -> SetupRequest {
    let datastore = Datastore { namespace: namespace.map(str::to_owned), ..setup(url, "x").datastore };
    SetupRequest { datastore, dry_run, ..SetupRequest::default() }
}

#[track_caller]
fn is_named(error: &Error, whose: &str) {
    assert_eq!(error.code(), "swamp_data", "{error:?}");
    let text = error.to_string();
    assert!(text.contains("written by swamp") && text.contains(whose), "{text}");
    assert!(hints(error).contains("cannot import it yet"), "{}", hints(error));
}

/// Setting up there is refused, with these namespaces given, and so is working there.
async fn is_refused(machine: &Machine, url: &str, namespaces: &[Option<&str>], whose: &str) {
    for namespace in namespaces {
        for dry_run in [true, false] {
            let error = machine.repo().datastore_setup(&at(url, *namespace, dry_run)).await.unwrap_err();
            is_named(&error, whose);
        }
    }
    let marker = machine.dir.path().join(".peat.yaml");
    let before = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, format!("{before}datastore:\n  url: \"{url}\"\n  namespace: infra\n")).unwrap();
    let repo: Repo = machine.repo();
    is_named(&repo.datastore_status(false).await.unwrap_err(), whose);
    is_named(&repo.namespace_list().await.unwrap_err(), whose);
    is_named(&repo.doctor(Examination::default()).await.unwrap_err(), whose);
    is_named(&repo.sync(true, false).await.unwrap_err(), whose);
    fs::write(&marker, before).unwrap();
}

#[tokio::test]
async fn a_datastore_of_swamp_is_named_and_left_alone() {
    for (prefix, whose) in [("", "datastore;"), ("infra/", "for its namespace 'infra'")] {
        let world = World::quick();
        let machine = world.machine("ann", &[]);
        with_runs(&machine).await;
        let room = world.folder();
        for key in keys() {
            let file = room.path().join(format!("store/{prefix}{key}"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "{}").unwrap();
            // Those of its names that the store of the tests takes.
            world.cloud.put_foreign(&format!("{prefix}{key}"), "{}").await;
        }
        let (folder, cloud) = (all(room.path()), world.cloud.keys("").await);
        assert!(cloud.len() > 3, "{cloud:?}");
        let url = format!("file://{}/store", room.path().display());
        is_refused(&machine, &url, &[None, Some("infra"), Some("new"), Some("default")], whose).await;
        let named: &[_] = if prefix.is_empty() { &[None] } else { &[None, Some("infra")] };
        is_refused(&machine, "memory:", named, whose).await;
        assert_eq!((all(room.path()), world.cloud.keys("").await), (folder, cloud), "something was written");
    }
}

#[tokio::test]
async fn a_repository_of_swamp_is_named_and_can_be_made_one_of_peats_too() {
    let world = World::quick();
    let machine = world.machine("ann", &[]);
    let dir = machine.dir.path();
    fs::write(dir.join(".swamp.yaml"), "repoId: x\n").unwrap();
    fs::create_dir_all(dir.join(".swamp/data")).unwrap();
    fs::write(dir.join(".swamp/data/x"), "x").unwrap();
    let error = Repo::find(machine.host.clone()).map(drop).unwrap_err();
    assert_eq!(error.code(), "not_a_repo");
    let said = hints(&error);
    assert!(said.contains(&format!("'peat -C {} init'", dir.display())) && said.contains("not taken over"), "{said}");
    with_runs(&machine).await;
    assert_eq!(fs::read_to_string(dir.join(".swamp/data/x")).unwrap(), "x");
    assert_eq!(fs::read_to_string(dir.join(".swamp.yaml")).unwrap(), "repoId: x\n");
}
