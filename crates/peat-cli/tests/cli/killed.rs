//! Runs killed, stopped and interrupted at moments that differ each time. `PEAT_KILLS=100` tries longer than the default.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use peat_testkit::s3::S3Server;

use crate::runs::interrupt;
use crate::sandbox::Sandbox;

/// Moments, in milliseconds after the start, that fall into each other's gaps.
fn moments() -> impl Iterator<Item = u64> {
    let count = std::env::var("PEAT_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let offset = u64::from(std::process::id());
    (0..count).map(move |n| (offset + n * 37) % 211)
}

pub(crate) fn signal(child: &Child, name: &str) {
    let sent = std::process::Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// All files below a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn torment(sandbox: &Sandbox, store: Option<&Path>) {
    // Sizes below and above what travels inside an entry.
    let commands = ["echo small", "head -c 200000 /dev/zero | tr '\\0' x"];
    let said = sandbox.path("said");
    let stderr = || std::fs::File::options().create(true).append(true).open(&said).unwrap();
    for (n, moment) in moments().enumerate() {
        let run = format!("run={}", commands[n % 2]);
        let args = ["model", "method", "run", "m", "execute", "--input", &run];
        // Outputs that nobody reads would hold the runs up.
        let spawn = || sandbox.command(args).stdout(Stdio::null()).stderr(stderr()).spawn().unwrap();
        let mut children = vec![spawn()];
        if n % 3 == 0 {
            children.push(spawn());
        }
        std::thread::sleep(Duration::from_millis(moment));
        for child in &mut children {
            match n % 5 {
                3 => interrupt(child),
                4 => {
                    signal(child, "-STOP");
                    std::thread::sleep(Duration::from_millis(100));
                    signal(child, "-CONT");
                }
                _ => child.kill().unwrap(),
            }
        }
        for mut child in children {
            let status = child.wait().unwrap().code();
            let said = || std::fs::read_to_string(&said).unwrap();
            assert!([None, Some(0), Some(130)].contains(&status), "{n} at {moment} ms: {status:?}\n{}", said());
            if status == Some(130) && n % 3 != 0 {
                let held = sandbox.peat("datastore lock status --json").ok().json();
                assert_eq!(held["held"], false, "{n} at {moment} ms\n{}", said());
            }
        }
    }
    sandbox.peat("datastore sync").ok();
    assert_eq!(sandbox.peat("pending list --json").ok().json()["total"], 0);
    sandbox.run(["model", "method", "run", "m", "execute", "--input", "run=echo last"]).ok();
    let versions = sandbox.peat("data versions m result --json").ok().json();
    let mut numbers: Vec<u64> =
        versions["versions"].as_array().unwrap().iter().map(|v| v["version"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    let outputs = sandbox.peat("model output search --limit 1000 --json").ok().json();
    let of = |status: &str| outputs["results"].as_array().unwrap().iter().filter(|row| row["status"] == status).count();
    assert_eq!((of("running"), of("failed")), (0, 0), "{outputs}");
    assert!(of("succeeded") <= numbers.len(), "a success without its data");
    assert_eq!(sandbox.peat("datastore lock status --json").ok().json()["held"], false);
    sandbox.peat("ledger verify --deep").ok();
    assert_eq!(sandbox.peat("doctor --json").ok().json()["overallStatus"], "pass");

    let clone = PathBuf::from(sandbox.peat("status --json").ok().json()["clonePath"].as_str().unwrap());
    let temps: Vec<_> = [clone.join("tmp")].into_iter().chain(store.map(|store| store.join(".tmp"))).collect();
    // (A process that was killed while it entered a run leaves its file in `runs` under a temporary name.)
    for path in temps.iter().chain([&clone.join("runs")]).flat_map(|dir| files(dir)) {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(file.metadata().unwrap().modified().unwrap() - Duration::from_secs(2 * 24 * 3600)).unwrap();
    }
    sandbox.run(["model", "method", "run", "m", "execute", "--input", "run=echo clean"]).ok();
    let left: Vec<_> = temps
        .into_iter()
        .chain(["journal", "run", "runs"].map(|name| clone.join(name)))
        .flat_map(|d| files(&d))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn kills_lose_and_leave_nothing_in_a_folder() {
    let sandbox = Sandbox::with_model("echo hi");
    let store = sandbox.path("shared");
    std::fs::create_dir(&store).unwrap();
    sandbox.run(["datastore", "setup", &format!("file://{}", store.display())]).ok();
    torment(&sandbox, Some(&store));
}

#[test]
fn kills_lose_and_leave_nothing_in_a_bucket() {
    let server = S3Server::start().unwrap();
    let mut sandbox = Sandbox::with_model("echo hi");
    for (name, value) in server.vars() {
        sandbox.set(&name, value);
    }
    sandbox.run(["datastore", "setup", &server.url(), "--endpoint", &server.endpoint(), "--path-style"]).ok();
    torment(&sandbox, None);
}
