//! DA: reading data.

use crate::sandbox::Sandbox;

fn twice() -> Sandbox {
    let sandbox = Sandbox::repo_made();
    sandbox.peat("model create command/shell m").ok();
    for word in ["one", "two"] {
        sandbox.run(["model", "method", "run", "m", "execute", "--input", &format!("run=echo {word}")]).ok();
    }
    sandbox
}

#[test]
fn da02_get_the_newest_a_version_or_only_facts() {
    let sandbox = twice();
    let newest = sandbox.peat("data get m result --json").ok().json();
    assert_eq!((&newest["version"], &newest["content"]["stdout"]), (&2.into(), &"two".into()));
    assert_eq!(newest["ownerDefinition"]["ownerType"], "model-method");
    let file = std::fs::read_to_string(newest["contentPath"].as_str().unwrap()).unwrap();
    assert!(file.contains("two"));
    let first = sandbox.peat("data get m result --version 1 --json").ok().json();
    assert_eq!(first["content"]["stdout"], "one");
    let facts = sandbox.peat("data get m result --no-content --json").ok().json();
    assert!(facts.get("content").is_none() && facts["checksum"].is_string());
    assert_eq!(sandbox.peat("data get --model m --name result --json --fresh").ok().json()["version"], 2);
    // To a pipe: the bytes as they are.
    assert_eq!(sandbox.peat("data get m result").ok().out, file);
    assert!(sandbox.peat("data get m log").ok().out.starts_with("[stdout]\ntwo\n[stderr]\n"));
}

#[test]
fn da05_list_groups_by_type() {
    let sandbox = twice();
    let list = sandbox.peat("data list m --json").ok().json();
    assert_eq!(list["total"], 2);
    let types: Vec<_> = list["groups"].as_array().unwrap().iter().map(|group| group["type"].clone()).collect();
    assert_eq!(types, ["file", "resource"]);
    let text = sandbox.peat("data list m").ok().out;
    assert!(text.starts_with("NAME") && text.lines().count() == 3, "{text}");
}

#[test]
fn versions_newest_first() {
    let sandbox = twice();
    let json = sandbox.peat("data versions m result --json").ok().json();
    assert_eq!(
        (&json["total"], &json["versions"][0]["version"], &json["versions"][0]["isLatest"]),
        (&2.into(), &2.into(), &true.into())
    );
    assert_eq!(json["versions"][1]["isLatest"], false);
    assert_eq!(sandbox.peat("data versions m result").ok().out.lines().count(), 3);
}

#[test]
fn what_is_missing_is_not_found() {
    let sandbox = twice();
    let error = sandbox.peat("data get m nope --json").status(1).error();
    assert_eq!(error["code"], "not_found");
    assert!(error["hint"].as_str().unwrap().contains("'peat data list m'"), "{error}");
    assert_eq!(sandbox.peat("data get m result --version 9 --json").status(1).error()["code"], "not_found");
}
