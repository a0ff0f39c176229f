//! What needs a process of its own: mounts nobody else shall see. Each test runs this very program again, with one of
//! the `child_` functions.
#![allow(clippy::panic, clippy::unwrap_used, clippy::print_stderr)] // the lints know tests, but not their helpers

use std::process::{Command, Output};

use bytes::Bytes;
use peat_objects::{Durability, FileStore, List, Range, Store};
use peat_types::{Env, Kind};

/// Says that this is the child, and which store it is to use.
const CHILD: &str = "PEAT_TEST_CHILD";

#[allow(clippy::disallowed_methods)] // the child is told by variables
fn child() -> Option<(String, Env)> {
    Some((std::env::var(CHILD).ok()?, Env::system(std::env::vars())))
}

fn command(test: &str) -> Vec<String> {
    let this = std::env::current_exe().unwrap_or_else(|e| panic!("{e}"));
    [&this.display().to_string(), "--exact", test, "--nocapture"].map(ToOwned::to_owned).to_vec()
}

#[track_caller]
fn assert_passed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "{}", text(&output.stdout));
}

/// Runs a child on a small file system of its own, mounted where only it can see it.
fn run_on_mount(options: &str, test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o {options} none '{0}' && mkdir '{0}/store' && mount --bind '{0}/store' '{0}/store' || exit 77\nexec \"$@\"",
        folder.path().display()
    );
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .args(command(test))
        .env(CHILD, folder.path().join("store"))
        .output();
    match output {
        Ok(output) if output.status.code() != Some(77) && !output.stderr.starts_with(b"unshare:") => {
            assert_passed(&output);
        }
        _ => eprintln!("SKIPPED: {test}, because mounting is not allowed here"),
    }
}

#[test]
fn a_full_disk() {
    run_on_mount("size=256k", "child_fills_disk");
}

#[tokio::test]
async fn child_fills_disk() {
    let Some((root, env)) = child() else { return };
    let store = FileStore::new(&root, Durability::Full, &env);
    store.put("small", Bytes::from("x")).await.unwrap();
    let large = Bytes::from(vec![1; 1 << 20]);
    for error in [store.put("large", large.clone()).await.unwrap_err(), store.create("large", large).await.unwrap_err()]
    {
        assert_eq!((error.kind(), error.code()), (Kind::Offline, "disk_full"), "{error:?}");
    }
    // Nothing half written is visible, and no temporary file keeps the disk full.
    assert!(store.get("large", Range::All).await.unwrap().is_none());
    assert_eq!(store.list(&List::default()).await.unwrap().keys.len(), 1);
    store.put("small", Bytes::from("y")).await.unwrap();
}

#[test]
fn a_read_only_disk() {
    run_on_mount("size=256k", "child_meets_read_only_disk");
}

#[tokio::test]
async fn child_meets_read_only_disk() {
    let Some((root, env)) = child() else { return };
    let store = FileStore::new(&root, Durability::Full, &env);
    store.put("small", Bytes::from("x")).await.unwrap();
    let remount = Command::new("mount").args(["-o", "remount,ro,bind", &root]).status().unwrap();
    assert!(remount.success());
    assert_eq!(store.get("small", Range::All).await.unwrap().unwrap().bytes, Bytes::from("x"));
    for error in [
        store.put("other", Bytes::new()).await.unwrap_err(),
        store.create("other", Bytes::new()).await.unwrap_err(),
        store.delete("small").await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.code()), (Kind::Denied, "read_only"), "{error:?}");
    }
}
