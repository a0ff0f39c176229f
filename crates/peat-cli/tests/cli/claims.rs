//! What the manual claims with a test's name is held by a test of that name.

use std::path::Path;

#[test]
fn each_test_that_the_manual_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/manual/src/differences.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(rows.len() >= 7, "{rows:?}");
    for row in rows {
        let quoted: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let [.., file, name] = quoted.as_slice() else { panic!("no test is named: {row}") };
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let at = text.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("{name} is not in {file}"));
        let before = text[..at].trim_end_matches("async ").trim_end();
        assert!(
            before.ends_with(']') && before.rfind("#[").is_some_and(|mark| before[mark..].contains("test")),
            "{row}"
        );
    }
}
