//! The request budgets of the design, at the level of a clone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{World, change_append, change_bytes, change_end, change_put, new_run, noise, unit};
use futures::future::join_all;
use peat_clone::Scope;
use peat_objects::{Fault, Op};
use peat_types::Seq;

/// Probe, create, create.
#[tokio::test(start_paused = true)]
async fn a_whole_run_in_a_quiet_namespace_is_three_requests() {
    let world = World::new(1);
    let a = world.open("a").await;
    a.pull().await;
    a.put("model/x", "data/seed", "1").await;
    let b = world.open("b").await;
    b.pull().await;
    world.env.sleep(Duration::from_secs(30)).await;
    let (started, requests) = b.counted(b.begin("model/x")).await;
    let run = started.unwrap();
    assert_eq!((requests.total(), requests.of(Op::Create)), (2, 1), "{requests}");
    let (ended, requests) = b.counted(run.end(change_end("model/x"))).await;
    ended.unwrap();
    assert_eq!((requests.total(), requests.of(Op::Create)), (1, 1), "{requests}");
    // And again: this clone wrote the head, so the create is the probe.
    world.env.sleep(Duration::from_secs(30)).await;
    let (run, requests) = b.counted(b.begin("model/x")).await;
    assert_eq!(requests.total(), 1, "{requests}");
    run.unwrap().end(change_end("model/x")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_costs_two_more_when_others_committed_meanwhile() {
    let world = World::new(2);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.pull().await;
    b.pull().await;
    world.env.sleep(Duration::from_secs(5)).await;
    let run = b.begin("model/x").await.unwrap();
    a.put("model/y", "data/y", "1").await;
    // Not at this very moment: that would be contention, which is another budget.
    world.env.sleep(Duration::from_secs(2)).await;
    let (ended, requests) = b.counted(run.end(change_end("model/x"))).await;
    ended.unwrap();
    assert_eq!(requests.total(), 3, "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_pull_without_news_is_one_request() {
    let world = World::new(3);
    let (a, b) = (world.open("a").await, world.open("b").await);
    for at in 0..20 {
        a.put("model/x", &format!("data/{at}"), "1").await;
    }
    b.pull().await;
    for scope in [Scope::All, Scope::Units(vec![unit("model/x")]), Scope::Units(vec![unit("model/none")])] {
        b.clone.pull(&scope).await.unwrap();
        for wait in [0, 1, 60, 3600, 4 * 3600] {
            world.env.sleep(Duration::from_secs(wait)).await;
            let (pulled, requests) = b.counted(b.clone.pull(&scope)).await;
            assert_eq!(pulled.unwrap().items, 0);
            assert_eq!(requests.total(), 1, "{scope:?} after {wait} s: {requests}");
            assert!(requests.count().bytes_in < 1000, "{requests}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_after_one_commit_is_two_requests_and_after_a_run_three() {
    let world = World::new(4);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.put("model/x", "data/0", "1").await;
    b.pull().await;
    a.put("model/x", "data/1", "1").await;
    let (pulled, requests) = b.counted(b.pull()).await;
    assert_eq!((pulled.entries, pulled.items, requests.total()), (1, 1, 2), "{requests}");
    a.begin("model/x").await.unwrap().end(change_end("model/x")).await.unwrap();
    let (pulled, requests) = b.counted(b.pull()).await;
    assert_eq!((pulled.entries, requests.total()), (2, 3), "{requests}");
    assert_eq!(b.text("model/x", "outputs/model/x/latest").await.as_deref(), Some("done"));
}

#[tokio::test(start_paused = true)]
async fn a_scoped_pull_after_one_run_is_three_requests() {
    let world = World::new(5);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.put("model/x", "data/0", "1").await;
    b.pull().await;
    a.begin("model/x").await.unwrap().end(change_end("model/x")).await.unwrap();
    let scope = Scope::Units(vec![unit("model/x")]);
    let (pulled, requests) = b.counted(b.clone.pull(&scope)).await;
    pulled.unwrap();
    assert!(requests.total() <= 3, "{requests}");
    assert_eq!(b.file("outputs/model/x/latest").as_deref(), Some("done"));
}

#[tokio::test(start_paused = true)]
async fn a_commit_in_a_quiet_namespace_is_one_put_and_a_probe() {
    let world = World::new(6);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.put("model/x", "data/0", "1").await;
    // Others' entries of this very second would make it a busy namespace.
    world.env.sleep(Duration::from_secs(2)).await;
    b.pull().await;
    let (done, requests) = b.counted(b.clone.commit(change_put("model/x", "data/1", "1"))).await;
    done.unwrap();
    assert_eq!(requests.total(), 1, "read within the last second: {requests}");
    world.env.sleep(Duration::from_secs(60)).await;
    let (done, requests) = b.counted(b.clone.commit(change_append("model/x", "1"))).await;
    done.unwrap();
    assert_eq!(requests.total(), 1, "wrote the head itself: {requests}");
    world.env.sleep(Duration::from_secs(60)).await;
    a.pull().await;
    world.env.sleep(Duration::from_secs(60)).await;
    let (done, requests) = a.counted(a.clone.commit(change_append("model/x", "2"))).await;
    done.unwrap();
    assert_eq!(requests.total(), 2, "probe and create: {requests}");
}

/// The flow of a method: pull the model, then run it.
#[tokio::test(start_paused = true)]
async fn a_scoped_pull_makes_the_probe_of_the_begin_unnecessary() {
    let world = World::new(7);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.put("model/x", "data/0", "1").await;
    b.pull().await;
    world.env.sleep(Duration::from_secs(60)).await;
    let (run, requests) = b
        .counted(async {
            b.clone.pull(&Scope::Units(vec![unit("model/x")])).await.unwrap();
            b.clone.begin(new_run("model/x", Duration::ZERO)).await.unwrap()
        })
        .await;
    assert_eq!(requests.total(), 2, "{requests}");
    let (ended, requests) = b.counted(run.end(change_end("model/x"))).await;
    ended.unwrap();
    assert_eq!(requests.total(), 1, "{requests}");
}

/// One is under way, then one carries all who came meanwhile.
#[tokio::test(start_paused = true)]
async fn changes_of_one_process_that_come_at_once_are_two_creates() {
    let world = World::new(8);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.put("model/x", "data/0", "1").await;
    b.pull().await;
    for round in 0..3 {
        world.env.sleep(Duration::from_secs(60)).await;
        b.faults.script_times(Op::Create, |_| true, 1, 3, Fault::Slow(Duration::from_millis(30)));
        let changes = (0..40).map(|n| b.clone.commit(change_append(&format!("model/{n}"), "1")));
        let (done, requests) = b.counted(join_all(changes)).await;
        let seqs: BTreeSet<Seq> = done.into_iter().map(|done| done.unwrap().seq).collect();
        b.faults.heal();
        assert_eq!((seqs.len(), requests.of(Op::Create)), (2, 2), "{requests}");
        // Nobody wrote since: only the first time somebody has to ask.
        assert_eq!(requests.total(), if round == 0 { 3 } else { 2 }, "{requests}");
    }
    a.pull().await;
    assert_eq!(a.facts(), b.facts());
}

/// The first of them that looks takes the entry in for all, and has only its own bytes at hand.
#[tokio::test(start_paused = true)]
async fn large_contents_of_changes_that_went_out_together_are_here_afterwards() {
    let world = World::new(9);
    let a = world.open("a").await;
    // By then the log is not busy any more with being created.
    world.env.sleep(Duration::from_secs(60)).await;
    a.put("model/x", "data/x", "1").await;
    a.faults.script_times(Op::Create, |_| true, 1, 10, Fault::Slow(Duration::from_millis(30)));
    let changes = (0..5)
        .map(|n| a.clone.commit(change_bytes(&format!("model/{n}"), &format!("data/{n}"), noise(n + 1, 100_000))));
    let (done, requests) = a.counted(join_all(changes)).await;
    let seqs: BTreeSet<Seq> = done.into_iter().map(|done| done.unwrap().seq).collect();
    assert_eq!((seqs.len(), requests.of(Op::Create), requests.of(Op::Put)), (2, 2, 5), "{requests}");
    assert_eq!(requests.of(Op::Get), 0, "{requests}");
    for n in 0..5 {
        let file = std::fs::read(a.clone.tree().join(format!("data/{n}"))).unwrap();
        assert_eq!(file, noise(n + 1, 100_000));
    }
    let (_, requests) = a.counted(a.pull()).await;
    assert_eq!(requests.total(), 1, "{requests}");
}
