//! Two clones of one shared store.

use std::path::PathBuf;
use std::process::Stdio;

use crate::sandbox::Sandbox;

/// A repo moved to a shared folder, and a copy of its git files used from another home.
fn two() -> (Sandbox, Sandbox) {
    let ann = Sandbox::with_model("echo from ann");
    ann.model("n", "echo n");
    ann.peat("model method run m execute").ok();
    std::fs::create_dir(ann.path("shared")).unwrap();
    let url = format!("file://{}", ann.path("shared").display());
    let setup = ann.run(["datastore", "setup", &url, "--namespace", "infra", "--json"]).ok().json();
    assert_eq!((&setup["created"], &setup["namespace"]), (&true.into(), &"infra".into()));
    let bob = Sandbox::new();
    for file in [".peat.yaml", "models/command/shell/m.yaml", "models/command/shell/n.yaml"] {
        let text = std::fs::read_to_string(ann.repo().join(file)).unwrap();
        bob.write(&format!("repo/{file}"), &text);
    }
    (ann, bob)
}

#[test]
fn what_ran_here_is_seen_there() {
    let (ann, bob) = two();
    let seen = bob.peat("data get m result --fresh --json").ok().json();
    assert_eq!((&seen["version"], &seen["content"]["stdout"]), (&1.into(), &"from ann".into()));
    bob.run(["model", "method", "run", "m", "execute", "--input", "run=echo from bob"]).ok();
    assert_eq!(ann.peat("data get m result --json").ok().json()["version"], 1, "a read does not ask the store");
    let sync = ann.peat("datastore sync --pull --json --stats").ok().json();
    assert!(sync["filesPulled"].as_u64().unwrap() > 0, "{sync}");
    assert_eq!(ann.peat("data get m result --json").ok().json()["content"]["stdout"], "from bob");
    let again = ann.peat("datastore sync --pull --json --stats").ok().json();
    assert_eq!(again["stats"]["requests"], 1, "{again}");
    let missing = ann.peat("data get m nope --json").status(1).error();
    assert!(missing["hint"].as_str().unwrap().contains("peat datastore sync --pull"), "{missing}");
    let status = bob.peat("status --json").ok().json();
    assert_eq!((&status["namespace"], &status["private"]), (&"infra".into(), &false.into()));
    assert!(PathBuf::from(status["clonePath"].as_str().unwrap()).starts_with(bob.path("peat-home")));
}

#[test]
fn runs_of_one_model_take_turns_and_others_do_not_wait() {
    let (ann, bob) = two();
    let run = |who: &Sandbox, model: &str| {
        let args = ["model", "method", "run", model, "execute", "--json", "--input", "run=sleep 0.2"];
        who.command(args).stdout(Stdio::null()).spawn().unwrap()
    };
    let all = [run(&ann, "m"), run(&bob, "m"), run(&ann, "n"), run(&bob, "n")];
    for ended in all.map(|child| child.wait_with_output().unwrap()) {
        assert!(ended.status.success(), "{ended:?}");
    }
    assert_eq!(bob.peat("data versions m result --fresh --json").ok().json()["total"], 3);
    assert_eq!(ann.peat("data versions n result --fresh --json").ok().json()["total"], 2);
    ann.peat("ledger verify").ok();
}

#[test]
fn a_held_lease_can_be_released_by_force_and_the_loser_is_parked() {
    let (ann, bob) = two();
    let args = ["model", "method", "run", "m", "execute", "--json", "--input", "run=touch started; sleep 3"];
    let holder = ann.command(args).spawn().unwrap();
    crate::runs::wait_for(&ann, "repo/started");
    assert!(bob.peat("datastore lock release --force --model m --json").ok().json()["released"] == true);
    bob.run(["model", "method", "run", "m", "execute", "--input", "run=echo after"]).ok();
    let ended = holder.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let parked = ann.peat("pending list --json").ok().json();
    assert_eq!((&parked["total"], &parked["changes"][0]["status"]), (&1.into(), &"parked".into()), "{parked}");
    let change = parked["changes"][0]["change"].as_str().unwrap();
    assert_eq!(ann.run(["pending", "show", &change[..8], "--json"]).ok().json()["change"], change);
    ann.run(["pending", "adopt", change, "--json"]).ok();
    assert_eq!(ann.peat("pending list --json").ok().json()["total"], 0);
}
