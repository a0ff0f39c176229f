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

/// Eight terminals of one machine: their changes go out together, and the store is asked less than if they were strangers.
#[test]
fn processes_of_one_clone_go_to_the_store_together() {
    const MODELS: usize = 8;
    let shop = Shop::open();
    let ann = Machine::new("ann", &shop);
    ann.peat("init");
    for n in 0..MODELS {
        ann.peat(&format!("model create command/shell m{n}"));
    }
    ann.share(&shop);
    shop.slow(std::time::Duration::from_millis(60));
    let all_at_once = || -> u64 {
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..MODELS)
                .map(|n| {
                    scope.spawn({
                        let ann = &ann;
                        move || ann.run(&format!("m{n}"), "echo hi")
                    })
                })
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()["stats"]["requests"].as_u64().unwrap()).sum()
        })
    };
    let together = all_at_once();
    let queue = ann.clone_dir().join("queue");
    let waiting = std::fs::read_dir(&queue).unwrap().map(|entry| entry.unwrap().file_name());
    let waiting: Vec<_> = waiting.filter(|name| name.to_string_lossy().ends_with(".tx")).collect();
    assert!(waiting.is_empty(), "{waiting:?}");
    // As before there was a queue, and as on a disk without locks.
    std::fs::remove_dir_all(&queue).unwrap();
    std::fs::write(&queue, "in the way").unwrap();
    let strangers = all_at_once();
    assert!(together < strangers, "{together} requests together, {strangers} as strangers");
    for n in 0..MODELS {
        assert_eq!(ann.versions(&format!("m{n}"), "result"), [1, 2]);
    }
    let verified = ann.peat("ledger verify --deep");
    assert_eq!(verified["findings"].as_array().map(Vec::len), Some(0), "{verified}");
}
