//! `peat datastore watch`: lines, commands for each change, and how it ends.

use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sandbox::{Ran, Sandbox};

fn lines(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `sh` text that appends to `seen` what it was told.
const NOTE: &str =
    r#"printf '%s %s %s %s %s\n' "$PEAT_SEQ" "$PEAT_KIND" "$PEAT_MODEL" "$PEAT_STATUS" "$PEAT_ATTEMPT" >> seen"#;

fn seen(sandbox: &Sandbox) -> Vec<String> {
    let text = std::fs::read_to_string(sandbox.path("repo/seen")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until the file is there.
fn wait_for(sandbox: &Sandbox, file: &str) {
    let began = Instant::now();
    while !sandbox.path(file).exists() {
        assert!(began.elapsed() < Duration::from_secs(8), "waited in vain for {file}");
        std::thread::yield_now();
    }
}

fn end(child: &mut Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

#[test]
fn each_change_is_one_line_once() {
    let sandbox = Sandbox::with_model("echo hi");
    let first = sandbox.peat("datastore watch --once").ok();
    assert_eq!(first.out, "");
    assert!(first.err.contains("following as 'default' after entry 0"), "{first:?}");
    let run = sandbox.peat("model method run m execute --json").ok().json();
    let seen = lines(&sandbox.peat("datastore watch --once --json").ok());
    let kinds: Vec<&str> = seen.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["start", "end"]);
    for line in &seen {
        assert_eq!((&line["schema"], &line["event"]), (&"peat.datastore.watch/1".into(), &"change".into()));
        assert_eq!(line["units"][0]["modelName"], "m");
    }
    let unit = &seen[1]["units"][0];
    assert_eq!((&seen[1]["change"], &seen[1]["seq"]), (&run["change"], &run["seq"]));
    assert_eq!(unit["outputs"][0]["status"], "succeeded");
    assert_eq!(unit["outputs"][0]["id"], run["outputId"]);
    let data: Vec<&str> = unit["data"].as_array().unwrap().iter().map(|d| d["name"].as_str().unwrap()).collect();
    assert_eq!(data, ["log", "result"]);
    let put = unit["put"].as_array().unwrap();
    assert!(put.iter().any(|item| item["path"].as_str().unwrap().ends_with("/result/1/raw")), "{put:?}");
    assert!(!put.iter().any(|item| item["path"].as_str().unwrap().starts_with("leases/")), "{put:?}");
    assert!(lines(&sandbox.peat("datastore watch --once --json").ok()).is_empty(), "each once");
    let text = sandbox.peat("datastore watch --once --name other --since 1").ok();
    assert_eq!(text.out.lines().count(), 1, "{text:?}");
    assert!(text.out.ends_with("  m  m execute: succeeded  log@1  result@1\n"), "{text:?}");
    let again = sandbox.peat("datastore watch --once --name other --since 0").ok();
    assert!(again.out.is_empty() && again.err.contains("--since counts for a new name only"), "{again:?}");
}

#[test]
fn of_one_model_only() {
    let sandbox = Sandbox::with_model("echo hi");
    let id = sandbox.model("other", "echo ho");
    sandbox.peat("model method run m execute").ok();
    sandbox.peat("model method run other execute").ok();
    let seen = lines(&sandbox.peat("datastore watch --once --since 0 --model other --json").ok());
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|line| line["units"][0]["unit"] == format!("model/{id}")), "{seen:?}");
    // Without the work tree's word for it, the change's own.
    std::fs::remove_dir_all(sandbox.path("repo/models")).unwrap();
    let seen = lines(&sandbox.peat("datastore watch --once --since 0 --name bare --json").ok());
    assert_eq!((seen.len(), &seen[3]["units"][0]["modelName"]), (4, &"other".into()));
    let error = sandbox.peat("datastore watch --once --model nope --json").status(1).error();
    assert_eq!(error["code"], "model_not_found");
}

#[test]
fn hostile_words_do_not_command_the_terminal() {
    let mut sandbox = Sandbox::with_model("echo hi");
    sandbox.set("USER", "eve\u{1b}[8m\u{9b}2J\u{7f}\u{1b}]0;owned\u{7}");
    sandbox.peat("model method run m execute").ok();
    for (name, form) in [("text", "-q"), ("json", "--json")] {
        let ran = sandbox.peat(&format!("datastore watch --once --since 0 --name {name} {form}")).ok();
        assert_eq!(ran.out.lines().count(), 2, "{ran:?}");
        assert!(!ran.out.chars().any(|c| c.is_control() && c != '\n'), "{:?}", ran.out);
        assert!(ran.out.contains("eve"), "{ran:?}");
    }
}

#[test]
fn a_command_runs_for_each_change_in_order_and_gets_it() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let command = format!("{NOTE}; cat >> given; echo out; echo err >&2");
    let ran = sandbox.run(["datastore", "watch", "--once", "--since", "0", "--json", "--exec", &command]).ok();
    assert_eq!(seen(&sandbox), ["1 start m running 1", "2 end m succeeded 1"]);
    let given = std::fs::read_to_string(sandbox.path("repo/given")).unwrap();
    assert_eq!(given.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>(), lines(&ran));
    assert_eq!(ran.err.matches("out\n").count(), 2, "its output goes to stderr: {ran:?}");
    assert_eq!(ran.err.matches("err\n").count(), 2, "{ran:?}");
}

#[test]
fn a_failing_command_is_run_again_and_its_change_is_not_lost() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    // Fails for the end until it was tried twice.
    let command = format!("{NOTE}; [ $PEAT_KIND = start ] || [ $PEAT_ATTEMPT = 2 ]");
    let watch = |extra: &[&str], command: &str| {
        let mut args = vec!["datastore", "watch", "--once", "--since", "0", "--json", "--exec", command];
        args.extend(extra);
        sandbox.run(args)
    };
    let stopped = watch(&["--retries", "0"], &command).status(1);
    assert_eq!(stopped.error()["code"], "exec_failed");
    assert_eq!(seen(&sandbox), ["1 start m running 1", "2 end m succeeded 1"]);
    let passed = watch(&["--retries", "1"], &command).ok();
    assert_eq!(lines(&passed).len(), 1, "what was done is not given again, what failed is");
    assert_eq!(seen(&sandbox)[2..], ["2 end m succeeded 1", "2 end m succeeded 2"]);
    assert!(passed.err.contains("ended with status 1; running it again in"), "{passed:?}");
    // Left out when that is wanted.
    let skipped = watch(&["--name", "lax", "--retries", "0", "--on-failure", "skip"], "kill -9 $$").ok();
    assert_eq!(skipped.err.matches("was ended by signal 9; the change is left out").count(), 2, "{skipped:?}");
    assert!(lines(&watch(&["--name", "lax"], "true").ok()).is_empty());
    watch(&["--on-failure", "skip", "--exec", "x"], "x").status(2);
    sandbox.peat("datastore watch --retries 2").status(2);
}

/// Ctrl-C ends the running command too, and its change comes again.
#[test]
fn ctrl_c_ends_the_command_and_the_change_comes_again() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    let command = "trap 'echo ended > ended; exit 0' TERM; echo x > started; sleep 77.77 & wait";
    let args = ["datastore", "watch", "--since", "0", "--exec", command];
    let mut child = sandbox.command(args).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    // Meanwhile nobody else follows under this name.
    let refused = sandbox.peat("datastore watch --once --json").status(75);
    assert_eq!(refused.error()["code"], "watch_taken");
    end(&mut child, rustix::process::Signal::INT);
    let ran = Ran::of(&child.wait_with_output().unwrap());
    assert_eq!(ran.status, 130, "{ran:?}");
    assert!(sandbox.path("repo/ended").exists(), "the command was asked to end: {ran:?}");
    let seen = lines(&sandbox.peat("datastore watch --once --json").ok());
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn it_waits_and_ends_when_it_is_told_to() {
    let sandbox = Sandbox::with_model("echo hi");
    let args = ["datastore", "watch", "--interval", "100ms", "--exec", "echo x > got"];
    let mut child = sandbox.command(args).spawn().unwrap();
    wait_for(&sandbox, "repo/.peat/watch/default.json");
    sandbox.peat("model method run m execute").ok();
    wait_for(&sandbox, "repo/got");
    end(&mut child, rustix::process::Signal::TERM);
    let ran = Ran::of(&child.wait_with_output().unwrap());
    assert_eq!(ran.status, 130, "{ran:?}");
    assert!(!ran.err.contains("error"), "{ran:?}");
}
