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
    let does = "put 1 file aside and write again what the datastore holds, move 1 file out of the tree";
    assert_eq!(tree["repair"], does, "{tree}");
    let hint = tree["hint"].as_str().unwrap();
    assert!(hint.contains("'peat add <path>'") && !hint.contains("deleted"), "somebody's work is not rubbish: {hint}");
    let unasked = sandbox.peat("doctor --repair").status(1);
    assert!(unasked.out.contains("notes.txt"), "the evidence comes first: {unasked:?}");
    assert!(unasked.err.contains("there is no terminal to ask on"), "{unasked:?}");
    assert_eq!(sandbox.peat("doctor --repair --json").status(1).error()["code"], "confirmation_needed");
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
fn what_gives_way_is_told_once_and_nobody_is_said_to_have_changed_it() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    std::fs::write(raw(&sandbox).with_file_name("old"), "left of another time").unwrap();
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(sandbox.path("repo/.peat").join(name));
    }
    let pulled = sandbox.peat("datastore sync --pull").ok();
    let (told, listed) = (&pulled.err, &pulled.out);
    assert!(told.contains("/old was not what the datastore holds") && told.lines().count() == 1, "{pulled:?}");
    let folder = std::fs::canonicalize(sandbox.path("repo/.peat/aside")).unwrap();
    assert!(listed.contains(&format!("put aside:    1 file, to {}\n", folder.display())), "{pulled:?}");
    assert!(!listed.contains("/old") && !listed.contains("you changed"), "{pulled:?}");
}

#[test]
fn a_check_that_fails_is_an_error_too() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    std::fs::rename(sandbox.path("repo/.peat/store"), sandbox.path("repo/.peat/away")).unwrap();
    for (words, schema) in [("doctor", "peat.doctor.datastores/1"), ("datastore status", "peat.datastore.status/1")] {
        let failed = sandbox.peat(&format!("{words} --json")).status(1);
        let (report, error) = (failed.json(), failed.error());
        assert_eq!((&report["schema"], &error["code"]), (&schema.into(), &"check_failed".into()), "{failed:?}");
        assert!(error["error"].as_str().is_some_and(|text| !text.is_empty()) && error["hint"] == "", "{error}");
    }
    std::fs::rename(sandbox.path("repo/.peat/away"), sandbox.path("repo/.peat/store")).unwrap();
    let mut entries = Vec::new();
    crate::hints::files(&sandbox.path("repo/.peat/store/default/log"), "", &mut entries);
    std::fs::write(entries.into_iter().max().unwrap(), "x").unwrap();
    let verify = sandbox.peat("ledger verify --json").status(1);
    assert_eq!(
        (verify.json()["passed"].clone(), verify.error()["code"].clone()),
        (false.into(), "check_failed".into())
    );
    let text = sandbox.peat("ledger verify").status(1);
    assert!(text.err.starts_with("error: the ledger is not whole: "), "{text:?}");
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

#[test]
fn an_ns_json_that_is_damaged_or_gone_is_found_and_written_again() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let url = format!("file://{}", sandbox.path("disk").display());
    sandbox.run(["datastore", "setup", &url, "--namespace", "q"]).ok();
    let file = sandbox.path("disk/q/ns.json");
    let whole = std::fs::read(&file).unwrap();
    for gone in [false, true] {
        if gone {
            std::fs::remove_file(&file).unwrap();
        } else {
            std::fs::write(&file, "garbage").unwrap();
        }
        for command in ["doctor --json", "doctor --deep --json"] {
            let found = finding(&sandbox.peat(command).status(1).json(), "ns.json");
            assert!(found["repair"].as_str().unwrap().starts_with("write ns.json again"), "{found}");
        }
        if !gone {
            let verified = sandbox.peat("ledger verify --json").status(1).json();
            assert_eq!(verified["findings"][0]["check"], "ns.json", "{verified}");
            let listed = sandbox.peat("datastore namespace list --json").ok().json();
            assert_eq!(listed["unreadable"], serde_json::json!(["q"]), "{listed}");
            let shown = sandbox.peat("datastore namespace list").ok().out;
            assert!(shown.contains("q: its ns.json cannot be read"), "{shown}");
            let mut late = Sandbox::new();
            late.set("PEAT_HOME", late.path("home-of-its-own"));
            let marker = std::fs::read_to_string(sandbox.path("repo/.peat.yaml")).unwrap();
            late.write("repo/.peat.yaml", &marker);
            let refused = late.peat("data list m").status(1);
            assert!(refused.err.contains("'peat doctor --repair' writes it again"), "{}", refused.err);
        }
        let repaired = sandbox.peat("doctor --repair -y --json").ok().json();
        assert_eq!(repaired["repaired"], serde_json::json!(["wrote ns.json again"]), "{repaired}");
        assert_eq!(std::fs::read(&file).unwrap(), whole);
        sandbox.peat("ledger verify --deep").ok();
    }
    // What a newer version wrote beside stays, as far as it can be read.
    let mut fields: Value = serde_json::from_slice(&whole).unwrap();
    fields["params"]["later"] = 7.into();
    fields["later"] = serde_json::json!({"kept": true});
    let right = fields.clone();
    fields["created"] = "never".into();
    std::fs::write(&file, fields.to_string()).unwrap();
    sandbox.peat("doctor --repair -y").ok();
    assert_eq!(serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap(), right);
    fields["format"] = 99.into();
    std::fs::write(&file, fields.to_string()).unwrap();
    sandbox.peat("doctor --repair -y").status(1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), fields.to_string(), "it is a newer version's");
    std::fs::write(&file, &whole).unwrap();
    // Not beside a log that is another one, or none.
    std::fs::rename(sandbox.path("disk/q"), sandbox.path("away")).unwrap();
    std::fs::create_dir(sandbox.path("disk/q")).unwrap();
    sandbox.peat("doctor --repair -y").status(1);
    assert_eq!(std::fs::read_dir(sandbox.path("disk/q")).unwrap().count(), 0);
}

#[test]
fn what_is_missing_of_an_emptied_namespace_is_told_beside_its_ns_json() {
    let server = S3Server::start().unwrap();
    let mut sandbox = Sandbox::with_model("echo hi");
    for (name, value) in server.vars() {
        sandbox.set(&name, value);
    }
    sandbox.run(["datastore", "setup", &server.url(), "--namespace", "q"]).ok();
    sandbox.peat("model method run m execute").ok();
    server.empty();
    let status = sandbox.peat("datastore status --json").status(1).json();
    assert_eq!(status["healthy"], false);
    let report = sandbox.peat("doctor --json").status(1).json();
    for check in ["ns.json", "head", "log/"] {
        assert_eq!(finding(&report, check)["passed"], false, "{check}: {report}");
    }
    let error = sandbox.peat("model method run m execute --json").status(1).error();
    assert_eq!(error["code"], "rollback", "{error}");
    assert!(server.keys().is_empty());
}
