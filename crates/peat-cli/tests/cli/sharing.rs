//! Two clones of one shared store, in a folder and behind the S3 protocol. Longer stories, also on real servers, are in
//! `tests/stories`.

use std::path::PathBuf;

use peat_testkit::liars::Lie;
use peat_testkit::s3::{Fault, S3Server, SECRET_KEY};

use crate::sandbox::Sandbox;

/// A store to share, and what leads there.
struct Place {
    url: String,
    flags: Vec<String>,
    vars: Vec<(String, String)>,
}

impl Place {
    fn bucket(server: &S3Server) -> Self {
        // Address on the command line, as a user of a server of one's own gives it; keys from the environment.
        let (vars, _) = server.vars().into_iter().partition(|(name, _)| name.contains("KEY"));
        let flags = vec!["--endpoint".to_owned(), server.endpoint(), "--path-style".to_owned()];
        Self { url: server.url(), flags, vars }
    }

    fn setup(&self, sandbox: &Sandbox, namespace: &str) -> crate::sandbox::Ran {
        let args = ["datastore", "setup", &self.url, "--namespace", namespace, "--json"];
        sandbox.run(args.into_iter().map(str::to_owned).chain(self.flags.iter().cloned()))
    }
}

/// A repo moved to the shared place, and a copy of its git files used from another home.
fn two(place: Option<&Place>, namespace: &str) -> (Sandbox, Sandbox) {
    let (mut ann, mut bob) = (Sandbox::with_model("echo from ann"), Sandbox::new());
    for (name, value) in place.iter().flat_map(|place| &place.vars) {
        ann.set(name, value);
        bob.set(name, value);
    }
    ann.model("web", "echo web");
    ann.peat("model method run m execute").ok();
    let setup = match place {
        Some(place) => place.setup(&ann, namespace),
        None => {
            std::fs::create_dir(ann.path("shared")).unwrap();
            let url = format!("file://{}", ann.path("shared").display());
            Place { url, flags: Vec::new(), vars: Vec::new() }.setup(&ann, namespace)
        }
    };
    let setup = setup.ok().json();
    assert_eq!((&setup["created"], &setup["namespace"]), (&true.into(), &namespace.into()));
    assert!(setup["itemsCopied"].as_u64().unwrap() > 0, "{setup}");
    for file in [".peat.yaml", "models/command/shell/m.yaml", "models/command/shell/web.yaml"] {
        let text = std::fs::read_to_string(ann.repo().join(file)).unwrap();
        bob.write(&format!("repo/{file}"), &text);
    }
    (ann, bob)
}

fn what_ran_here_is_seen_there(ann: &Sandbox, bob: &Sandbox, namespace: &str) {
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
    assert!(missing["hint"].as_str().unwrap().contains("'peat datastore sync --pull'"), "{missing}");
    let status = bob.peat("status --json").ok().json();
    assert_eq!((&status["namespace"], &status["private"]), (&namespace.into(), &false.into()));
    assert!(PathBuf::from(status["clonePath"].as_str().unwrap()).starts_with(bob.path("peat-home")));
    assert_eq!(bob.peat("datastore status --json").ok().json()["healthy"], true);
    assert_eq!(bob.peat("doctor --json").ok().json()["overallStatus"], "pass");
}

fn runs_take_turns(ann: &Sandbox, bob: &Sandbox) {
    let run = |who: &Sandbox, model: &str| {
        let args = ["model", "method", "run", model, "execute", "--json", "--input", "run=sleep 0.2"];
        who.command(args).spawn().unwrap()
    };
    let all = [run(ann, "m"), run(bob, "m"), run(ann, "web"), run(bob, "web")];
    for ended in all.map(|child| child.wait_with_output().unwrap()) {
        assert!(ended.status.success(), "{ended:?}");
    }
    assert_eq!(bob.peat("data versions m result --fresh --json").ok().json()["total"], 4);
    assert_eq!(ann.peat("data versions web result --fresh --json").ok().json()["total"], 2);
    ann.peat("ledger verify --deep").ok();
}

#[test]
fn two_clones_of_a_folder() {
    let (ann, bob) = two(None, "infra");
    what_ran_here_is_seen_there(&ann, &bob, "infra");
    runs_take_turns(&ann, &bob);
}

#[test]
fn two_clones_of_a_bucket() {
    let server = S3Server::start().unwrap();
    let (ann, bob) = two(Some(&Place::bucket(&server)), "infra");
    what_ran_here_is_seen_there(&ann, &bob, "infra");
    runs_take_turns(&ann, &bob);
    assert!(server.keys().iter().all(|key| key.starts_with("peat/infra/")), "{:?}", server.keys());
}

#[test]
fn secrets_are_not_in_the_most_talkative_log() {
    let server = S3Server::start().unwrap();
    let place = Place::bucket(&server);
    let mut ann = Sandbox::with_model("echo hi");
    place.vars.iter().for_each(|(name, value)| ann.set(name, value));
    ann.set("AWS_SESSION_TOKEN", "token-of-session");
    ann.set("PEAT_LOG_LEVEL", "trace");
    let ran = place.setup(&ann, "infra").ok();
    assert!(ran.err.contains("canonical_request"), "the signer is heard too: {ran:?}");
    for secret in [SECRET_KEY, "token-of-session"] {
        assert!(!ran.err.contains(secret) && !ran.out.contains(secret), "{secret}");
    }
    assert!(server.log().iter().all(|request| request.header("x-amz-security-token") == Some("token-of-session")));
}

#[test]
fn a_store_that_lies_is_refused_and_nothing_changes() {
    let server = S3Server::start().unwrap();
    server.set_lie(Some(Lie::IgnoresCondition));
    let place = Place::bucket(&server);
    let mut ann = Sandbox::with_model("echo hi");
    place.vars.iter().for_each(|(name, value)| ann.set(name, value));
    let before = std::fs::read_to_string(ann.repo().join(".peat.yaml")).unwrap();
    let refused = place.setup(&ann, "infra").status(1);
    assert_eq!(refused.error()["code"], "store_refused", "{refused:?}");
    assert_eq!(std::fs::read_to_string(ann.repo().join(".peat.yaml")).unwrap(), before);
    ann.peat("model method run m execute").ok();
}

#[test]
fn a_server_that_is_away_is_offline_and_reads_go_on() {
    let server = S3Server::start().unwrap();
    let (ann, _bob) = two(Some(&Place::bucket(&server)), "infra");
    drop(server);
    let run = ann.peat("model method run m execute --json").status(1);
    assert_eq!((&run.error()["code"], run.out.as_str()), (&"offline".into(), ""), "{run:?}");
    assert_eq!(ann.peat("data get m result --json").ok().json()["content"]["stdout"], "from ann");
    assert_eq!(ann.peat("pending list --json").ok().json()["total"], 0);
    let offline = ann.peat("model method run m execute --offline --json").ok();
    assert_eq!((&offline.json()["unleased"], &offline.json()["seq"]), (&true.into(), &serde_json::Value::Null));
    assert!(offline.err.contains("'peat datastore sync --push' commits them"), "{offline:?}");
    let failed = ann.peat("model method run m execute --offline --input run=false --json").status(1);
    assert_eq!(failed.error()["code"], "method_execution_failed", "{failed:?}");
    assert!(failed.err.contains("'peat datastore sync --push' commits them"), "{failed:?}");
    assert_eq!(ann.peat("pending list --json").ok().json()["total"], 2);
}

#[test]
fn a_synchronisation_and_a_setup_may_be_given_a_time() {
    let server = S3Server::start().unwrap();
    let place = Place::bucket(&server);
    let (ann, _bob) = two(Some(&place), "infra");
    ann.peat("datastore sync -y --timeout 1h").ok();
    ann.peat("datastore sync --push --confirm").ok();
    ann.peat("datastore namespace unset --migrate --dry-run -y").ok();
    ann.peat("datastore namespace rename other --dry-run").ok();
    ann.peat("datastore namespace rename other --dry-run --yes").status(2);
    for wrong in ["sync --timeout 0", "sync --timeout soon", "setup s3://b/p --timeout -1"] {
        ann.peat(&format!("datastore {wrong}")).status(2);
    }
    server.script_times(http::Method::GET, "", 1, u32::MAX, Fault::Slow(std::time::Duration::from_secs(60)));
    let setup = format!("setup {} --namespace other --endpoint {} --timeout 300ms", place.url, server.endpoint());
    for command in ["sync --timeout 300ms", "sync --dry-run --timeout 300ms", &setup] {
        let stopped = ann.peat(&format!("datastore {command} --json")).status(1).error();
        assert_eq!(stopped["code"], "timeout", "{stopped}");
        assert!(stopped["error"].as_str().unwrap().contains("300 ms"), "{stopped}");
    }
}

#[test]
fn a_taken_lease_parks_the_loser_and_it_can_be_adopted() {
    let (ann, bob) = two(None, "infra");
    let args = ["model", "method", "run", "m", "execute", "--json", "--input", "run=touch started; sleep 3"];
    let holder = ann.command(args).spawn().unwrap();
    crate::runs::wait_for(&ann, "repo/started");
    assert_eq!(bob.peat("datastore lock release --force --model m --json").ok().json()["released"], true);
    bob.run(["model", "method", "run", "m", "execute", "--input", "run=echo after"]).ok();
    let ended = holder.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let parked = ann.peat("pending list --json").ok().json();
    assert_eq!((&parked["total"], &parked["changes"][0]["status"]), (&1.into(), &"parked".into()), "{parked}");
    let change = parked["changes"][0]["change"].as_str().unwrap();
    assert_eq!(ann.run(["pending", "show", &change[..8], "--json"]).ok().json()["change"], change);
    ann.run(["pending", "adopt", change, "--json"]).ok();
    assert_eq!(ann.peat("pending list --json").ok().json()["total"], 0);
    assert_eq!(bob.peat("data versions m result --fresh --json").ok().json()["total"], 3);
}

#[test]
fn a_second_checkout_without_the_shared_store_says_so() {
    let ann = Sandbox::with_model("echo hi");
    ann.peat("model method run m execute").ok();
    let bob = Sandbox::new();
    for file in [".peat.yaml", "models/command/shell/m.yaml"] {
        let text = std::fs::read_to_string(ann.repo().join(file)).unwrap();
        bob.write(&format!("repo/{file}"), &text);
    }
    let missing = bob.peat("data get m result").status(1);
    assert!(missing.err.contains("'peat datastore setup"), "{}", missing.err);
    assert!(bob.peat("status").ok().out.contains("peat datastore setup"));
}

#[test]
fn setup_copies_everything_although_the_index_was_lost() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model method run m execute").ok();
    std::fs::remove_file(sandbox.path("repo/.peat/state.db")).unwrap();
    std::fs::create_dir(sandbox.path("shared")).unwrap();
    let url = format!("file://{}", sandbox.path("shared").display());
    let setup = sandbox.run(["datastore", "setup", &url, "--json"]).ok().json();
    assert!(setup["itemsCopied"].as_u64().unwrap() >= 6, "{setup}");
    assert_eq!(sandbox.peat("data get m result --json").ok().json()["content"]["stdout"], "hi");
}

#[test]
fn private_data_that_a_marker_from_git_hides_is_told() {
    let (ann, _) = two(None, "ops");
    let bob = Sandbox::with_model("echo from bob");
    bob.peat("model method run m execute").ok();
    let quiet = |sandbox: &Sandbox| {
        let told = ["status", "doctor", "datastore status"].map(|words| sandbox.peat(words));
        told.map(|ran| ran.out.contains("holds a private datastore"))
    };
    assert_eq!(quiet(&bob), [false; 3], "it is in use");
    assert_eq!(quiet(&ann), [false; 3], "all of it was taken along");
    // The repos are one: the id is that of the marker.
    let marker = std::fs::read_to_string(ann.repo().join(".peat.yaml")).unwrap();
    bob.write("repo/.peat.yaml", &marker);
    assert_eq!(quiet(&bob), [true; 3], "{}", bob.peat("status").out);
    let url = format!("file://{}", ann.path("shared").display());
    let joined = bob.run(["datastore", "setup", &url, "--namespace", "ops"]).ok();
    assert!((joined.out + &joined.err).contains("of the private datastore in .peat/ are not in this one"));
    assert!(bob.peat("status --json").ok().json()["notes"].to_string().contains("that are in no shared one"));
}
