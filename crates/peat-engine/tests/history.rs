//! The past in the words of the domain: data as it was, runs taken back, states restored.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]
#![allow(clippy::needless_pass_by_value)]

mod support;

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use peat_engine::{Cancel, DataGet, DiffRequest, LogRequest, Quiet, Reading, Repo, RestoreRequest, UndoRequest, When};
use peat_types::{Env, Kind, Seq, Steps};
use serde_json::json;
use support::{World, get, go, hints, request};

fn undo(seq: u64) -> UndoRequest {
    UndoRequest { seq: Seq(seq), change: None, dry_run: false }
}

fn restore(seq: u64) -> RestoreRequest {
    RestoreRequest { at: When::Entry(Seq(seq)), model: None, dry_run: false, allow_deletes: true }
}

fn at(seq: u64) -> Reading {
    Reading { fresh: false, at: Some(When::Entry(Seq(seq))) }
}

async fn versions(repo: &Repo, reading: impl Into<Reading>) -> Vec<u64> {
    let report = repo.data_versions("m", "result", reading).await.unwrap();
    report.versions.iter().map(|version| version.version).collect()
}

/// Runs three times: entries 1 to 6.
async fn thrice(repo: &Repo) {
    for n in 1..=3 {
        assert!(go(repo, json!({"n": n})).await.error.is_none());
    }
}

#[tokio::test]
async fn data_is_read_as_it_was_by_entry_and_by_time_on_any_machine() {
    let world = World::new();
    let (machine, a) = world.shared("ann").await;
    thrice(&a).await;
    // One that never pulled, and keeps the past out of its index.
    let (_bob, b) = world.checkout(&machine, "bob");
    for repo in [&a, &b] {
        let old = repo.data_get(&DataGet { at: Some(When::Entry(Seq(4))), ..get("result") }).await.unwrap();
        assert_eq!((old.version, old.content.unwrap()), (2, json!({"n": 2})));
        assert_eq!((old.entry, old.content_path), (Some(Seq(4)), None));
        assert_eq!(versions(repo, at(4)).await, [2, 1]);
        assert_eq!(repo.data_list("m", None, at(2)).await.unwrap().groups[0].items[0].version, 1);
        // The start of the second run: its data was not there yet.
        assert_eq!(versions(repo, at(3)).await, [1]);
        let none = repo.data_get(&DataGet { at: Some(When::Entry(Seq(1))), ..get("result") }).await.unwrap_err();
        assert!(none.kind() == Kind::NotFound && none.to_string().contains("at entry 1"), "{none}");
    }
    let entries = a.log(&LogRequest::default()).await.unwrap().entries;
    let time = |seq: u64| entries.iter().find(|entry| entry.seq.0 == seq).unwrap().written;
    let found = a.data_get(&DataGet { at: Some(When::Time(time(4))), ..get("result") }).await.unwrap();
    // (Several entries may be of one millisecond: then the last of them counts.)
    assert!(found.entry.unwrap() >= Seq(4) && found.version >= 2);
    assert_eq!(versions(&b, true).await, [3, 2, 1]);
}

#[tokio::test]
async fn a_run_that_is_undone_is_gone_and_its_version_is_given_again() {
    let world = World::new();
    let (_machine, repo) = world.shared("ann").await;
    thrice(&repo).await;
    let preview = repo.undo(&UndoRequest { dry_run: true, ..undo(6) }).await.unwrap();
    assert_eq!(versions(&repo, false).await, [3, 2, 1], "a preview changes nothing");
    let done = repo.undo(&undo(6)).await.unwrap();
    assert_eq!(done.undone.iter().map(|undone| undone.seq.0).collect::<Vec<_>>(), [5, 6]);
    assert_eq!((done.puts, done.deletes, done.entry), (0, preview.deletes, Some(Seq(7))));
    assert_eq!(done.items.len() as u64, preview.deletes, "the run does what the preview says");
    assert_eq!(versions(&repo, false).await, [2, 1]);
    assert_eq!(repo.output_search("", 10, false).await.unwrap().results.len(), 2, "its record goes, too");
    assert_eq!(repo.data_get(&get("result")).await.unwrap().content.unwrap(), json!({"n": 2}));
    // The log keeps what happened.
    let log = repo.log(&LogRequest { model: Some("m".into()), ..LogRequest::default() }).await.unwrap();
    assert_eq!(log.entries[0].transactions[0].message, "undo entry 6: m go: succeeded");
    assert_eq!(log.entries.len(), 7);
    // The next run writes version 3, as if the undone one had never been.
    assert_eq!(go(&repo, json!({"n": 4})).await.report.data_artifacts[0].version, Some(3));
    assert_eq!(repo.data_get(&get("result")).await.unwrap().content.unwrap(), json!({"n": 4}));
    // An older run: newer versions stay, so the numbers go on.
    repo.undo(&undo(2)).await.unwrap();
    assert_eq!(versions(&repo, false).await, [3, 2]);
    assert_eq!(go(&repo, json!({"n": 5})).await.report.data_artifacts[0].version, Some(4));
    // The undone run's data is still there to be read in its own state.
    assert_eq!(versions(&repo, at(6)).await, [3, 2, 1]);
}

#[tokio::test]
async fn an_undo_of_an_undo_brings_the_run_back() {
    let world = World::new();
    let (_machine, repo) = world.shared("ann").await;
    thrice(&repo).await;
    let undone = repo.undo(&undo(4)).await.unwrap().entry.unwrap();
    assert_eq!(versions(&repo, false).await, [3, 1]);
    let back = repo.undo(&undo(undone.0)).await.unwrap();
    assert_eq!((back.deletes, back.puts), (0, 4), "content, metadata, record and log");
    assert_eq!(versions(&repo, false).await, [3, 2, 1]);
    let second = DataGet { version: Some(2), ..get("result") };
    assert_eq!(repo.data_get(&second).await.unwrap().content.unwrap(), json!({"n": 2}));
    assert_eq!(repo.output_search("", 10, false).await.unwrap().results.len(), 3);
    assert_eq!(repo.diff(&diff(6)).await.unwrap().items.len(), 0, "all is as it was");
}

fn diff(from: u64) -> DiffRequest {
    DiffRequest { from: When::Entry(Seq(from)), to: None, model: None, content: true }
}

#[tokio::test]
async fn a_deleted_model_comes_back_with_all_it_had() {
    let world = World::new();
    let (machine, repo) = world.shared("ann").await;
    thrice(&repo).await;
    let file = repo.definition("m").unwrap().path;
    let text = std::fs::read_to_string(&file).unwrap();
    let id = repo.definition("m").unwrap().id;
    repo.model_delete("m", true).await.unwrap();
    repo.undo(&undo(7)).await.unwrap();
    // The definition is git's, what it produced is the ledger's, and can be read without it: by name and by id.
    for model in ["m", id.as_str(), &id[..8]] {
        let data = repo.data_get(&DataGet { model: model.to_owned(), ..get("result") }).await.unwrap();
        assert_eq!((data.version, data.model_name.as_str(), data.content.unwrap()), (3, "m", json!({"n": 3})));
        assert_eq!(repo.data_versions(model, "result", false).await.unwrap().total, 3);
        assert_eq!(repo.data_list(model, None, false).await.unwrap().total, 1);
    }
    let unknown = repo.data_get(&DataGet { model: "n".to_owned(), ..get("result") }).await.unwrap_err();
    assert_eq!(unknown.code(), "model_not_found");
    assert!(hints(&unknown).contains("comes with git"), "{unknown:?}");
    assert_eq!(
        repo.run(&request("m", json!({})), &Cancel::default(), &Quiet).await.unwrap_err().code(),
        "model_not_found"
    );
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    let repo = machine.repo();
    assert_eq!(versions(&repo, false).await, [3, 2, 1]);
    assert_eq!(repo.data_get(&get("result")).await.unwrap().content.unwrap(), json!({"n": 3}));
    assert_eq!(go(&repo, json!({"n": 4})).await.report.data_artifacts[0].version, Some(4));
}

#[tokio::test]
async fn show_and_diff_say_what_changed_in_the_words_of_the_domain() {
    let world = World::new();
    let (_machine, repo) = world.shared("ann").await;
    thrice(&repo).await;
    let shown = repo.show(Seq(4), true).await.unwrap();
    let tx = &shown.transactions[0];
    assert_eq!((tx.about.kind.as_str(), &tx.about.models[..]), ("end", &["m".to_owned()][..]));
    let raw = tx.items.iter().find(|item| item.path.ends_with("/raw")).unwrap();
    assert_eq!(raw.data.as_ref().map(|data| (data.name.as_str(), data.version)), Some(("result", 2)));
    let difference = raw.diff.as_ref().unwrap();
    assert_eq!(difference.against.as_deref(), Some("version 1 of result"));
    let text = difference.text.as_ref().unwrap();
    assert!(text.contains("-{\"n\":1}") && text.contains("+{\"n\":2}"), "{text}");
    assert!(tx.items.iter().all(|item| !item.path.starts_with("leases/")), "leases are bookkeeping");
    let start = repo.show(Seq(3), false).await.unwrap();
    assert_eq!(start.transactions[0].about.run, tx.about.run, "start and end name one run");

    let report = repo.diff(&diff(2)).await.unwrap();
    assert_eq!((report.added, report.changed, report.removed), (8, 0, 0), "{:?}", report.items);
    let since_start = repo.diff(&diff(5)).await.unwrap();
    assert_eq!((since_start.added, since_start.changed), (3, 1), "the record said 'running'");
    let record = since_start.items.iter().find(|item| item.change == "changed").unwrap();
    assert!(record.diff.as_ref().unwrap().text.as_ref().unwrap().contains("+status: succeeded"));
    let back = DiffRequest { from: When::Entry(Seq(6)), to: Some(When::Entry(Seq(2))), ..diff(6) };
    assert_eq!(repo.diff(&back).await.unwrap().removed, 8);
}

#[tokio::test]
async fn a_restore_makes_the_present_equal_and_asks_before_it_deletes_much() {
    let world = World::new();
    let (machine, a) = world.shared("ann").await;
    machine.model(&a, "n");
    thrice(&a).await;
    let (_bob, b) = world.checkout(&machine, "bob");
    let other = peat_engine::RunRequest { model: "n".into(), ..request("n", json!({"n": 9})) };
    b.run(&other, &Cancel::default(), &Quiet).await.unwrap();

    let refused = a.restore(&RestoreRequest { allow_deletes: false, ..restore(2) }).await.unwrap_err();
    assert_eq!(refused.code(), "too_many_deletes");
    assert!(refused.to_string().contains("delete 12 of "), "{refused}");
    let preview = a.restore(&RestoreRequest { dry_run: true, ..restore(2) }).await.unwrap();
    assert!(preview.needs_allow_deletes && preview.entry.is_none());
    assert_eq!((preview.deletes, preview.puts), (12, 0), "{:?}", preview.items);

    let one = RestoreRequest { model: Some("m".into()), ..restore(2) };
    let done = a.restore(&one).await.unwrap();
    assert_eq!((done.deletes, done.entry), (8, Some(Seq(9))));
    assert_eq!(versions(&a, false).await, [1]);
    assert_eq!(a.data_versions("n", "result", true).await.unwrap().total, 1, "the other model stays");
    let all = a.restore(&restore(2)).await.unwrap();
    assert_eq!((all.deletes, all.entry), (4, Some(Seq(10))));
    assert_eq!(a.restore(&restore(2)).await.unwrap().entry, None, "equal already");
    // Back to what it was, by the entry before: nothing is lost by a restore.
    a.restore(&restore(8)).await.unwrap();
    assert_eq!(versions(&a, false).await, [3, 2, 1]);
    b.sync(true, false).await.unwrap();
    assert_eq!(b.data_get(&get("result")).await.unwrap().content.unwrap(), json!({"n": 3}));
    assert!(a.ledger_verify(true).await.unwrap().passed);
}

#[tokio::test]
async fn while_a_run_is_at_work_its_model_is_left_alone() {
    let world = World::new();
    let (machine, a) = world.shared("ann").await;
    thrice(&a).await;
    let (bob, b) = world.checkout(&machine, "bob");
    let refused = Arc::new(Mutex::new(Vec::new()));
    let (seen, other) = (refused.clone(), a.clone());
    bob.during(move || {
        let (seen, a) = (seen.clone(), other.clone());
        async move {
            let errors =
                [a.undo(&undo(6)).await.map(drop).unwrap_err(), a.restore(&restore(2)).await.map(drop).unwrap_err()];
            seen.lock().unwrap().extend(errors.map(|error| (error.code(), error.to_string())));
        }
    });
    assert!(go(&b, json!({"n": 4})).await.error.is_none());
    let refused = std::mem::take(&mut *refused.lock().unwrap());
    assert_eq!(refused.len(), 2);
    for (code, said) in &refused {
        assert_eq!(*code, "run_in_progress");
        assert!(said.contains("model 'm'") && said.contains("bob@bob-host"), "{said}");
    }
    // Nothing was undone, and the run got its number.
    assert_eq!(versions(&a, true).await, [4, 3, 2, 1]);
}

#[tokio::test]
async fn without_the_store_the_past_says_so_and_the_present_stays() {
    let world = World::new();
    let (_machine, repo) = world.shared("ann").await;
    thrice(&repo).await;
    world.cloud.off(true);
    for error in [
        repo.undo(&undo(6)).await.map(drop).unwrap_err(),
        repo.restore(&restore(2)).await.map(drop).unwrap_err(),
        repo.show(Seq(2), false).await.map(drop).unwrap_err(),
        repo.diff(&diff(2)).await.map(drop).unwrap_err(),
        repo.log(&LogRequest::default()).await.map(drop).unwrap_err(),
        repo.data_versions("m", "result", at(2)).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Offline, "{error:?}");
    }
    assert!(repo.pending_list().await.unwrap().changes.is_empty());
    assert_eq!(versions(&repo, false).await, [3, 2, 1]);
}

/// A copy is younger than what it holds: the times of entries that came along with a moved ledger are their writers'.
#[tokio::test]
async fn the_states_of_a_moved_ledger_are_found_by_the_times_they_were_made_at() {
    let world = World::new();
    let machine = world.machine("ann", &[]);
    machine.init().await;
    let repo = machine.repo();
    machine.model(&repo, "m");
    thrice(&repo).await;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    repo.datastore_setup(&support::setup(&url, "ops")).await.unwrap();
    let repo = machine.repo();
    let moved = repo.log(&LogRequest::default()).await.unwrap().entries;
    assert!(moved.iter().all(|entry| entry.written == entry.time), "not when they were copied: {moved:?}");
    go(&repo, json!({"n": 4})).await;
    let made = moved.iter().find(|entry| entry.seq.0 == 2).unwrap().time;
    let found = repo.data_get(&DataGet { at: Some(When::Time(made)), ..get("result") }).await.unwrap();
    assert_eq!((found.entry, found.version), (Some(Seq(2)), 1));
    repo.restore(&RestoreRequest { at: When::Time(made), ..restore(0) }).await.unwrap();
    assert_eq!(versions(&repo, false).await, [1]);
}

/// Lets somebody in between the plan of a change and its commit, once.
struct Between(Mutex<Option<futures::future::BoxFuture<'static, ()>>>);

impl Steps for Between {
    fn reach(&self, name: &'static str) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let what = if name == "journal.added" { self.0.lock().unwrap().take() } else { None };
        Box::pin(async move {
            if let Some(what) = what {
                what.await;
            }
        })
    }
}

#[tokio::test]
async fn who_commits_between_plan_and_commit_is_taken_into_account() {
    for undone in [false, true] {
        let world = World::new();
        let (machine, a) = world.shared("ann").await;
        thrice(&a).await;
        let (mut bob, _) = world.checkout(&machine, "bob");
        let other = a.clone();
        let meanwhile: futures::future::BoxFuture<'static, ()> = Box::pin(async move {
            if undone {
                other.undo(&undo(6)).await.unwrap();
            } else {
                assert!(go(&other, json!({"n": 4})).await.error.is_none());
            }
        });
        bob.host.env = Env::system([]).with_steps(Arc::new(Between(Mutex::new(Some(meanwhile)))));
        let b = bob.repo();
        if undone {
            // Both wanted the same: one of them did it, the other one is told.
            assert_eq!(b.undo(&undo(6)).await.unwrap_err().code(), "nothing_to_undo");
            assert_eq!(versions(&b, false).await, [2, 1]);
            continue;
        }
        // Planned for eight items of two runs; a third one came in between.
        let done = b.restore(&restore(2)).await.unwrap();
        assert_eq!((done.deletes, done.from, done.entry), (12, Seq(8), Some(Seq(9))));
        assert_eq!(versions(&b, false).await, [1]);
        assert!(b.pending_list().await.unwrap().changes.is_empty());
    }
}
