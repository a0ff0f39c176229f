//! The past on the store: history, undo, restore, pins, collection, and what is purged for good.

use crate::machine::{Machine, Shop};

fn seqs(machine: &Machine, words: &str) -> Vec<u64> {
    let log = machine.peat(words);
    log["entries"].as_array().unwrap().iter().map(|entry| entry["seq"].as_u64().unwrap()).collect()
}

#[test]
fn what_was_done_is_looked_at_compared_and_taken_back() {
    let shop = Shop::open();
    let ann = Machine::new("ann", &shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    ann.share(&shop);
    ann.run("hello", "echo one");
    ann.run("hello", "echo two");
    let ben = ann.cloned("ben", &shop);
    assert_eq!(seqs(&ben, "log"), [4, 3, 2, 1, 0]);
    ben.peat("show 4");
    ben.peat("diff 2");
    assert_eq!(ben.peat("data get hello result --at 2")["content"]["stdout"], "one");
    let undone = ben.peat("undo 4");
    assert_eq!(undone["entry"], 5, "{undone}");
    ann.peat("datastore sync --pull");
    assert_eq!(ann.versions("hello", "result"), [1]);
    ann.refused(["undo", "4"], "nothing_to_undo");
    ann.peat("restore --at 4");
    ben.peat("datastore sync --pull");
    assert_eq!(ben.peat("data get hello result")["content"]["stdout"], "two");
    ben.verify();
}

#[test]
fn what_is_pinned_stays_and_what_is_purged_is_gone_for_good() {
    let shop = Shop::open();
    let ann = Machine::new("ann", &shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    ann.peat("model create command/shell other");
    ann.share(&shop);
    ann.run("hello", "echo one");
    ann.run("other", "head -c 200000 /dev/zero | tr '\\0' x");
    ann.peat("pin add release --at 2");
    let ben = ann.cloned("ben", &shop);
    assert_eq!(ben.peat("pin list")["pins"][0]["name"], "release");
    let pinned = ben.refused(["datastore", "purge", "hello", "result", "--yes"], "pinned");
    assert!(pinned["hint"].as_str().unwrap().contains("'peat pin rm release'"), "{pinned}");
    ben.peat("pin rm release");
    let plan = ben.peat("datastore gc --dry-run");
    assert_eq!(plan["dryRun"], true, "{plan}");
    ben.peat("ledger maintain --force");
    ben.peat("datastore gc");
    ben.peat("datastore purge hello result --yes");
    ann.peat("datastore sync --pull");
    ann.refused(["data", "get", "hello", "result"], "not_found");
    ann.refused(["data", "get", "hello", "result", "--at", "2"], "state_not_kept");
    let large = ann.peat("data get other result");
    assert_eq!(large["content"]["stdout"].as_str().map(str::len), Some(200_000));
    ann.run("hello", "echo two");
    ben.peat("datastore sync --pull");
    assert_eq!(ben.peat("data get hello result")["content"]["stdout"], "two");
    ben.verify();
}
