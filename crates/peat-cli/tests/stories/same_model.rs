//! A machine that dies or stalls in the middle of a run, and the one that takes over.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::machine::{Machine, Shop, error, json, until};

/// Short enough for a test, long enough that a slow machine is not taken for a dead one.
const TTL_MS: u64 = 2_000;

fn two(shop: &Shop) -> (Machine, Machine) {
    let ann = Machine::new("ann", shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    ann.share_with_ttl(shop, TTL_MS);
    let ben = ann.cloned("ben", shop);
    (ann, ben)
}

fn signal(child: &std::process::Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Killed with SIGKILL in the middle of a run: the other machine takes over after the ttl, and the method is gone.
#[test]
fn a_killed_run_is_taken_over() {
    let shop = Shop::open();
    let (ann, ben) = two(&shop);
    ann.run("hello", "echo first");
    let mark = ann.repo().join("mark");
    let mut dying = ann.spawn_run("hello", &format!("echo $$ > {0}.new && mv {0}.new {0} && sleep 60", mark.display()));
    until(Duration::from_secs(20), "the method to start", || mark.exists());
    let method: i32 = std::fs::read_to_string(&mark).unwrap().trim().parse().unwrap();
    signal(&dying, Signal::KILL);
    dying.wait().unwrap();
    let report = ben.run("hello", "echo second");
    assert_eq!(report["status"], "succeeded");
    let gone = || rustix::process::test_kill_process(Pid::from_raw(method).unwrap()).is_err();
    until(Duration::from_secs(10), "the orphaned method to end", gone);
    for machine in [&ann, &ben] {
        machine.peat("datastore sync --pull");
        assert_eq!(machine.versions("hello", "result"), [1, 2]);
    }
    let outputs = ben.peat("model output search");
    let mut states: Vec<&str> =
        outputs["results"].as_array().unwrap().iter().map(|output| output["status"].as_str().unwrap()).collect();
    states.sort_unstable();
    assert_eq!(states, ["interrupted", "succeeded", "succeeded"]);
    // The clone of the killed process is whole again without anybody's help.
    ann.run("hello", "echo third");
    assert_eq!(ann.versions("hello", "result"), [1, 2, 3]);
}

/// Stopped in the middle of a run and awake again after somebody took over: its end is refused and put aside.
#[test]
fn a_late_end_is_refused_and_parked() {
    let shop = Shop::open();
    let (ann, ben) = two(&shop);
    let (mark, go) = (ann.repo().join("mark"), ann.repo().join("go"));
    let wait = format!("touch {}; until [ -e {} ]; do sleep 0.05; done; echo late", mark.display(), go.display());
    let stalled = ann.spawn_run("hello", &wait);
    until(Duration::from_secs(20), "the method to start", || mark.exists());
    signal(&stalled, Signal::STOP);
    let report = ben.run("hello", "echo taken");
    assert_eq!(report["status"], "succeeded");
    std::fs::write(&go, "").unwrap();
    signal(&stalled, Signal::CONT);
    let output = stalled.wait_with_output().unwrap();
    let refused = error(&output, 1);
    assert_eq!(refused["code"], "lease_lost", "{refused}");
    let pending = ann.peat("pending list");
    let changes = pending["changes"].as_array().or(pending["pending"].as_array()).unwrap();
    assert_eq!(changes.len(), 1, "{pending}");
    assert_eq!(changes[0]["status"], "parked", "{pending}");
    ben.peat("datastore sync --pull");
    assert_eq!(ben.versions("hello", "result"), [1]);
    assert_eq!(ben.peat("data get hello result")["content"]["stdout"], "taken");
    // It blocks nothing, and its result can still be had.
    ann.run("hello", "echo next");
    assert_eq!(ann.versions("hello", "result"), [1, 2]);
    let id = changes[0]["change"].as_str().or(changes[0]["id"].as_str()).unwrap();
    let adopted = ann.command(["pending", "adopt", id, "--json"]).output().unwrap();
    json(&adopted);
    assert_eq!(ann.versions("hello", "result"), [1, 2, 3]);
}
