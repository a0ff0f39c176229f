//! What is sent and fetched is what the plan said; files changed by hand; changes that waited for the store.

use crate::machine::{Machine, Shop};

fn two(shop: &Shop) -> (Machine, Machine) {
    let ann = Machine::new("ann", shop);
    ann.peat("init");
    for model in ["hello", "world"] {
        ann.peat(&format!("model create command/shell {model}"));
    }
    ann.share(shop);
    ann.run("hello", "echo one");
    let ben = ann.cloned("ben", shop);
    ben.peat("datastore sync --pull");
    (ann, ben)
}

/// A content file in the tree of a machine.
fn content(machine: &Machine) -> std::path::PathBuf {
    machine.peat("data get hello result")["contentPath"].as_str().unwrap().into()
}

#[test]
fn a_pull_does_what_its_plan_says() {
    let shop = Shop::open();
    let (ann, ben) = two(&shop);
    for n in 0..3 {
        ann.run("world", &format!("echo {n}"));
    }
    let plan = ben.peat("datastore sync --pull --dry-run");
    assert_eq!(plan["pull"]["exact"], true, "{plan}");
    assert_eq!(ben.peat("status")["position"], plan["pull"]["from"], "a plan changes nothing");
    let done = ben.peat("datastore sync --pull --stats");
    assert_eq!((&done["from"], &done["to"]), (&plan["pull"]["from"], &plan["pull"]["to"]));
    assert_eq!(done["filesPulled"], plan["pull"]["puts"], "{plan} {done}");
    let (asked, least) = (done["stats"]["requests"].as_u64().unwrap(), plan["requests"].as_u64().unwrap());
    assert!(asked >= 1 && asked >= least && asked <= least + 6, "{plan} {done}");
    let again = ben.peat("datastore sync --pull --stats");
    assert_eq!((&again["filesPulled"], &again["stats"]["requests"]), (&0.into(), &1.into()));
}

#[test]
fn a_change_that_waited_is_planned_sent_once_and_seen() {
    let shop = Shop::open();
    let (ann, mut ben) = two(&shop);
    ben.cut_off(true);
    let run = ["model", "method", "run", "world", "execute", "--offline", "--input", "run=echo waited"];
    let waits = ben.ok(run);
    assert_eq!((&waits["status"], &waits["unleased"]), (&"succeeded".into(), &true.into()), "{waits}");
    ben.refused(["model", "method", "run", "world", "execute", "--input", "run=true"], "offline");
    ben.cut_off(false);
    ann.run("hello", "echo meanwhile");
    let plan = ben.peat("datastore sync --dry-run");
    assert_eq!((plan["changes"].as_array().map(Vec::len), &plan["deletes"]), (Some(1), &0.into()), "{plan}");
    let done = ben.peat("datastore sync");
    assert_eq!(done["changesCommitted"], 1, "{done}");
    assert_eq!(ben.peat("datastore sync")["changesCommitted"], 0);
    ann.peat("datastore sync --pull");
    assert_eq!((ann.versions("world", "result"), ann.versions("hello", "result")), (vec![1], vec![1, 2]));
    assert_eq!(ann.peat("data get world result")["content"]["stdout"], "waited");
    ann.verify();
}

#[test]
fn what_was_changed_by_hand_is_shown_sent_when_asked_and_never_overwritten() {
    let shop = Shop::open();
    let (ann, ben) = two(&shop);
    std::fs::write(content(&ben), "by hand").unwrap();
    assert_eq!(ben.peat("status")["byHand"][0]["kind"], "modified");
    assert_eq!(ben.peat("datastore sync --push --dry-run")["byHand"].as_array().map(Vec::len), Some(1));
    let done = ben.peat("datastore sync --push");
    assert!(done["changesCommitted"].as_u64().unwrap() >= 1, "{done}");
    ann.peat("datastore sync --pull");
    assert_eq!(std::fs::read_to_string(content(&ann)).unwrap(), "by hand");
    // Both change the same file: the second one is told, and keeps what it wrote.
    std::fs::write(content(&ann), "ann's").unwrap();
    std::fs::write(content(&ben), "ben's").unwrap();
    ann.peat("datastore sync --push");
    let late = ben.command(["datastore", "sync", "--push", "--json"]).output().unwrap();
    assert!(!late.status.success(), "{late:?}");
    ben.peat("datastore sync --pull");
    assert_eq!(std::fs::read_to_string(content(&ben)).unwrap(), "ann's");
    let told = String::from_utf8_lossy(&late.stderr).into_owned();
    let kept = told.split("what it held is in ").nth(1).and_then(|rest| rest.split('"').next());
    assert_eq!(std::fs::read_to_string(kept.unwrap_or_else(|| panic!("{told}"))).unwrap(), "ben's");
    ben.verify();
}

#[test]
fn many_deletes_stop_until_they_are_meant() {
    let shop = Shop::open();
    let (ann, _) = two(&shop);
    let marker = ann.repo().join(".peat.yaml");
    let mut text = std::fs::read_to_string(&marker).unwrap().trim_end().to_owned();
    text.push_str("\n  deleteLimit: { items: 2, percent: 90 }\n");
    std::fs::write(&marker, text).unwrap();
    ann.run("world", "echo stays");
    let too_many = ann.refused(["restore", "--at", "0"], "too_many_deletes");
    assert!(too_many["hint"].as_str().unwrap().contains("--allow-deletes"), "{too_many}");
    assert_eq!((ann.versions("hello", "result"), ann.versions("world", "result")), (vec![1], vec![1]));
    ann.peat("restore --at 0 --allow-deletes");
    ann.refused(["data", "get", "hello", "result"], "not_found");
    let undo = ann.peat("log -n 1")["entries"][0]["seq"].as_u64().unwrap();
    ann.peat(&format!("undo {undo}"));
    assert_eq!((ann.versions("hello", "result"), ann.versions("world", "result")), (vec![1], vec![1]));
    ann.verify();
}
