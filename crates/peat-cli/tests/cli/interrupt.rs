//! Ctrl-C and kills.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use crate::runs::{interrupt, lives, wait_for};
use crate::sandbox::Sandbox;

#[test]
fn mr18_ctrl_c_ends_the_run_and_frees_the_lease() {
    let sandbox = Sandbox::with_model("touch started; sleep 61.18");
    let run = sandbox.command(["model", "method", "run", "m", "execute", "--json"]).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    interrupt(&run);
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    let error = crate::sandbox::Ran::of(&ended).error();
    assert_eq!((&error["code"], &error["hint"]), (&"interrupted".into(), &"".into()), "{error}");
    let output = sandbox.peat("model output get m --json").ok().json();
    let status = output["status"].as_str().unwrap();
    assert!(["cancelled", "interrupted"].contains(&status), "{status}");
    assert_eq!(sandbox.peat("datastore lock status --json").ok().json()["held"], false);
    assert!(!lives("sleep 61.18"));
    let started = Instant::now();
    sandbox.run(["model", "method", "run", "m", "execute", "--input", "run=echo again"]).ok();
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_was_done_is_not_advised_again_when_its_report_cannot_be_written() {
    let sandbox = Sandbox::with_model("echo x >> side");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = sandbox.command(["model", "method", "run", "m", "execute"]).stdout(full).output().unwrap();
    let ran = crate::sandbox::Ran::of(&ran).status(1);
    assert!(ran.err.contains("was carried out") && ran.err.contains("'peat log'"), "{ran:?}");
    assert!(!ran.err.contains("nothing was lost"), "{ran:?}");
    assert_eq!(sandbox.peat("data versions m result --json").ok().json()["total"], 1);
}

/// Whether this process was told to ignore that terminals go away, which its children inherit.
fn is_under_nohup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[test]
fn a_terminal_that_goes_away_ends_the_run_cleanly_and_not_under_nohup() {
    if is_under_nohup() {
        eprintln!("SKIPPED: a terminal that goes away, because these tests run under nohup");
        return;
    }
    let sandbox = Sandbox::with_model("touch started; sleep 61.31");
    let run = sandbox.command(["model", "method", "run", "m", "execute"]).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    crate::killed::signal(&run, "-HUP");
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert_eq!(sandbox.peat("model output get m --json").ok().json()["status"], "cancelled");
    assert_eq!(sandbox.peat("datastore lock status --json").ok().json()["held"], false);
    assert!(!lives("sleep 61.31"));
    let script = "trap '' HUP; exec \"$0\" model method run m execute --input \"run=touch second; until test -e go; do sleep 0.05; done\"";
    let args = ["-c", script, env!("CARGO_BIN_EXE_peat")];
    let peat = sandbox.command([""; 0]);
    let mut kept = std::process::Command::new("sh");
    kept.args(args).current_dir(sandbox.repo()).env_clear();
    kept.envs(peat.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let kept = kept.spawn().unwrap();
    wait_for(&sandbox, "repo/second");
    crate::killed::signal(&kept, "-HUP");
    sandbox.write("repo/go", "");
    assert_eq!(kept.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn a_killed_peat_takes_its_method_along_and_heals() {
    let sandbox = Sandbox::with_model("touch started; sleep 61.99");
    let mut run = sandbox.command(["model", "method", "run", "m", "execute"]).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    run.kill().unwrap();
    run.wait().unwrap();
    let started = Instant::now();
    sandbox.run(["model", "method", "run", "m", "execute", "--input", "run=echo again"]).ok();
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    assert!(!lives("sleep 61.99"));
    let outputs = sandbox.peat("model output search --json").ok().json();
    let statuses: Vec<_> = outputs["results"].as_array().unwrap().iter().map(|row| row["status"].clone()).collect();
    assert_eq!(statuses, ["succeeded", "interrupted"]);
}

#[test]
fn cancel_from_another_terminal() {
    let sandbox = Sandbox::with_model("touch started; sleep 61.77");
    let run = sandbox.command(["model", "method", "run", "m", "execute", "--json"]).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    let cancelled = sandbox.peat("model cancel m --reason enough --json").ok().json();
    assert_eq!(cancelled["count"], 1);
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(!lives("sleep 61.77"));
    assert_eq!(sandbox.peat("model output get m --json").ok().json()["status"], "cancelled");
}

#[test]
fn ctrl_c_while_waiting_for_a_lease() {
    let sandbox = Sandbox::with_model("touch started; sleep 61.55");
    let holder = sandbox.command(["model", "method", "run", "m", "execute"]).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    let args = ["model", "method", "run", "m", "execute", "--input", "run=touch second"];
    let mut waiting = sandbox.command(args).spawn().unwrap();
    // It says whom it waits for, on stderr.
    let mut said = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("ann@"), "{said}");
    interrupt(&waiting);
    assert_eq!(waiting.wait().unwrap().code(), Some(130));
    interrupt(&holder);
    assert_eq!(holder.wait_with_output().unwrap().status.code(), Some(130));
    assert!(!sandbox.path("repo/second").exists());
    assert_eq!(sandbox.peat("datastore lock status --json").ok().json()["held"], false);
}

#[test]
fn a_termination_signal_is_like_ctrl_c_and_a_second_one_does_not_wait() {
    let sandbox = Sandbox::with_model("trap '' TERM INT; touch started; while true; do sleep 0.1; done # 61.66");
    let mut run = sandbox.command(["model", "method", "run", "m", "execute"]).spawn().unwrap();
    wait_for(&sandbox, "repo/started");
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(run.try_wait().unwrap().is_none(), "the method has time to end");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(130));
    // The next command cleans up.
    sandbox.run(["model", "method", "run", "m", "execute", "--input", "run=echo again"]).ok();
    let started = Instant::now();
    while lives("# 61.66") {
        assert!(started.elapsed() < Duration::from_secs(2), "the method outlives its run");
        std::thread::sleep(Duration::from_millis(20));
    }
}
