//! Failing stores from end to end, by their numbers in `docs/design/007-peers.md`.

use http::Method;
use peat_testkit::s3::{Canned, Fault, S3Server};

use crate::sandbox::Sandbox;

/// A repo with a model, shared in a bucket as the namespace `infra`.
fn shared(server: &S3Server) -> Sandbox {
    let mut sandbox = Sandbox::with_model("echo hello");
    for (name, value) in server.vars() {
        sandbox.set(&name, &value);
    }
    sandbox.run(["datastore", "setup", &server.url(), "--namespace", "infra", "--json"]).ok();
    sandbox
}

fn runs_once(sandbox: &Sandbox, versions: u64) {
    sandbox.peat("model method run m execute --json").ok();
    let data = sandbox.peat("data versions m result --fresh --json").ok().json();
    assert_eq!(data["total"], versions, "{data}");
    assert_eq!(sandbox.peat("pending list --json").ok().json()["total"], 0);
}

#[test]
fn f05_and_f06_are_one_commit_each() {
    let server = S3Server::start().unwrap();
    let sandbox = shared(&server);
    let conflict = || Fault::Reply(Canned::error(409, "ConditionalRequestConflict", "Try again"));
    // The start of the run or its end, or both.
    for (versions, at, fault) in
        [(1, 1, conflict()), (2, 2, conflict()), (3, 1, Fault::DropReply), (4, 2, Fault::DropReply)]
    {
        server.script(Method::PUT, "/log/", at, fault);
        runs_once(&sandbox, versions);
    }
    sandbox.peat("ledger verify --deep").ok();
}

#[test]
fn f13_denies_everything_outside_the_namespace() {
    let server = S3Server::start().unwrap();
    server.allow_only("peat/infra/");
    let sandbox = shared(&server);
    // Setup asks once whether a namespace is made inside another store, and takes no for an answer.
    let looks = server.log().into_iter().filter(|r| r.status.is_some_and(|s| s == 403)).count();
    assert_eq!(looks, 2);
    server.clear_log();
    runs_once(&sandbox, 1);
    for words in [
        "datastore sync",
        "datastore status",
        "datastore lock status",
        "log",
        "status",
        "ledger ls",
        "ledger verify --deep",
        "doctor --probe",
        "model delete m --force --yes",
    ] {
        sandbox.peat(words).ok();
    }
    let outside: Vec<_> = server.log().into_iter().filter(|r| r.status.is_some_and(|s| s == 403)).collect();
    assert!(outside.is_empty(), "{outside:?}");
}

#[test]
fn a_store_that_wants_to_be_left_alone_says_for_how_long() {
    let server = S3Server::start().unwrap();
    let sandbox = shared(&server);
    let busy = Canned::error(503, "SlowDown", "Please reduce your request rate").with_header("retry-after", "3600");
    server.script_times(Method::GET, "", 1, 99, Fault::Reply(busy.clone()));
    server.script_times(Method::GET, "/log/", 1, 99, Fault::Reply(busy));
    let error = sandbox.peat("datastore sync --pull --json").status(1).error();
    assert_eq!(error["code"], "store_busy", "{error}");
    assert!(error["error"].as_str().unwrap().contains("to be asked again after 3600 s"), "{error}");
    let run = sandbox.peat("model method run m execute --json").status(1);
    assert!(run.err.contains("3600 s") && run.out.is_empty(), "{run:?}");
}

#[test]
fn ctrl_c_ends_the_waiting_for_a_busy_store() {
    let server = S3Server::start().unwrap();
    let sandbox = shared(&server);
    let busy = Canned::error(503, "SlowDown", "Please reduce your request rate").with_header("retry-after", "30");
    for key in ["", "/log/"] {
        server.script_times(Method::GET, key, 1, 99, Fault::Reply(busy.clone()));
    }
    server.clear_log();
    let begin = std::time::Instant::now();
    let child = sandbox.command(["datastore", "sync", "--pull"]).spawn().unwrap();
    while server.log().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    crate::killed::signal(&child, "-INT");
    let ended = child.wait_with_output().unwrap();
    assert_ne!(ended.status.code(), Some(0), "{ended:?}");
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "it did not wait the thirty seconds");
}

#[test]
fn the_doctor_tries_again_what_the_store_can_do() {
    let server = S3Server::start().unwrap();
    let sandbox = shared(&server);
    let probe = |words: &str, status| {
        let report = sandbox.peat(words).status(status).json();
        let of = |f: &&serde_json::Value| f["check"] == "probe";
        report["healthFindings"]
            .as_array()
            .unwrap()
            .iter()
            .find(of)
            .map(|f| (f["passed"].clone(), f["message"].clone()))
    };
    assert!(probe("doctor --json", 0).is_none());
    assert_eq!(probe("doctor --probe --json", 0).unwrap().0, true);
    // The server was replaced by one that ignores the condition.
    server.set_lie(Some(peat_testkit::liars::Lie::IgnoresCondition));
    let (passed, message) = probe("doctor --probe --json", 1).unwrap();
    assert!(passed == false && message.as_str().unwrap().contains("second create"), "{message}");
}
