//! What the log says of operations, their steps and requests, and that the manual lists all of it.

use std::collections::{BTreeMap, BTreeSet};

use peat_testkit::s3::{Canned, Fault, S3Server};
use serde_json::Value;

use crate::mend;
use crate::runs::wait_for;
use crate::sandbox::{Ran, Sandbox};

/// A span that ended.
#[derive(Debug)]
struct Ended {
    name: String,
    parents: Vec<String>,
    fields: serde_json::Map<String, Value>,
}

/// The spans of a command that was run with `JSON`, in the order in which they ended. Every line must be an object.
fn spans(ran: &Ran) -> Vec<Ended> {
    let lines =
        ran.err.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    let ended = lines.filter(|line| line.get("span").is_some()).map(|line| {
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z') && line["durationMs"].is_number(), "{line}");
        let parents = line["spans"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        let name = line["span"].as_str().unwrap().to_owned();
        Ended { name, parents, fields: line["fields"].as_object().unwrap().clone() }
    });
    ended.collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().chain(["--json", "--log-level", "debug", "--log-format", "json"]).collect()
}

fn traced(sandbox: &Sandbox, text: &str) -> Vec<Ended> {
    spans(&sandbox.run(words(text)).ok())
}

const REQUESTS: [&str; 5] = ["GET", "CREATE", "PUT", "LIST", "DELETE"];

fn is_request(span: &Ended) -> bool {
    REQUESTS.contains(&span.name.as_str())
}

#[test]
fn a_run_is_a_tree_with_a_span_for_each_request_that_is_counted() {
    let sandbox = Sandbox::with_model("exit 0");
    let ran = sandbox.run(words("model method run m execute --stats")).ok();
    let counted = ran.json()["stats"]["requests"].as_u64().unwrap();
    let spans = spans(&ran);
    assert_eq!(spans.iter().filter(|span| is_request(span)).count() as u64, counted, "{spans:?}");

    let root = spans.last().unwrap();
    assert_eq!((root.name.as_str(), root.parents.len()), ("peat model method run", 0));
    assert_eq!(
        (&root.fields["process.exit.code"], &root.fields["process.executable.name"]),
        (&0.into(), &"peat".into())
    );
    let run = spans.iter().find(|span| span.name == "run").unwrap();
    assert_eq!(run.parents, ["peat model method run"]);
    assert_eq!((&run.fields["peat.model.name"], &run.fields["peat.method.name"]), (&"m".into(), &"execute".into()));
    assert_eq!((&run.fields["peat.run.status"], &run.fields["process.exit.code"]), (&"succeeded".into(), &0.into()));
    assert_eq!(run.fields["peat.namespace"], "default");
    // The start and the end of the run: each one change, one attempt, one slot.
    let creates: Vec<_> = spans.iter().filter(|span| span.name == "CREATE").collect();
    let under = |last: [&str; 3]| {
        let parents = ["peat model method run", "run"].into_iter().chain(last).filter(|name| !name.is_empty());
        parents.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(creates.len(), 2, "{creates:?}");
    assert_eq!(creates[0].parents, under(["clone.begin", "clone.commit", "ledger.commit"]));
    assert_eq!(creates[1].parents, under(["clone.commit", "ledger.commit", ""]));
    let commits: Vec<_> = spans.iter().filter(|span| span.name == "ledger.commit").collect();
    assert!(commits.iter().all(|span| span.fields["peat.attempts"] == 1 && span.fields["peat.outcome"] == "committed"));
    assert_eq!(commits[1].fields["peat.seq"], ran.json()["seq"]);
}

#[test]
fn what_failed_is_named_by_its_code() {
    let sandbox = Sandbox::with_model("echo private-line >&2; exit 3");
    let spans = spans(&sandbox.run(words("model method run m execute")).status(1));
    let run = spans.iter().find(|span| span.name == "run").unwrap();
    assert_eq!(
        (&run.fields["error.type"], &run.fields["process.exit.code"]),
        (&"method_execution_failed".into(), &3.into())
    );
    let root = spans.last().unwrap();
    assert_eq!(
        (&root.fields["error.type"], &root.fields["process.exit.code"]),
        (&"method_execution_failed".into(), &1.into())
    );
    assert!(!format!("{spans:?}").contains("private-line"));
    // That the next entry is not there yet is an answer.
    let others = |span: &&Ended| span.fields.contains_key("error.type") && is_request(span);
    assert!(spans.iter().filter(others).count() == 0, "{spans:?}");
}

#[test]
fn once_v_shows_operations_as_text_and_a_filter_parts() {
    let mut sandbox = Sandbox::repo_made();
    let ran = sandbox.peat("datastore sync --pull -v").ok();
    let lines: Vec<&str> = ran.err.lines().filter(|line| line.contains(" ms)")).collect();
    assert!(lines.len() == 2 && lines[0].contains(" INFO sync peat.sync.mode=pull ("), "{ran:?}");
    assert!(lines[1].contains(" INFO peat datastore sync ") && lines[1].contains("process.exit.code=0"), "{ran:?}");
    sandbox.set("PEAT_LOG", "peat_ledger=debug");
    let ran = sandbox.peat("datastore sync --pull").ok();
    assert!(!ran.err.is_empty() && ran.err.lines().all(|line| line.contains(" DEBUG ledger.")), "{ran:?}");
    assert!(sandbox.peat("datastore sync --pull --log-level error").ok().err.is_empty(), "flags win");
    sandbox.set("PEAT_LOG", "peat=?!=");
    let ran = sandbox.peat("datastore sync --pull").ok();
    assert!(ran.err.starts_with("warning: PEAT_LOG is not understood") && ran.err.lines().count() == 1, "{ran:?}");
}

/// The tables of the manual: attributes by name of the span; requests to buckets and to folders apart.
pub(crate) fn manual() -> BTreeMap<String, BTreeSet<String>> {
    let text = include_str!("../../../../docs/manual/src/observability.md");
    let (_, text) = text.split_once("## Spans").unwrap();
    let ticked = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut tables = BTreeMap::<String, BTreeSet<String>>::new();
    let mut of = "";
    for line in text.lines() {
        match line.split(" | ").collect::<Vec<_>>().as_slice() {
            _ if line.starts_with("A request to a bucket") => of = "bucket",
            _ if line.starts_with("A request to a store in a folder") => of = "folder",
            [first, _, attributes] if of.is_empty() && first.starts_with("| `") => {
                tables.insert(ticked(first).remove(0), ticked(attributes).into_iter().collect());
            }
            [first, _] if !of.is_empty() && first.starts_with("| `") => {
                tables.entry(of.to_owned()).or_default().extend(ticked(first));
            }
            _ => {}
        }
    }
    tables
}

/// Where the manual has a span: `remote` tells requests to a bucket from those to a folder.
pub(crate) fn table_of(name: &str, remote: bool) -> String {
    let of = match name {
        name if name.starts_with("peat ") => "peat …",
        name if REQUESTS.contains(&name) => ["folder", "bucket"][usize::from(remote)],
        name => name,
    };
    of.to_owned()
}

#[test]
fn the_manual_lists_every_span_and_attribute() {
    let server = S3Server::start().unwrap();
    let mut ann = Sandbox::with_model("echo hi");
    server.vars().iter().for_each(|(name, value)| ann.set(name, value));
    let mut seen = Vec::new();
    let mut see = |sandbox: &Sandbox, text: &str| seen.extend(traced(sandbox, text));
    see(&ann, "model method run m execute");
    see(&ann, &format!("datastore setup {} --namespace infra", server.url()));
    see(&ann, "model method run m execute --input run=true");
    // A server that is busy once.
    server.script(http::Method::GET, "", 1, Fault::Reply(Canned::error(503, "SlowDown", "Slow down")));
    see(&ann, "datastore sync");
    see(&ann, "undo 1 --dry-run");
    see(&ann, "restore --at 1 --dry-run");
    see(&ann, "log");
    see(&ann, "ledger verify --deep");
    see(&ann, "datastore watch --once --since 0 --exec true");
    see(&ann, "ledger maintain --force");
    see(&ann, "datastore gc");
    see(&ann, "datastore purge m result --yes");
    // Somebody who has nothing yet, pulls one model, and waits for its lease.
    let mut bob = Sandbox::new();
    server.vars().iter().for_each(|(name, value)| bob.set(name, value));
    for file in [".peat.yaml", "models/command/shell/m.yaml"] {
        bob.write(&format!("repo/{file}"), &std::fs::read_to_string(ann.repo().join(file)).unwrap());
    }
    see(&bob, "data get m log --fresh");
    let args = ["model", "method", "run", "m", "execute", "--input", "run=touch started; until [ -e go ]; do :; done"];
    let mut child = ann.command(args).spawn().unwrap();
    wait_for(&ann, "repo/started");
    let refused = bob.run(words("model method run m execute --lock-timeout 100ms")).status(75);
    seen.extend(spans(&refused));
    ann.write("repo/go", "");
    child.wait().unwrap();
    // A store that lost something.
    let (cat, _) = mend::shared();
    mend::packs(&cat).iter().for_each(|pack| std::fs::remove_file(pack).unwrap());
    seen.extend(traced(&cat, "doctor --repair -y"));

    let manual = manual();
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for span in seen {
        let name = table_of(&span.name, span.fields.contains_key("url.path"));
        let fields = span.fields.into_iter().map(|(name, _)| name).filter(|name| name != "error.type");
        found.entry(name).or_default().extend(fields);
    }
    assert_eq!(found, manual, "what was found, and what the manual says");
}
