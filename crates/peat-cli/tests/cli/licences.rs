//! What Peat is built from may be given away under Peat's licences. The same list stands in `deny.toml`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Licences listed under `allow` in `deny.toml`.
fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml")).unwrap();
    let list = text.split("allow = [").nth(1).unwrap().split(']').next().unwrap();
    list.lines().map(|line| line.trim().trim_matches([',', '"']).to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Whether an SPDX expression can be met: one side of each OR, both sides of each AND. `/` is an old spelling of OR.
fn met(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (met, rest) = any(&words, allowed);
    met && rest.is_empty()
}

fn any<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    let (mut met, mut rest) = all(words, allowed);
    while rest.first() == Some(&"OR") {
        let (other, after) = all(&rest[1..], allowed);
        (met, rest) = (met | other, after);
    }
    (met, rest)
}

fn all<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    let (mut met, mut rest) = one(words, allowed);
    while rest.first() == Some(&"AND") {
        let (other, after) = one(&rest[1..], allowed);
        (met, rest) = (met & other, after);
    }
    (met, rest)
}

fn one<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inner @ ..] => {
            let (met, rest) = any(inner, allowed);
            (met, rest.strip_prefix(&[")"]).unwrap_or(rest))
        }
        [name, "WITH", exception, rest @ ..] => (allowed.contains(&format!("{name} WITH {exception}")), rest),
        [name, rest @ ..] => (allowed.iter().any(|known| known == name), rest),
        [] => (false, words),
    }
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let allowed = allowed();
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(|licence| met(licence, &allowed)))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(packages.len() > 50 && refused.is_empty(), "{refused:#?}");
}

#[test]
fn expressions_are_understood() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("MIT AND (GPL-3.0 OR Zlib)", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("", false),
    ] {
        assert_eq!(met(expression, &allowed), expected, "{expression}");
    }
}
