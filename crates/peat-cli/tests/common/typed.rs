//! Commands that a text tells people to type: found in it, split as a shell would, and held against the real grammar.

use clap::error::ErrorKind;

/// The commands quoted in `text` as 'peat …' or `peat …`, each in one line.
pub(crate) fn quoted(text: &str) -> Vec<String> {
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

/// What a command may look like when it is typed: its optional parts left out, and with them; of `a|b` the first. A format
/// string's `{name}` and a manual's `<name>` both stand for some value.
fn variants(command: &str) -> [String; 2] {
    let (mut without, mut with) = (String::new(), String::new());
    let (mut optional, mut skipped, mut inside) = (0, false, None);
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        // Inside quotes everything is as it is typed.
        if let Some(quote) = inside {
            if c == quote {
                inside = None;
            }
            without.push(c);
            with.push(c);
            continue;
        }
        match c {
            '[' => optional += 1,
            ']' => optional -= 1,
            '|' if chars.peek() != Some(&' ') => skipped = true,
            // Its end, when an alternative is left out up to there.
            _ if skipped && !(c.is_whitespace() || ">])}".contains(c)) => {}
            _ => {
                skipped = false;
                let c = match c {
                    '<' | '{' if chars.peek() != Some(&' ') => '0',
                    '>' | '}' if chars.peek() != Some(&' ') || !with.ends_with(' ') => continue,
                    c => c,
                };
                if "'\"".contains(c) {
                    inside = Some(c);
                }
                with.push(c);
                if optional == 0 {
                    without.push(c);
                }
            }
        }
    }
    [without, with]
}

/// Words of a command as a shell makes them, up to a pipe or a file; `None` when quotes are left open.
fn words(command: &str) -> Option<Vec<String>> {
    let words = shlex::split(command)?;
    let ends = [">", "<", "|", "&&", ";"];
    Some(words.into_iter().take_while(|w| !ends.contains(&w.as_str())).filter(|w| w != "…" && w != "...").collect())
}

/// Whether a command parses, in every form it may be typed in. Prose may name one without its arguments; a hint must be
/// ready to type.
pub(crate) fn check(command: &str, prose: bool) -> Result<(), String> {
    for typed in variants(command) {
        let words = words(&typed).ok_or_else(|| format!("open quotes in {typed}"))?;
        match peat_cli::command().try_get_matches_from(words) {
            Ok(_) => {}
            Err(e) if prose && e.kind() == ErrorKind::MissingRequiredArgument => {}
            Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    Ok(())
}

/// Panics unless every command that a process named on stdout or stderr can be typed as it stands there.
#[track_caller]
pub(crate) fn all_can_be_typed(said: &str) {
    // As JSON writes it.
    let said = said.replace("\\\"", "\"");
    for command in quoted(&said) {
        if let Err(why) = check(&command, false) {
            panic!("it said '{command}': {why}\n{said}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{check, quoted, variants, words};

    #[test]
    fn the_search_for_commands_works() {
        assert_eq!(quoted("run 'peat init' or `peat log`, not 'pear'"), ["peat init", "peat log"]);
        assert_eq!(
            variants("peat data get {model} <name> [--version <n>] --fresh"),
            ["peat data get 0model 0name  --fresh", "peat data get 0model 0name --version 0n --fresh"]
        );
        assert_eq!(variants("peat x --role reader|writer|gc --y")[1], "peat x --role reader --y");
        assert_eq!(variants("peat x <on|off> y")[1], "peat x 0on y");
        assert_eq!(words("peat a --b 'c d' > x.json").unwrap(), ["peat", "a", "--b", "c d"]);
        assert_eq!(words("peat a --b '{\"c\":[1]}' | jq").unwrap(), ["peat", "a", "--b", "{\"c\":[1]}"]);
        assert!(check("peat model method run x execute --input run=\"y z\"", false).is_ok());
        assert!(check("peat modle", true).is_err());
        assert!(check("peat model get", false).is_err() && check("peat model get", true).is_ok());
        assert!(check("peat log [--nope]", true).is_err());
        assert!(check("peat log 'x", true).is_err());
    }
}
