//! Taking a lease away is for when something is broken, so it works when nearly everything is, and waits for nobody.

use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::killed::signal;
use crate::runs::wait_for;
use crate::sandbox::{Ran, Sandbox};

/// Longer than any command here takes on a busy machine, and shorter than any wait for a lease would be.
const AT_ONCE: Duration = Duration::from_secs(9);

/// A run that goes on.
fn running(sandbox: &Sandbox) -> Child {
    let _ = std::fs::remove_file(sandbox.path("repo/started"));
    let args = ["model", "method", "run", "m", "execute", "--json", "--input", "run=touch started; sleep 60"];
    let child = sandbox.command(args).spawn().unwrap();
    wait_for(sandbox, "repo/started");
    child
}

/// A lease whose holder was killed.
fn held(sandbox: &Sandbox) {
    let mut child = running(sandbox);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn shared() -> Sandbox {
    let sandbox = Sandbox::with_model("echo hi");
    let folder = sandbox.path("shared");
    sandbox.run(["datastore", "setup", "filesystem", "--path", folder.to_str().unwrap(), "--namespace", "infra"]).ok();
    sandbox
}

/// Who holds it is shown, and the lease can be taken away; then there is nothing more to take.
fn can_be_released(sandbox: &Sandbox, model: &str) -> (Value, Value) {
    let begun = Instant::now();
    let status = sandbox.peat("datastore lock status --json").ok().json();
    assert_eq!(status["held"], true, "{status}");
    let args = ["datastore", "lock", "release", "--force", "--model", model, "--json"];
    let released = sandbox.run(args).ok().json();
    assert_eq!(released["released"], true, "{released}");
    let again = sandbox.run(args).ok().json();
    assert_eq!((&again["released"], &again["reason"]), (&false.into(), &"nothing was held".into()));
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    (status, released)
}

#[test]
fn with_a_definition_that_cannot_be_read() {
    for sandbox in [Sandbox::with_model("echo hi"), shared()] {
        held(&sandbox);
        let file = sandbox.repo().join("models/command/shell/m.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}<<<<<<< ours\nversion: [\n=======\n")).unwrap();
        std::fs::write(sandbox.repo().join("models/other.yaml"), b"\xff\xfe: {").unwrap();
        sandbox.peat("model get m").status(1);
        let (status, released) = can_be_released(&sandbox, "m");
        assert_eq!(status["info"]["modelName"], "m", "{status}");
        assert_eq!(released["previousHolder"]["modelName"], "m", "{released}");
        std::fs::write(&file, text).unwrap();
        sandbox.peat("model method run m execute").ok();
    }
}

#[test]
fn with_a_definition_that_is_gone() {
    let sandbox = Sandbox::with_model("echo hi");
    held(&sandbox);
    std::fs::remove_dir_all(sandbox.repo().join("models")).unwrap();
    let unknown = sandbox.peat("datastore lock release --force --model m --json").status(1).error();
    assert!(unknown["hint"].as_str().unwrap().contains("'peat datastore lock status' shows what is held"), "{unknown}");
    let unit = sandbox.peat("datastore lock status --json").ok().json()["info"]["unit"].as_str().unwrap().to_owned();
    can_be_released(&sandbox, &unit);
}

#[test]
fn without_the_local_database() {
    for sandbox in [Sandbox::with_model("echo hi"), shared()] {
        held(&sandbox);
        let status = sandbox.peat("status --json").ok().json();
        let clone = std::path::PathBuf::from(status["clonePath"].as_str().unwrap());
        for name in ["state.db", "state.db-wal", "state.db-shm"] {
            let _ = std::fs::remove_file(clone.join(name));
        }
        can_be_released(&sandbox, "m");
    }
}

#[test]
fn a_lazy_clone_that_starts_anew_sees_leases_too() {
    let ann = shared();
    held(&ann);
    let ben = Sandbox::new();
    for file in [".peat.yaml", "models/command/shell/m.yaml"] {
        let text = std::fs::read_to_string(ann.repo().join(file)).unwrap();
        ben.write(&format!("repo/{file}"), &text);
    }
    let marker = std::fs::read_to_string(ben.repo().join(".peat.yaml")).unwrap();
    ben.write("repo/.peat.yaml", &format!("{}\n  hydration: lazy\n", marker.trim_end()));
    // It knows that there is a lease, and not what it says: both questions get the same answer, which is told once.
    ben.peat("datastore sync --pull").ok();
    std::fs::rename(ann.path("shared"), ann.path("away")).unwrap();
    let notes = ben.peat("datastore lock status --json").ok().json()["notes"].as_array().unwrap().clone();
    assert_eq!(notes.len(), 1, "{notes:?}");
    std::fs::rename(ann.path("away"), ann.path("shared")).unwrap();
    can_be_released(&ben, "m");
}

#[test]
fn with_a_marker_that_cannot_be_read_whole() {
    for sandbox in [Sandbox::with_model("echo hi"), shared()] {
        let marker = sandbox.repo().join(".peat.yaml");
        let whole = std::fs::read_to_string(&marker).unwrap();
        let id = whole.lines().find(|line| line.starts_with("repoId:")).unwrap();
        let version = whole.lines().find(|line| line.starts_with("peatVersion:")).unwrap();
        let mut broken = vec![
            (whole.replace(id, "repoId: nonsense"), "repoId"),
            (whole.replace(id, "owner: me"), "repoId"),
            (whole.replace(version, "peatVersion: 99.0.0"), "99.0.0"),
            (whole.replace(version, &format!("<<<<<<< HEAD\n{version}\n=======\npeatVersion: 0.1\n>>>>>>> b")), "YAML"),
            (format!("{}\ntags: [a, b\n", whole.trim_end()), "YAML"),
        ];
        if whole.contains("datastore:") {
            broken.push((format!("{}\n  hydration: soon\n", whole.trim_end()), "hydration"));
            broken.push((format!("{}\n  pathStyle: perhaps\n", whole.trim_end()), "datastore"));
        }
        for (text, named) in broken {
            std::fs::write(&marker, &whole).unwrap();
            held(&sandbox);
            std::fs::write(&marker, &text).unwrap();
            let refused = sandbox.peat("status").status(1);
            assert!(refused.err.contains(named), "{refused:?}");
            let (status, _) = can_be_released(&sandbox, "m");
            assert!(status["notes"][0].as_str().unwrap().contains(named), "{status}");
            let said: Ran = sandbox.peat("datastore lock status").ok();
            assert!(said.out.contains(named), "people are told, too: {said:?}");
        }
    }
}

#[test]
fn a_marker_that_does_not_say_where_the_datastore_is_stays_an_error() {
    let sandbox = shared();
    let marker = sandbox.repo().join(".peat.yaml");
    let whole = std::fs::read_to_string(&marker).unwrap();
    for (text, named) in [
        (whole.replace("  url:", "  uri:"), "url"),
        (whole.replace("namespace: infra", "namespace: [a, b]"), "datastore"),
        ("<<<<<<< ours".to_owned(), ".peat.yaml"),
    ] {
        std::fs::write(&marker, text).unwrap();
        let refused = sandbox.peat("datastore lock release --force").status(1);
        assert!(refused.err.contains(named), "{named}: {refused:?}");
    }
}

#[test]
fn a_holder_that_stands_still_is_not_waited_for() {
    for sandbox in [Sandbox::with_model("echo hi"), shared()] {
        let mut child = running(&sandbox);
        signal(&child, "-STOP");
        can_be_released(&sandbox, "m");
        sandbox.run(["model", "method", "run", "m", "execute", "--lock-timeout", "5"]).ok();
        signal(&child, "-CONT");
        // It learns that its lease was taken when it wants to end; here it need not.
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_a_run_without_its_lease_leaves_is_told_once_and_dropped_only_when_that_is_confirmed() {
    let sandbox = Sandbox::with_model("touch started; until test -e go; do sleep 0.05; done");
    let run = sandbox.command(["model", "method", "run", "m", "execute", "--json"]).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    sandbox.peat("datastore lock release --force --model m").ok();
    sandbox.write("repo/go", "");
    let ended = Ran::of(&run.wait_with_output().unwrap()).status(1);
    assert_eq!(ended.err.lines().count(), 1, "no warning says it once more: {ended:?}");
    let error = ended.error();
    let hint = error["hint"].as_str().unwrap();
    assert_eq!((&error["code"], hint.matches("'peat pending").count()), (&"lease_lost".into(), 3), "{error}");
    let rows = || sandbox.peat("pending list --json").ok().json()["changes"].as_array().unwrap().clone();
    let change = rows()[0]["change"].as_str().unwrap().to_owned();
    assert!(hint.contains(&format!("'peat pending drop {change}'")), "{error}");
    // A synchronisation commits nothing that was refused.
    let findings = sandbox.peat("doctor --json").status(1).json()["healthFindings"].as_array().unwrap().clone();
    let journal = findings.iter().find(|finding| finding["check"] == "journal").unwrap()["hint"].as_str().unwrap();
    assert!(journal.contains("'peat pending adopt CHANGE'") && !journal.contains("sync"), "{journal}");
    // What is thrown away exists nowhere else.
    let asked = sandbox.run(["pending", "drop", &change]).status(1);
    assert!(asked.err.contains("exists nowhere else?") && asked.err.contains("no terminal to ask on"), "{asked:?}");
    let code = sandbox.run(["pending", "drop", &change, "--json"]).status(1).error()["code"].clone();
    assert_eq!((code, rows().len()), ("confirmation_needed".into(), 1));
    sandbox.run(["pending", "drop", &change, "--yes"]).ok();
    assert!(rows().is_empty());
}
