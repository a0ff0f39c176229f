//! The policies that the manual prints are enough for their roles, and no statement of them is too much: with one left
//! out, something that the role is there for fails.

use std::time::Duration;

use peat_testkit::iam::Policy;
use peat_testkit::liars::Lie;
use peat_testkit::s3::S3Server;
use serde_json::Value;

use crate::sandbox::{Ran, Sandbox};

const NAMESPACE: &str = "infra";

/// A machine that knows the keys and nothing else of the server.
fn machine(server: &S3Server) -> Sandbox {
    let mut sandbox = Sandbox::new();
    let vars = server.vars();
    vars.iter().filter(|(name, _)| name.contains("KEY")).for_each(|(name, value)| sandbox.set(name, value));
    sandbox
}

/// A repo with a model and a version of data in a bucket.
fn team(server: &S3Server) -> Sandbox {
    let ann = machine(server);
    ann.peat("init").ok();
    ann.model("m", "echo hi");
    setup(server, &ann).ok();
    ann.peat("model method run m execute").ok();
    ann
}

fn setup(server: &S3Server, machine: &Sandbox) -> Ran {
    let (url, endpoint) = (server.url(), server.endpoint());
    machine.run(["datastore", "setup", &url, "--namespace", NAMESPACE, "--endpoint", &endpoint, "--json"])
}

/// Another machine with the files that are in git.
fn colleague(server: &S3Server, of: &Sandbox) -> Sandbox {
    let other = machine(server);
    for file in [".peat.yaml", "models/command/shell/m.yaml"] {
        let text = std::fs::read_to_string(of.repo().join(file)).unwrap();
        other.write(&format!("repo/{file}"), &text);
    }
    other
}

fn printed(machine: &Sandbox, role: &str) -> Policy {
    let report = machine.run(["datastore", "policy", "--role", role, "--json"]).ok().json();
    let text: Value = serde_json::from_str(&machine.run(["datastore", "policy", "--role", role]).ok().out).unwrap();
    assert_eq!(report["policy"], text, "the text is the policy and nothing else");
    Policy::parse(&text).unwrap()
}

/// The first command that fails.
fn all(machine: &Sandbox, commands: &[&str]) -> Result<(), String> {
    for command in commands {
        let ran = machine.peat(command);
        if ran.status != 0 {
            return Err(format!("{command}: {ran:?}"));
        }
    }
    Ok(())
}

/// Plays a story with the whole policy, then with each of its statements left out, always on a server of its own.
fn each_statement_is_needed(role: &str, story: impl Fn(&S3Server, &dyn Fn(&Sandbox)) -> Result<(), String>) {
    let mut left_out = None;
    loop {
        let server = S3Server::start().unwrap();
        let enforce = |of: &Sandbox| {
            let policy = printed(of, role);
            server.enforce(Some(left_out.as_ref().map_or(policy.clone(), |sid: &String| policy.without(sid))));
        };
        let outcome = story(&server, &enforce);
        match &left_out {
            None => outcome.unwrap(),
            Some(sid) => assert!(outcome.is_err(), "{role} does not need {sid}"),
        }
        let sids = printed(&sample(), role).sids();
        let next = left_out.map_or(0, |sid| sids.iter().position(|other| *other == sid).unwrap() + 1);
        left_out = sids.get(next).cloned();
        if left_out.is_none() {
            break;
        }
    }
}

/// A repo that names a bucket nobody has.
fn sample() -> Sandbox {
    let sandbox = Sandbox::repo_made();
    let marker = std::fs::read_to_string(sandbox.repo().join(".peat.yaml")).unwrap();
    sandbox.write("repo/.peat.yaml", &format!("{marker}datastore:\n  url: s3://team/a/b\n  namespace: infra\n"));
    sandbox
}

#[test]
fn a_reader_can_read_all_and_its_policy_has_nothing_to_spare() {
    each_statement_is_needed("reader", |server, enforce| {
        let ann = team(server);
        enforce(&ann);
        let bob = colleague(server, &ann);
        let joined = setup(server, &bob);
        if joined.status != 0 {
            return Err(format!("{joined:?}"));
        }
        all(
            &bob,
            &[
                "datastore status",
                "datastore sync --pull",
                "status",
                "data get m result --fresh",
                "datastore lock status",
                "log",
                "doctor",
                "ledger ls",
                "ledger verify --deep",
            ],
        )
    });
}

#[test]
fn a_reader_that_writes_is_told_which_right_it_lacks_and_leaves_nothing() {
    let server = S3Server::start().unwrap();
    let ann = team(&server);
    server.enforce(Some(printed(&ann, "reader")));
    let bob = colleague(&server, &ann);
    let before = server.keys();
    let refused = bob.peat("model method run m execute --json").status(1).error();
    assert_eq!(refused["code"], "denied", "{refused}");
    let hint = refused["hint"].as_str().unwrap();
    assert!(hint.contains("s3:PutObject") && hint.contains("'peat datastore policy --role writer'"), "{refused}");
    assert_eq!(server.keys(), before);
    assert_eq!(bob.peat("pending list --json").ok().json()["total"], 0);
    bob.peat("data get m result").ok();
}

#[test]
fn a_writer_can_do_the_days_work_and_its_policy_has_nothing_to_spare() {
    each_statement_is_needed("writer", |server, enforce| {
        let ann = machine(server);
        ann.peat("init").ok();
        ann.model("m", "echo hi");
        // From the beginning: the writer makes the namespace, too.
        enforce(&sample_of(server, &ann));
        let made = setup(server, &ann);
        if made.status != 0 {
            return Err(format!("{made:?}"));
        }
        all(
            &ann,
            &[
                "model method run m execute",
                "datastore sync",
                "data get m result --fresh",
                "ledger maintain --force",
                "model delete m --force",
                "ledger verify --deep",
            ],
        )
    });
}

/// The policy is printed before there is anything in the bucket.
fn sample_of(server: &S3Server, of: &Sandbox) -> Sandbox {
    let other = machine(server);
    let marker = std::fs::read_to_string(of.repo().join(".peat.yaml")).unwrap();
    let url = server.url();
    other.write("repo/.peat.yaml", &format!("{marker}datastore:\n  url: {url}\n  namespace: {NAMESPACE}\n"));
    other
}

#[test]
fn the_collector_can_free_and_its_policy_has_nothing_to_spare() {
    each_statement_is_needed("gc", |server, enforce| {
        let ann = team(server);
        ann.peat("ledger maintain --force").ok();
        server.age(Duration::from_secs(3 * 86_400));
        ann.peat("model method run m execute").ok();
        enforce(&ann);
        let ran = ann.peat("datastore gc --keep 1d --json");
        if ran.status != 0 {
            return Err(format!("{ran:?}"));
        }
        let report = ran.json();
        if !report["denied"].is_null() {
            return Err(report["denied"].to_string());
        }
        // Nothing is old by the writers' clocks; what a probe makes is deleted by the same right in the same folder.
        all(&ann, &["doctor --probe"])?;
        if let Some(left) = server.keys().iter().find(|key| key.contains("/probe/")) {
            return Err(format!("left: {left}"));
        }
        all(&ann, &["datastore sync", "ledger verify --deep"])
    });
}

#[test]
fn what_a_probe_left_that_may_not_delete_is_no_foreign_data() {
    let server = S3Server::start().unwrap();
    let ann = machine(&server);
    ann.peat("init").ok();
    server.enforce(Some(printed(&sample_of(&server, &ann), "writer")));
    server.set_lie(Some(Lie::IgnoresCondition));
    assert_eq!(setup(&server, &ann).status(1).error()["code"], "store_refused");
    assert!(server.keys().iter().any(|key| key.contains("/probe/")), "{:?}", server.keys());
    server.set_lie(None);
    setup(&server, &ann).ok();
}

#[test]
fn a_policy_names_bucket_folder_and_part_of_aws() {
    let sandbox = Sandbox::new();
    let policy = |words: &str| sandbox.peat(&format!("datastore policy {words} --json")).ok().json();
    let ours = policy("s3://team/a/b --role writer --namespace infra");
    assert_eq!((&ours["bucket"], &ours["folder"]), (&"team".into(), &"a/b/infra".into()));
    assert_eq!(ours["rights"], serde_json::json!(["s3:GetObject", "s3:ListBucket", "s3:PutObject"]));
    let statements = ours["policy"]["Statement"].as_array().unwrap();
    assert_eq!(statements[0]["Resource"], "arn:aws:s3:::team/a/b/infra/*");
    assert_eq!(statements[1]["Condition"]["StringLike"]["s3:prefix"], "a/b/infra/*");
    let china = policy("s3://team --role gc --region cn-north-1");
    assert_eq!(china["policy"]["Statement"][4]["Resource"], "arn:aws-cn:s3:::team/default/*");
    let google = policy("gs://team/a --role reader --namespace infra");
    assert_eq!((&google["folder"], &google["serviceRole"]), (&"a/infra".into(), &"roles/storage.objectViewer".into()));
    let azure = policy("az://team --role writer");
    assert_eq!(azure["serviceRole"], "Storage Blob Data Contributor");
    let folder = sandbox.peat("datastore policy file:///srv/x --role reader --json").status(1).error();
    assert!(folder["error"].as_str().unwrap().contains("the store is a folder"), "{folder}");
    let private = Sandbox::repo_made().peat("datastore policy --role reader --json").status(1).error();
    assert!(private["hint"].as_str().unwrap().contains("'peat datastore policy s3://bucket/prefix"), "{private}");
}
