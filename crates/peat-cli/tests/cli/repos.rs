//! RP: making and finding repos.

use crate::sandbox::Sandbox;

#[test]
fn rp01_init_makes_a_repo() {
    let sandbox = Sandbox::new();
    let json = sandbox.peat("init --json").ok().json();
    assert_eq!(json["schema"], "peat.init/1");
    assert_eq!(json["path"], sandbox.repo().to_str().unwrap());
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["tools"].is_array() && json["initializedAt"].is_string());
    let marker = std::fs::read_to_string(sandbox.path("repo/.peat.yaml")).unwrap();
    assert!(
        marker.contains("peatVersion:") && marker.contains("initializedAt:") && marker.contains("repoId:"),
        "{marker}"
    );
    assert!(std::fs::read_to_string(sandbox.path("repo/.gitignore")).unwrap().contains(".peat/"));
    assert!(sandbox.path("repo/models").is_dir() && sandbox.path("repo/.peat/store").is_dir());
}

#[test]
fn rp02_a_second_init_is_refused_and_force_keeps_the_id() {
    let sandbox = Sandbox::repo_made();
    let marker = || std::fs::read_to_string(sandbox.path("repo/.peat.yaml")).unwrap();
    let id = |text: &str| text.lines().find(|line| line.starts_with("repoId:")).unwrap().to_owned();
    let before = marker();
    let refused = sandbox.peat("init --json").status(1);
    assert_eq!(refused.error()["code"], "already_exists");
    assert_eq!(marker(), before);
    sandbox.peat("repo init --force").ok();
    assert_eq!(id(&marker()), id(&before));
}

#[test]
fn rp03_a_nested_folder_belongs_to_the_repo_above() {
    let sandbox = Sandbox::with_model("echo hi");
    let nested = sandbox.path("repo/a/b");
    std::fs::create_dir_all(&nested).unwrap();
    let found = sandbox.command(["model", "search", "--json"]).current_dir(nested).output().unwrap();
    assert!(String::from_utf8_lossy(&found.stdout).contains("\"name\": \"m\""));
}

#[test]
fn rp05_without_a_repo_commands_name_init() {
    let sandbox = Sandbox::new();
    for words in ["model search", "data list m", "status", "log", "doctor", "pending list", "datastore status"] {
        let ran = sandbox.peat(words).status(1);
        assert!(ran.err.contains("'peat init'") && ran.out.is_empty(), "{words}: {ran:?}");
    }
    assert_eq!(sandbox.peat("model search --json").status(1).error()["code"], "not_a_repo");
}

#[test]
fn rp06_half_initialised() {
    let sandbox = Sandbox::with_model("echo hi");
    let id = sandbox.peat("status --json").ok().json()["repoId"].clone();
    std::fs::remove_file(sandbox.path("repo/.peat.yaml")).unwrap();
    let ran = sandbox.peat("model search").status(1);
    assert!(ran.err.contains("half-initialised") && ran.err.contains("'peat init --force'"), "{}", ran.err);
    assert_eq!(sandbox.peat("init --json").status(1).error()["code"], "half_initialised");
    sandbox.peat("init --force").ok();
    assert_eq!(sandbox.peat("status --json").ok().json()["repoId"], id, "the ledger knows whose it is");
}

#[test]
fn rp07_the_repo_dir_by_variable_and_by_flag() {
    let mut sandbox = Sandbox::with_model("echo hi");
    std::fs::create_dir_all(sandbox.path("other")).unwrap();
    sandbox.run(["init", sandbox.path("other").to_str().unwrap()]).ok();
    std::fs::create_dir_all(sandbox.path("elsewhere")).unwrap();
    let count = |sandbox: &Sandbox, args: &[&str]| {
        let output = sandbox.command(args).current_dir(sandbox.path("elsewhere")).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["results"].as_array().unwrap().len()
    };
    let repo = sandbox.repo();
    sandbox.set("PEAT_REPO_DIR", &repo);
    assert_eq!(count(&sandbox, &["model", "search", "--json"]), 1);
    let other = sandbox.path("other");
    assert_eq!(count(&sandbox, &["model", "search", "--json", "--repo-dir", other.to_str().unwrap()]), 0);
    assert_eq!(count(&sandbox, &["-C", "../other", "model", "search", "--json"]), 0);
}

#[test]
fn status_log_and_doctor_of_a_fresh_repo() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let status = sandbox.peat("status --json --stats").ok().json();
    assert_eq!((&status["private"], &status["namespace"]), (&true.into(), &"default".into()));
    assert_eq!(status["pending"].as_array().unwrap().len(), 0);
    assert!(status["stats"]["requests"].is_u64());
    let log = sandbox.peat("log --json").ok().json();
    assert!(log["entries"].as_array().unwrap().len() >= 2, "{log}");
    assert!(sandbox.peat("log").ok().out.contains("ann@"));
    assert_eq!(sandbox.peat("log --json -n 1").ok().json()["entries"].as_array().unwrap().len(), 1);
    assert_eq!(sandbox.peat("doctor --json").ok().json()["overallStatus"], "pass");
    assert_eq!(sandbox.peat("datastore status --json").ok().json()["healthy"], true);
    assert_eq!(sandbox.peat("pending list --json").ok().json()["total"], 0);
    assert_eq!(sandbox.peat("datastore lock status --json").ok().json()["held"], false);
    sandbox.peat("ledger verify").ok();
    let objects = sandbox.peat("ledger ls --json").ok().json();
    let key = objects["objects"][0]["key"].as_str().unwrap();
    let entry = sandbox.run(["ledger", "cat", key, "--json"]).ok().json();
    assert_eq!(sandbox.peat("ledger cat 2 --json").ok().json(), entry);
    assert!(sandbox.peat("datastore sync --json").ok().json()["mode"] == "sync");
}

/// Copies a folder with everything in it.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_moved_and_a_copied_repo_work_where_they_are() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    copy(&sandbox.repo(), &sandbox.path("copy"));
    std::fs::rename(sandbox.repo(), sandbox.path("moved")).unwrap();
    std::os::unix::fs::symlink(sandbox.path("moved"), sandbox.repo()).unwrap();
    let versions = |repo: &str| {
        sandbox.run(["-C", repo, "data", "versions", "m", "result", "--json"]).ok().json()["total"].as_u64().unwrap()
    };
    let id = |repo: &str| {
        let text = std::fs::read_to_string(sandbox.path(repo).join(".peat/clone.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["clone"].clone()
    };
    let moved = id("moved");
    for repo in ["../moved", "../copy"] {
        sandbox.run(["-C", repo, "model", "method", "run", "m", "execute"]).ok();
        assert_eq!(versions(repo), 2);
        sandbox.run(["-C", repo, "doctor"]).ok();
    }
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 2, "through a link");
    assert_eq!(id("moved"), moved);
    assert_ne!(id("copy"), moved, "two folders never act under one identity");
    // Their ledgers do, and that cannot be changed, so it is said where people look.
    let status = |repo: &str| sandbox.run(["-C", repo, "status"]).ok().out;
    let said = "this private datastore was copied";
    assert!(status("../copy").contains(said) && !status("../moved").contains(said), "{}", status("../copy"));
    let missing = sandbox.run(["-C", "../copy", "data", "get", "m", "nope"]).status(1);
    assert!(missing.err.contains(said), "{}", missing.err);
}

#[test]
fn a_private_store_that_is_gone_is_lost_and_not_new() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let (store, away) = (sandbox.path("repo/.peat/store"), sandbox.path("away"));
    std::fs::rename(&store, &away).unwrap();
    for _ in 0..2 {
        assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 1, "reads go on");
        for command in ["model method run m execute", "init --force", "datastore setup file:///proc/nowhere"] {
            let error = sandbox.peat(&format!("{command} --json")).status(1).error();
            assert_eq!(error["code"], "store_missing", "{command}: {error}");
            assert!(error["hint"].as_str().unwrap().contains("restore it from a backup"), "{error}");
        }
        assert!(!store.exists(), "nothing was made in its place");
    }
    // Like a bucket that cannot be reached.
    let run = sandbox.peat("model method run m execute --offline").ok();
    assert!(run.err.contains("peat datastore sync --push"), "{}", run.err);
    assert_eq!(sandbox.peat("pending list --json").ok().json()["total"], 1);
    sandbox.model("other", "echo other");
    std::fs::rename(&away, &store).unwrap();
    // What waits goes out with the next command that commits anything, and is told; with none that only reads.
    sandbox.peat("datastore status").ok();
    assert_eq!(sandbox.peat("pending list --json").ok().json()["total"], 1);
    let other = sandbox.peat("model method run other execute").ok();
    assert!(
        other.err.contains("(m execute: succeeded)") && other.err.contains("is committed in entry"),
        "{}",
        other.err
    );
    assert_eq!(sandbox.peat("pending list --json").ok().json()["total"], 0);
    let quiet = sandbox.peat("model method run m execute --json").ok();
    assert!(!quiet.err.contains("waited"), "{}", quiet.err);
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 3);
    sandbox.peat("ledger verify --deep").ok();
}

#[test]
fn force_salvages_a_damaged_marker_or_touches_nothing() {
    for private in [true, false] {
        let sandbox = Sandbox::with_model("echo hi");
        sandbox.peat("model method run m execute").ok();
        let url = format!("file://{}", sandbox.path("disk").display());
        sandbox.run(["datastore", "setup", &url, "--namespace", "q"]).ok();
        if !private {
            std::fs::remove_dir_all(sandbox.path("repo/.peat")).unwrap();
        }
        let file = sandbox.path("repo/.peat.yaml");
        let whole = std::fs::read_to_string(&file).unwrap();
        let status = || {
            let status = sandbox.peat("status --json").ok().json();
            [status["repoId"].clone(), status["store"].clone(), status["namespace"].clone()]
        };
        let before = status();
        let damaged = format!("<<<<<<< HEAD\n{whole}");
        std::fs::write(&file, &damaged).unwrap();
        sandbox.peat("status").status(1);
        let hint = sandbox.peat("init --json").status(1).error()["hint"].to_string();
        assert!(hint.contains("keeps its id and data"), "{hint}");
        let made = sandbox.peat("init --force --json").ok().json();
        assert_eq!(made["created"], serde_json::json!([".peat.yaml.damaged"]), "{made}");
        assert_eq!(std::fs::read_to_string(sandbox.path("repo/.peat.yaml.damaged")).unwrap(), damaged);
        assert_eq!(status(), before);
        sandbox.peat("model method run m execute").ok();
        assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 2);
        // What cannot be told is not made up.
        for text in ["<<<<<<< HEAD\n".to_owned(), format!("{whole}<<<<<<< HEAD\n  url: file:///elsewhere\n")] {
            std::fs::write(&file, &text).unwrap();
            let refused = sandbox.peat("init --force").status(1);
            assert!(refused.err.contains("from git"), "{}", refused.err);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }
}
