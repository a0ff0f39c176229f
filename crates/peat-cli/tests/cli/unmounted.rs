//! A store in a folder whose disk is not there, or another one is: nothing is taken for it and nothing goes lost in it.

use std::path::PathBuf;

use serde_json::Value;

use crate::sandbox::Sandbox;

/// A repo on a shared folder, with one version.
fn on_a_disk() -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let disk = sandbox.path("disk");
    let url = format!("file://{}", disk.display());
    sandbox.run(["datastore", "setup", &url, "--namespace", "q"]).ok();
    (sandbox, disk)
}

/// Every command that reads or writes the store says that it is not there; reads of what is here go on.
fn nothing_is_taken_for_it(sandbox: &Sandbox, code: &str) {
    for command in [
        "model method run m execute",
        "datastore sync",
        "datastore sync --pull",
        "model output search --fresh",
        "undo 0",
        "ledger verify",
        "ledger maintain",
        "datastore watch --once",
    ] {
        let error = sandbox.peat(&format!("{command} --json")).status(1).error();
        assert_eq!(error["code"], code, "{command}: {error}");
    }
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 1, "reads go on");
    let status = sandbox.peat("datastore status --json").status(1).json();
    assert_eq!(status["healthy"], false, "{status}");
    let head = |report: &Value| {
        let findings = report["healthFindings"].as_array().unwrap().clone();
        findings.iter().find(|found| found["check"] == "head").unwrap()["passed"].clone()
    };
    assert_eq!(head(&sandbox.peat("doctor --json").status(1).json()), false);
}

/// Files below a folder.
fn files(folder: &PathBuf) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

#[test]
fn the_folder_below_an_unmounted_disk_is_no_store() {
    let (sandbox, disk) = on_a_disk();
    let away = sandbox.path("away");
    std::fs::rename(&disk, &away).unwrap();
    std::fs::create_dir(&disk).unwrap();
    nothing_is_taken_for_it(&sandbox, "store_missing");
    // Results of an offline run wait; nothing was sent.
    sandbox.peat("model method run m execute --offline").ok();
    let pending = sandbox.peat("pending list --json").ok().json();
    assert_eq!(pending["changes"][0]["status"], "pending", "{pending}");
    assert_eq!(files(&disk), 0, "nothing was made in its place");
    std::fs::remove_dir_all(&disk).unwrap();
    std::fs::rename(&away, &disk).unwrap();
    assert_eq!(sandbox.peat("datastore sync --json").ok().json()["changesCommitted"], 1);
    sandbox.peat("model method run m execute").ok();
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 3);
    sandbox.peat("ledger verify --deep").ok();
    sandbox.peat("doctor").ok();
}

#[test]
fn a_namespace_without_its_folder_or_its_ns_json_is_not_there() {
    let (sandbox, disk) = on_a_disk();
    for part in ["q", "q/ns.json"] {
        let away = sandbox.path("away");
        std::fs::rename(disk.join(part), &away).unwrap();
        let before = files(&disk);
        nothing_is_taken_for_it(&sandbox, "store_missing");
        assert_eq!(files(&disk), before, "without {part}");
        std::fs::rename(&away, disk.join(part)).unwrap();
    }
    sandbox.peat("model method run m execute").ok();
    sandbox.peat("ledger verify --deep").ok();
}

#[test]
fn another_disk_in_its_place_is_a_fork() {
    let (sandbox, disk) = on_a_disk();
    let (_, other) = on_a_disk_of_another(&sandbox);
    let away = sandbox.path("away");
    std::fs::rename(&disk, &away).unwrap();
    std::fs::rename(&other, &disk).unwrap();
    let before = files(&disk);
    nothing_is_taken_for_it(&sandbox, "fork");
    assert_eq!(files(&disk), before);
    std::fs::rename(&disk, &other).unwrap();
    std::fs::rename(&away, &disk).unwrap();
    sandbox.peat("model method run m execute").ok();
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 2);
    sandbox.peat("ledger verify --deep").ok();
}

/// Another repo's store, on the same file system.
fn on_a_disk_of_another(beside: &Sandbox) -> (Sandbox, PathBuf) {
    let (sandbox, disk) = on_a_disk();
    let here = beside.path("other");
    std::fs::rename(&disk, &here).unwrap();
    (sandbox, here)
}
