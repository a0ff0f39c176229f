//! Finding repositories; making, changing, looking up and checking definitions.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use peat_engine::{CreateModel, Host, Repo, report};
use peat_types::{Env, Kind};
use serde_json::json;
use tempfile::TempDir;

const MARKER: &str =
    "peatVersion: 0.1.0\ninitializedAt: 2026-07-20T09:12:44.021Z\nrepoId: 5b0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11\n";

fn host(cwd: &Path) -> Host {
    Host::new(Env::system([]), "0.1.0", cwd.to_owned(), None)
}

fn repo() -> (TempDir, Repo) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".peat.yaml"), MARKER).unwrap();
    let repo = Repo::find(host(dir.path())).unwrap();
    (dir, repo)
}

fn create(repo: &Repo, name: &str) -> peat_types::Result<report::ModelCreated> {
    let request = CreateModel { type_name: "Command::Shell".into(), name: name.into(), global_args: vec![] };
    repo.model_create(&request, &|path| repo.read_input(path))
}

fn write(dir: &TempDir, rel: &str, text: &str) {
    let path = dir.path().join(rel);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn the_nearest_repository_above_is_found_but_not_beyond_git() {
    let (dir, _) = repo();
    let deep = dir.path().join("a/b");
    fs::create_dir_all(&deep).unwrap();
    assert_eq!(Repo::find(host(&deep)).unwrap().root(), dir.path());
    fs::create_dir(dir.path().join("a/.git")).unwrap();
    let error = Repo::find(host(&deep)).unwrap_err();
    assert_eq!(error.code(), "not_a_repo");
    assert!(error.hints()[0].contains("peat init"));
    let mut named = host(Path::new("/"));
    named.repo_dir = Some(dir.path().to_owned());
    assert_eq!(Repo::find(named.clone()).unwrap().root(), dir.path());
    named.repo_dir = Some(deep);
    assert_eq!(Repo::find(named).unwrap_err().code(), "not_a_repo");
}

#[test]
fn a_half_initialised_repository_is_named_with_its_repair() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(".peat")).unwrap();
    let error = Repo::find(host(dir.path())).unwrap_err();
    assert_eq!(error.code(), "half_initialised");
    assert!(error.hints()[0].contains("peat init --force"));
}

#[test]
fn a_newer_marker_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".peat.yaml"), MARKER.replace("0.1.0", "9.0.0")).unwrap();
    assert_eq!(Repo::find(host(dir.path())).unwrap_err().code(), "unsupported_version");
}

#[test]
fn create_get_and_search() {
    let (dir, repo) = repo();
    let web = create(&repo, "web").unwrap();
    assert_eq!(
        (web.path.as_str(), web.type_name.as_str(), web.version),
        ("models/command/shell/web.yaml", "command/shell", 1)
    );
    let scoped = create(&repo, "@acme/web").unwrap();
    assert_eq!(scoped.path, format!("models/command/shell/{}.yaml", scoped.id));
    assert_eq!(repo.model_get("@acme/web").unwrap().id, scoped.id);
    assert_eq!(repo.model_get(&web.id).unwrap().name, "web");
    assert_eq!(repo.model_get(&web.id[..8]).unwrap().name, "web");
    let before = fs::read(dir.path().join(&web.path)).unwrap();
    assert_eq!(create(&repo, "web").unwrap_err().code(), "already_exists");
    assert_eq!(fs::read(dir.path().join(&web.path)).unwrap(), before);
    assert_eq!(create(&repo, "con").unwrap().path.matches("con.yaml").count(), 0);
    let found = repo.model_search("WEB").unwrap();
    assert_eq!(found.results.len(), 2);
    let json = report::json(&found);
    assert_eq!(json["schema"], "peat.model.search/1");
    assert_eq!(json["results"][0]["type"], "command/shell");
    let view = report::json(&repo.model_get("web").unwrap());
    assert_eq!(view["methods"][0]["name"], "execute");
    assert_eq!(view.as_object().unwrap().keys().next().unwrap(), "schema");
}

#[test]
fn what_cannot_be_created() {
    let (dir, repo) = repo();
    for name in ["../x", "/etc/x", "a/b", "", "Ünï", "a\0b"] {
        let error = create(&repo, name).unwrap_err();
        assert_eq!(error.code(), "validation_failed", "{name}");
    }
    assert!(!dir.path().join("models").exists());
    let make = |type_name: &str, args: &[&str]| {
        let global_args = args.iter().map(|s| (*s).to_owned()).collect();
        repo.model_create(&CreateModel { type_name: type_name.into(), name: "x".into(), global_args }, &|p| {
            repo.read_input(p)
        })
    };
    let error = make("comand/shell", &[]).unwrap_err();
    assert_eq!(error.code(), "unknown_model_type");
    assert!(error.to_string().contains("did you mean 'command/shell'"), "{error}");
    assert!(make("command/shell", &["a=1"]).unwrap_err().to_string().contains("globalArguments.a"));
    #[cfg(unix)]
    {
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("models")).unwrap();
        assert_eq!(create(&repo, "x").unwrap_err().kind(), Kind::Denied);
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}

#[test]
fn old_and_broken_files() {
    let (dir, repo) = repo();
    write(
        &dir,
        "models/command/shell/1f0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11.yaml",
        "id: 1f0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11\nname: Old Name\ntypeVersion: 3\n",
    );
    write(
        &dir,
        "models/command/shell/1f0c3b1e-aaaa-4a57-8a3f-7f0f0c9c1d11.yaml",
        "id: 1f0c3b1e-aaaa-4a57-8a3f-7f0f0c9c1d11\nname: other\n",
    );
    write(&dir, "models/command/shell/broken.yaml", "id: [\n");
    write(&dir, "models/command/shell/wrong.yaml", "id: ../../x\nname: a/b\nmethods: 3\n");
    write(&dir, "models/command/shell/.hidden.yaml", "id: [\n");
    write(&dir, "models/notes.txt", "hello");
    let old = repo.model_get("Old Name").unwrap();
    assert_eq!((old.type_name.as_str(), old.type_version), ("command/shell", None));
    let found = repo.model_search("").unwrap();
    assert_eq!((found.results.len(), found.warnings.len()), (2, 2));
    assert!(found.warnings[0].name.ends_with("broken.yaml"));
    assert!(found.warnings[1].message.contains("methods: is not a map"), "{}", found.warnings[1].message);
    let error = repo.model_get("1f0c3b1e").unwrap_err();
    assert_eq!(error.code(), "ambiguous");
    assert!(error.to_string().contains("Old Name") && error.to_string().contains("other"));
    assert_eq!(repo.model_get("1f0c3b1e-2").unwrap().name, "Old Name");
    let error = repo.model_get("../../etc/passwd").unwrap_err();
    assert_eq!(error.code(), "model_not_found");
    assert!(repo.model_get("othre").unwrap_err().to_string().contains("did you mean 'other'"));
    let all = repo.model_validate_all().unwrap();
    assert_eq!((all.total_passed, all.total_failed, all.passed), (2, 2, false));
}

#[cfg(unix)]
#[test]
fn links_are_followed_inside_the_repository_only() {
    let (dir, repo) = repo();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("x.yaml"), "id: 1\nname: secret\n").unwrap();
    write(&dir, "shared/in.yaml", "id: 1f0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11\nname: inside\n");
    write(&dir, "models/command/shell/x.txt", "");
    let below = dir.path().join("models/command/shell");
    std::os::unix::fs::symlink(dir.path().join("shared/in.yaml"), below.join("in.yaml")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("x.yaml"), below.join("out.yaml")).unwrap();
    std::os::unix::fs::symlink(outside.path(), below.join("folder")).unwrap();
    std::os::unix::fs::symlink(dir.path(), below.join("loop")).unwrap();
    let found = repo.model_search("").unwrap();
    assert_eq!(found.results.len(), 1, "{found:?}");
    assert_eq!(found.results[0].name, "inside");
    assert_eq!(found.warnings.len(), 3, "{:?}", found.warnings);
}

#[test]
fn edit_replaces_the_file_as_given_or_not_at_all() {
    let (dir, repo) = repo();
    let made = create(&repo, "m").unwrap();
    let path = dir.path().join(&made.path);
    let good = format!(
        "# mine\nid: {}\nname: m\nextra: kept\nmethods:\n  execute:\n    arguments: {{run: echo hi}}\n",
        made.id
    );
    let edited = repo.model_edit("m", &good).unwrap();
    assert_eq!((edited.status.as_str(), edited.path.as_str()), ("updated", "models/command/shell/m.yaml"));
    assert_eq!(fs::read_to_string(&path).unwrap(), good);
    for (text, said) in [
        ("id: [", "not valid YAML"),
        ("a: 1\na: 2\n", "not valid YAML"),
        ("[1]", "not valid YAML"),
        (&*good.replace(&made.id, "2f0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11"), "id"),
        (&*good.replace("run:", "rnu:"), "did you mean 'run'"),
        (&*good.replace("name: m", "name: ../x"), "name"),
        (&*good.replace("execute:", "excute:"), "did you mean 'execute'"),
    ] {
        let error = repo.model_edit("m", text).unwrap_err();
        assert!(error.chain().join(": ").contains(said), "{error:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), good, "{text}");
    }
    repo.model_edit("m", &good.replace("name: m", "name: n")).unwrap();
    assert_eq!(repo.model_get("n").unwrap().id, made.id);
}

#[test]
fn validate_names_paths() {
    let (dir, repo) = repo();
    write(
        &dir,
        "models/command/shell/m.yaml",
        "id: 1f0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11\nname: m\ndriver: docker\nmethdos: {}\nmethods:\n  execute:\n    arguments: {rnu: x, timeout: soon, run: 'a ${{ 1 }}'}\n",
    );
    let report = repo.model_validate("m", None).unwrap();
    assert!(!report.passed);
    let error =
        |name: &str| report.validations.iter().find(|v| v.name == name).unwrap().error.clone().unwrap_or_default();
    assert!(
        error("methods").contains("methods.execute.arguments.rnu: is not known; did you mean 'run'?"),
        "{}",
        error("methods")
    );
    assert!(error("methods").contains("methods.execute.arguments.timeout: is 'soon', not an integer"));
    assert!(error("expressions").contains("methods.execute.arguments.run: expressions"));
    assert!(error("keys").contains("driver"));
    assert!(report.warnings[0].message.contains("did you mean 'methods'"));
    let json = report::json(&report);
    assert_eq!(json["validations"][0], json!({"name": "definition", "passed": true}));
    assert!(repo.model_validate("m", Some("excute")).unwrap_err().to_string().contains("did you mean 'execute'"));
    create(&repo, "fine").unwrap();
    assert!(repo.model_validate("fine", Some("execute")).unwrap().passed);
    write(&dir, "models/command/shell/copy.yaml", "id: 1f0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11\nname: fine\n");
    let all = repo.model_validate_all().unwrap();
    assert_eq!((all.models.len(), all.total_failed), (3, 3));
}

#[test]
fn types_are_described() {
    let (_dir, repo) = repo();
    let view = report::json(&repo.type_describe("Command.Shell").unwrap());
    assert_eq!(view["type"], json!({"raw": "Command.Shell", "normalized": "command/shell"}));
    assert_eq!(view["methods"][0]["arguments"]["required"], json!(["run"]));
    assert_eq!(view["dataOutputSpecs"][0]["specName"], "result");
    assert_eq!(view["dataOutputSpecs"][1]["garbageCollection"], 10);
    assert_eq!(repo.type_search("shell").results.len(), 1);
    assert!(repo.type_search("nothing").hint.is_some());
    create(&repo, "m").unwrap();
    assert_eq!(report::json(&repo.method_describe("m", "execute").unwrap())["method"]["kind"], "action");
    assert_eq!(repo.method_describe("m", "run").unwrap_err().code(), "unknown_method");
}
