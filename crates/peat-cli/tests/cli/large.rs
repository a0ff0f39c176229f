//! A content that does not fit into memory, from a file to a pipe.
#![cfg(target_os = "linux")]

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use peat_clone::{
    Change, Durability, Hydration, Interrupted, LocalClone, NewChange, Options, Plan, PlanContent, PlanOp, Planner,
    Rank, Refusal, Silent, Source, Together, View,
};
use peat_objects::{OpenOptions, PrefixStore, StoreUrl, open};
use peat_types::{Env, Hash, Hasher, Unit};

use crate::sandbox::Sandbox;

const SIZE: usize = 128 << 20;
/// What the process may take at most, the debug build and its threads included: less than the content has.
const PEAK_KIB: u64 = 112 << 10;

/// The same for a run, which keeps 8 MiB of its output to be shown, and 32 MiB in lines.
const RUN_KIB: u64 = 120 << 10;

/// Puts each content at its path.
struct Put;

#[async_trait]
impl Planner for Put {
    async fn plan(&self, change: &Change, view: &dyn View) -> Result<Plan, Refusal> {
        let paths: Vec<String> = serde_json::from_value(change.payload.clone()).unwrap();
        let op = |(at, path): (usize, String)| PlanOp::Put {
            unit: view.units()[0].clone(),
            path: path.parse().unwrap(),
            rank: Rank::Current,
            executable: false,
            content: PlanContent::Journalled(at),
        };
        Ok(Plan { ops: paths.into_iter().enumerate().map(op).collect(), answer: serde_json::Value::Null })
    }

    async fn interrupt(&self, _: &Interrupted, _: &dyn View) -> Result<Plan, Refusal> {
        Ok(Plan::default())
    }
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Commits contents from another clone of the repository's store, and gives the entry.
fn commit(sandbox: &Sandbox, unit: &str, files: Vec<(String, Source)>) -> u64 {
    let env = Env::system([]);
    let url: StoreUrl = format!("file://{}", sandbox.path("repo/.peat/store").display()).parse().unwrap();
    let (paths, contents): (Vec<String>, Vec<Source>) = files.into_iter().unzip();
    let options = Options {
        folder: None,
        store: Arc::new(PrefixStore::new(open(&url, &OpenOptions::default(), &env).unwrap(), "default").unwrap()),
        url: url.to_string(),
        namespace: "default".parse().unwrap(),
        dir: sandbox.path("elsewhere"),
        repo_id: "another machine".to_owned(),
        hydration: Hydration::Lazy,
        durability: Durability::Process,
        together: Together::default(),
        user: "bob".to_owned(),
        host: "there".to_owned(),
        reporter: Arc::new(Silent),
    };
    let change = NewChange { contents, ..NewChange::new("put", vec![Unit::model(unit).unwrap()], paths.into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clone = LocalClone::open(options, env, Arc::new(Put)).await.unwrap();
        clone.pull(&peat_clone::Scope::Units(vec![Unit::model(unit).unwrap()])).await.unwrap();
        clone.commit(change).await.unwrap().seq.0
    })
}

/// Runs `peat` and gives size and hash of what it printed, and its peak memory in KiB shortly before its end.
fn measured(sandbox: &Sandbox, words: &str) -> (usize, Hash, u64) {
    let mut child = sandbox.command(words.split_whitespace()).spawn().unwrap();
    let status = Path::new("/proc").join(child.id().to_string()).join("status");
    let peak = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("VmHWM"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    let (mut out, mut buffer, mut hasher) = (child.stdout.take().unwrap(), vec![0; 1 << 20], Hasher::default());
    let (mut size, mut most) = (0, 0);
    loop {
        // It cannot have ended while something of what it writes was not read.
        most = peak().max(most);
        match out.read(&mut buffer).unwrap() {
            0 => break,
            len => {
                hasher.update(&buffer[..len]);
                size += len;
            }
        }
    }
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    (size, hasher.finish(), most)
}

#[test]
fn a_content_larger_than_memory_may_be_goes_to_a_pipe_and_to_a_file() {
    let sandbox = Sandbox::repo_made();
    let id = sandbox.model("m", "echo small");
    sandbox.peat("model method run m execute").ok();
    let first = format!("data/command/shell/{id}/result/1/metadata.yaml");
    let metadata = std::fs::read_to_string(sandbox.path("repo/.peat/tree").join(&first)).unwrap();
    let metadata = metadata.replace("version: 1\n", "version: 2\n").replace("application/json", "application/gzip");
    let mut content = noise(SIZE);
    let hash = Hash::of(&content);
    let (file, other) = (sandbox.path("large"), sandbox.path("other"));
    std::fs::write(&file, &content).unwrap();
    content.reverse();
    std::fs::write(&other, content).unwrap();
    let folder = format!("data/command/shell/{id}/result/2");
    let files = vec![
        (format!("{folder}/raw"), Source::File(file)),
        (format!("{folder}/metadata.yaml"), Source::Bytes(metadata.into_bytes().into())),
    ];
    let then = commit(&sandbox, &id, files);

    // Downloaded and printed, then printed from the file.
    for words in ["data get m result --fresh", "data get m result"] {
        let (size, printed, peak) = measured(&sandbox, words);
        assert_eq!((size, printed), (SIZE, hash), "{words}");
        assert!((1..PEAK_KIB).contains(&peak), "{words}: {peak} KiB of memory");
    }
    // As a report it names the file, which is whole, and leaves the content out.
    let json = sandbox.peat("data get m result --json").ok().json();
    assert_eq!((json["version"].as_u64(), json.get("content")), (Some(2), None));
    let kept = std::fs::metadata(json["contentPath"].as_str().unwrap()).unwrap();
    assert_eq!(kept.len(), SIZE as u64);
    assert_eq!(sandbox.peat("data get m result --version 1 --json").ok().json()["content"]["stdout"], "small");
    // Whoever wants a value of it is told how to have it.
    let error = sandbox.peat("model output data m --name result --version 2 --json").status(1).error();
    assert_eq!(error["code"], "content_too_large", "{error}");
    assert!(error["hint"].as_str().unwrap().contains("peat data get"), "{error}");
    // What it was before, read from the store, for the tree has something else at its place by now.
    commit(&sandbox, &id, vec![(format!("{folder}/raw"), Source::File(other))]);
    sandbox.peat("datastore sync --pull").ok();
    let words = format!("data get m result --at {then}");
    let (size, printed, peak) = measured(&sandbox, &words);
    assert_eq!((size, printed), (SIZE, hash), "{words}");
    assert!((1..PEAK_KIB).contains(&peak), "{words}: {peak} KiB of memory");
}

/// The report of the run is longer than a pipe holds, so that the process cannot end before its memory is looked at.
#[test]
fn a_run_that_prints_more_than_memory_may_hold_is_whole_in_its_log() {
    let sandbox = Sandbox::repo_made();
    let id = sandbox.model("m", "");
    let pad: String = ["A", "B", "C"].iter().map(|name| format!("        {name}: {}\n", "x".repeat(100_000))).collect();
    let run = format!("head -c {SIZE} /dev/zero | tr '\\\\0' x; echo; echo the end >&2");
    let definition = format!(
        "type: command/shell\nid: {id}\nname: m\nversion: 1\ntags: {{}}\nglobalArguments: {{}}\n\
         methods:\n  execute:\n    arguments:\n      run: \"{run}\"\n      env:\n{pad}"
    );
    sandbox.write("repo/models/command/shell/m.yaml", &definition);
    let (_, _, peak) = measured(&sandbox, "model method run m execute --json");
    assert!((1..RUN_KIB).contains(&peak), "{peak} KiB of memory");
    let mut log = b"[stdout]\n".to_vec();
    log.resize(SIZE + 9, b'x');
    log.extend_from_slice(b"\n[stderr]\nthe end\n");
    let (size, printed, _) = measured(&sandbox, "data get m log");
    assert_eq!((size, printed), (log.len(), Hash::of(&log)));
    let result = sandbox.peat("data get m result --no-content --json").ok().json();
    assert!(result["size"].as_u64().unwrap() < 9 << 20, "{result}");
    // What was printed in one line is not in memory either.
    let shown = sandbox.peat("model output logs m --tail 1 --json").ok().json();
    assert!(shown["lines"][0].as_str().unwrap().ends_with("are in the log only"), "{}", shown["lines"]);
    let left = std::fs::read_dir(sandbox.path("repo/.peat/runs")).unwrap().count();
    assert_eq!(left, 0, "what it was kept in meanwhile is gone");
}
