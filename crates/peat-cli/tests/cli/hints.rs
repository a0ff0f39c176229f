//! Every command that a hint or a manual page names must parse. (What tests see processes say is held against the grammar
//! where it is read: `sandbox.rs`, and `machine.rs` of the stories.)

use std::path::{Path, PathBuf};

use crate::typed::{check, quoted};

/// Files with one of these ends, below `folder`.
pub(crate) fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && name != ".git" {
            files(&path, end, found);
        } else if name.to_str().unwrap().ends_with(end) {
            found.push(path);
        }
    }
}

/// The text of a source or a page without comments, which name commands without their arguments, and with strings that go
/// on in the next line in one.
fn said(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("//") && !line.starts_with('#')).collect();
    let mut pieces = lines.join("\n").split("\\\n").map(str::to_owned).collect::<Vec<_>>();
    pieces.iter_mut().skip(1).for_each(|piece| *piece = piece.trim_start().to_owned());
    pieces.concat().replace("\\\"", "\"")
}

/// The commands of a page's code blocks, which begin with a prompt.
fn prompted(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .filter(|line| line.starts_with("peat "))
        .map(str::to_owned)
        .collect()
}

/// Commands that are a string of their own: lists of what to do next.
fn whole_strings(text: &str) -> Vec<String> {
    let strings = text.match_indices("\"peat ").filter_map(|(at, _)| text[at + 1..].split('"').next());
    strings.filter(|string| names_one(string)).map(str::to_owned).collect()
}

/// Whether "peat" is followed by the name of a command.
fn names_one(text: &str) -> bool {
    let name = text.split_whitespace().nth(1).unwrap_or_default();
    peat_cli::command().get_subcommands().any(|command| command.get_name() == name)
}

#[test]
fn commands_in_hints_and_pages_parse() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    files(&root.join("crates"), ".rs", &mut sources);
    files(&root.join("docs/manual"), ".md", &mut sources);
    sources.extend(["README.md", "ETHOS.md", "CHANGELOG.md", "bench/README.md"].map(|name| root.join(name)));
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in sources.iter().filter(|file| !file.ends_with("hints.rs") && !file.ends_with("typed.rs")) {
        let (text, page) = (said(file), file.extension().is_some_and(|end| end == "md"));
        // Tests look for parts of messages, and the demo shortens what it shows.
        let own = if page {
            prompted(&text)
        } else if file.iter().any(|part| part == "tests" || part == "demo") {
            Vec::new()
        } else {
            whole_strings(&text)
        };
        for (command, prose) in
            quoted(&text).into_iter().map(|command| (command, page)).chain(own.into_iter().map(|c| (c, false)))
        {
            seen += 1;
            if let Err(why) = check(&command, prose) {
                wrong.push(format!("{}: '{command}': {}", file.display(), why.lines().next().unwrap_or_default()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 250, "only {seen} commands found: does the search still work?");
}

/// A command that stands in a message without quotes would be found by nobody: not by the test above, and not by who reads.
#[test]
fn commands_in_messages_are_quoted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    files(&root.join("crates"), ".rs", &mut sources);
    let mut bare = Vec::new();
    for file in sources.iter().filter(|file| file.iter().any(|part| part == "src")) {
        let text = said(file);
        for (at, _) in text.match_indices("peat ").filter(|(at, _)| names_one(&text[*at..])) {
            if !text[..at].ends_with(['\'', '`', '"']) && !text[..at].ends_with(", ") {
                bare.push(format!("{}: {}", file.display(), text[at..].lines().next().unwrap_or_default()));
            }
        }
    }
    assert!(bare.is_empty(), "{}", bare.join("\n"));
}

#[test]
fn every_code_stands_in_the_manual() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/manual/src/errors.md")).unwrap();
    let mut sources = Vec::new();
    files(&root.join("crates"), ".rs", &mut sources);
    let mut missing = Vec::new();
    for file in sources.iter().filter(|file| file.iter().any(|part| part == "src") && !file.ends_with("hints.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        for (at, start) in text.match_indices("with_code(\"") {
            let code = text[at + start.len()..].split('"').next().unwrap_or_default();
            if !page.contains(&format!("`{code}`")) {
                missing.push(format!("{}: {code}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "not in docs/manual/src/errors.md:\n{}", missing.join("\n"));
}
