//! The doctor shows evidence, asks, and changes only what it showed.

use peat_testkit::s3::S3Server;
use serde_json::Value;

use crate::sandbox::Sandbox;

fn finding(report: &Value, check: &str) -> Value {
    let findings = report["healthFindings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("{check}: {report}")).clone()
}

/// The files of the only data version.
fn raw(sandbox: &Sandbox) -> std::path::PathBuf {
    let id = sandbox.peat("model get m --json").ok().json()["id"].as_str().unwrap().to_owned();
    sandbox.repo().join(format!(".peat/tree/data/command/shell/{id}/result/1/raw"))
}

#[test]
fn repairs_are_shown_asked_for_and_done_once() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let raw = raw(&sandbox);
    let whole = std::fs::read(&raw).unwrap();
    std::fs::write(&raw, vec![b'x'; whole.len()]).unwrap();
    std::fs::write(raw.with_file_name("notes.txt"), "mine").unwrap();
    let found = sandbox.peat("doctor --deep --json").status(1).json();
    let tree = finding(&found, "tree");
    assert_eq!(tree["repair"], "write 1 file again, move 1 file out of the tree", "{tree}");
    let unasked = sandbox.peat("doctor --repair").status(1);
    assert!(unasked.out.contains("notes.txt"), "the evidence comes first: {unasked:?}");
    assert!(unasked.err.contains("there is no terminal to ask on"), "{unasked:?}");
    assert_ne!(std::fs::read(&raw).unwrap(), whole);
    let repaired = sandbox.peat("doctor --repair -y --json").ok().json();
    assert_eq!((&repaired["overallStatus"], repaired["repaired"].as_array().unwrap().len()), (&"pass".into(), 2));
    assert_eq!(std::fs::read(&raw).unwrap(), whole);
    let aside = repaired["repaired"][0].as_str().unwrap();
    assert!(aside.contains(".peat/aside/"), "{aside}");
    let again = sandbox.peat("doctor --repair -y --json").ok().json();
    assert!(again["repaired"].is_null(), "{again}");
}

#[test]
fn what_a_person_must_decide_stays_unhealthy() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    sandbox.write("repo/.peat/journal/2ba1c870f5ee8f75bdb3a3728512a968.change", "cut off");
    let report = sandbox.peat("doctor --repair -y --json").status(1).json();
    let journal = finding(&report, "journal");
    assert!(journal["repair"].is_null() && report["repaired"].is_null(), "{report}");
    assert!(journal["hint"].as_str().unwrap().contains("'peat pending list'"), "{journal}");
}

#[test]
fn a_lease_of_a_killed_run_and_its_start_are_settled() {
    let sandbox = Sandbox::with_model("echo hi");
    let args = ["model", "method", "run", "m", "execute", "--json", "--input", "run=touch started; sleep 60"];
    let mut child = sandbox.command(args).spawn().unwrap();
    crate::runs::wait_for(&sandbox, "repo/started");
    child.kill().unwrap();
    child.wait().unwrap();
    let found = sandbox.peat("doctor --json").status(1).json();
    assert!(finding(&found, "leases")["repair"].is_string(), "{found}");
    sandbox.peat("doctor --repair -y").ok();
    assert_eq!(sandbox.peat("datastore lock status --json").ok().json()["held"], false);
}

#[test]
fn definitions_and_rights_are_checked_too() {
    let server = S3Server::start().unwrap();
    let mut sandbox = Sandbox::with_model("echo hi");
    server.vars().iter().for_each(|(name, value)| sandbox.set(name, value));
    sandbox.run(["datastore", "setup", &server.url(), "--namespace", "infra", "--endpoint", &server.endpoint()]).ok();
    let report = sandbox.peat("doctor --json").ok().json();
    for check in ["rights", "clock", "version", "definitions"] {
        assert_eq!(finding(&report, check)["passed"], true, "{report}");
    }
    sandbox.write("repo/models/broken.yaml", "type: [");
    let report = sandbox.peat("doctor --json").status(1).json();
    let definitions = finding(&report, "definitions");
    assert!(definitions["message"].as_str().unwrap().contains("models/broken.yaml"), "{definitions}");
    sandbox.peat("doctor datastores").ok();
    server.allow_only("elsewhere/");
    let report = sandbox.peat("doctor datastores --json").status(1).json();
    let rights = finding(&report, "rights");
    // That a right is missing says nothing about the ledger.
    for found in [rights, finding(&report, "head")] {
        let hint = found["hint"].as_str().unwrap();
        assert!(hint.contains("s3:ListBucket") && hint.contains("'peat datastore policy --role reader'"), "{found}");
        assert!(!hint.contains("do not write"), "{found}");
    }
}
