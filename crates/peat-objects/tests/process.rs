//! What needs a process of its own: variables that the AWS chain reads by itself, and mounts nobody else shall see. Each
//! test runs this very program again, with one of the `child_` functions.
#![allow(clippy::panic, clippy::unwrap_used, clippy::print_stderr)] // the lints know tests, but not their helpers

use std::path::Path;
use std::process::{Command, Output};

use bytes::Bytes;
use http::Method;
use peat_objects::{Durability, FileStore, List, OpenOptions, Range, Store, open};
use peat_testkit::s3::{ACCESS_KEY, Canned, Fault, S3Server, SECRET_KEY};
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

/// A profile whose program prints keys and counts how often it was run.
fn write_profile(folder: &Path, expires: &str) {
    let script = folder.join("keys.sh");
    let json = format!(
        r#"{{"Version":1,"AccessKeyId":"{ACCESS_KEY}","SecretAccessKey":"{SECRET_KEY}","Expiration":"{expires}"}}"#
    );
    let runs = folder.join("runs");
    std::fs::write(&script, format!("echo run >>'{}'\necho '{json}'\n", runs.display())).unwrap();
    let config = format!("[profile work]\nregion = eu-west-9\ncredential_process = sh {}\n", script.display());
    std::fs::write(folder.join("config"), config).unwrap();
}

fn run_with_profile(server: &S3Server, folder: &Path, test: &str) -> Output {
    let command = command(test);
    Command::new(&command[0])
        .args(&command[1..])
        .env_clear()
        .env(CHILD, server.url())
        .env("AWS_ENDPOINT_URL_S3", server.endpoint())
        .env("AWS_PROFILE", "work")
        .env("AWS_CONFIG_FILE", folder.join("config"))
        .env("AWS_SHARED_CREDENTIALS_FILE", folder.join("none"))
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .output()
        .unwrap_or_else(|e| panic!("{e}"))
}

fn runs(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("runs")).unwrap_or_default().lines().count()
}

#[test]
fn a_profile_is_loaded_once_and_renewed_when_the_server_says_so() {
    let folder = tempfile::tempdir().unwrap();
    write_profile(folder.path(), "2100-01-01T00:00:00Z");
    let server = S3Server::start().unwrap();
    let expired = || Fault::Reply(Canned::error(400, "ExpiredToken", "The provided token has expired."));
    // Refused before anything was done: also a create may be sent again with fresh credentials.
    server.script(Method::PUT, "", 1, expired());
    // The second refusal is final.
    server.script_times(Method::DELETE, "", 1, 2, expired());
    assert_passed(&run_with_profile(&server, folder.path(), "child_uses_profile"));
    assert_eq!(runs(folder.path()), 3, "at first, for the create, for the delete");
    let log = server.log();
    assert_eq!(log.iter().filter(|request| request.method == Method::PUT).count(), 2);
    assert!(log[0].header("authorization").unwrap().contains(ACCESS_KEY));
}

#[tokio::test]
async fn child_uses_profile() {
    let Some((url, env)) = child() else { return };
    let store = open(&url.parse().unwrap(), &OpenOptions::default(), &env).unwrap();
    store.create("default/ns.json", Bytes::from("x")).await.unwrap();
    for _ in 0..5 {
        store.get("default/ns.json", Range::All).await.unwrap().unwrap();
    }
    let error = store.delete("default/ns.json").await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Denied, "credentials_expired"), "{error:?}");
    assert!(error.hints().iter().any(|hint| hint.contains("aws sso login --profile work")), "{error:?}");
}

#[test]
fn credentials_about_to_end_are_renewed_before() {
    let folder = tempfile::tempdir().unwrap();
    let server = S3Server::start().unwrap();
    let soon = Env::system([]).now().as_millis() / 1000 + 60;
    write_profile(folder.path(), &jiff::Timestamp::from_second(soon).unwrap().to_string());
    assert_passed(&run_with_profile(&server, folder.path(), "child_asks_twice"));
    assert_eq!(runs(folder.path()), 2);
}

#[tokio::test]
async fn child_asks_twice() {
    let Some((url, env)) = child() else { return };
    let store = open(&url.parse().unwrap(), &OpenOptions::default(), &env).unwrap();
    for _ in 0..2 {
        assert!(store.get("default/ns.json", Range::All).await.unwrap().is_none());
    }
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
