//! Every command that a hint or a manual page names must parse.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

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

/// The commands quoted in `text` as 'peat …' or `peat …`.
fn quoted(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for quote in ['\'', '`'] {
        let start = format!("{quote}peat ");
        for (at, _) in text.match_indices(&start) {
            let rest = &text[at + 1..];
            let Some(end) = rest.find(quote) else { continue };
            if !rest[..end].contains('\n') {
                found.push(rest[..end].to_owned());
            }
        }
    }
    found
}

/// Words of a command as typed, with placeholders taken as values and optional parts left out.
fn words(command: &str) -> Vec<String> {
    let command =
        [" > ", " < ", " | "].iter().fold(command, |command, end| command.split(end).next().unwrap_or_default());
    // A format string's `{name}` and a manual's `<name>` both stand for some value.
    let mut out = String::new();
    let mut depth = 0;
    for c in command.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            '<' | '{' if depth == 0 => out.push('0'),
            '>' | '}' => {}
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out.split_whitespace()
        .map(|word| word.trim_matches('"').to_owned())
        .filter(|word| word != "…" && word != "...")
        .collect()
}

/// Whether a command parses. Prose may name one without its arguments; a hint must be ready to type.
fn check(command: &str, prose: bool) -> Result<(), String> {
    let parsed = peat_cli::command().try_get_matches_from(words(command));
    match parsed {
        Ok(_) => Ok(()),
        Err(e) if prose && e.kind() == ErrorKind::MissingRequiredArgument => Ok(()),
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

#[test]
fn commands_in_hints_and_pages_parse() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    files(&root.join("crates"), ".rs", &mut sources);
    files(&root.join("docs/manual"), ".md", &mut sources);
    sources.extend(
        ["README.md", "ETHOS.md", "CHANGELOG.md"].map(|name| root.join(name)).into_iter().filter(|p| p.exists()),
    );
    let mut seen = 0;
    let mut wrong = Vec::new();
    for file in sources.iter().filter(|file| !file.ends_with("hints.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        // Comments and headings name commands without their arguments.
        let said = text.lines().filter(|line| !line.trim_start().starts_with("//") && !line.starts_with('#'));
        for command in quoted(&said.collect::<Vec<_>>().join("\n")) {
            seen += 1;
            if let Err(why) = check(&command, file.extension().is_some_and(|end| end == "md")) {
                wrong.push(format!("{}: '{command}': {}", file.display(), why.lines().next().unwrap_or_default()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 5, "only {seen} commands found: does the search still work?");
}

#[test]
fn the_search_for_commands_works() {
    assert_eq!(quoted("run 'peat init' or `peat log`, not 'pear'"), ["peat init", "peat log"]);
    assert_eq!(
        words("peat data get {model} <name> [--version 1] --fresh"),
        ["peat", "data", "get", "0model", "0name", "--fresh"]
    );
    assert!(check("peat model method run x execute --input run=\"y\"", false).is_ok());
    assert!(check("peat modle", true).is_err());
    assert!(check("peat model get", false).is_err() && check("peat model get", true).is_ok());
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
