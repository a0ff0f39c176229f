//! The page about what happened to others keeps its word, and so does the list of the nasty scenarios.

use std::collections::BTreeSet;
use std::path::Path;

use crate::hints::files;

/// Every function of the sources with a test attribute, or near enough: one whose line before it is an attribute.
fn tests() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    files(&root.join("crates"), ".rs", &mut sources);
    let mut found = BTreeSet::new();
    for file in sources {
        let text = std::fs::read_to_string(file).unwrap();
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                marked = true;
            } else if marked && let Some(rest) = line.trim_start_matches("async ").strip_prefix("fn ") {
                found.insert(rest.split('(').next().unwrap().to_owned());
                marked = false;
            }
        }
    }
    found
}

/// Rows of the page's tables whose first cell is a number.
fn rows() -> Vec<(String, String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/007-peers.md");
    let text = std::fs::read_to_string(page).unwrap();
    let cells = text.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| ")?.split(" |").map(str::trim).collect();
        let number = cells[0].starts_with("B-") || cells[0].starts_with('F');
        (number && cells.len() >= 4).then(|| (cells[0].to_owned(), cells[2].to_owned(), cells[3].to_owned()))
    });
    cells.collect()
}

#[test]
fn the_peers_page_names_tests_that_exist() {
    let tests = tests();
    assert!(tests.len() > 400, "only {} tests found: does the search still work?", tests.len());
    let mut wrong = Vec::new();
    for (number, answer, shown) in rows() {
        let named: Vec<_> = shown.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && !answer.starts_with("cannot happen: ") {
            wrong.push(format!("{number} has neither a test nor a reason"));
        }
        wrong.extend(named.iter().filter(|name| !tests.contains(**name)).map(|name| format!("{number}: {name}")));
    }
    assert!(wrong.is_empty(), "no such tests:\n{}", wrong.join("\n"));
}

#[test]
fn the_peers_page_has_every_number_once() {
    let numbers: Vec<String> = rows().into_iter().map(|(number, ..)| number).collect();
    let wanted: Vec<String> = (1..=77).map(|n| format!("B-{n:02}")).chain((1..=15).map(|n| format!("F{n}"))).collect();
    assert_eq!(numbers, wanted);
}

#[test]
fn each_of_the_fifteen_scenarios_has_a_test_of_its_number() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/008-simulation.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (_, table) = text.split_once("## The fifteen nasty scenarios").unwrap();
    let tests = tests();
    let mut numbers = Vec::new();
    for line in table.lines() {
        let cells: Vec<_> = line.strip_prefix("| ").unwrap_or_default().split(" |").map(str::trim).collect();
        let Ok(number) = cells[0].parse::<u32>() else { continue };
        numbers.push(number);
        let named: Vec<_> = cells[2].split('`').skip(1).step_by(2).filter(|name| name.starts_with("study_")).collect();
        assert!(!named.is_empty(), "scenario {number} names no test");
        for name in named {
            assert!(name.starts_with(&format!("study_{number:02}_")), "{name} is not of scenario {number}");
            assert!(tests.contains(name), "scenario {number}: there is no test {name}");
        }
    }
    assert_eq!(numbers, (1..=15).collect::<Vec<_>>());
    let listed = |test: &&String| test.starts_with("study_") && !table.contains(&format!("`{test}`"));
    assert_eq!(tests.iter().find(listed), None, "a scenario's test that is not in the table");
}

#[test]
fn the_page_of_defects_names_tests_that_exist() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/src/defects.md");
    let text = std::fs::read_to_string(page).unwrap();
    let rows: Vec<&str> =
        text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")).skip(1).collect();
    let tests = tests();
    let mut wrong = Vec::new();
    for row in &rows {
        let shown = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let named: Vec<_> = shown.split('`').skip(1).step_by(2).collect();
        if named.is_empty() || !named.iter().all(|name| tests.contains(*name)) {
            wrong.push(*row);
        }
    }
    assert!(rows.len() > 10 && wrong.is_empty(), "rows without a test that exists:\n{}", wrong.join("\n"));
}
