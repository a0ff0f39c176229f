//! Maintenance that runs by itself, pins, and what the settings of the repository say about them.

use std::time::{Duration, Instant};

use http::Method;
use peat_engine::{Host, Repo};
use peat_testkit::s3::{Fault, S3Server};
use peat_types::Env;
use serde_json::Value;

use crate::runs::interrupt;
use crate::sandbox::{Ran, Sandbox};

/// A sandbox whose private ledger has so many entries more.
fn grown(many: u32) -> Sandbox {
    let sandbox = Sandbox::with_model("echo hi");
    let env = Env::system([]);
    let host = Host::new(env, env!("CARGO_PKG_VERSION"), sandbox.repo(), Some(sandbox.path("peat-home")));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let repo = Repo::find(host).unwrap();
        for n in 0..many {
            if n % 2 == 0 {
                repo.pin_add("here", None).await.unwrap();
            } else {
                repo.pin_remove("here").await.unwrap();
            }
        }
    });
    sandbox
}

fn kinds(sandbox: &Sandbox) -> Vec<String> {
    let log = sandbox.peat("log --json --limit 20").ok().json();
    let entries = log["entries"].as_array().unwrap();
    let kind = |entry: &Value| entry["transactions"][0]["kind"].as_str().unwrap().to_owned();
    entries.iter().map(kind).collect()
}

#[test]
fn a_due_checkpoint_is_made_after_a_command_by_a_process_of_its_own() {
    let sandbox = grown(130);
    let ran = sandbox.peat("model method run m execute --json --stats").ok();
    let requests = ran.json()["stats"]["requests"].as_u64().unwrap();
    assert!(requests <= 6, "{requests} requests: maintenance is none of the command's");
    let until = Instant::now() + Duration::from_secs(20);
    while !kinds(&sandbox).contains(&"checkpoint".to_owned()) {
        assert!(Instant::now() < until, "no checkpoint appeared: {:?}", kinds(&sandbox));
    }
    assert!(sandbox.peat("ledger verify --deep --json").ok().json()["passed"].as_bool().unwrap());
    let status = sandbox.peat("status --fresh").ok().out;
    assert!(status.contains("since the last one (entry "), "{status}");
}

#[test]
fn maintenance_can_be_turned_off_and_status_says_that_it_is_due() {
    let mut sandbox = grown(130);
    sandbox.set("PEAT_MAINTENANCE", "off");
    sandbox.peat("model method run m execute").ok();
    let status = sandbox.peat("status --json").ok().json();
    let now = &status["maintenance"];
    assert_eq!((&now["checkpointDue"], &now["byItself"]), (&true.into(), &false.into()));
    let text = sandbox.peat("datastore status").ok().out;
    assert!(text.contains("a checkpoint is due") && text.contains("does not run by itself"), "{text}");
    assert!(!kinds(&sandbox).contains(&"checkpoint".to_owned()));
    sandbox.peat("ledger maintain").ok();
    assert_eq!(kinds(&sandbox)[0], "checkpoint");
}

#[test]
fn pins_are_set_listed_and_removed() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let done = sandbox.peat("pin add release-1 --at 1 --json").ok().json();
    assert_eq!((&done["schema"], &done["seq"]), (&"peat.pin.done/1".into(), &1.into()));
    sandbox.peat("pin add now").ok();
    let list = sandbox.peat("pin list --json").ok().json();
    assert_eq!(list["pins"].as_array().unwrap().len(), 2);
    assert!(sandbox.peat("pin list").ok().out.contains("release-1"));
    let twin = sandbox.peat("pin add now --json").status(1);
    assert_eq!(twin.error()["code"], "pin_exists");
    assert_eq!(sandbox.peat("pin rm other --json").status(1).error()["code"], "pin_not_found");
    sandbox.peat("pin add x --at soon").status(2);
    let log = sandbox.peat("log --json").ok().json();
    let entries = log["entries"].as_array().unwrap();
    let written = entries.iter().find(|entry| entry["seq"] == 1).unwrap()["written"].as_str().unwrap().to_owned();
    let at_a_time = sandbox.peat(&format!("pin add then --at {written} --json")).ok().json();
    assert_eq!(at_a_time["seq"], 1);
    let early = sandbox.peat("pin add early --at 2001-01-01 --json").status(1);
    assert_eq!(early.error()["code"], "state_not_kept");
    let gone = sandbox.peat("pin rm release-1").ok().out;
    assert!(gone.contains("'release-1' on entry 1"), "{gone}");
    let gc = sandbox.peat("datastore gc --dry-run --json").ok().json();
    assert_eq!(gc["keepMs"], 30_u64 * 24 * 3600 * 1000);
}

#[test]
fn the_retention_of_the_repository_is_what_gc_keeps() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let marker = std::fs::read_to_string(sandbox.path("repo/.peat.yaml")).unwrap();
    let set = |text: &str| drop(sandbox.write("repo/.peat.yaml", &format!("{marker}{text}")));
    set("datastore:\n  retention:\n    days: 90\n    maxBytes: 10\n");
    let gc = sandbox.peat("datastore gc --dry-run --json").ok().json();
    assert_eq!(gc["keepMs"], 90_u64 * 24 * 3600 * 1000);
    assert!(gc["warnings"][0]["message"].as_str().unwrap().contains("more than the 10 of"), "{gc}");
    sandbox.peat("datastore gc").ok();
    let status = sandbox.peat("status").ok().out;
    assert!(status.contains("states of 90 days") && status.contains("maxBytes"), "{status}");
    set("datastore:\n  retention:\n    days: 0\n");
    let refused = sandbox.peat("status").status(1).err;
    assert!(refused.contains("datastore.retention.days"), "{refused}");
}

/// Keys of the objects whose JSON shows a content of at most 64 bytes.
fn holding(sandbox: &Sandbox, text: &str) -> Vec<String> {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let list = sandbox.peat("ledger ls --json").ok().json();
    let keys = list["objects"].as_array().unwrap().iter().map(|object| object["key"].as_str().unwrap().to_owned());
    keys.filter(|key| sandbox.run(["ledger", "cat", key, "--json"]).ok().out.contains(&hex)).collect()
}

#[test]
fn a_purge_shows_its_plan_asks_and_leaves_nothing_in_the_store() {
    // Short enough to lie in the tables themselves; what lies in blocks the tests of the ledger look for.
    let secret = "hunter2-hunter2-hunter2";
    let sandbox = Sandbox::with_model(&format!("echo {secret}"));
    sandbox.model("other", "echo hello");
    sandbox.peat("model method run m execute").ok();
    sandbox.peat("model method run other execute").ok();
    let held = || holding(&sandbox, secret);
    assert!(!held().is_empty());
    assert_eq!(sandbox.peat("datastore purge m result --json").status(1).error()["code"], "confirmation_needed");
    assert!(sandbox.peat("datastore purge m result").status(1).err.contains("no terminal to ask on"));
    let plan = sandbox.peat("datastore purge m result --dry-run").ok().out;
    assert!(plan.contains("/result/1/raw") && plan.contains("no state before this can be read"), "{plan}");
    assert!(plan.contains("versioning") && plan.contains("change the secret"), "{plan}");
    assert!(!held().is_empty(), "nothing was changed so far");
    let done = sandbox.peat("datastore purge m result --yes --json").ok().json();
    assert_eq!((&done["schema"], &done["done"]["items"]), (&"peat.datastore.purge/1".into(), &2.into()));
    // The log of the run holds it, too, and so does the record of its output: items of their own.
    let doctor = sandbox.peat("doctor").ok().out;
    assert!(doctor.contains(" objects are needed by nobody ('peat ledger verify' lists them)"), "{doctor}");
    let listed = sandbox.peat("ledger verify").ok().out;
    let objects = listed.lines().filter(|line| line.starts_with("    log/")).count();
    assert!(objects > 1 && doctor.contains(&format!("; {objects} objects are needed")), "{listed} {doctor}");
    let tree = sandbox.peat("ledger verify --deep --json").ok().json();
    assert_eq!(tree["passed"], true);
    let told = |path: &String| std::fs::read_to_string(path).is_ok_and(|text| text.contains(secret));
    for path in walk(&sandbox.path("repo/.peat/tree")).into_iter().filter(told) {
        let at = path.find("/tree/").unwrap() + "/tree/".len();
        sandbox.run(["datastore", "purge", &path[at..], "--yes"]).ok();
    }
    assert!(held().is_empty(), "{:?}", held());
    assert_eq!(sandbox.peat("data get m result --json").status(1).error()["code"], "not_found");
    assert!(sandbox.peat("data get other result").ok().out.contains("hello"));
    sandbox.peat("model method run m execute").ok();
    assert_eq!(sandbox.peat("datastore purge m nothing --yes --json").status(1).error()["code"], "not_found");
}

#[test]
fn a_purge_that_was_interrupted_says_so_and_the_same_command_finishes_it() {
    let server = S3Server::start().unwrap();
    let mut sandbox = Sandbox::with_model("echo hi");
    server.vars().iter().for_each(|(name, value)| sandbox.set(name, value));
    sandbox.set("PEAT_MAINTENANCE", "off");
    sandbox.run(["datastore", "setup", &server.url(), "--namespace", "n"]).ok();
    sandbox.peat("model method run m execute").ok();
    // It deletes, makes a checkpoint and raises the floor; then it begins to overwrite.
    server.clear_log();
    server.script(Method::PUT, "/log/", 4, Fault::Late(Duration::from_secs(60)));
    let purge = sandbox.command(["datastore", "purge", "m", "result", "--yes"]).spawn().unwrap();
    let puts = || server.log().iter().filter(|put| put.method == Method::PUT && put.path.contains("/log/")).count();
    let until = Instant::now() + Duration::from_secs(9);
    while puts() < 4 {
        assert!(Instant::now() < until, "nothing was overwritten: {:?}", server.log());
        std::thread::yield_now();
    }
    interrupt(&purge);
    let ended = Ran::of(&purge.wait_with_output().unwrap()).status(130);
    assert!(ended.err.contains("not finished") && ended.err.contains("'peat datastore purge m result'"), "{ended:?}");
    let done = sandbox.peat("datastore purge m result --yes").ok().out;
    assert!(done.contains("(what an earlier purge left)") && !done.contains(" 0 "), "{done}");
    assert!(done.contains("It does not reach:") && done.contains("change the secret"), "{done}");
    // The output is still there and tells what it wrote; no synchronisation brings that back.
    let again = sandbox.peat("datastore purge m result --yes").status(1);
    assert!(again.err.contains("interrupted is finished"), "{again:?}");
    let gone = sandbox.peat("model output data m --json").status(1).error();
    let (error, hint) = (gone["error"].as_str().unwrap(), gone["hint"].as_str().unwrap());
    assert!(error.contains("purged") && !hint.contains("sync"), "{gone}");
    assert!(sandbox.peat("model output data m --version 9").status(1).err.contains("'peat datastore sync --pull'"));
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(walk(&entry.path()));
        } else {
            found.push(entry.path().to_str().unwrap().to_owned());
        }
    }
    found
}
