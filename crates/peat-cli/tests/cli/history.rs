//! The past on the command line: log, show, diff, undo, restore.

use crate::sandbox::Sandbox;

/// A model `m` that ran twice: entries 1 to 4.
fn twice() -> Sandbox {
    let sandbox = Sandbox::with_model("date +%N");
    for _ in 0..2 {
        sandbox.peat("model method run m execute").ok();
    }
    sandbox
}

#[test]
fn the_log_by_model_by_time_and_as_a_graph() {
    let sandbox = twice();
    sandbox.model("other", "true");
    sandbox.peat("model method run other execute").ok();
    let seqs = |words: &str| -> Vec<u64> {
        let log = sandbox.peat(words).ok().json();
        log["entries"].as_array().unwrap().iter().map(|entry| entry["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(seqs("log --json"), [6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(seqs("log --json --model m"), [4, 3, 2, 1]);
    assert_eq!(seqs("log --json --model m -n 1"), [4]);
    assert_eq!(seqs("log --json --since 1h -n 2"), [6, 5]);
    assert_eq!(seqs("log --json --since 5"), [6, 5]);
    let text = sandbox.peat("log -n 2").ok().out;
    assert!(text.starts_with("ENTRY") && text.contains("other execute: succeeded"), "{text}");
    assert!(text.ends_with("… older ones with -n or --since\n"), "{text}");
    let graph = sandbox.peat("log --graph").ok().out;
    let lanes: Vec<&str> = graph.lines().map(|line| line.split("20").next().unwrap().trim_end()).collect();
    assert_eq!(lanes, ["┬  6", "┴  5", "┬  4", "┴  3", "┬  2", "┴  1", "   0"], "{graph}");
    assert_eq!(sandbox.peat("log --model nope").status(1).out, "");
    assert!(sandbox.peat("log --since 9999").ok().out.starts_with("No entries."));
}

#[test]
fn an_entry_is_shown_compared_undone_and_restored() {
    let sandbox = twice();
    let text = sandbox.peat("show 4 --content").ok().out;
    for part in ["kind:         end", "message:      m execute: succeeded", "result@2", "against version 1 of result"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let diff = sandbox.peat("diff 2").ok().out;
    assert!(diff.contains("6 added, 0 changed, 0 removed"), "{diff}");
    let planned = sandbox.peat("undo 4 --dry-run").ok().out;
    assert!(planned.contains("would be removed") && planned.contains("undone:       entry 3"), "{planned}");
    let undone = sandbox.peat("undo 4 --json").ok().json();
    assert_eq!((&undone["entry"], &undone["deletes"], &undone["dryRun"]), (&5.into(), &6.into(), &false.into()));
    assert_eq!(sandbox.peat("data get m result --json").ok().json()["version"], 1);
    assert_eq!(sandbox.peat("data get m result --json --at 4").ok().json()["version"], 2);
    let again = sandbox.peat("undo 4 --json").status(1).error();
    assert_eq!(again["code"], "nothing_to_undo");
    let restored = sandbox.peat("restore --at 4 --json").ok().json();
    assert_eq!((&restored["entry"], &restored["puts"]), (&6.into(), &6.into()));
    assert!(sandbox.peat("restore --at 4").ok().out.contains("equal to it already"));
    assert_eq!(sandbox.peat("restore --at 2 --json").status(1).error()["code"], "too_many_deletes");
    assert!(sandbox.peat("diff yesterday --json").status(2).error()["error"].as_str().unwrap().contains("such as 90m"));
    for none in ["ledger ls -n 0", "model output search -n 0", "log -n 0"] {
        sandbox.peat(none).status(2);
    }
    let empty = sandbox.run(["undo", "2", "--change", "", "--dry-run", "--json"]).status(1).error();
    assert!(empty["error"].as_str().unwrap().contains("empty name"), "{empty}");
    sandbox.peat("restore --at 2 --allow-deletes").ok();
    // What the restored files hold is what ordinary tools read.
    let view = sandbox.peat("data get m result --json").ok().json();
    let file = std::fs::read_to_string(view["contentPath"].as_str().unwrap()).unwrap();
    assert_eq!(sandbox.peat("data get m result").ok().out, file);
}

#[test]
fn what_is_not_there_is_named() {
    let sandbox = twice();
    for (words, code, said) in [
        ("show 99 --json", "entry_not_found", "the newest is 4"),
        ("diff 99 --json", "entry_not_found", "the newest is 4"),
        ("undo 0 --json", "not_undoable", "created the ledger"),
        ("restore --at 99 --json", "entry_not_found", "the newest is 4"),
        ("restore --at 2020-01-01 --json", "state_not_kept", "before the ledger was created"),
        ("data get m result --at 0 --json", "not_found", "at entry 0"),
        ("undo 4 --change nope --json", "not_found", "holds no change 'nope'"),
    ] {
        let error = sandbox.peat(words).status(1).error();
        assert_eq!(error["code"], code, "{words}: {error}");
        assert!(error["error"].as_str().unwrap().contains(said), "{words}: {error}");
    }
    for words in ["restore --at yesterday", "diff -1", "log --since 1fortnight"] {
        sandbox.peat(words).status(2);
    }
}

/// The object of an entry.
fn object(sandbox: &Sandbox, seq: u64) -> std::path::PathBuf {
    let (folder, name) = (sandbox.repo().join(".peat/store/default/log"), format!(".{seq}"));
    let mut found = walk(&folder).into_iter().filter(|path| path.to_str().unwrap().ends_with(&name));
    found.next().unwrap_or_else(|| panic!("{name} in {:?}", walk(&folder)))
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn an_entry_that_cannot_be_read_is_named_and_hides_no_other() {
    let sandbox = twice();
    std::fs::write(object(&sandbox, 3), "ruined").unwrap();
    std::fs::remove_file(object(&sandbox, 1)).unwrap();
    std::fs::remove_file(object(&sandbox, 0)).unwrap();
    for (words, shown) in [("log", [4, 2].as_slice()), ("log --model m", &[4, 2]), ("log --graph", &[4, 2])] {
        let ran = sandbox.peat(&format!("{words} --json")).status(1);
        let seqs = |list: &str| -> Vec<u64> {
            ran.json()[list].as_array().unwrap().iter().map(|entry| entry["seq"].as_u64().unwrap()).collect()
        };
        assert_eq!((seqs("entries").as_slice(), seqs("unread")), (shown, vec![3, 1, 0]), "{words}");
        assert_eq!(ran.error()["code"], "damaged", "{ran:?}");
        assert!(ran.error()["hint"].as_str().unwrap().contains("'peat doctor'"), "{ran:?}");
    }
    let text = sandbox.peat("log").status(1);
    assert!(text.out.contains("entry 3 cannot be read: ") && text.out.contains("entry 1 cannot be read: "), "{text:?}");
    assert!(text.err.starts_with("error: 3 entries of the log cannot be read: 3, 1, 0\n"), "{text:?}");
    // Nobody asked for these.
    sandbox.peat("log -n 1").ok();
    let since = sandbox.peat("log --since 2 --json").status(1).json();
    assert_eq!(since["unread"].as_array().unwrap().len(), 1, "{since}");
}

#[test]
fn bytes_that_are_no_text_pass_through_a_pipe_and_nothing_else() {
    let sandbox = Sandbox::with_model("echo hi");
    let mut last = Vec::new();
    for n in 0..2_u8 {
        sandbox.peat("model method run m execute").ok();
        let view = sandbox.peat("data get m log --no-content --json").ok().json();
        last = vec![0xff, 0xfe, 0x80 + n, b'\n'];
        std::fs::write(view["contentPath"].as_str().unwrap(), &last).unwrap();
        sandbox.peat("datastore sync --push").ok();
    }
    assert_eq!(sandbox.command(["data", "get", "m", "log"]).output().unwrap().stdout, last);
    let view = sandbox.peat("data get m log --json").ok().json();
    assert!(view.get("content").is_none() && view["size"] == 4, "{view}");
    let newest = sandbox.peat("log -n 1 --json").ok().json()["entries"][0]["seq"].to_string();
    for words in [format!("show {newest} --content"), "diff 3 --content".to_owned()] {
        let ran = sandbox.peat(&words).ok();
        assert!(
            ran.out.contains("(not compared: it is not text)") && !ran.out.contains('\u{fffd}'),
            "{words}: {ran:?}"
        );
    }
    let refused = sandbox.peat("model output data m --name log").status(1);
    assert!(refused.err.contains("is no text") && refused.err.contains("'peat data get <model> log"), "{refused:?}");
}

#[test]
fn hostile_names_and_contents_cannot_command_the_terminal() {
    let mut sandbox = Sandbox::with_model("printf 'a\\033[2Jb\\r\\n'");
    sandbox.set("USER", "eve\u{1b}]0;owned\u{7}\nhint: rm");
    for _ in 0..2 {
        sandbox.peat("model method run m execute").ok();
    }
    for words in
        ["log", "log --graph", "show 4 --content", "diff 2 --content", "undo 4 --dry-run", "restore --at 2 --dry-run"]
    {
        let ran = sandbox.peat(words).ok();
        let bad = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(!ran.out.contains(bad), "{words}: {:?}", ran.out);
        assert!(!ran.out.lines().any(|line| line.starts_with("hint: rm")), "{words}: {}", ran.out);
    }
}

#[test]
fn the_log_of_this_machine_asks_nobody() {
    let sandbox = twice();
    let here = sandbox.peat("log --local --json --stats").ok().json();
    assert_eq!((&here["source"], &here["stats"]["requests"]), (&"clone".into(), &0.into()));
    let seqs: Vec<u64> = here["entries"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [4, 3, 2, 1]);
    let text = sandbox.peat("log --local --graph -n 2").ok().out;
    assert!(text.lines().count() == 3 && text.contains("m execute: succeeded"), "{text}");
}

#[test]
fn the_past_costs_what_the_manual_says() {
    let sandbox = twice();
    let requests = |words: &str| {
        sandbox.peat(&format!("{words} --json --stats")).ok().json()["stats"]["requests"].as_u64().unwrap()
    };
    assert_eq!(requests("log"), 1 + 5, "a LIST and the entries");
    assert_eq!(requests("log -n 1"), 1 + 1);
    assert!(requests("log --model m") <= 2 + 3 + 4);
    assert_eq!(requests("show 3"), 3);
    assert!(requests("diff 2") <= 4 + 4);
    assert!(requests("undo 4 --dry-run") <= 14);
    // By time: 5 states are halved three times.
    let written = sandbox.peat("log --json").ok().json()["entries"][2]["written"].as_str().unwrap().to_owned();
    let by_seq = requests("data versions m result --at 2");
    assert!(requests(&format!("data versions m result --at {written}")) <= by_seq + 1 + 3);
}
