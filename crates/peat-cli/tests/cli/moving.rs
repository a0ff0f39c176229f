//! `peat datastore setup` as typed: from a folder to a bucket and back, plans, other spellings, refusals.

use peat_engine::{Datastore, Opener, Real};
use peat_testkit::s3::S3Server;
use peat_types::Env;

use crate::sandbox::Sandbox;

/// A repo with one run, and keys for the server.
fn with_run(server: &S3Server) -> Sandbox {
    let mut sandbox = Sandbox::with_model("echo hi");
    for (name, value) in server.vars() {
        sandbox.set(&name, value);
    }
    sandbox.peat("model method run m execute").ok();
    sandbox
}

fn content(sandbox: &Sandbox) -> serde_json::Value {
    sandbox.peat("data get m result --json").ok().json()["content"]["stdout"].clone()
}

#[test]
fn a_ledger_moves_to_a_bucket_and_back_to_a_folder() {
    let server = S3Server::start().unwrap();
    let sandbox = with_run(&server);
    let marker = std::fs::read_to_string(sandbox.path("repo/.peat.yaml")).unwrap();
    let plan = sandbox.run(["datastore", "setup", &server.url(), "--namespace", "infra", "--dry-run"]).ok();
    assert!(
        plan.out.contains("Would move the datastore to namespace infra") && plan.out.contains("to copy"),
        "{plan:?}"
    );
    assert!(server.keys().is_empty() && std::fs::read_to_string(sandbox.path("repo/.peat.yaml")).unwrap() == marker);
    let moved = sandbox.run(["datastore", "setup", &server.url(), "--namespace", "infra"]).ok();
    assert!(
        moved.out.contains("Moved the datastore") && moved.out.contains("from:         namespace default in file://"),
        "{moved:?}"
    );
    assert!(
        moved.out.contains("kept:         namespace default in file://")
            && moved.out.contains("'peat datastore setup --cleanup'"),
        "{moved:?}"
    );
    assert!(server.keys().iter().all(|key| key.starts_with("peat/infra/")), "{:?}", server.keys());
    assert_eq!(content(&sandbox), "hi");
    let early = sandbox.peat("datastore setup --cleanup --json").status(75).error();
    assert_eq!(early["code"], "too_early");

    let back = sandbox
        .peat("datastore setup filesystem --path ../store --namespace infra --hydration lazy --json")
        .ok()
        .json();
    assert_eq!((&back["action"], &back["type"]), (&"move".into(), &"file".into()));
    assert_eq!(sandbox.peat("datastore status --json").ok().json()["hydration"], "lazy");
    assert_eq!(content(&sandbox), "hi");
    sandbox.peat("model method run m execute").ok();
    sandbox.peat("ledger verify --deep").ok();
    // Once more is no move.
    let again = sandbox.peat("datastore setup filesystem --path ../store --namespace infra --json").ok().json();
    assert_eq!((&again["action"], &again["objectsCopied"]), (&"join".into(), &0.into()));
    assert_eq!(again["already"], true);
    let again = sandbox.peat("datastore setup filesystem --path ../store --namespace infra").ok();
    assert!(again.out.starts_with("Already uses namespace infra"), "{}", again.out);
    // The bucket says where it went.
    let mut late = with_run(&server);
    late.set("PEAT_HOME", sandbox.path("other-home"));
    late.write("repo/.peat.yaml", &std::fs::read_to_string(sandbox.path("repo/.peat.yaml")).unwrap());
    let text = std::fs::read_to_string(late.path("repo/.peat.yaml")).unwrap();
    let text: String = text
        .lines()
        .filter(|line| !line.contains("url:") && !line.contains("hydration"))
        .map(|line| format!("{line}\n"))
        .collect();
    late.write("repo/.peat.yaml", &text.replace("datastore:\n", &format!("datastore:\n  url: {}\n", server.url())));
    let refused = late.peat("model method run m execute --json").status(1).error();
    assert_eq!(refused["code"], "moved", "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("'peat datastore setup file://"), "{refused}");
    // Who only reads is told, until the command that is named was given.
    for reading in ["status", "data list m", "doctor"] {
        let told = late.peat(reading).err;
        assert!(
            told.contains("warning:") && told.contains("hint: follow it with 'peat datastore setup file://"),
            "{told}"
        );
    }
    let told = late.peat("status --json").ok().error();
    assert!(told["warning"].as_str().unwrap().contains("nothing new comes here any more"), "{told}");
    assert!(told["hint"].as_str().unwrap().starts_with("follow it with 'peat datastore setup file://"), "{told}");
    let store = sandbox.path("store").display().to_string();
    let followed = late.run(["datastore", "setup", "filesystem", "--path", &store, "--namespace", "infra"]).ok();
    assert!(!followed.err.contains("moved"), "{followed:?}");
    assert!(!late.peat("status").ok().err.contains("moved"));
}

#[test]
fn settings_of_the_extensions_are_taken() {
    let server = S3Server::start().unwrap();
    let sandbox = with_run(&server);
    let config = format!(
        r#"{{"bucket":"bucket","prefix":"peat","endpoint":"{}","forcePathStyle":true,"pullConcurrency":5}}"#,
        server.endpoint()
    );
    let args = ["datastore", "setup", "extension", "@swamp/s3-datastore", "--namespace", "infra", "--json", "--config"];
    let made = sandbox.run(args.into_iter().chain([config.as_str()])).ok();
    assert!(made.err.contains("pullConcurrency"), "{made:?}");
    assert_eq!(made.json()["url"], "s3://bucket/peat");
    assert_eq!(content(&sandbox), "hi");
    let wrong = sandbox.run(args.into_iter().chain([r#"{"bucket":"bucket","kmsKey":"x"}"#])).status(1).error();
    assert!(wrong["error"].as_str().unwrap().contains("kmsKey is not a setting"), "{wrong}");
    for usage in
        ["datastore setup extension", "datastore setup", "datastore setup filesystem", "datastore setup s3://b x"]
    {
        sandbox.peat(usage).status(2);
    }
    for usage in ["datastore setup s3://b/x --path-style false", "datastore setup --path-style true s3://b/x"] {
        let said = sandbox.peat(usage).status(2);
        assert!(said.err.contains("--path-style="), "{said:?}");
    }
}

#[test]
fn rights_to_the_namespace_alone_are_enough_to_set_it_up() {
    let server = S3Server::start().unwrap();
    server.allow_only("peat/infra/");
    let sandbox = with_run(&server);
    sandbox.run(["datastore", "setup", &server.url(), "--namespace", "infra"]).ok();
    assert_eq!(content(&sandbox), "hi");
    sandbox.peat("model method run m execute").ok();
    let other = sandbox.run(["datastore", "setup", &server.url(), "--namespace", "other", "--json"]).status(1).error();
    assert_eq!(other["code"], "denied", "{other}");
    let list = sandbox.peat("datastore namespaces --json").ok().json();
    assert_eq!((&list["limited"], &list["namespaces"][0]["namespace"]), (&true.into(), &"infra".into()));
    for command in ["datastore namespace set other --json", "datastore catalog pull --namespaces other --json"] {
        assert_eq!(sandbox.peat(command).status(1).error()["code"], "denied", "{command}");
    }
    for command in ["datastore sync", "doctor", "ledger verify", "ledger maintain --force", "datastore gc --dry-run"] {
        sandbox.peat(command).ok();
    }
}

#[test]
fn namespaces_are_previewed_renamed_and_read_from_outside() {
    let server = S3Server::start().unwrap();
    let (ann, eve) = (with_run(&server), with_run(&server));
    ann.run(["datastore", "setup", &server.url(), "--namespace", "ops"]).ok();
    eve.run(["datastore", "setup", &server.url(), "--namespace", "pay"]).ok();
    let preview = ann.peat("datastore namespace rename infra").ok();
    assert!(preview.out.contains("Would move") && preview.err.contains("rename infra --yes"), "{preview:?}");
    assert!(!server.keys().iter().any(|key| key.starts_with("peat/infra/")));
    let renamed = ann.peat("datastore namespace migrate infra --yes").ok();
    assert!(renamed.out.contains("Moved the datastore to namespace infra"), "{renamed:?}");
    assert_eq!(content(&ann), "hi");
    let seen = ann.peat("datastore catalog pull --namespaces pay").ok();
    assert!(seen.out.contains("pay") && seen.out.contains('m'), "{seen:?}");
    assert_eq!(ann.peat("data get pay:m result --json").ok().json()["content"]["stdout"], "hi");
    let list = ann.peat("datastore namespace list").ok();
    assert!(list.out.contains("in use") && list.out.contains("moved to namespace infra of s3://"), "{list:?}");
    let list = ann.peat("datastore namespace list --json").ok().json();
    let moved: Vec<_> = list["namespaces"].as_array().unwrap().iter().map(|row| row["movedTo"].is_string()).collect();
    assert_eq!(moved, [false, true, false], "infra, ops, pay: {list}");
    // What was left is not what setup names.
    std::fs::remove_dir_all(ann.path("repo/.peat")).unwrap();
    let marker = std::fs::read_to_string(ann.path("repo/.peat.yaml")).unwrap();
    let private: String = marker.split("datastore:").next().unwrap().to_owned();
    ann.write("repo/.peat.yaml", &private);
    let needed = ann.run(["datastore", "setup", &server.url(), "--json"]).status(1).error();
    assert!(needed["hint"].as_str().unwrap().contains("--namespace infra"), "{needed}");
}

#[test]
fn a_bucket_of_the_same_name_on_another_server_is_not_taken_for_the_present_one() {
    let (here, there) = (S3Server::start().unwrap(), S3Server::start().unwrap());
    let sandbox = with_run(&here);
    let setup = |url: &str, server: &S3Server| {
        let endpoint = server.endpoint();
        sandbox.run(["datastore", "setup", url, "--namespace", "infra", "--endpoint", &endpoint, "--json"])
    };
    setup(&here.url(), &here).ok();
    let refused = setup(&there.url(), &there).status(1).error();
    assert_eq!(refused["code"], "same_address", "{refused}");
    let hint = refused["hint"].as_str().unwrap();
    assert!(hint.contains(&format!("{}/new --endpoint {}", there.url(), there.endpoint())), "{refused}");
    assert!(there.keys().is_empty());
    assert_eq!(content(&sandbox), "hi");
    let moved = setup(&format!("{}/new", there.url()), &there).ok().json();
    assert_eq!(moved["action"], "move", "{moved}");
    assert_eq!(content(&sandbox), "hi");
    sandbox.peat("model method run m execute").ok();
    sandbox.peat("ledger verify --deep").ok();
    // Who follows is told the server, too.
    let mut late = with_run(&here);
    late.set("PEAT_HOME", sandbox.path("other-home"));
    let before = format!("datastore:\n  url: {}\n  namespace: infra\n  endpoint: {}\n", here.url(), here.endpoint());
    let marker = std::fs::read_to_string(sandbox.path("repo/.peat.yaml")).unwrap();
    late.write("repo/.peat.yaml", &format!("{}{before}", marker.split("datastore:").next().unwrap()));
    let told = late.peat("model method run m execute").status(1);
    let follow =
        format!("'peat datastore setup {}/new --endpoint {} --namespace infra'", there.url(), there.endpoint());
    assert!(told.err.contains(&follow), "{}", told.err);
}

#[test]
fn a_store_in_a_git_work_tree_is_warned_of_and_the_root_is_named_as_such() {
    let sandbox = Sandbox::with_model("echo hi");
    let plan = |path: &str| {
        let report =
            sandbox.run(["datastore", "setup", "filesystem", "--path", path, "--dry-run", "--json"]).ok().json();
        report["warnings"].to_string()
    };
    assert_eq!(plan("store1"), "[]");
    std::fs::create_dir(sandbox.path("repo/.git")).unwrap();
    assert!(plan("store1").contains("lies in the git work tree"), "{}", plan("store1"));
    assert_eq!(plan("../store1"), "[]");
    let root = sandbox.run(["datastore", "setup", "file:///"]).status(1);
    assert!(root.err.contains("setup file:///peat") && !root.err.contains("file:/peat"), "{}", root.err);
}

#[test]
fn no_store_is_made_inside_another_one_in_a_bucket() {
    let server = S3Server::start().unwrap();
    let victim = with_run(&server);
    let url = format!("{}/t1", server.url());
    victim.run(["datastore", "setup", &url, "--namespace", "infra"]).ok();
    let keys = server.keys();
    let other = with_run(&server);
    for (below, names) in [
        ("/infra", "--namespace infra"),
        ("/infra/log", "--namespace infra"),
        ("/sub", "NAME"),
        ("/sub/deeper", "NAME"),
    ] {
        for dry in [true, false] {
            let inside = format!("{url}{below}");
            let mut words = vec!["datastore", "setup", &inside, "--namespace", "x", "--json"];
            words.extend(dry.then_some("--dry-run"));
            let error = other.run(words).status(1).error();
            assert_eq!(error["code"], "inside_a_store", "{below}: {error}");
            assert!(error["hint"].as_str().unwrap().contains(&format!("setup {url}")), "{error}");
            assert!(error["hint"].as_str().unwrap().contains(names), "{error}");
        }
    }
    assert_eq!(server.keys(), keys, "nothing was written");
    // Also where very many folders come before the namespace.
    let env = Env::system(server.vars());
    let settings = Datastore { url: url.clone(), ..Datastore::default() };
    let store = Real::default().open(&settings, &env).unwrap().store;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for n in 0..300 {
            store.put(&format!("a{n:03}/file"), "x".into()).await.unwrap();
        }
    });
    let beside = other.run(["datastore", "setup", &format!("{url}/sub"), "--namespace", "x", "--json"]).status(1);
    assert_eq!(beside.error()["code"], "inside_a_store", "{beside:?}");
    // Beside the store, and as another namespace of it, there is room.
    other.run(["datastore", "setup", &format!("{}/t2", server.url()), "--namespace", "x"]).ok();
    other.run(["datastore", "setup", &url, "--namespace", "x"]).ok();
    victim.peat("doctor").ok();
}
