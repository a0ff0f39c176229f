//! Help, version, completions, and command lines that are wrong.

use std::process::Stdio;

use crate::sandbox::Sandbox;

#[test]
fn rp11_a_wrong_command_exits_2_and_suggests() {
    let sandbox = Sandbox::new();
    let text = sandbox.peat("modl").status(2);
    assert_eq!(text.out, "");
    assert!(
        text.err.starts_with("error: unrecognized subcommand 'modl'\nhint: a similar subcommand exists: 'model'\n"),
        "{}",
        text.err
    );
    let json = sandbox.peat("modl --json").status(2);
    assert_eq!(json.out, "");
    assert_eq!(json.error()["code"], "usage");
    assert!(json.error()["hint"].as_str().unwrap().contains("'model'"));
}

#[test]
fn rp12_version() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.peat("version").ok().out, format!("peat {}\n", env!("CARGO_PKG_VERSION")));
    let json = sandbox.peat("version --json --stats").ok().json();
    assert_eq!(json["schema"], "peat.version/1");
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["stats"]["requests"], 0);
    assert_eq!(sandbox.peat("--version").ok().out, format!("peat {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_flags_and_missing_arguments_are_usage_errors() {
    let sandbox = Sandbox::new();
    for words in [
        "status --nope",
        "model create command/shell",
        "data get m",
        "data get m --name result",
        "log --limit many",
        "log --since yesterday",
        "show",
        "show latest",
        "undo 1 2",
        "restore",
        "diff",
        "data get m result --at 1 --fresh",
        "version extra",
        "-q -v version",
        "datastore sync --pull --push",
        "datastore lock release",
        "model method run m execute --input-file x --stdin",
        "help modle",
    ] {
        let ran = sandbox.peat(words).status(2);
        assert!(ran.err.starts_with("error: ") && ran.out.is_empty(), "{words}: {ran:?}");
    }
    // A number below the first is a value, and a wrong one.
    for words in [
        "data get m result --version -1",
        "model output data m --version -2",
        "model output logs m --tail -3",
        "model output search -n -1",
        "ledger ls -n 0",
        "log -n -1",
        "show -1",
        "undo -1",
    ] {
        let ran = sandbox.peat(words).status(2);
        let said = ran.err.contains("is no whole number from 0") || ran.err.contains("is not in 1..=");
        assert!(said, "{words}: {ran:?}");
        assert!(ran.err.contains("invalid value") && !ran.err.contains("-- -"), "{words}: {ran:?}");
    }
    let ran = sandbox.peat("status --jsn").status(2);
    assert!(ran.err.contains("hint: a similar argument exists: '--json'"), "{}", ran.err);
}

#[test]
fn a_bare_group_shows_its_help() {
    let sandbox = Sandbox::new();
    for words in [
        "",
        "model",
        "model type",
        "model method",
        "model output",
        "data",
        "datastore",
        "datastore lock",
        "pending",
        "pin",
        "ledger",
        "repo",
    ] {
        let ran = sandbox.peat(words).ok();
        assert!(
            ran.out.contains(&format!("Usage: {} [OPTIONS] [COMMAND]", format!("peat {words}").trim())),
            "{words}: {}",
            ran.out
        );
        assert_eq!(ran.err, "");
    }
    let json = sandbox.peat("model type --json").ok().json();
    assert_eq!(json["name"], "type");
    assert_eq!(json["subcommands"][0]["name"], "search");
}

#[test]
fn the_hidden_help_is_the_whole_tree() {
    let sandbox = Sandbox::new();
    let tree = sandbox.peat("help").ok().json();
    assert_eq!(tree["schema"], "peat.help/1");
    let names: Vec<&str> =
        tree["subcommands"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"model") && names.contains(&"demo") && !names.contains(&"help"), "{names:?}");
    let run = sandbox.peat("help model method run").ok().json();
    assert_eq!(run["arguments"][0]["name"], "model");
    assert_eq!(run["arguments"][0]["required"], true);
    assert!(run["options"].as_array().unwrap().iter().any(|o| o["long"] == "--input" && o["repeatable"] == true));
}

#[test]
fn completions_of_every_shell_and_names_of_models() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(sandbox.run(["completions", shell]).ok().out.contains("PEAT_COMPLETE"), "{shell}");
    }
    sandbox.peat("init").ok();
    sandbox.write("repo/models/command/shell/hello.yaml", "");
    sandbox.write("repo/models/command/shell/help-me.yaml", "");
    sandbox.write("repo/models/command/shell/other.yaml", "");
    let mut ask = sandbox.command(["--", "peat", "model", "get", "hel"]);
    ask.env("PEAT_COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", "3");
    let answer = ask.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "hello\nhelp-me");
    sandbox.peat("model create command/shell @acme/web").ok();
    let mut ask = sandbox.command(["--", "peat", "model", "get", "@ac"]);
    ask.env("PEAT_COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", "3");
    assert_eq!(String::from_utf8_lossy(&ask.output().unwrap().stdout), "@acme/web");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let sandbox = Sandbox::new();
    let mut child = sandbox.command(["help"]).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.len()), (Some(0), 0));
}

#[test]
fn a_full_stdout_is_an_error() {
    let sandbox = Sandbox::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = sandbox.command(["version", "--json"]).stdout(Stdio::from(full)).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("\"code\":\"disk_full\""));
}

#[test]
fn the_manual_is_what_the_grammar_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/src/commands.md");
    let written = std::fs::read_to_string(file).unwrap_or_default();
    let said = Sandbox::new().peat("help --markdown").ok().out;
    assert!(written == said, "out of date: run 'peat help --markdown > docs/manual/src/commands.md'");
}

#[test]
fn the_log_is_silent_until_asked_for() {
    let sandbox = Sandbox::repo_made();
    assert_eq!(sandbox.peat("datastore sync --pull").ok().err, "");
    let requests = sandbox.peat("datastore sync --pull -vv").ok();
    assert!(requests.err.contains("DEBUG") && requests.err.contains("GET peat.store.kind=file"), "{}", requests.err);
    let lines = sandbox.peat("datastore sync --pull --log-level debug --log-format json --json").ok().err;
    let line: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&line["level"], &line["span"]), (&"INFO".into(), &"peat datastore sync".into()));
}
