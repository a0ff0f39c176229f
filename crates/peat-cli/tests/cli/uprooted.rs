//! `peat datastore setup` killed by SIGKILL at moments that differ each time, in each direction. Every point that it passes
//! is tried in process (`tests/moving/points.rs` of peat-engine); this is for what only a real process leaves: locks, files,
//! databases. `PEAT_KILLS=50` tries longer than the default.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use peat_testkit::s3::S3Server;
use serde_json::Value;

use crate::sandbox::Sandbox;

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Folder,
    Bucket,
}

/// A repository that goes from place to place.
struct Nomad {
    sandbox: Sandbox,
    server: S3Server,
    /// Places it was at.
    places: u64,
    versions: u64,
}

impl Nomad {
    fn new() -> Self {
        let server = S3Server::start().unwrap();
        let mut sandbox = Sandbox::with_model("head -c 100000 /dev/zero | tr '\\0' x");
        for (name, value) in server.vars() {
            sandbox.set(&name, value);
        }
        sandbox.set("PEAT_MAINTENANCE", "off");
        sandbox.peat("model method run m execute").ok();
        sandbox.run(["model", "method", "run", "m", "execute", "--input", "run=echo small"]).ok();
        Self { sandbox, server, places: 0, versions: 2 }
    }

    /// The words that lead to a place where it never was.
    fn next(&mut self, at: At) -> Vec<String> {
        self.places += 1;
        let n = self.places;
        let url = match at {
            At::Folder => format!("file://{}", self.sandbox.path(format!("stores/{n}")).display()),
            At::Bucket => format!("{}/{n}", self.server.url()),
        };
        let mut words = vec!["datastore".to_owned(), "setup".into(), url, "--namespace".into(), "ops".into()];
        if at == At::Bucket {
            words.extend(["--path-style".into(), "--endpoint".into(), self.server.endpoint()]);
        }
        words.push("--json".into());
        words
    }

    /// Keys of its ledger, below a folder.
    fn keys(&self, dir: &str) -> Vec<String> {
        let listed = self.sandbox.run(["ledger", "ls", dir, "-n", "10000", "--json"]).ok().json();
        let key = |object: &Value| object["key"].as_str().unwrap().to_owned();
        listed["objects"].as_array().unwrap().iter().map(key).collect()
    }

    /// Nothing is lost and nothing there twice, as the marker leads.
    #[track_caller]
    fn has_everything(&self, at: &str) {
        let listed = self.sandbox.peat("data versions m result --fresh --json").ok().json();
        let mut seen: Vec<u64> =
            listed["versions"].as_array().unwrap().iter().map(|v| v["version"].as_u64().unwrap()).collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(1..=self.versions), "{at}: {seen:?}");
        let first = self.sandbox.peat("data get m result --version 1 --json").ok().json();
        assert_eq!(first["content"]["stdout"].as_str().map(str::len), Some(100_000), "{at}");
    }
}

/// Kills moves of one direction; gives how many were killed and how many were faster.
fn torment(from: At, to: At, what: &str) {
    let wanted = std::env::var("PEAT_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4_u64);
    let mut nomad = Nomad::new();
    let (mut killed, mut faster) = (0, 0);
    // How long a move may take just now: adapted, since the machine may be busy at one moment and idle at the next.
    let mut longest = Duration::from_millis(200);
    while killed < wanted {
        let back = nomad.next(from);
        nomad.sandbox.run(&back).ok();
        let packs = nomad.keys("pack");

        let there = nomad.next(to);
        let mut child = nomad.sandbox.command(&there).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let part = (u64::from(std::process::id()) + (killed + faster) * 37) % 101;
        let moment = longest * u32::try_from(part).unwrap() / 101;
        std::thread::sleep(moment);
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        if ended.success() {
            (faster, longest) = (faster + 1, moment.max(Duration::from_millis(20)));
        } else {
            (killed, longest) = (killed + 1, longest * 5 / 4);
        }
        assert!(faster <= wanted * 4 + 16, "{faster} moves were done before they were killed");
        assert!(ended.code().is_none_or(|code| code == 0), "{ended:?}");

        let at = format!("{what} {}, killed after {moment:?}", killed + faster);
        nomad.has_everything(&at);
        let done = nomad.sandbox.run(&there).ok().json();
        assert_eq!(nomad.sandbox.peat("datastore status --json").ok().json()["url"], done["url"], "{at}");
        nomad.has_everything(&at);
        assert_eq!(nomad.keys("pack"), packs, "{at}");
        let mut seqs: Vec<u64> =
            nomad.keys("log").iter().map(|key| key.rsplit('.').next().unwrap().parse().unwrap()).collect();
        seqs.reverse();
        assert!(seqs.iter().copied().eq(0..seqs.len() as u64), "{at}: {seqs:?}");
        nomad.sandbox.run(["model", "method", "run", "m", "execute", "--input", "run=echo here"]).ok();
        nomad.versions += 1;
        nomad.sandbox.peat("ledger verify --deep").ok();
        assert_eq!(nomad.sandbox.peat("pending list --json").ok().json()["total"], 0, "{at}");
    }
    assert_eq!(nomad.sandbox.peat("doctor --deep --json").ok().json()["overallStatus"], "pass");
    let _ = writeln!(std::io::stderr(), "{what}: {killed} killed, {faster} done before");
}

#[test]
fn setup_killed_from_folder_to_bucket_loses_nothing() {
    torment(At::Folder, At::Bucket, "folder to bucket");
}

#[test]
fn setup_killed_from_bucket_to_bucket_loses_nothing() {
    torment(At::Bucket, At::Bucket, "bucket to bucket");
}

#[test]
fn setup_killed_from_bucket_to_folder_loses_nothing() {
    torment(At::Bucket, At::Folder, "bucket to folder");
}

#[test]
fn setup_killed_from_folder_to_folder_loses_nothing() {
    torment(At::Folder, At::Folder, "folder to folder");
}
