//! Runs of processes that are gone: what they started and did not end.

use std::time::Duration;

use peat_clone::PendingStatus;
use peat_objects::{Fault, Op};
use peat_types::{Kind, Mutation};

use super::common::{Opening, World, change_end, changes_in_log, new_run};
use super::{OUTPUT, X, generation, output, secs};

#[tokio::test(start_paused = true)]
async fn a_dead_run_of_the_same_clone_is_released_at_once() {
    let world = World::new(9);
    let (a, b) = (world.open("a").await, world.open("b").await);
    drop(a.begin(X).await.unwrap());
    drop(a);
    let a = world.open("a").await;
    let before = world.env.monotonic();
    let run = a.begin(X).await.unwrap();
    assert!(world.env.monotonic() - before < Duration::from_secs(1));
    run.end(change_end(X)).await.unwrap();
    assert!(a.paths(X).contains(&"interrupted/model/x/1".to_owned()));
    // By settling, too.
    drop(a.begin(X).await.unwrap());
    drop(a);
    let a = world.open("a").await;
    let settled = a.clone.settle().await.unwrap();
    assert_eq!(settled.interrupted.len(), 1);
    assert_eq!(output(&b).await.as_deref(), Some("interrupted"));
    assert!(!generation(&b).1);
    assert_eq!(std::fs::read_dir(world.dir("a").join("run")).unwrap().count(), 0);
    // A living one is left alone.
    let run = a.begin(X).await.unwrap();
    let other = world.open("a").await;
    assert!(other.clone.settle().await.unwrap().interrupted.is_empty());
    let error = other.clone.begin(new_run(X, Duration::ZERO)).await.unwrap_err();
    assert_eq!(error.code(), "lock_timeout");
    run.end(change_end(X)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a9_an_end_that_was_journalled_comes_before_the_next_run() {
    for step in ["end.journalled", "commit.planned", "commit.create", "commit.sent", "commit.applied"] {
        let world = World::new(10);
        let a = world.open("a").await;
        let run = a.begin(X).await.unwrap();
        a.killer.arm(step, 1);
        assert!(a.killer.run(run.end(change_end(X))).await.is_none(), "{step}");
        drop((run, a));
        let a = world.open("a").await;
        let run = a.begin(X).await.unwrap();
        let paths = a.paths(X);
        assert!(paths.contains(&"data/model/x/000001".to_owned()), "{step}: {paths:?}");
        assert!(paths.iter().all(|path| !path.starts_with("interrupted/")), "{step}: {paths:?}");
        run.end(change_end(X)).await.unwrap();
        a.clone.settle().await.unwrap();
        assert!(a.clone.pending().unwrap().is_empty());
        assert_eq!(changes_in_log(&a).await.len(), 5, "{step}");
    }
}

/// Killed at every step of a begin; the next process of the clone makes it as if it never was, or interrupted.
#[tokio::test(start_paused = true)]
async fn starts_of_dead_processes_are_resolved_and_never_sent_again() {
    let steps = {
        let world = World::new(20);
        let a = world.open("a").await;
        a.killer.seen();
        a.begin(X).await.unwrap();
        let mut steps = a.killer.seen();
        steps.sort_unstable();
        steps.dedup();
        steps
    };
    assert!(steps.contains(&"begin.journalled") && steps.contains(&"begin.committed"), "{steps:?}");
    for step in &steps {
        for second in ["none", "settle.claimed", "start.found", "start.abort", "commit.create", "commit.sent"] {
            let world = World::new(21);
            let (a, b) = (world.open("a").await, world.open("b").await);
            a.killer.arm(step, 1);
            assert!(a.killer.run(a.begin(X)).await.is_none(), "{step}");
            drop(a);
            let a = world.open("a").await;
            a.killer.arm(second, 1);
            a.killer.run(a.clone.settle()).await;
            drop(a);
            let a = world.open("a").await;
            a.clone.settle().await.unwrap();
            assert!(a.clone.pending().unwrap().is_empty(), "{step}, {second}");
            assert_eq!(std::fs::read_dir(world.dir("a").join("run")).unwrap().count(), 0, "{step}, {second}");
            let before = world.env.monotonic();
            let run = b.begin(X).await.unwrap();
            assert!(world.env.monotonic() - before < Duration::from_secs(1), "{step}, {second}");
            run.end(change_end(X)).await.unwrap();
            let kinds: Vec<_> = changes_in_log(&b).await.into_iter().map(|(_, _, kind)| kind).collect();
            assert!(kinds.iter().filter(|kind| *kind == "Start").count() <= 2, "{step}, {second}: {kinds:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn mutation_resubmitted_starts_leave_a_lease_to_nobody() {
    let run = async |mutation: Option<Mutation>| {
        let world = World::new(22);
        let (a, b) = (world.open("a").await, world.open("b").await);
        a.killer.arm("commit.planned", 1);
        a.killer.run(a.begin(X)).await;
        drop(a);
        let a = world.open_with("a", Opening { mutation, ..Opening::default() }).await;
        a.clone.settle().await.unwrap();
        b.pull().await;
        b.text(X, OUTPUT).await
    };
    assert_eq!(run(None).await, None);
    assert!(run(Some(Mutation::ResubmitStart)).await.is_some());
}

/// The start may be in the log, or land later: the method does not begin, and nobody is kept waiting for it.
#[tokio::test(start_paused = true)]
async fn a_start_of_unknown_outcome_is_given_up() {
    for fault in [Fault::LostReply, Fault::LostRequest, Fault::Late(Duration::from_secs(300))] {
        let world = World::new(23);
        let (a, b) = (world.open("a").await, world.open("b").await);
        a.pull().await;
        a.faults.script(Op::Create, |_| true, 1, fault);
        a.faults.script_times(Op::Get, |_| true, 1, 100_000, Fault::Status(503));
        a.faults.script_times(Op::List, |_| true, 1, 100_000, Fault::Status(503));
        let error = a.clone.begin(new_run(X, Duration::from_secs(1))).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Offline, "offline"), "{fault:?}");
        assert_eq!(a.clone.pending().unwrap()[0].status, PendingStatus::Starting);
        a.faults.heal();
        let settled = a.clone.settle().await.unwrap();
        assert_eq!(
            (settled.interrupted.len(), settled.aborted.len()),
            match fault {
                Fault::LostReply => (1, 0),
                _ => (0, 1),
            }
        );
        secs(&world, 400).await;
        let run = b.clone.begin(new_run(X, Duration::ZERO)).await.unwrap();
        run.end(change_end(X)).await.unwrap();
    }
}
