//! DF: types and definitions.

use crate::sandbox::Sandbox;

#[test]
fn df01_df02_a_type_by_any_spelling() {
    let sandbox = Sandbox::repo_made();
    let plain = sandbox.run(["model", "type", "describe", "command/shell", "--json"]).ok().json();
    assert_eq!(plain["methods"][0]["name"], "execute");
    assert_eq!(plain["methods"][0]["arguments"]["required"], serde_json::json!(["run"]));
    let specs: Vec<_> = plain["dataOutputSpecs"].as_array().unwrap().iter().map(|s| s["specName"].clone()).collect();
    assert_eq!(specs, ["result", "log"]);
    for spelling in ["Command::Shell", "command.shell", " /command//shell/ "] {
        let other = sandbox.run(["model", "type", "describe", spelling, "--json"]).ok().json();
        assert_eq!((&other["methods"], &other["type"]["normalized"]), (&plain["methods"], &"command/shell".into()));
    }
    assert!(sandbox.peat("model type list --json").ok().out.contains("command/shell"));
    let text = sandbox.peat("model type describe command/shell").ok().out;
    assert!(text.contains("workingDir") && text.contains("required"), "{text}");
}

#[test]
fn df03_create_writes_the_file() {
    let sandbox = Sandbox::repo_made();
    let json = sandbox.peat("model create command/shell web --json").ok().json();
    assert_eq!(json["path"], "models/command/shell/web.yaml");
    let file = std::fs::read_to_string(sandbox.path("repo/models/command/shell/web.yaml")).unwrap();
    for line in ["type: command/shell", "name: web", "version: 1", "id: "] {
        assert!(file.contains(line), "{file}");
    }
    assert_eq!(json["id"].as_str().unwrap().len(), 36);
    assert!(sandbox.peat("model get web").ok().out.contains("models/command/shell/web.yaml"));
}

#[test]
fn df05_scoped_names() {
    let sandbox = Sandbox::repo_made();
    sandbox.peat("model create command/shell @acme/web").ok();
    assert_eq!(sandbox.peat("model get @acme/web --json").ok().json()["name"], "@acme/web");
}

#[test]
fn df06_a_name_is_taken_once() {
    let sandbox = Sandbox::with_model("echo hi");
    let file = sandbox.path("repo/models/command/shell/m.yaml");
    let before = std::fs::read(&file).unwrap();
    assert_eq!(sandbox.peat("model create command/shell m --json").status(1).error()["code"], "already_exists");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn df07_unknown_types_are_named() {
    let sandbox = Sandbox::repo_made();
    let error = sandbox.peat("model create comand/shell web --json").status(1).error();
    assert_eq!(error["code"], "unknown_model_type");
    assert!(error["error"].as_str().unwrap().contains("comand/shell"));
    assert!(error["error"].as_str().unwrap().contains("did you mean 'command/shell'"), "{error}");
}

#[test]
fn df08_global_arguments_the_type_does_not_have_are_refused() {
    let sandbox = Sandbox::repo_made();
    let ran = sandbox.peat("model create command/shell web --global-arg a.b=1 --json").status(1);
    assert_eq!(ran.error()["code"], "validation_failed");
    assert!(!sandbox.path("repo/models/command/shell/web.yaml").exists());
}

#[test]
fn df09_a_file_named_by_its_id_is_found_by_name() {
    let sandbox = Sandbox::with_model("echo hi");
    let models = sandbox.path("repo/models/command/shell");
    std::fs::rename(models.join("m.yaml"), models.join("8d6a2d33-9a55-4f0d-9f57-0a0a2f7d2a10.yaml")).unwrap();
    assert_eq!(sandbox.peat("model get m --json").ok().json()["name"], "m");
}

#[test]
fn df11_the_start_of_an_id() {
    let sandbox = Sandbox::repo_made();
    for (name, id) in [("a", "11111111-0000-4000-8000-000000000001"), ("b", "11111111-0000-4000-8000-000000000002")] {
        sandbox.write(
            &format!("repo/models/command/shell/{name}.yaml"),
            &format!("type: command/shell\nid: {id}\nname: {name}\nversion: 1\n"),
        );
    }
    let id = sandbox.model("c", "echo hi");
    assert_eq!(sandbox.run(["model", "get", &id[..8], "--json"]).ok().json()["name"], "c");
    let ambiguous = sandbox.run(["model", "get", "11111111"]).status(1).err;
    assert!(ambiguous.contains("0001") && ambiguous.contains("0002"), "{ambiguous}");
}

#[test]
fn df12_df13_validate_names_the_path() {
    let sandbox = Sandbox::with_model("echo hi");
    sandbox.peat("model validate").ok();
    let file = sandbox.path("repo/models/command/shell/m.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("      run: ", "      rum: x\n      run: ")).unwrap();
    let one = sandbox.peat("model validate m --json").status(1);
    assert_eq!(one.error()["code"], "validation_failed");
    let one = one.json();
    assert_eq!(one["passed"], false);
    assert!(one["validations"].to_string().contains("rum"), "{one}");
    sandbox.model("good", "echo");
    let all = sandbox.peat("model validate --json").status(1).json();
    assert_eq!((&all["totalPassed"], &all["totalFailed"], &all["passed"]), (&1.into(), &1.into(), &false.into()));
    assert_eq!(all["models"].as_array().unwrap().len(), 2);
    assert!(sandbox.peat("model validate").status(1).out.contains("1 passed, 1 failed"));
}

#[test]
fn df18_edit_replaces_from_stdin() {
    let sandbox = Sandbox::with_model("echo hi");
    let file = sandbox.path("repo/models/command/shell/m.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    let new = before.replace("echo hi", "echo ho");
    let json = sandbox.run_with_stdin(["model", "edit", "m", "--json"], &new).ok().json();
    assert_eq!(json["status"], "updated");
    assert!(std::fs::read_to_string(&file).unwrap().contains("echo ho"));
    let after = std::fs::read(&file).unwrap();
    for bad in ["a: [", "just text", ""] {
        sandbox.run_with_stdin(["model", "edit", "m"], bad).status(1);
        assert_eq!(std::fs::read(&file).unwrap(), after, "{bad:?}");
    }
}

#[test]
fn df20_delete_with_data_needs_force() {
    let sandbox = Sandbox::with_model("echo hi");
    let id = sandbox.peat("model get m --json").ok().json()["id"].as_str().unwrap().to_owned();
    sandbox.peat("model method run m execute").ok();
    let refused = sandbox.peat("model delete m -y").status(1);
    assert!(refused.err.contains("--force"), "{}", refused.err);
    let json = sandbox.peat("model delete m --force --json").ok().json();
    assert_eq!(
        (&json["deleted"]["name"], &json["outputsDeleted"], &json["dataDeleted"]),
        (&"m".into(), &1.into(), &2.into())
    );
    assert!(!sandbox.path("repo/models/command/shell/m.yaml").exists());
    assert!(!sandbox.path(format!("repo/.peat/tree/data/command/shell/{id}")).exists());
    assert_eq!(sandbox.peat("model output search --json").ok().json()["results"].as_array().unwrap().len(), 0);
}

#[test]
fn the_history_of_a_deleted_model_is_found_by_name_while_its_data_is_there_and_by_id_after_that() {
    let sandbox = Sandbox::repo_made();
    let id = sandbox.model("m", "echo hi");
    sandbox.peat("model method run m execute").ok();
    let entries = |of: &str| {
        let log = sandbox.run(["log", "--model", of, "--json"]).ok().json();
        log["entries"].as_array().unwrap().len()
    };
    let before = entries("m");
    let text = std::fs::read(sandbox.path("repo/models/command/shell/m.yaml")).unwrap();
    std::fs::remove_file(sandbox.path("repo/models/command/shell/m.yaml")).unwrap();
    assert_eq!((entries("m"), entries(&id)), (before, before));
    std::fs::write(sandbox.path("repo/models/command/shell/m.yaml"), text).unwrap();
    sandbox.peat("model delete m --force").ok();
    assert!(entries(&id) > before);
    let restored = sandbox.run(["restore", "--at", "2", "--model", &id, "--dry-run", "--json"]).ok().json();
    assert!(restored["puts"].as_u64().unwrap() > 0, "{restored}");
    let error = sandbox.peat("log --model m --json").status(1).error();
    assert!(error["hint"].as_str().unwrap().contains("full id"), "{error}");
}

#[test]
fn delete_without_a_terminal_needs_yes() {
    let sandbox = Sandbox::with_model("echo hi");
    let ran = sandbox.peat("model delete m").status(1);
    assert!(ran.err.contains("--yes"), "{}", ran.err);
    // JSON is a form of the output, never a yes.
    assert_eq!(sandbox.peat("model delete m --json").status(1).error()["code"], "confirmation_needed");
    sandbox.peat("model get m").ok();
    sandbox.peat("model delete m --json --yes").ok();
    assert_eq!(sandbox.peat("model get m --json").status(1).error()["code"], "model_not_found");
}

/// A copied file with a new id and the old name: which one is meant nobody can tell.
#[test]
fn two_files_with_one_name_are_refused_by_name() {
    let sandbox = Sandbox::with_model("echo one");
    let file = sandbox.path("repo/models/command/shell/m.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let id = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    let other = "3f2b8c1a-0000-4000-8000-000000000001";
    sandbox.write("repo/models/command/shell/copied.yaml", &text.replace(&id, other).replace("echo one", "echo two"));
    for command in ["model method run m execute", "model get m", "data get m result", "model validate m"] {
        let error = sandbox.peat(&format!("{command} --json")).status(1).error();
        assert_eq!(error["code"], "ambiguous", "{command}: {error}");
        assert!(error.to_string().contains("give the id"), "{command}: {error}");
        for file in ["models/command/shell/m.yaml", "models/command/shell/copied.yaml"] {
            assert!(error["error"].as_str().unwrap().contains(file), "{command}: {error}");
        }
    }
    // By id each can be had.
    let run = sandbox.run(["model", "method", "run", other, "execute", "--json"]).ok().json();
    assert_eq!(run["dataArtifacts"][0]["attributes"]["stdout"], "two");
    // The same id twice would mix the data of both.
    sandbox.write("repo/models/command/shell/copied.yaml", &text.replace("name: m", "name: twin"));
    let error = sandbox.peat("model method run twin execute --json").status(1).error();
    assert_eq!(error["code"], "ambiguous", "{error}");
    assert!(error.to_string().contains("an id of its own"), "{error}");
    assert!(error["error"].as_str().unwrap().contains("models/command/shell/m.yaml"), "{error}");
}

#[test]
fn what_a_killed_edit_left_is_swept() {
    let sandbox = Sandbox::with_model("echo hi");
    let folder = "repo/models/command/shell";
    let old = sandbox.write(&format!("{folder}/.peat-00000000000000aa.tmp"), "half");
    let young = sandbox.write(&format!("{folder}/.peat-00000000000000bb.tmp"), "half");
    let foreign = sandbox.write(&format!("{folder}/.1234.tmp"), "somebody's");
    let before = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for path in [&old, &foreign] {
        std::fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
    }
    sandbox.peat("model create command/shell web").ok();
    assert_eq!((old.exists(), young.exists(), foreign.exists()), (false, true, true));
    std::fs::File::options().write(true).open(&young).unwrap().set_modified(before).unwrap();
    let text = std::fs::read_to_string(sandbox.path(format!("{folder}/m.yaml"))).unwrap();
    sandbox.run_with_stdin(["model", "edit", "m"], &text.replace("echo hi", "echo ho")).ok();
    assert_eq!((young.exists(), foreign.exists()), (false, true));
}
