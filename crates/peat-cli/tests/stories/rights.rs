//! What the policies of `peat datastore policy` allow and deny a real user of a real server.
//!
//! `PEAT_TEST_USER` and `PEAT_TEST_SECRET` are the keys of a user who has no rights; `PEAT_TEST_PRINCIPALS` names that user
//! and the owner of the bucket, as a policy does, with a comma in between.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::machine::{Machine, Shop, json};

struct User {
    key: String,
    secret: String,
    principals: Vec<String>,
}

impl User {
    fn of_the_server() -> Option<Self> {
        let var = |name| std::env::var(name).ok();
        let principals = var("PEAT_TEST_PRINCIPALS")?.split(',').map(str::to_owned).collect();
        Some(Self { key: var("PEAT_TEST_USER")?, secret: var("PEAT_TEST_SECRET")?, principals })
    }
}

/// Puts what Peat prints for a role on the bucket, for these users.
fn grant(owner: &Machine, shop: &Shop, user: &User, role: &str) {
    let printed = owner.command(["datastore", "policy", "--role", role]).output().unwrap();
    let mut policy: Value = serde_json::from_slice(&printed.stdout).unwrap();
    for statement in policy["Statement"].as_array_mut().unwrap() {
        statement["Principal"] = json!({"AWS": user.principals});
    }
    let var = |name: &str| shop.vars().iter().find(|(key, _)| key == name).unwrap().1.clone();
    let bucket = shop.url().trim_start_matches("s3://").split('/').next().unwrap();
    let mut curl = Command::new("curl")
        .args(["-sS", "--fail-with-body", "--max-time", "20", "--noproxy", "*", "-X", "PUT", "--data-binary", "@-"])
        .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(["--user", &format!("{}:{}", var("AWS_ACCESS_KEY_ID"), var("AWS_SECRET_ACCESS_KEY"))])
        .arg(format!("{}/{bucket}?policy=", var("AWS_ENDPOINT_URL_S3")))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    curl.stdin.take().unwrap().write_all(policy.to_string().as_bytes()).unwrap();
    assert!(curl.wait().unwrap().success());
}

#[test]
fn readers_writers_and_collectors_may_do_what_they_are_for() {
    let Some(user) = User::of_the_server() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: rights of real users: no server with a second user is set");
        return;
    };
    let shop = Shop::open();
    let ann = Machine::new("ann", &shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    ann.share(&shop);
    ann.run("hello", "echo one");
    let mut bob = ann.cloned("bob", &shop);
    bob.log_in(&user.key, &user.secret);
    let run = ["model", "method", "run", "hello", "execute", "--input", "run=echo two"];
    let all = |commands: &[&str]| commands.iter().for_each(|command| drop(bob.peat(command)));
    let objects = || ann.peat("ledger ls")["objects"].clone();

    let nothing = bob.refused(["datastore", "sync", "--pull"], "denied");
    assert!(nothing["hint"].as_str().unwrap().contains("s3:GetObject"), "{nothing}");

    grant(&ann, &shop, &user, "reader");
    let before = objects();
    bob.ok(shop.setup(shop.url(), &["--namespace", "infra"]));
    all(&["datastore sync --pull", "status --fresh", "data get hello result --fresh", "log", "datastore lock status"]);
    all(&["doctor", "ledger verify --deep", "datastore status --size"]);
    assert_eq!(bob.peat("datastore namespace list")["limited"], true);
    let denied = bob.refused(run, "denied");
    let hint = denied["hint"].as_str().unwrap();
    assert!(hint.contains("s3:PutObject") && hint.contains("'peat datastore policy --role writer'"), "{denied}");
    assert!(!hint.contains("peat pending show"), "nothing is left that could be shown: {denied}");
    assert_eq!(bob.peat("pending list")["total"], 0);
    for words in ["pin add here", "ledger maintain --force", "datastore namespace set other"] {
        bob.refused(words.split(' '), "denied");
    }
    assert_eq!(objects(), before, "nothing was written");

    grant(&ann, &shop, &user, "writer");
    bob.ok(run);
    all(&["datastore sync", "ledger maintain --force", "doctor --probe", "pin add here", "pin rm here"]);
    bob.refused(shop.setup(shop.url(), &["--namespace", "other", "--skip-migration"]), "denied");
    // What may not be deleted stays, and a purge says so.
    let purge = bob.command(["datastore", "purge", "hello", "log", "--yes", "--json"]).output().unwrap();
    let purged: Value = serde_json::from_slice(&purge.stdout).unwrap();
    assert!(!purge.status.success() && !purged["done"]["denied"].is_null(), "{purged}");

    grant(&ann, &shop, &user, "gc");
    let freed = bob.peat("datastore gc");
    assert!(freed["denied"].is_null() && freed["freed"].as_array().is_some_and(|freed| !freed.is_empty()), "{freed}");
    all(&["doctor --probe", "datastore sync", "ledger verify --deep"]);
    // The owner reads what the others wrote, and nothing was lost.
    json(&ann.command(["datastore", "sync", "--json"]).output().unwrap());
    assert_eq!(ann.versions("hello", "result"), [1, 2]);
    ann.verify();
}
