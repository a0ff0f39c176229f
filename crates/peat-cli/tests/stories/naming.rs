//! Several namespaces in one store: set, left, renamed, and read from outside.

use crate::machine::{Machine, Shop};

fn with_run(user: &str, shop: &Shop, said: &str) -> Machine {
    let machine = Machine::new(user, shop);
    machine.peat("init");
    machine.peat("model create command/shell hello");
    machine.run("hello", &format!("echo {said}"));
    machine
}

fn names(machine: &Machine) -> Vec<String> {
    let list = machine.peat("datastore namespace list");
    assert_eq!(list["limited"], false, "{list}");
    let rows = list["namespaces"].as_array().unwrap().iter();
    rows.map(|row| row["namespace"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn namespaces_are_set_left_and_renamed() {
    let shop = Shop::open();
    let ann = with_run("ann", &shop, "hi");
    ann.share(&shop);
    ann.peat("datastore namespace set ops --dry-run");
    assert_eq!(names(&ann), ["infra"]);
    ann.peat("datastore namespace set ops");
    assert_eq!(names(&ann), ["infra", "ops"]);
    ann.refused(["data", "get", "hello", "result"], "not_found");
    ann.run("hello", "echo in ops");
    ann.peat("datastore namespace set infra");
    assert_eq!(ann.peat("data get hello result")["content"]["stdout"], "hi");

    let ben = ann.cloned("ben", &shop);
    ben.peat("datastore sync --pull");
    let taken = ann.refused(["datastore", "namespace", "rename", "ops", "--yes"], "two_histories");
    assert!(taken["error"].as_str().unwrap().contains("ops"), "{taken}");
    let plan = ann.peat("datastore namespace rename main");
    assert_eq!(plan["dryRun"], true, "{plan}");
    let done = ann.peat("datastore namespace rename main --yes");
    assert_eq!(done["objectsCopied"], plan["objectsCopied"], "{plan} {done}");
    let moved = ben.refused(["model", "method", "run", "hello", "execute", "--input", "run=true"], "moved");
    assert!(moved["hint"].as_str().unwrap().contains("--namespace main"), "{moved}");
    ben.ok(shop.setup(shop.url(), &["--namespace", "main"]));
    ben.run("hello", "echo again");
    ann.peat("datastore sync --pull");
    assert_eq!(ann.versions("hello", "result"), [1, 2]);
    ann.peat("datastore namespace unset --migrate");
    assert_eq!(ann.peat("status")["namespace"], "default");
    assert_eq!(ann.versions("hello", "result"), [1, 2]);
    ann.verify();
}

#[test]
fn another_namespace_is_read_and_never_written() {
    let shop = Shop::open();
    let (ann, eve) = (with_run("ann", &shop, "hi"), with_run("eve", &shop, "paid"));
    ann.share(&shop);
    eve.ok(shop.setup(shop.url(), &["--namespace", "pay"]));
    assert_eq!(names(&ann), ["infra", "pay"]);
    let objects = || eve.peat("ledger ls")["objects"].as_array().unwrap().len();
    let before = objects();
    ann.peat("datastore catalog pull --namespaces pay");
    let theirs = |words: &str| ann.peat(&format!("data get pay:hello result {words}"));
    assert_eq!((&theirs("")["content"]["stdout"], &theirs("")["version"]), (&"paid".into(), &1.into()));
    eve.run("hello", "echo paid again");
    assert_eq!(theirs("")["version"], 1, "what is known here");
    assert_eq!(theirs("--fresh")["content"]["stdout"], "paid again");
    assert_eq!(ann.peat("data versions pay:hello result")["total"], 2);
    assert_eq!(ann.peat("model output get pay:hello")["status"], "succeeded");
    assert_eq!(objects(), before + 2, "eve's own two entries");
    let taken = ann.refused(["datastore", "namespace", "set", "pay"], "namespace_taken");
    assert!(!taken["hint"].as_str().unwrap().is_empty());
    assert_eq!(ann.peat("data get hello result")["content"]["stdout"], "hi");
    eve.verify();
}
