//! Names of types and definitions, and help for those who mistype them.

use peat_types::{Error, ItemPath, Result};

/// The one spelling of a type: `AWS::EC2::VPC`, `aws.ec2.vpc` and `aws/ec2/vpc` are one.
///
/// # Errors
/// `Invalid` when nothing is left, or when it could not name a folder.
pub fn normalize_type(raw: &str) -> Result<String> {
    let lower = raw.trim().to_lowercase();
    let spaced = lower.replace("::", "/");
    let parts: Vec<&str> =
        spaced.split(|c: char| c == '/' || c == '.' || c.is_whitespace()).filter(|part| !part.is_empty()).collect();
    let name = parts.join("/");
    name.parse::<ItemPath>()
        .map_err(|e| Error::invalid(format!("'{raw}' is not a model type")).with_hint(TYPE_HINT).with_source(e))?;
    Ok(name)
}

const TYPE_HINT: &str = "a type looks like command/shell; 'peat model type search' lists them";

/// Checks a name that is about to be given: `[a-z0-9][a-z0-9_-]*` up to 64, or `@collective/name[/more]`.
pub fn check_new_name(name: &str) -> Result<()> {
    let slug = |s: &str| {
        s.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
    };
    let ok = match name.strip_prefix('@') {
        Some(scoped) => scoped.contains('/') && scoped.split('/').all(slug),
        None => slug(name),
    };
    if ok && name.len() <= 64 {
        return Ok(());
    }
    Err(Error::invalid(format!("'{name}' is not a name for a definition")).with_hint(
        "use 1 to 64 lower-case letters, digits, '_' and '-', beginning with a letter or digit, such as 'web-1', or a \
         scoped name such as '@acme/web'",
    ))
}

/// Checks a name that a file brings: older names are let in as long as they are harmless.
pub(crate) fn check_old_name(name: &str) -> Result<(), String> {
    let scoped = name.starts_with('@');
    let harmless = !name.is_empty()
        && !name.contains("..")
        && !name.contains('\\')
        && !name.contains('\0')
        && !name.chars().any(char::is_control)
        && (scoped || !name.contains('/'));
    if harmless { Ok(()) } else { Err(format!("'{name}' is not a name for a definition")) }
}

/// The candidate closest to `word`, when it is close enough to be a slip.
pub(crate) fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(d, candidate)| *d <= limit || (word.len() >= 3 && candidate.starts_with(word)))
        .min()
        .map(|(_, candidate)| candidate)
}

/// `; did you mean 'x'?` or nothing.
pub(crate) fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, candidates).map_or_else(String::new, |best| format!("; did you mean '{best}'?"))
}

/// Edits between two words: insertion, deletion, substitution, and swapping neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_one_spelling() {
        for raw in ["AWS::EC2::VPC", "aws.ec2.vpc", "aws/ec2/vpc", " /aws//ec2 . vpc/ ", "aws ec2\tvpc"] {
            assert_eq!(normalize_type(raw).unwrap(), "aws/ec2/vpc", "{raw}");
        }
        assert_eq!(normalize_type("@Acme/DNS").unwrap(), "@acme/dns");
        assert_eq!(normalize_type("../../etc").unwrap(), "etc");
        for raw in ["", " / ", "a\\b", "a\0b", "con"] {
            assert!(normalize_type(raw).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn names_for_new_definitions() {
        for name in ["web", "0", "a-b_c", "@acme/web", "@acme/web/eu-1"] {
            assert!(check_new_name(name).is_ok(), "{name}");
        }
        let long = "a".repeat(65);
        for name in ["", "../x", "/etc/passwd", "a/b", "Web", "-a", "a.b", "@acme", "@/x", "@acme/../x", "a b", &long] {
            assert!(check_new_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn old_names_are_let_in_when_harmless() {
        for name in ["My Model.v2", "@Acme/Web"] {
            assert!(check_old_name(name).is_ok(), "{name}");
        }
        for name in ["", "a/b", "a\\b", "..", "@a/../b", "a\0"] {
            assert!(check_old_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn slips_are_recognised() {
        let words = ["execute", "workingDir", "timeout", "run", "env"];
        assert_eq!(closest("excute", words), Some("execute"));
        assert_eq!(closest("workingdir", words), Some("workingDir"));
        assert_eq!(closest("rnu", words), Some("run"));
        assert_eq!(closest("banana", words), None);
        assert_eq!(closest("time", words), Some("timeout"));
    }
}
