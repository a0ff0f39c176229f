//! A datastore that moves: from a folder into the store, on in the store, out of it again; and what setup refuses.

use crate::machine::{Machine, Shop, error};

/// More than travels inside an entry.
const LARGE: &str = "head -c 200000 /dev/zero | tr '\\0' x";

fn with_runs(shop: &Shop) -> Machine {
    let ann = Machine::new("ann", shop);
    ann.peat("init");
    ann.peat("model create command/shell hello");
    ann.run("hello", "echo one");
    ann.run("hello", LARGE);
    ann
}

#[test]
fn a_team_moves_its_datastore_and_everybody_follows() {
    let shop = Shop::open();
    let ann = with_runs(&shop);
    let here = shop.setup(shop.url(), &["--namespace", "infra"]);
    let plan = ann.ok(here.iter().map(String::as_str).chain(["--dry-run"]));
    let done = ann.ok(&here);
    for field in ["action", "objectsCopied", "bytesCopied", "itemsCopied"] {
        assert_eq!(plan[field], done[field], "{field}: {plan} {done}");
    }
    assert_eq!(done["action"], "move");
    ann.verify();
    let ben = ann.cloned("ben", &shop);
    ben.peat("datastore sync --pull");
    assert_eq!(ben.versions("hello", "result"), [1, 2]);
    let early = error(&ann.command(["datastore", "setup", "--cleanup", "--json"]).output().unwrap(), 75);
    assert_eq!(early["code"], "too_early");

    // On to another prefix; who still writes to the old one is told where it went, and follows.
    let next = shop.beside("next");
    let there = shop.setup(&next, &["--namespace", "infra"]);
    assert_eq!(ann.ok(&there)["action"], "move");
    let synced = ben.command("datastore sync --pull".split(' ')).output().unwrap();
    let told = String::from_utf8_lossy(&synced.stderr).into_owned();
    assert!(synced.status.success() && told.contains("moved to namespace 'infra'"), "{told}");
    let moved = ben.refused(["model", "method", "run", "hello", "execute", "--input", "run=true"], "moved");
    let hint = moved["hint"].as_str().unwrap();
    let (words, _) = hint.split_once(" --namespace infra'").expect("a command that can be copied");
    // With the endpoint, where there is one.
    assert!(words.contains(&format!("setup {next}")), "{moved}");
    assert_eq!(ben.ok(&there)["action"], "follow");
    ben.run("hello", "echo three");
    ann.peat("datastore sync --pull");
    assert_eq!(ann.versions("hello", "result"), [1, 2, 3]);
    ann.verify();

    // Out of it, into a folder, by a machine that holds no contents.
    let cam = ann.cloned("cam", &shop);
    cam.ok(shop.setup(&next, &["--namespace", "infra", "--hydration", "lazy"]));
    let held = cam.peat("datastore status");
    assert!(held["contents"]["localBytes"].as_u64().unwrap() < 200_000, "{held}");
    let folder = cam.repo().with_file_name("store");
    let out = ["datastore", "setup", "filesystem", "--namespace", "infra", "--hydration", "lazy", "--path"];
    let out = cam.ok(out.into_iter().chain([folder.to_str().unwrap()]));
    assert_eq!((&out["action"], &out["type"]), (&"move".into(), &"file".into()));
    assert_eq!(cam.versions("hello", "result"), [1, 2, 3]);
    let large = cam.peat("data get hello result --version 2");
    assert_eq!(large["content"]["stdout"].as_str().map(str::len), Some(200_000));
    cam.verify();
    ben.refused(["model", "method", "run", "hello", "execute", "--input", "run=true"], "moved");
}

#[test]
fn what_is_not_a_place_for_it_is_refused_each_in_its_own_words() {
    let shop = Shop::open();
    let ann = with_runs(&shop);
    ann.share(&shop);
    let eve = with_runs(&shop);
    let taken = eve.refused(shop.setup(shop.url(), &["--namespace", "infra"]), "namespace_taken");
    let owner = ann.peat("status")["repoId"].as_str().unwrap().to_owned();
    assert!(taken["causes"].to_string().contains(&owner), "the owner is named: {taken}");
    let needed = eve.refused(shop.setup(shop.url(), &[]), "namespace_needed");
    assert!(needed["error"].as_str().unwrap().contains("infra ("), "they are listed: {needed}");
    eve.refused(shop.setup(shop.url(), &["--namespace", "Infra"]), "validation_failed");

    // The store is the wrong one, or holds something else.
    let scheme = shop.url().split("//").next().unwrap();
    let missing = eve.refused(shop.setup(&format!("{scheme}//peat-has-no-such-bucket/x"), &[]), "bucket_missing");
    let photos = shop.beside("photos");
    shop.put(&photos, "cat.jpg", "meow");
    let foreign = eve.refused(shop.setup(&photos, &[]), "not_peat_data");
    assert!(foreign["error"].as_str().unwrap().contains("cat.jpg"), "{foreign}");
    let swamp = shop.beside("swamp");
    shop.put(&swamp, "definitions-evaluated/command/shell/hello.yaml", "{}");
    let theirs = eve.refused(shop.setup(&swamp, &[]), "swamp_data");
    let said: std::collections::BTreeSet<_> = [&missing, &foreign, &theirs].map(|e| e["hint"].as_str()).into();
    assert!(said.len() == 3, "{said:?}");

    // Both have a history: nothing is merged, and one can be kept aside.
    let bob = ann.cloned("bob", &shop);
    let marker = bob.repo().join(".peat.yaml");
    let text = std::fs::read_to_string(&marker).unwrap();
    std::fs::write(&marker, text.split("datastore:").next().unwrap()).unwrap();
    bob.run("hello", "echo mine");
    let both = bob.refused(shop.setup(shop.url(), &["--namespace", "infra"]), "two_histories");
    assert!(both["hint"].as_str().unwrap().contains("--skip-migration"), "{both}");
    let joined = bob.ok(shop.setup(shop.url(), &["--namespace", "infra", "--skip-migration"]));
    assert_eq!(joined["action"], "join");
    assert_eq!(bob.versions("hello", "result"), [1, 2]);
    // An empty prefix is a place.
    eve.ok(shop.setup(&shop.beside("empty"), &[]));
    assert_eq!(eve.versions("hello", "result"), [1, 2]);
    eve.verify();
}
