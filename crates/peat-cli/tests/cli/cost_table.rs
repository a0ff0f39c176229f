//! The table of the manual that says what each command asks of the store is what the commands do.

use std::fmt::Write as _;
use std::path::Path;

use http::Method;
use peat_engine::{Datastore, Prices};
use peat_testkit::s3::S3Server;
use peat_types::Env;

use crate::costs::{joined, shared};
use crate::sandbox::Sandbox;

/// Requests of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    put: u64,
    get: u64,
    list: u64,
    delete: u64,
}

impl Asked {
    fn of(server: &S3Server) -> Self {
        let mut asked = Self::default();
        for logged in server.log() {
            match logged.method {
                Method::PUT => asked.put += 1,
                Method::DELETE => asked.delete += 1,
                _ if logged.key().is_empty() => asked.list += 1,
                _ => asked.get += 1,
            }
        }
        asked
    }

    /// Whether a table that says `self` is true of `seen`: on a busy machine a look at the head can be older than a second,
    /// so that one GET more is made.
    fn holds(self, seen: Self) -> bool {
        seen == self || seen == Self { get: self.get + 1, ..self }
    }
}

/// What is done, by whom, and how the manual puts it.
const COMMANDS: &[(Who, &str, &str)] = &[
    (Who::Ann, "model create command/shell web", ""),
    (Who::Ann, "model method run m execute", "shorter than 5 s, quiet namespace"),
    (Who::Ann, "model method run m execute", "again"),
    (Who::Ann, "model search", ""),
    (Who::Ann, "model get m", ""),
    (Who::Ann, "model output get m", ""),
    (Who::Ann, "data list m", ""),
    (Who::Ann, "data get m result", "content on this machine"),
    (Who::Ben, "datastore sync --pull", "two runs elsewhere since"),
    (Who::Ben, "datastore sync --pull", "nothing new"),
    (Who::Ben, "datastore sync", "nothing to pull, nothing to push"),
    (Who::Cid, "datastore sync --pull", "lazy, first pull of a small namespace"),
    (Who::Cid, "data get large result", "lazy, content not on this machine"),
    (Who::Cid, "data get large result", "again"),
    (Who::Ann, "status", ""),
    (Who::Ann, "datastore status", ""),
    (Who::Ann, "datastore namespace list", ""),
    (Who::Ann, "datastore lock status", ""),
    (Who::Ann, "pin add release", ""),
    (Who::Ann, "pin list", ""),
    (Who::Ann, "pin rm release", ""),
    (Who::Ann, "show 1", ""),
    (Who::Ann, "log --local", ""),
    (Who::Ann, "undo 2 --dry-run", "a run that later work builds on"),
    (Who::Ann, "restore --at 1 --model m --dry-run", ""),
    (Who::Ann, "ledger maintain", "nothing due"),
    (Who::Ann, "datastore gc --dry-run", "nothing older than the retention"),
    (Who::Ann, "model delete web --force", "a model without data"),
];

/// As a word of its own: what stands behind it here is no command yet.
const PEAT: &str = "peat";

#[derive(Clone, Copy)]
enum Who {
    Ann,
    Ben,
    Cid,
}

/// What the commands ask for, in order.
fn measure() -> Vec<Asked> {
    let server = S3Server::start().unwrap();
    let ann = shared(&server);
    ann.model("large", "head -c 100000 /dev/urandom | base64");
    ann.peat("model method run m execute").ok();
    ann.peat("model method run large execute").ok();
    let (ben, cid) = (joined(&server, &ann, "full"), joined(&server, &ann, "lazy"));
    ben.peat("datastore sync --pull").ok();
    let run = |(who, words, _): &(Who, &str, &str)| {
        let sandbox: &Sandbox = match who {
            Who::Ann => &ann,
            Who::Ben => &ben,
            Who::Cid => &cid,
        };
        server.clear_log();
        let ran = sandbox.peat(words);
        assert!(ran.status == 0 || words.starts_with("undo"), "{words}: {ran:?}");
        Asked::of(&server)
    };
    COMMANDS.iter().map(run).collect()
}

fn table(all: &[Asked]) -> String {
    let s3 = Datastore { url: "s3://bucket/a".to_owned(), ..Datastore::default() };
    let prices = Prices::of(&s3, &Env::system([])).unwrap();
    let mut out =
        "| command | PUT | GET | LIST | DELETE | a million of it |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for ((_, words, when), asked) in COMMANDS.iter().zip(all) {
        let Asked { put, get, list, delete } = asked;
        let when = if when.is_empty() { String::new() } else { format!(", {when}") };
        let dollars = prices.of_requests((put + list) * 1_000_000, get * 1_000_000);
        let dollars = if dollars == 0.0 { "free".to_owned() } else { format!("${dollars:.2}") };
        writeln!(out, "| `{PEAT} {words}`{when} | {put} | {get} | {list} | {delete} | {dollars} |").unwrap();
    }
    out
}

/// The rows of the table in the manual.
fn documented(manual: &str) -> Vec<Asked> {
    let section =
        manual.split("<!-- commands -->").nth(1).and_then(|rest| rest.split("<!-- end of commands -->").next());
    let rows = section.unwrap().lines().filter(|line| line.starts_with("| `peat"));
    rows.map(|row| {
        let cells: Vec<u64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        let [put, get, list, delete] = cells[..] else { panic!("{row}") };
        Asked { put, get, list, delete }
    })
    .collect()
}

#[test]
fn the_manual_says_what_each_command_asks_of_the_store() {
    let manual =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/src/cost.md")).unwrap();
    let seen = measure();
    let said = documented(&manual);
    // Where the machine was busy, the manual has the smaller number, and stays as it is.
    let holds = said.len() == seen.len() && said.iter().zip(&seen).all(|(said, seen)| said.holds(*seen));
    let wanted = table(if holds { &said } else { &seen });
    if !holds || !manual.contains(&wanted) {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cost-table.md");
        std::fs::write(&out, &wanted).unwrap();
        panic!("the table in docs/manual/src/cost.md is not true; the right one is in {}:\n{wanted}", out.display());
    }
}
