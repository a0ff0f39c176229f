//! Looking after it: status, what the doctor finds and repairs, figures, and leases when things are broken.

use std::time::Duration;

use crate::machine::{Machine, Shop, error, until};

fn with_run(shop: &Shop) -> Machine {
    let ann = Machine::new("ann", shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    ann.share(shop);
    ann.run("hello", "echo one");
    ann
}

#[test]
fn status_figures_and_what_the_doctor_repairs() {
    let shop = Shop::open();
    let mut ann = with_run(&shop);
    let status = ann.ok(["datastore", "status", "--size", "--stats"]);
    assert_eq!((&status["healthy"], &status["namespace"], &status["head"]), (&true.into(), &"infra".into(), &2.into()));
    let listed = ann.peat("ledger ls")["objects"].as_array().unwrap().len();
    assert_eq!(status["size"]["objects"], listed, "{status}");
    assert!(status["stats"]["requests"].as_u64().unwrap() >= 2 && status["recent"].is_array(), "{status}");
    assert_eq!(ann.peat("doctor --probe --deep")["overallStatus"], "pass");

    // A file that is gone and one that is altered: found by name, put right when asked, and then all is well.
    let view = ann.peat("data get hello result");
    let file = std::path::PathBuf::from(view["contentPath"].as_str().unwrap());
    let whole = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let sick = ann.command(["doctor", "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&sick.stdout);
    assert!(sick.status.code() == Some(1) && said.contains("result/1/raw"), "{sick:?}");
    let repaired = ann.peat("doctor --repair --yes");
    assert_eq!(repaired["overallStatus"], "pass", "{repaired}");
    assert!(!repaired["repaired"].as_array().unwrap().is_empty(), "{repaired}");
    assert_eq!(std::fs::read(&file).unwrap(), whole);
    let again = ann.peat("doctor --repair --yes");
    assert!(again["repaired"].as_array().is_none_or(Vec::is_empty), "nothing more to do: {again}");

    // Cut off, it still says how things stand here.
    ann.cut_off(true);
    let alone = ann.command(["datastore", "status", "--json"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(1), "{alone:?}");
    let alone: serde_json::Value = serde_json::from_slice(&alone.stdout).unwrap();
    assert_eq!((&alone["healthy"], &alone["head"]), (&false.into(), &2.into()), "{alone}");
    assert_eq!(ann.peat("data get hello result")["content"]["stdout"], "one");
    let sick = ann.command(["doctor", "--json"]).output().unwrap();
    assert_eq!(sick.status.code(), Some(1), "{sick:?}");
}

#[test]
fn a_lease_is_seen_and_taken_away_by_a_machine_whose_files_are_broken() {
    let shop = Shop::open();
    let ann = with_run(&shop);
    let ben = ann.cloned("ben", &shop);
    let mark = ann.repo().join("mark");
    let mut running = ann.spawn_run("hello", &format!("touch {}; sleep 60", mark.display()));
    until(Duration::from_secs(20), "the method to start", || mark.exists());
    let file = ben.repo().join("models/command/shell/hello.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "<<<<<<< ours\nversion: [\n").unwrap();
    let held = ben.peat("datastore lock status");
    assert_eq!(held["held"], true, "{held}");
    let unit = held["info"]["unit"].as_str().unwrap();
    let busy = ["model", "method", "run", "hello", "execute", "--input", "run=true", "--lock-timeout", "1", "--json"];
    let cam = ann.cloned("cam", &shop);
    let told = error(&cam.command(busy).output().unwrap(), 75);
    assert!(told["error"].to_string().contains("ann") || told["causes"].to_string().contains("ann"), "{told}");
    let released = ben.ok(["datastore", "lock", "release", "--force", "--model", unit]);
    assert_eq!(released["released"], true, "{released}");
    assert_eq!(ben.peat("datastore lock status")["held"], false);
    std::fs::write(&file, text).unwrap();
    ben.run("hello", "echo two");
    running.kill().unwrap();
    running.wait().unwrap();
    ben.peat("datastore sync --pull");
    assert_eq!(ben.versions("hello", "result"), [1, 2]);
    ben.verify();
}
