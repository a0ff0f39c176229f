//! What commands cost is kept and shown, in dollars where the price is known.

use peat_testkit::s3::S3Server;
use serde_json::Value;

use crate::sandbox::Sandbox;

/// A repo in a bucket of the test server.
pub(crate) fn shared(server: &S3Server) -> Sandbox {
    let mut sandbox = Sandbox::with_model("echo hi");
    server.vars().iter().for_each(|(name, value)| sandbox.set(name, value));
    sandbox.run(["datastore", "setup", &server.url(), "--namespace", "infra", "--endpoint", &server.endpoint()]).ok();
    sandbox
}

/// Another machine with the repo of `ann`, which has not pulled yet.
pub(crate) fn joined(server: &S3Server, ann: &Sandbox, hydration: &str) -> Sandbox {
    let mut sandbox = Sandbox::new();
    server.vars().iter().for_each(|(name, value)| sandbox.set(name, value));
    let marker = std::fs::read_to_string(ann.repo().join(".peat.yaml")).unwrap();
    sandbox.write("repo/.peat.yaml", &format!("{}\n  hydration: {hydration}\n", marker.trim_end()));
    for entry in std::fs::read_dir(ann.repo().join("models/command/shell")).unwrap() {
        let path = entry.unwrap().path();
        let to = format!("repo/models/command/shell/{}", path.file_name().unwrap().to_str().unwrap());
        sandbox.write(&to, &std::fs::read_to_string(path).unwrap());
    }
    sandbox
}

#[test]
fn the_last_commands_and_their_cost_are_in_the_status() {
    let server = S3Server::start().unwrap();
    let sandbox = shared(&server);
    let run = sandbox.peat("model method run m execute --stats --json").ok().json();
    server.clear_log();
    sandbox.peat("datastore sync --pull").ok();
    let asked = server.log().len() as u64;
    sandbox.peat("status").ok();
    let status = sandbox.peat("datastore status --size --json").ok().json();
    let recent = status["recent"].as_array().unwrap();
    let names: Vec<&str> = recent.iter().map(|cost| cost["command"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["datastore sync", "model method run"], "a command that asks nothing costs nothing");
    assert_eq!(recent[0]["requests"], asked);
    assert_eq!(recent[1]["requests"], run["stats"]["requests"], "{status}\n{run}");
    assert!(recent[0]["estimatedUsd"].is_null() && run["stats"]["estimatedUsd"].is_null(), "a server of one's own");
    let of = |field: &str| status["contents"][field].as_u64().unwrap();
    assert!(of("items") > 0 && of("items") == of("localItems") && of("bytes") == of("localBytes"), "{status}");
    let stored = server.keys().iter().filter(|key| key.starts_with("peat/infra/")).count() as u64;
    assert_eq!(status["size"]["objects"], stored);
    assert!(sandbox.peat("datastore status").ok().out.contains("datastore sync: "));
    assert_eq!((&status["pending"], &status["leases"]), (&0.into(), &0.into()));
}

#[test]
fn a_lazy_clone_says_how_much_is_not_here() {
    let server = S3Server::start().unwrap();
    let ann = shared(&server);
    // Larger than what stays in the index.
    ann.run(["model", "method", "run", "m", "execute", "--input", "run=head -c 100000 /dev/urandom | base64"]).ok();
    let ben = joined(&server, &ann, "lazy");
    ben.peat("datastore sync --pull").ok();
    let contents = |status: Value| {
        let of = |field: &str| status["contents"][field].as_u64().unwrap();
        (of("localBytes"), of("bytes"))
    };
    let (here, all) = contents(ben.peat("datastore status --json").ok().json());
    assert!(here < 100_000 && all > 100_000, "{here} of {all}");
    ben.peat("data get m result").ok();
    let (here, all) = contents(ben.peat("datastore status --json").ok().json());
    assert!(here > 100_000, "{here} of {all}");
}
