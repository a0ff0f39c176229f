//! Following: a run on one machine is seen on another, once, whatever happens to who follows.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::machine::{Machine, Shop, runs, until};

/// A follower and what it printed so far.
struct Follower {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
    reader: std::thread::JoinHandle<()>,
}

impl Follower {
    fn start(machine: &Machine) -> Self {
        let args = ["datastore", "watch", "--since", "0", "--interval", "200ms", "--json"];
        let mut child = machine.command(args).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let lines: Arc<Mutex<Vec<Value>>> = Arc::default();
        let to = lines.clone();
        let reader = std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                to.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child, lines, reader }
    }

    fn seen(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    /// Kills it, and gives entry and change of every line.
    fn killed(mut self) -> Vec<(u64, String)> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.join().unwrap();
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|line| (line["seq"].as_u64().unwrap(), line["change"].as_str().unwrap().to_owned())).collect()
    }
}

#[test]
fn a_follower_on_another_machine_sees_every_change_once_though_it_is_killed() {
    let shop = Shop::open();
    let ann = Machine::new("ann", &shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    ann.share(&shop);
    let ben = ann.cloned("ben", &shop);
    let limit = Duration::from_secs(8);

    let follower = Follower::start(&ben);
    for n in 0..runs() {
        ann.run("hello", &format!("echo {n}"));
    }
    let wanted = 2 * runs() as usize;
    until(limit, "what happened while it followed", || follower.seen() >= wanted);
    let mut seen = follower.killed();
    // While nobody followed.
    for n in 0..runs() {
        ann.run("hello", &format!("echo {n}"));
    }
    let follower = Follower::start(&ben);
    until(limit, "what happened while nobody followed", || follower.seen() >= wanted);
    // What it saw is here: no request is needed to read it.
    assert_eq!(ben.versions("hello", "result").len(), wanted);
    seen.extend(follower.killed());

    // The change that was being printed when it was killed may come again; nothing else does.
    seen.dedup();
    let log = ann.peat("log -n 1000");
    let mut all: Vec<(u64, String)> = Vec::new();
    for entry in log["entries"].as_array().unwrap().iter().rev().skip(1) {
        for tx in entry["transactions"].as_array().unwrap() {
            all.push((entry["seq"].as_u64().unwrap(), tx["change"].as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(seen, all);
}
