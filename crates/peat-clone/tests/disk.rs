//! A disk that is full and one that cannot be written. Tests may run as root, whom no file mode stops, so both are real
//! mounts in a mount namespace of their own: the test runs itself again inside one.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, clippy::disallowed_methods)]

mod common;

use std::process::Command;

use common::{Opening, World, change_append, change_bytes, noise, unit};
use peat_types::Kind;

const INSIDE: &str = "PEAT_TEST_MOUNT";

/// Runs the ignored test `name` of this binary after `script`, which finds the folder to mount on in `$PEAT_TEST_MOUNT`.
fn inside(name: &str, script: &str) {
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let shell = format!("{script} && exec '{}' --ignored --exact {name} --nocapture", exe.display());
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &shell]).env(INSIDE, dir.path());
    match unshare.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
            // Not allowed here is not a failure, but it is said.
            let refused = ["unshare failed", "mount:", "permission denied", "not permitted"];
            assert!(refused.iter().any(|why| said.to_lowercase().contains(why)), "{name}: {said}");
            eprintln!("SKIPPED {name}: {said}");
        }
        Err(error) => eprintln!("SKIPPED {name}: no unshare: {error}"),
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    inside("full_disk", "mount -t tmpfs -o size=2m tmpfs \"$PEAT_TEST_MOUNT\"");
}

#[test]
fn a_disk_that_cannot_be_written_is_said_so() {
    inside("read_only", "mount -t tmpfs -o size=8m tmpfs \"$PEAT_TEST_MOUNT\"");
}

fn mount() -> std::path::PathBuf {
    std::env::var_os(INSIDE).expect("runs inside a mount only").into()
}

#[tokio::test(start_paused = true)]
#[ignore = "run by a_full_disk_loses_nothing inside a small mount"]
async fn full_disk() {
    let world = World::inside(1, &mount());
    let a = world.open("a").await;
    a.clone.commit(change_bytes("model/x", "data/1", noise(1, 3000))).await.unwrap();
    a.pull().await;
    let run = a.begin("model/x").await.unwrap();
    let position = a.clone.position().unwrap();
    let hog = mount().join("hog");
    let mut size = 2 << 20;
    while size > 512 {
        let mut bytes = std::fs::read(&hog).unwrap_or_default();
        bytes.resize(bytes.len() + size, 1);
        if std::fs::write(&hog, &bytes).is_err() {
            size /= 2;
        }
    }
    let mut end = change_append("model/x", "");
    end.kind = "end".to_owned();
    end.contents = vec![noise(2, 50_000).into()];
    let error = run.end(end.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Offline, "disk_full"), "{error:?}");
    assert!(error.hints().iter().any(|hint| hint.contains("free some space")), "{error:?}");
    assert!(a.clone.pending().unwrap().is_empty());
    assert!(error.has_code(peat_clone::NOT_JOURNALLED), "{error:?}");
    // With space again the same call goes through.
    std::fs::remove_file(&hog).unwrap();
    run.end(end.clone()).await.unwrap();
    assert!(a.clone.position().unwrap() > position);
    let left: Vec<_> = std::fs::read_dir(world.dir("a").join("journal")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // Results that do not fit, on a disk that has room for a few lines: whoever gives up frees the lease at once.
    let run = a.begin("model/x").await.unwrap();
    end.contents = vec![noise(3, 4 << 20).into()];
    let error = run.end(end).await.unwrap_err();
    assert!(error.has_code(peat_clone::NOT_JOURNALLED), "{error:?}");
    run.give_up().await;
    let lease = a.clone.leases().unwrap().into_iter().find(|info| info.unit == unit("model/x")).unwrap();
    assert!(!lease.lease.held);
    assert_eq!(a.text("model/x", "outputs/model/x/latest").await.as_deref(), Some("interrupted"));
}

#[tokio::test(start_paused = true)]
#[ignore = "run by a_disk_that_cannot_be_written_is_said_so inside a mount"]
async fn read_only() {
    let world = World::inside(2, &mount());
    let a = world.open("a").await;
    a.clone.commit(change_bytes("model/x", "data/1", noise(1, 3000))).await.unwrap();
    a.pull().await;
    let remount = |how: &str| {
        let status = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(mount()).status().unwrap();
        assert!(status.success());
    };
    drop(a);
    remount("ro");
    let error = world.try_open("a", Opening::default()).await.err().expect("cannot be opened");
    assert_eq!((error.kind(), error.code()), (Kind::Denied, "read_only"), "{error:?}");
    remount("rw");
    let a = world.open("a").await;
    assert_eq!(std::fs::read(a.clone.tree().join("data/1")).unwrap(), noise(1, 3000));
    a.clone.settle().await.unwrap();
}
