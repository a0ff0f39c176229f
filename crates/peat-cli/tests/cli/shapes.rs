//! The JSON form of every report: which fields it has, of which kind. Scripts depend on it, so a change must be meant.

use std::path::Path;

use serde_json::{Map, Value};

use crate::sandbox::Sandbox;

/// Commands and where their reports are looked at. Run in order.
const COMMANDS: &[&str] = &[
    "init --json --force",
    "version --json --stats",
    "model create command/shell web --json",
    "model get web --json",
    "model search --json",
    "model type search --json",
    "model method describe web execute --json",
    "model validate web --json",
    "model validate --json",
    "model method run m execute --json",
    "model output search --json",
    "model output get m --json",
    "model output logs m --json",
    "model output data m --name result --json",
    "data get m result --json",
    "data list m --json",
    "data versions m result --json",
    "log --json",
    "log --json --graph --model m -n 1",
    "show 2 --json --content",
    "diff 0 --json --content",
    "undo 2 --json --dry-run",
    "restore --at 1 --json --dry-run",
    "data get m result --json --at 2",
    "status --json",
    "doctor --json",
    "datastore status --json",
    "datastore sync --json",
    "datastore sync --dry-run --json",
    "datastore lock status --json",
    "datastore policy s3://bucket/prefix --role writer --json",
    "datastore policy gs://bucket --role reader --json",
    "pending list --json",
    "ledger ls --json",
    "ledger verify --json",
    "ledger maintain --json --force",
    "datastore gc --json --dry-run",
    "pin add now --json",
    "pin list --json",
    "pin rm now --json",
    "datastore setup filesystem --path ../store --dry-run --json",
    "datastore setup filesystem --path ../store --json",
    "datastore namespace list --json",
    "datastore namespace rename infra --json",
    "datastore namespace set infra --json",
    "datastore catalog pull --namespaces default --json",
    "datastore namespace unset --json",
    "model delete m --force --json",
];

/// The value with every leaf replaced by its kind, and lists by the shape of their first item.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(items) => Value::Array(items.first().map(shape).into_iter().collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect())
        }
    }
}

#[test]
fn reports_have_the_shapes_scripts_know() {
    let sandbox = Sandbox::with_model("echo hi");
    let mut shapes = Map::new();
    for command in COMMANDS {
        let report = sandbox.peat(command).ok().json();
        let mut shape = shape(&report);
        shape["schema"] = report["schema"].clone();
        shapes.insert(format!("peat {command}"), shape);
    }
    for line in sandbox.peat("datastore watch --once --since 0 --json").ok().out.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let mut shape = shape(&event);
        shape["schema"] = event["schema"].clone();
        shapes.insert(format!("peat datastore watch --json: {}", event["kind"].as_str().unwrap()), shape);
    }
    let error = sandbox.peat("model get nope --json").status(1).error();
    shapes.insert("an error".to_owned(), shape(&error));
    let now = format!("{:#}\n", Value::Object(shapes));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/shapes.json");
    let known = std::fs::read_to_string(&golden).unwrap_or_default();
    if now != known {
        let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shapes.json");
        std::fs::write(&new, now).unwrap();
        panic!("reports changed; if that is meant: cp {} {}", new.display(), golden.display());
    }
}
