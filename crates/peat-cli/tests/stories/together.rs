//! Two machines at the same time.

use crate::machine::{Machine, Shop, json, runs};

fn two(shop: &Shop) -> (Machine, Machine) {
    let ann = Machine::new("ann", shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    ann.peat("model create command/shell world");
    ann.share(shop);
    let ben = ann.cloned("ben", shop);
    (ann, ben)
}

/// The main job: a run on one machine is seen on the other.
#[test]
fn a_run_on_one_machine_is_seen_on_the_other() {
    let shop = Shop::open();
    let (ann, ben) = two(&shop);
    ann.run("hello", "echo hi");
    ben.peat("datastore sync --pull");
    let seen = ben.peat("data get hello result");
    assert_eq!(seen["content"]["stdout"], "hi");
    assert_eq!(seen["version"], 1);
    ben.run("hello", "echo there");
    let fresh = ann.peat("data get hello result --fresh");
    assert_eq!((&fresh["content"]["stdout"], &fresh["version"]), (&"there".into(), &2.into()));
    assert_eq!(ann.versions("hello", "result"), [1, 2]);
}

/// Both run different models as fast as they can: nothing is lost, nothing doubled, nobody waits for a lease.
#[test]
fn different_models_in_a_tight_loop() {
    let shop = Shop::open();
    let (ann, ben) = two(&shop);
    let work = |machine: &Machine, model: &str| {
        for n in 0..runs() {
            let run = format!("run=echo {n}");
            let args = ["model", "method", "run", model, "execute", "--input", &run, "--json", "--lock-timeout", "1"];
            let output = machine.command(args).output().unwrap();
            let report = json(&output);
            assert_eq!(report["status"], "succeeded", "{report}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("wait"), "somebody waited: {said}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(&ann, "hello"));
        scope.spawn(|| work(&ben, "world"));
    });
    let all: Vec<u64> = (1..=u64::from(runs())).collect();
    for machine in [&ann, &ben] {
        machine.peat("datastore sync --pull");
        for model in ["hello", "world"] {
            assert_eq!(machine.versions(model, "result"), all);
            let last = machine.peat(&format!("data get {model} result"));
            assert_eq!(last["content"]["stdout"], (runs() - 1).to_string());
        }
        let pending = machine.peat("pending list");
        assert_eq!(pending["changes"].as_array().or(pending["pending"].as_array()).map(Vec::len), Some(0), "{pending}");
    }
    let verified = ann.peat("ledger verify --deep");
    assert_eq!(verified["findings"].as_array().map(Vec::len), Some(0), "{verified}");
}

/// Both run the same model: one after the other, versions 1 to n without gap or double.
#[test]
fn the_same_model_is_serialised() {
    let shop = Shop::open();
    let (ann, ben) = two(&shop);
    let runs = runs().min(40);
    let work = |machine: &Machine, who: &str| {
        for n in 0..runs {
            machine.run("hello", &format!("echo {who} {n}"));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(&ann, "ann"));
        scope.spawn(|| work(&ben, "ben"));
    });
    for machine in [&ann, &ben] {
        machine.peat("datastore sync --pull");
        assert_eq!(machine.versions("hello", "result"), (1..=2 * u64::from(runs)).collect::<Vec<_>>());
    }
}
