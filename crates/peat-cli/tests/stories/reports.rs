//! The reports this project answers first, end to end.

use serde_json::Value;

use crate::machine::{Machine, Shop};

fn requests(report: &Value) -> u64 {
    report["stats"]["requests"].as_u64().unwrap_or_else(|| panic!("no figures in {report}"))
}

/// R1: a pull for one model costs what that model costs, and does not move the marker that says "seen everything".
#[test]
fn report_r1_scoped_pull_is_bounded_and_leaves_the_position() {
    let shop = Shop::open();
    let ann = Machine::new("ann", &shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    for n in 0..12 {
        ann.peat(&format!("model create command/shell other-{n}"));
    }
    ann.share(&shop);
    ann.run("hello", "echo hi");
    let ben = ann.cloned("ben", &shop);
    ben.peat("datastore sync --pull");
    let before = ben.peat("status");
    for n in 0..12 {
        ann.run(&format!("other-{n}"), "echo noise");
    }
    ann.run("hello", "echo again");
    let scoped = ben.ok(["data", "get", "hello", "result", "--fresh", "--stats"]);
    assert_eq!(scoped["content"]["stdout"], "again");
    assert!(requests(&scoped) <= 3, "{scoped}");
    let after = ben.peat("status");
    assert!(before["position"].is_number(), "{before}");
    assert_eq!(before["position"], after["position"]);
    // Not taken for a complete clone: the next whole pull brings the rest.
    ben.peat("datastore sync --pull");
    assert_eq!(ben.versions("other-11", "result"), [1]);
}

/// R3: on a fresh bucket nothing warns, and from the second command on a pull that has nothing to do is one request.
#[test]
fn report_r3_fresh_bucket_is_silent_and_a_no_op_pull_is_one_request() {
    let shop = Shop::open();
    let ann = Machine::new("ann", &shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    ann.share(&shop);
    for n in 0..4 {
        let run = format!("run=echo {n}");
        let output = ann.command(["model", "method", "run", "hello", "execute", "--input", &run]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("warn"), "{said}");
        let pull = ann.ok(["datastore", "sync", "--pull", "--stats"]);
        assert_eq!(requests(&pull), 1, "{pull}");
    }
    assert_eq!(ann.versions("hello", "result"), [1, 2, 3, 4]);
}
