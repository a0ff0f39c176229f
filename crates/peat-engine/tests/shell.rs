//! `command/shell` with real processes, with the supervisor in a process of its own and on a thread.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, clippy::needless_pass_by_value)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peat_engine::{Call, Cancel, Definition, End, Host, Outcome, Patience, Produced, Reason, Stream};
use peat_types::Env;
use serde_json::{Map, Value, json};

fn supervisor() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().parent().unwrap().join("examples/supervisor");
    assert!(path.exists(), "{} is missing: build the examples first", path.display());
    path
}

fn host(own_process: bool) -> Host {
    let mut host = Host::new(Env::system([]), "0.1.0", std::env::temp_dir(), None);
    if own_process {
        host.supervisor = vec![supervisor().into()];
    }
    host.patience = Patience { grace: Duration::from_millis(400), drain: Duration::from_millis(400) };
    host
}

fn definition() -> Definition {
    Definition {
        id: "5b0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11".into(),
        name: "m".into(),
        type_name: "command/shell".into(),
        type_version: None,
        version: 1,
        tags: BTreeMap::new(),
        global_arguments: Map::new(),
        methods: BTreeMap::new(),
        inputs: Map::new(),
        required_inputs: Vec::new(),
        additional_inputs: false,
        doc: Map::new(),
        path: PathBuf::new(),
        rel: String::new(),
        source: String::new(),
    }
}

struct Ran {
    outcome: Outcome,
    lines: Vec<(Stream, String)>,
    took: Duration,
    _scratch: tempfile::TempDir,
}

impl Ran {
    fn content(&self, name: &str) -> Vec<u8> {
        match &self.outcome.writes.iter().find(|write| write.name == name).unwrap().content {
            Produced::Bytes(bytes) => bytes.to_vec(),
            Produced::File { path, .. } => std::fs::read(path).unwrap(),
        }
    }

    fn result(&self) -> Value {
        serde_json::from_slice(&self.content("result")).unwrap()
    }

    fn failed(&self) -> &str {
        match &self.outcome.end {
            End::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    }
}

fn run_with(host: &Host, arguments: Value, cancel: &Cancel, cancel_file: Option<PathBuf>) -> Ran {
    let of = host.types.get("command/shell").unwrap();
    let (definition, method) = (definition(), of.spec().method("execute").unwrap().clone());
    let arguments = arguments.as_object().unwrap().clone();
    let lines = Mutex::new(Vec::new());
    let scratch = tempfile::tempdir().unwrap();
    let variables = BTreeMap::from([("PEAT_TEST".to_owned(), "from the run".to_owned())]);
    let call = Call {
        host,
        definition: &definition,
        method: &method,
        arguments: &arguments,
        variables: &variables,
        cancel,
        cancel_file,
        scratch: &scratch.path().join("run"),
        lines: &|stream, line| lines.lock().unwrap().push((stream, line.to_owned())),
    };
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let outcome = runtime.block_on(of.execute(&call));
    let took = began.elapsed();
    Ran { outcome, lines: lines.into_inner().unwrap(), took, _scratch: scratch }
}

fn run(arguments: Value) -> Ran {
    run_with(&host(true), arguments, &Cancel::default(), None)
}

/// Processes whose command line holds `mark`.
fn processes(mark: &str) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| {
            let line = String::from_utf8_lossy(line).replace('\0', " ");
            line.contains(mark) && !line.contains("supervisor")
        })
        .count()
}

fn none_left(mark: &str) {
    let until = Instant::now() + Duration::from_secs(3);
    while processes(mark) > 0 {
        assert!(Instant::now() < until, "a process with '{mark}' is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for(mark: &str) {
    let until = Instant::now() + Duration::from_secs(5);
    while processes(mark) == 0 {
        assert!(Instant::now() < until, "no process with '{mark}' came up");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn output_is_kept_without_its_final_newline() {
    for own in [true, false] {
        let ran =
            run_with(&host(own), json!({"run": "echo hi; echo oops >&2; echo $PEAT_TEST"}), &Cancel::default(), None);
        assert!(matches!(ran.outcome.end, End::Succeeded), "{:?}", ran.outcome.end);
        let result = ran.result();
        assert_eq!(result["exitCode"], 0);
        assert_eq!(result["stdout"], "hi\nfrom the run");
        assert_eq!(result["stderr"], "oops");
        assert_eq!(ran.content("log"), b"[stdout]\nhi\nfrom the run\n[stderr]\noops\n");
        assert!(
            ran.lines.contains(&(Stream::Stdout, "hi".into())) && ran.lines.contains(&(Stream::Stderr, "oops".into()))
        );
    }
}

#[test]
fn exit_codes() {
    let ran = run(json!({"run": "echo out; echo no such thing >&2; exit 3"}));
    assert_eq!(ran.failed(), "the command exited with code 3: no such thing");
    assert_eq!((ran.result()["exitCode"].clone(), ran.result()["stdout"].clone()), (json!(3), json!("out")));
    let ran = run(json!({"run": "exit 3", "ignoreExitCode": true}));
    assert!(matches!(ran.outcome.end, End::Succeeded));
    assert_eq!(ran.result()["exitCode"], 3);
    let ran = run(json!({"run": "kill -9 $$"}));
    assert_eq!(ran.result()["exitCode"], 137);
    assert!(ran.failed().contains("signal 9"));
}

#[test]
fn folder_and_environment() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run(json!({"run": "pwd -P; echo $A", "workingDir": dir.path(), "env": {"A": "b c"}}));
    let real = std::fs::canonicalize(dir.path()).unwrap();
    assert_eq!(ran.result()["stdout"], format!("{}\nb c", real.display()));
}

#[test]
fn a_time_out_ends_the_whole_group() {
    for (own, run) in [(true, "sleep 61.25 & sleep 61.25; echo never"), (false, "sleep 61.25")] {
        let ran =
            run_with(&host(own), json!({"run": run, "timeout": 200, "ignoreExitCode": true}), &Cancel::default(), None);
        assert!(ran.failed().contains("200 ms"), "{}", ran.failed());
        assert_eq!(ran.result()["exitCode"], -1);
        assert!(ran.took < Duration::from_secs(5), "{:?}", ran.took);
        none_left("sleep 61.25");
    }
}

#[test]
fn who_does_not_listen_is_killed() {
    let ran = run(json!({"run": "trap '' TERM; sleep 62.25 & wait; sleep 62.25", "timeout": 100}));
    assert!(ran.failed().contains("100 ms"));
    assert!(ran.took >= Duration::from_millis(450) && ran.took < Duration::from_secs(4), "{:?}", ran.took);
    none_left("sleep 62.25");
}

#[test]
fn a_start_failure_is_a_failure_always() {
    let ran = run(json!({"run": "true", "workingDir": "/nonexistent/folder", "ignoreExitCode": true}));
    assert!(ran.failed().contains("did not start"), "{}", ran.failed());
    assert_eq!(ran.result()["exitCode"], -1);
    assert!(ran.result()["stderr"].as_str().unwrap().contains("/nonexistent/folder"));
    let long = run(json!({"run": format!(": {}", "x".repeat(3 << 20)), "ignoreExitCode": true}));
    assert!(long.failed().contains("too long"), "{}", long.failed());
}

#[test]
fn a_program_that_is_missing_did_not_start() {
    // The second stage has to tell this from a program that prints the same and exits with 127.
    let mut host = host(true);
    let path = tempfile::tempdir().unwrap();
    host.cwd = path.path().to_owned();
    let ran = run_with(
        &host,
        json!({"run": "true", "env": {"PATH": path.path()}, "ignoreExitCode": true}),
        &Cancel::default(),
        None,
    );
    assert!(ran.failed().contains("cannot start sh"), "{}", ran.failed());
    let ran = run(json!({"run": "echo cannot start sh >&2; exit 127", "ignoreExitCode": true}));
    assert!(matches!(ran.outcome.end, End::Succeeded));
}

#[test]
fn big_output_arrives_whole() {
    let ran = run(json!({"run": "head -c 8000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2"}));
    assert!(matches!(ran.outcome.end, End::Succeeded));
    assert_eq!(ran.result()["stdout"].as_str().unwrap().len(), 8_000_000);
    assert_eq!(ran.result()["stderr"].as_str().unwrap().len(), 3_000_000);
}

#[test]
fn output_that_is_longer_than_a_result_is_whole_in_the_log() {
    let ran = run(json!({"run": "head -c 20000000 /dev/zero | tr '\\0' 'x'; echo; echo oh >&2"}));
    assert!(matches!(ran.outcome.end, End::Succeeded));
    assert_eq!(ran.result()["stdout"].as_str().unwrap().len(), 8 << 20);
    assert_eq!(ran.result()["stdoutDropped"], 20_000_001 - (8 << 20));
    assert!(ran.lines.iter().any(|(_, line)| line.ends_with("bytes beyond the first 8 MiB are in the log only")));
    let log = ran.content("log");
    assert_eq!(
        (log.len(), &log[..10], &log[20_000_000..]),
        (20_000_022, &b"[stdout]\nx"[..], &b"xxxxxxxxx\n[stderr]\noh\n"[..])
    );
}

#[test]
fn binary_output_is_kept_as_it_is_in_the_log() {
    let ran = run(json!({"run": "printf '\\377\\000a'"}));
    assert_eq!(ran.content("log"), b"[stdout]\n\xff\0a\n[stderr]\n\n");
    assert_eq!(ran.result()["stdout"], "\u{fffd}\0a");
}

#[test]
fn a_child_that_holds_the_pipe_is_not_waited_for() {
    let ran = run(json!({"run": "(sleep 3.125; echo late) & echo hi"}));
    assert!(matches!(ran.outcome.end, End::Succeeded));
    assert_eq!(ran.result()["stdout"], "hi");
    assert!(ran.took < Duration::from_secs(3), "{:?}", ran.took);
    // It was left in peace.
    assert!(processes("sleep 3.125") > 0);
}

#[test]
fn cancel_ends_it() {
    for own in [true, false] {
        let cancel = Cancel::default();
        let from = cancel.clone();
        let thread = std::thread::spawn(move || {
            wait_for("sleep 63.25");
            from.cancel(Reason::Interrupt);
        });
        // The shell's own line does not count as a sleep: it may not have said anything yet.
        let ran = run_with(
            &host(own),
            json!({"run": "echo begun; long=63.25; sleep $long", "ignoreExitCode": true}),
            &cancel,
            None,
        );
        thread.join().unwrap();
        assert!(matches!(&ran.outcome.end, End::Cancelled(why) if why == "interrupted"), "{:?}", ran.outcome.end);
        assert_eq!(ran.result()["stdout"], "begun");
        none_left("sleep 63.25");
    }
}

#[test]
fn a_cancel_file_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.cancel");
    let from = file.clone();
    let thread = std::thread::spawn(move || {
        wait_for("sleep 64.25");
        std::fs::write(from, "no longer needed").unwrap();
    });
    let ran = run_with(&host(true), json!({"run": "sleep 64.25"}), &Cancel::default(), Some(file));
    thread.join().unwrap();
    match &ran.outcome.end {
        End::Cancelled(why) => assert_eq!(why, "cancelled on request: no longer needed"),
        other => panic!("{other:?}"),
    }
    none_left("sleep 64.25");
}

/// Starts a job by hand; returns the supervisor once the program runs.
fn by_hand(run: &str) -> std::process::Child {
    let exe = supervisor();
    let mut child = Command::new(&exe).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let job = json!({
        "argv": ["sh", "-c", run], "cwd": "/", "variables": {}, "timeout_ms": null, "grace_ms": 200, "drain_ms": 200,
        "cancel_file": null, "supervisor": [exe],
    })
    .to_string();
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(&u32::try_from(job.len()).unwrap().to_le_bytes()).unwrap();
    stdin.write_all(job.as_bytes()).unwrap();
    stdin.flush().unwrap();
    let mut kind = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut kind).unwrap();
    assert_eq!(kind, *b"S");
    child
}

#[test]
fn the_death_of_peat_ends_the_program() {
    let mut child = by_hand("sleep 65.25 & sleep 65.25");
    wait_for("sleep 65.25");
    // What the system does with the pipe of a process that is killed.
    drop(child.stdin.take());
    none_left("sleep 65.25");
    assert!(!child.wait().unwrap().success());
}

#[cfg(target_os = "linux")]
#[test]
fn the_death_of_the_supervisor_ends_the_program() {
    let mut child = by_hand("exec sleep 66.25");
    wait_for("sleep 66.25");
    child.kill().unwrap();
    none_left("sleep 66.25");
    child.wait().unwrap();
}

#[test]
fn a_dropped_run_ends_the_program() {
    let host = host(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let of = host.types.get("command/shell").unwrap();
        let (definition, method) = (definition(), of.spec().method("execute").unwrap().clone());
        let arguments = json!({"run": "sleep 67.25"}).as_object().unwrap().clone();
        let (variables, cancel) = (BTreeMap::new(), Cancel::default());
        let call = Call {
            host: &host,
            definition: &definition,
            method: &method,
            arguments: &arguments,
            variables: &variables,
            cancel: &cancel,
            cancel_file: None,
            scratch: Path::new("/nonexistent"),
            lines: &|_, _| {},
        };
        let _ = host.env.timeout(Duration::from_millis(300), of.execute(&call)).await;
    });
    none_left("sleep 67.25");
}

#[test]
fn hosts_are_shared() {
    fn check<T: Send + Sync>(_: &T) {}
    check(&Arc::new(host(false)));
    assert!(Path::new("/proc").exists());
}
