//! MR: running methods.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::sandbox::{Ran, Sandbox};

/// Whether a process with `marker` in its command line lives.
pub(crate) fn lives(marker: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let dead = std::fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| stat.contains(") Z "));
        !dead && String::from_utf8_lossy(&command).replace('\0', " ").contains(marker)
    })
}

#[test]
fn mr01_a_run_gives_data() {
    let sandbox = Sandbox::with_model("echo hi");
    let json = sandbox.peat("model method run m execute --json").ok().json();
    assert_eq!(json["schema"], "peat.model.method.run/1");
    assert_eq!(
        (&json["status"], &json["modelName"], &json["methodName"]),
        (&"succeeded".into(), &"m".into(), &"execute".into())
    );
    let artifacts = json["dataArtifacts"].as_array().unwrap();
    let result = artifacts.iter().find(|artifact| artifact["name"] == "result").unwrap();
    assert_eq!((&result["attributes"]["stdout"], &result["attributes"]["exitCode"]), (&"hi".into(), &0.into()));
    assert!(sandbox.peat("model method run m execute").ok().out.starts_with("m execute: succeeded"));
}

#[test]
fn mr02_a_failing_command_fails_the_run() {
    let sandbox = Sandbox::with_model("echo oops >&2; exit 3");
    let ran = sandbox.peat("model method run m execute --json").status(1);
    assert_eq!(ran.json()["status"], "failed");
    assert!(ran.json()["error"].as_str().unwrap().contains('3'), "{}", ran.out);
    let text = sandbox.peat("model method run m execute").status(1);
    assert!(text.err.contains("error:") && text.err.contains('3'), "{}", text.err);
    assert_eq!(sandbox.peat("model output get m --json").ok().json()["status"], "failed");
    assert!(sandbox.peat("model output logs m").ok().out.contains("oops"));
}

#[test]
fn mr03_an_ignored_exit_code_is_stored() {
    let sandbox = Sandbox::with_model("exit 3");
    sandbox.run(["model", "method", "run", "m", "execute", "--input", "ignoreExitCode:json=true"]).ok();
    assert_eq!(sandbox.peat("data get m result --json").ok().json()["content"]["exitCode"], 3);
}

#[test]
fn mr04_a_time_out_ends_the_whole_process_group() {
    let sandbox = Sandbox::with_model("sleep 61.04");
    let started = Instant::now();
    let ran = sandbox.run(["model", "method", "run", "m", "execute", "--input", "timeout=200", "--json"]).status(1);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(ran.json()["status"], "failed");
    assert!(!lives("sleep 61.04"));
}

#[test]
fn mr06_unknown_models_methods_and_arguments() {
    let sandbox = Sandbox::with_model("echo hi");
    let error = |words: &str| sandbox.peat(&format!("{words} --json")).status(1).error();
    assert_eq!(error("model method run nope execute")["code"], "model_not_found");
    let method = error("model method run m exekute");
    assert_eq!(method["code"], "unknown_method");
    assert!(method["error"].as_str().unwrap().contains("did you mean 'execute'"), "{method}");
    let argument = error("model method run m execute --input runn=x");
    assert_eq!(argument["code"], "validation_failed");
    assert!(argument["error"].as_str().unwrap().contains("runn"), "{argument}");
    assert_eq!(sandbox.peat("model output search --json").ok().json()["results"], json!([]), "nothing ran");
}

#[test]
fn mr10_several_items_on_stdin_run_up_to_the_first_failure() {
    let sandbox = Sandbox::repo_made();
    sandbox.peat("model create command/shell m").ok();
    let items = "{\"run\":\"echo one\"}\n{\"run\":\"exit 1\"}\n{\"run\":\"echo three\"}\n";
    let ran = sandbox.run_with_stdin(["model", "method", "run", "m", "execute", "--stdin", "--json", "--stats"], items);
    let ran = ran.status(1);
    // One line for each run, so that it can be read when it is there.
    let told = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["status"].clone();
    assert_eq!(ran.out.lines().map(told).collect::<Vec<_>>(), ["succeeded", "failed"]);
    assert_eq!(
        (ran.error()["code"].clone(), ran.err.lines().count()),
        ("method_execution_failed".into(), 2),
        "{ran:?}"
    );
    assert!(ran.err.lines().next().unwrap().starts_with("{\"stats\":"), "{ran:?}");
    let outputs = sandbox.peat("model output search --json").ok().json();
    let statuses: Vec<_> = outputs["results"].as_array().unwrap().iter().map(|row| row["status"].clone()).collect();
    assert_eq!(statuses, ["failed", "succeeded"], "newest first");
}

#[test]
fn mr12_a_flag_beats_the_file_and_maps_merge() {
    let sandbox = Sandbox::repo_made();
    sandbox.peat("model create command/shell m").ok();
    sandbox.write("repo/f.yaml", "run: 'exit 1'\nenv: {A: file, B: file}\n");
    let run = "run=echo $A $B";
    let args =
        ["model", "method", "run", "m", "execute", "--input-file", "f.yaml", "--input", run, "--input", "env.A=flag"];
    sandbox.run(args).ok();
    assert_eq!(sandbox.peat("data get m result --json").ok().json()["content"]["stdout"], "flag file");
}

#[test]
fn mr13_files_escapes_and_json_as_values() {
    let sandbox = Sandbox::repo_made();
    sandbox.peat("model create command/shell m").ok();
    sandbox.write("repo/script.sh", "echo \"$X\"");
    let args = ["model", "method", "run", "m", "execute", "--input", "run=@script.sh", "--input", r"env.X=\@x"];
    sandbox.run(args).ok();
    assert_eq!(sandbox.peat("data get m result --json").ok().json()["content"]["stdout"], "@x");
    sandbox
        .run(["model", "method", "run", "m", "execute", "--input", "run=exit 0", "--input", "env:json=[1]"])
        .status(1);
    sandbox.run(["model", "method", "run", "m", "execute", "--input", "run"]).status(2);
}

#[test]
fn mr14_tags_of_a_run() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute --tag env=dev").ok();
    let tags = sandbox.peat("data get m result --json").ok().json()["tags"].clone();
    assert_eq!((&tags["env"], &tags["type"], &tags["modelName"]), (&"dev".into(), &"resource".into(), &"m".into()));
    assert_eq!(sandbox.peat("model method run m execute --tag env").status(2).out, "");
}

#[test]
fn mr15_two_terminals_take_turns() {
    let sandbox = Sandbox::with_model("sleep 0.2; echo hi");
    let spawn = || sandbox.command(["model", "method", "run", "m", "execute", "--json"]).spawn().unwrap();
    let both = [spawn(), spawn()].map(|child| child.wait_with_output().unwrap());
    assert!(both.iter().all(|output| output.status.success()), "{both:?}");
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 2);
}

#[test]
fn mr16_a_held_lease_is_busy() {
    let mut sandbox = Sandbox::with_model("touch started; sleep 61.16");
    let mut holder = sandbox.command(["model", "method", "run", "m", "execute"]).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    sandbox.set("PEAT_LOCK_TIMEOUT_MS", "300");
    let busy = sandbox.peat("model method run m execute --json").status(75);
    let error = busy.error();
    assert_eq!(error["code"], "lock_timeout");
    assert!(error["causes"].to_string().contains("the lease of model 'm' is held by ann@"), "{error}");
    sandbox.peat("model method run m execute --lock-timeout 0").status(75);
    assert_eq!(sandbox.peat("datastore lock status --json").ok().json()["held"], true);
    interrupt(&holder);
    assert_eq!(holder.wait().unwrap().code(), Some(130));
}

#[test]
fn mr24_output_and_log_of_the_newest_run() {
    let sandbox = Sandbox::with_model("echo hi; echo careful >&2");
    sandbox.peat("model method run m execute").ok();
    let output = sandbox.peat("model output get m --json").ok().json();
    assert_eq!((&output["status"], &output["provenance"]["triggeredBy"]), (&"succeeded".into(), &"manual".into()));
    let id = output["id"].as_str().unwrap();
    let logs = sandbox.run(["model", "output", "logs", id, "--json"]).ok().json();
    assert!(logs["lines"].to_string().contains("hi") && logs["lines"].to_string().contains("careful"), "{logs}");
    let tail = sandbox.peat("model output logs m --tail 1 --json").ok().json();
    assert_eq!(tail["showingLines"], 1);
    let data =
        sandbox.run(["model", "output", "data", id, "--name", "result", "--field", "stdout", "--json"]).ok().json();
    assert_eq!(data["data"], "hi");
    assert_eq!(sandbox.peat("model output data m --name result --field stdout").ok().out, "hi\n");
    assert_eq!(sandbox.peat("model output list m --json").ok().json()["results"][0]["id"], id);
}

#[test]
fn variables_that_cannot_be_understood_are_named() {
    let mut sandbox = Sandbox::with_model("echo hi");
    sandbox.set("PEAT_LOG_LEVEL", "bogus");
    sandbox.set("PEAT_MAINTENANCE", "bogus");
    let said = sandbox.peat("model search").ok().err;
    assert!(said.contains("PEAT_LOG_LEVEL is 'bogus'") && said.contains("PEAT_MAINTENANCE is 'bogus'"), "{said}");
    sandbox.set("PEAT_LOCK_TIMEOUT_MS", "1s");
    let error = sandbox.peat("model method run m execute --json").status(1).error();
    assert!(error["error"].as_str().unwrap().contains("PEAT_LOCK_TIMEOUT_MS is '1s'"), "{error}");
    sandbox.set("PEAT_HOME", "relative");
    let error = sandbox.peat("status --json").status(1).error();
    assert!(error["error"].as_str().unwrap().contains("PEAT_HOME is 'relative'"), "{error}");
}

#[test]
fn mr27_the_time_limit_of_a_run() {
    let sandbox = Sandbox::with_model("sleep 61.27");
    let started = Instant::now();
    let ran = sandbox.peat("model method run m execute --timeout 1 --json").status(1);
    assert_eq!((&ran.json()["status"], &ran.error()["code"]), (&"cancelled".into(), &"cancelled".into()));
    assert!(started.elapsed() < Duration::from_secs(6));
    assert!(!lives("sleep 61.27"));
}

/// Waits until a file is there.
pub(crate) fn wait_for(sandbox: &Sandbox, file: &str) {
    let started = Instant::now();
    while !sandbox.path(file).exists() {
        assert!(started.elapsed() < Duration::from_secs(9), "{file} did not appear");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Presses Ctrl-C on a process.
pub(crate) fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn a_process_that_outlives_its_run_is_told_about_its_lease() {
    let sandbox = Sandbox::with_model("echo \"$PEAT_LEASE\" >lease");
    sandbox.peat("model method run m execute").ok();
    let lease = std::fs::read_to_string(sandbox.path("repo/lease")).unwrap();
    let run = |lease: Option<&str>| {
        let mut command = sandbox.command(["model", "method", "run", "m", "execute", "--json"]);
        command.envs(lease.map(|lease| ("PEAT_LEASE", lease)));
        Ran::of(&command.output().unwrap())
    };
    let error = run(Some(lease.trim())).status(1).error();
    assert_eq!(error["code"], "lease_lost");
    assert!(error["hint"].as_str().unwrap().contains("PEAT_LEASE is unset"), "{error}");
    run(None).ok();
}
