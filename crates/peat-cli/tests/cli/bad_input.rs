//! What goes wrong outside: one clear error with the remedy, the right exit status, and nothing lost.

use std::path::{Path, PathBuf};

use crate::sandbox::{Ran, Sandbox, skip};

/// Runs a shell script in a mount namespace of its own; `None`, said loudly, where that is not allowed.
fn with_mounts(sandbox: &Sandbox, what: &str, script: &str) -> Option<Ran> {
    let allowed = std::process::Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|o| o.status.success());
    if !allowed {
        skip(&format!("{what}: no right to make a mount namespace"));
        return None;
    }
    let script = format!("set -e; peat() {{ '{}' \"$@\"; }}; {script}", env!("CARGO_BIN_EXE_peat"));
    let mut command = sandbox.command(["version"]);
    let vars: Vec<_> = command.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned()))).collect();
    command = std::process::Command::new("unshare");
    let output = command.args(["-m", "sh", "-c", &script]).env_clear().envs(vars).current_dir(sandbox.repo()).output();
    Some(Ran::of(&output.unwrap()))
}

/// The objects of the private ledger below a folder, as files.
fn objects(sandbox: &Sandbox, folder: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    walk(&sandbox.path("repo/.peat/store").join(folder), &mut found);
    found.sort();
    found
}

#[test]
fn a_definition_that_is_not_yaml_spoils_only_itself() {
    let sandbox = Sandbox::with_model("echo hi");
    let broken = sandbox.write("repo/models/command/shell/broken.yaml", "type: [command/shell\n");
    let search = sandbox.peat("model search --json").ok().json();
    assert_eq!(search["results"].as_array().unwrap().len(), 1);
    assert!(search["warnings"][0]["name"].as_str().unwrap().contains("broken.yaml"), "{search}");
    let run = sandbox.peat("model method run broken execute --json").status(1);
    assert!(run.err.contains("broken.yaml"), "{}", run.err);
    sandbox.peat("model method run m execute").ok();
    assert!(broken.exists());
    assert_eq!(sandbox.peat("model validate --json").status(1).json()["totalFailed"], 1);
}

#[test]
fn a_marker_that_is_not_yaml_or_newer_is_refused() {
    let sandbox = Sandbox::repo_made();
    let marker = sandbox.path("repo/.peat.yaml");
    let good = std::fs::read_to_string(&marker).unwrap();
    std::fs::write(&marker, "repoId: [\n").unwrap();
    let said = sandbox.peat("status").status(1).err;
    assert!(said.contains(".peat.yaml") && said.contains("restore it from git"), "{said}");
    // What is offered must not lead to another datastore, nor to the same error.
    std::fs::write(&marker, "").unwrap();
    let said = sandbox.peat("status").status(1).err;
    assert!(said.contains("restore the file from git") && said.contains("--skip-migration"), "{said}");
    std::fs::write(&marker, format!("{good}datastore:\n  namespace: x\n")).unwrap();
    let said = sandbox.peat("status").status(1).err;
    assert!(said.contains("no 'url'") && said.contains("restore the file from git"), "{said}");
    let line = good.lines().find(|line| line.starts_with("peatVersion:")).unwrap();
    std::fs::write(&marker, good.replace(line, "peatVersion: 999.0.0")).unwrap();
    let error = sandbox.peat("status --json").status(1).error();
    assert_eq!(error["code"], "unsupported_version");
    assert!(error["hint"].is_string(), "{error}");
}

#[test]
fn a_newer_ledger_is_refused() {
    let sandbox = Sandbox::with_model("echo hi");
    let info = objects(&sandbox, "").into_iter().find(|path| path.ends_with("ns.json")).unwrap();
    let text = std::fs::read_to_string(&info).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["format"] = 999.into();
    std::fs::write(&info, json.to_string()).unwrap();
    // A clone that knows the ledger need not look again; a fresh one must.
    for file in ["clone.json", "state.db"] {
        let _ = std::fs::remove_file(sandbox.path("repo/.peat").join(file));
    }
    let error = sandbox.peat("status --json").status(1).error();
    assert_eq!(error["code"], "unsupported_version", "{error}");
}

#[test]
fn a_corrupt_state_db_is_rebuilt_silently() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let before = sandbox.peat("data get m result --json").ok().json();
    for garbage in [&b"this is not a database, whatever it is called"[..], b""] {
        std::fs::write(sandbox.path("repo/.peat/state.db"), garbage).unwrap();
        let ran = sandbox.peat("data get m result --json").ok();
        assert_eq!((&ran.json(), ran.err.as_str()), (&before, ""));
    }
    std::fs::remove_file(sandbox.path("repo/.peat/state.db")).unwrap();
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 1);
    sandbox.peat("model method run m execute").ok();
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 2);
}

#[test]
fn a_damaged_entry_is_found_and_named() {
    let sandbox = Sandbox::with_model("echo hi");
    for _ in 0..2 {
        sandbox.peat("model method run m execute").ok();
    }
    let newest = objects(&sandbox, "default/log").into_iter().next().unwrap_or_default();
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&newest, bytes).unwrap();
    let verify = sandbox.peat("ledger verify --json");
    assert_eq!(verify.status, 1, "{verify:?}");
    // What the clone has is still there.
    assert_eq!(sandbox.peat("data get m result --json").ok().json()["content"]["stdout"], "hi");
    // A clone that starts from nothing must not take it.
    std::fs::remove_file(sandbox.path("repo/.peat/state.db")).unwrap();
    let _ = std::fs::remove_dir_all(sandbox.path("repo/.peat/tree"));
    let fresh = sandbox.peat("data get m result --fresh --json").status(1);
    assert_eq!(fresh.error()["code"], "damaged", "{fresh:?}");
}

#[test]
fn a_damaged_file_of_the_tree_is_written_again() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let view = sandbox.peat("data get m result --json").ok().json();
    let file = view["contentPath"].as_str().unwrap();
    std::fs::remove_file(file).unwrap();
    std::fs::write(file, "edited").unwrap();
    assert_eq!(sandbox.peat("data get m result --json").ok().json(), view);
    std::fs::remove_file(file).unwrap();
    assert_eq!(sandbox.peat("data get m result --json").ok().json(), view);
}

#[test]
fn a_missing_store_is_not_an_empty_one() {
    let sandbox = Sandbox::with_model("echo hi");
    std::fs::create_dir(sandbox.path("shared")).unwrap();
    let url = format!("file://{}", sandbox.path("shared").display());
    sandbox.run(["datastore", "setup", &url]).ok();
    sandbox.peat("model method run m execute").ok();
    std::fs::rename(sandbox.path("shared"), sandbox.path("unmounted")).unwrap();
    let ran = sandbox.peat("model method run m execute --json").status(1);
    assert!(ran.error()["hint"].is_string(), "{ran:?}");
    assert!(!sandbox.path("shared").exists(), "nothing was made in its place");
    assert_eq!(sandbox.peat("data get m result --json").ok().json()["content"]["stdout"], "hi", "reads go on");
    std::fs::rename(sandbox.path("unmounted"), sandbox.path("shared")).unwrap();
    sandbox.peat("model method run m execute").ok();
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 2);
}

#[test]
fn a_read_only_repo_is_refused_and_unchanged() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let script = "mount --bind . . && mount -o remount,ro,bind . && cd . && cd \"$PWD\"; \
                  peat model create command/shell x --json; echo 'not refused' >&2; exit 9";
    let Some(ran) = with_mounts(&sandbox, "read-only repo", script) else { return };
    let ran = ran.status(1);
    assert_eq!(ran.error()["code"], "read_only", "{ran:?}");
    assert!(ran.error()["hint"].is_string());
    let script = script.replace("model create command/shell x", "model method run m execute");
    let ran = with_mounts(&sandbox, "read-only repo", &script).unwrap().status(1);
    assert_eq!(ran.error()["code"], "read_only", "{ran:?}");
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 1);
}

#[test]
fn a_marker_that_cannot_be_written_is_found_before_anything_moves() {
    let sandbox = Sandbox::with_model("echo hi");
    for place in ["one", "two"] {
        std::fs::create_dir(sandbox.path(place)).unwrap();
    }
    let setup = |place: &str| format!("datastore setup file://{} --namespace ops", sandbox.path(place).display());
    sandbox.peat(&setup("one")).ok();
    let marker = sandbox.repo().join(".peat.yaml");
    let before = std::fs::read(&marker).unwrap();
    let unmoved = |ran: Ran, code: &str| {
        let error = ran.status(1).error();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["error"].as_str().unwrap().ends_with("/repo/.peat.yaml") && error["hint"].is_string(), "{error}");
        assert!(!sandbox.path("two/ops").exists() && std::fs::read(&marker).unwrap() == before);
    };
    let script = format!(
        "mount --bind . . && mount -o remount,ro,bind . && cd . && cd \"$PWD\"; peat {} --json; exit 9",
        setup("two")
    );
    if let Some(ran) = with_mounts(&sandbox, "read-only marker", &script) {
        unmoved(ran, "read_only");
    }
    // Nor one that somebody locked.
    let allowed = std::fs::metadata(&marker).unwrap().permissions();
    let mut locked = allowed.clone();
    locked.set_readonly(true);
    std::fs::set_permissions(&marker, locked).unwrap();
    unmoved(sandbox.peat(&format!("{} --json", setup("two"))), "denied");
    std::fs::set_permissions(&marker, allowed).unwrap();
    sandbox.peat("model method run m execute").ok();
    sandbox.peat(&setup("two")).ok();
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 1);
}

#[test]
fn a_full_disk_loses_nothing() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("disk")).unwrap();
    // The whole life of the repo inside one namespace: its disk is gone with it.
    let script = "mount -t tmpfs -o size=4m none ../disk; cd ../disk; peat init -q >/dev/null; \
                  peat model create command/shell m >/dev/null; \
                  peat model method run m execute --input 'run=echo one' >/dev/null; \
                  dd if=/dev/zero of=filler bs=4k 2>/dev/null || true; \
                  peat model method run m execute --input 'run=echo two' --json >full.out 2>../full.err && exit 9; \
                  test $? = 1; rm filler; \
                  peat datastore sync >/dev/null; \
                  peat model method run m execute --input 'run=echo three' >/dev/null; \
                  peat ledger verify --deep >/dev/null; peat data versions m result --json; peat pending list --json >../pending";
    let Some(ran) = with_mounts(&sandbox, "full disk", script) else { return };
    let ran = ran.ok();
    assert!(ran.json()["total"].as_u64().unwrap() >= 2, "{ran:?}");
    let error = std::fs::read_to_string(sandbox.path("full.err")).unwrap();
    assert!(error.contains("\"code\":\"disk_full\"") && error.contains("hint"), "{error}");
    assert!(std::fs::read_to_string(sandbox.path("pending")).unwrap().contains("\"total\": 0"));
}

#[test]
fn an_endless_input_is_refused_and_not_read_to_its_end() {
    let sandbox = Sandbox::with_model("echo hi");
    for flags in [["--input", "run=@/dev/zero"], ["--input-file", "/dev/zero"]] {
        let args = ["model", "method", "run", "m", "execute", "--json"];
        let error = sandbox.run(args.into_iter().chain(flags)).status(1).error();
        assert!(error.to_string().contains("holds more than 64 MiB"), "{error}");
    }
    assert_eq!(sandbox.peat("model output search --json").ok().json()["results"], serde_json::json!([]));
}

#[test]
fn a_journalled_change_that_cannot_be_read_is_shown_and_blocks_nothing() {
    let sandbox = Sandbox::with_model("echo hi");
    let id = "2ba1c870f5ee8f75bdb3a3728512a968";
    sandbox.peat("model method run m execute").ok();
    let row = sandbox.write(&format!("repo/.peat/journal/{id}.change"), "cut off");
    let listed = sandbox.peat("pending list --json").ok().json();
    assert_eq!((&listed["total"], &listed["changes"][0]["change"]), (&1.into(), &id.into()));
    assert!(!listed.to_string().contains("1970"), "{listed}");
    sandbox.peat("model method run m execute").ok();
    sandbox.peat("datastore sync").ok();
    assert!(row.exists(), "its bytes may be all there is");
    assert_eq!(sandbox.peat("doctor --json").status(1).json()["overallStatus"], "fail");
}

#[test]
fn a_disk_that_fills_up_during_a_run_is_said_to_have_cost_the_results() {
    let sandbox = Sandbox::with_model("echo hi");
    for dir in ["disk", "shared"] {
        std::fs::create_dir(sandbox.path(dir)).unwrap();
    }
    sandbox.run(["datastore", "setup", &format!("file://{}", sandbox.path("shared").display())]).ok();
    // The clone's disk fills up, the store's does not.
    let script = "mount -t tmpfs -o size=6m none ../disk; export PEAT_HOME=\"$PWD/../disk/home\"; \
                  peat datastore sync >/dev/null; \
                  peat model method run m execute --json --input 'run=dd if=/dev/zero of=../disk/filler bs=4k; \
                  head -c 200000 /dev/zero' >../full.out 2>../full.err && exit 9; test $? = 1; rm ../disk/filler; \
                  peat model method run m execute >/dev/null; peat ledger verify --deep >/dev/null; \
                  peat model output search --json";
    let Some(ran) = with_mounts(&sandbox, "disk that fills up during a run", script) else { return };
    let rows = ran.ok().json();
    let statuses: Vec<_> = rows["results"].as_array().unwrap().iter().map(|row| row["status"].clone()).collect();
    assert_eq!(statuses, ["succeeded", "interrupted"]);
    let error = std::fs::read_to_string(sandbox.path("full.err")).unwrap();
    assert!(error.contains("\"code\":\"disk_full\"") && error.contains("could not keep them"), "{error}");
    assert!(!error.contains("nothing was lost"), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(sandbox.path("full.out")).unwrap()).unwrap();
    assert_eq!(report["dataArtifacts"][0]["attributes"]["exitCode"], 0, "what is left is shown");
}
