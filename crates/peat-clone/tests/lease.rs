//! Leases: held by one, guarded to the end, taken over only from the dead.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "lease/dead.rs"]
mod dead;

use std::time::Duration;

use common::{Machine, Opening, World, change_append, change_end, change_put, new_run, noise, path, unit};
use peat_clone::{Adopt, Capability, Hydration, LeaseMode, NewChange, NewRun, OnRefusal, PendingStatus, Run, Scope};
use peat_objects::{Fault, Op, Store};
use peat_types::{Error, Kind, Mutation};
use serde_json::json;

const X: &str = "model/x";
const OUTPUT: &str = "outputs/model/x/latest";

async fn output(machine: &Machine) -> Option<String> {
    machine.pull().await;
    machine.text(X, OUTPUT).await
}

fn generation(machine: &Machine) -> (u64, bool) {
    let leases = machine.clone.leases().unwrap();
    let info = leases.iter().find(|info| info.unit == unit(X)).unwrap();
    (info.lease.generation, info.lease.held)
}

async fn secs(world: &World, secs: u64) {
    world.env.sleep(Duration::from_secs(secs)).await;
}

#[tokio::test(start_paused = true)]
async fn a13_the_results_of_a_stalled_holder_are_refused_and_kept() {
    let world = World::new(1);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let run = a.begin(X).await.unwrap();
    // No beat is ever polled: the process stands still. The other one takes over after the time-to-live.
    let before = world.env.monotonic();
    let other = b.begin(X).await.unwrap();
    let waited = world.env.monotonic() - before;
    assert!(waited >= Duration::from_secs(30) && waited < Duration::from_secs(40), "{waited:?}");
    assert_eq!(generation(&b), (2, true));
    // What was "running" is marked, then running again.
    assert!(b.paths(X).contains(&"interrupted/model/x/1".to_owned()));
    let mut end = change_end(X);
    end.contents = vec![noise(1, 100).into()];
    let error = run.end(end).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Conflict, "lease_lost"));
    assert!(error.to_string().contains("b@box"), "{error:?}");
    let error = run.commit(change_append(X, "nested")).await.unwrap_err();
    assert_eq!(error.code(), "lease_lost");
    other.end(change_end(X)).await.unwrap();
    assert_eq!(b.paths(X).iter().filter(|path| path.starts_with("data/")).count(), 1);
    // Both are parked; one is adopted, as an unleased version after the other's.
    let parked = a.clone.pending().unwrap();
    assert!(parked.len() == 2 && parked.iter().all(|row| row.status == PendingStatus::Parked));
    let end = parked.iter().find(|row| row.kind == "end").unwrap();
    assert_eq!(a.clone.adopt(end.change, Adopt::Retry).await.unwrap_err().code(), "lease_lost");
    let adopted = a.clone.adopt(end.change, Adopt::Unleased).await.unwrap();
    assert_eq!(adopted.answer["version"], 2);
    assert_eq!(a.text(X, "unleased/model/x").await.as_deref(), Some("yes"));
    assert_eq!(a.clone.pending().unwrap().len(), 1);
    assert_eq!(generation(&a), (2, false));
}

#[tokio::test(start_paused = true)]
async fn mutation_without_guards_the_stalled_holder_gets_through() {
    let world = World::new(2);
    let a = world.open_with("a", Opening { mutation: Some(Mutation::NoGuard), ..Opening::default() }).await;
    let b = world.open("b").await;
    let run = a.begin(X).await.unwrap();
    let _other = b.begin(X).await.unwrap();
    run.end(change_end(X)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn contenders_wait_and_are_told_who_holds_it() {
    let world = World::new(3);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let run = a.begin(X).await.unwrap();
    let before = world.env.monotonic();
    let error = b.clone.begin(new_run(X, Duration::from_millis(7300))).await.unwrap_err();
    assert_eq!(world.env.monotonic() - before, Duration::from_millis(7300), "not a back-off longer");
    assert_eq!((error.kind(), error.code()), (Kind::Contended, "lock_timeout"));
    let text = error.to_string();
    for part in [X, "a@box", "since 2026-", "7.3 s"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(b.clone.pending().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(world.dir("b").join("run")).unwrap().count(), 0);
    // It ends while somebody waits.
    let (held, ()) = tokio::join!(b.begin(X), async {
        secs(&world, 5).await;
        run.end(change_end(X)).await.unwrap();
    });
    let waited = world.env.monotonic() - before - Duration::from_millis(7300);
    assert!(waited <= Duration::from_secs(7), "{waited:?}");
    held.unwrap().end(change_end(X)).await.unwrap();
    assert_eq!(output(&a).await.as_deref(), Some("done"));
    assert_eq!(a.paths(X).iter().filter(|path| path.starts_with("interrupted/")).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_that_begin_at_once_run_one_after_the_other() {
    let world = World::new(4);
    let machines = [world.open("a").await, world.open("b").await, world.open("c").await, world.open("c").await];
    let running = std::sync::atomic::AtomicU32::new(0);
    let work = |machine: &Machine| {
        let (clone, env) = (machine.clone.clone(), machine.env.clone());
        let running = &running;
        async move {
            let run = clone.begin(new_run(X, Duration::from_secs(60))).await.unwrap();
            assert_eq!(running.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
            env.sleep(Duration::from_secs(2)).await;
            running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            run.end(change_end(X)).await.unwrap();
        }
    };
    let [a, b, c, d] = &machines;
    tokio::join!(work(a), work(b), work(c), work(d));
    a.pull().await;
    assert_eq!(a.paths(X).iter().filter(|path| path.starts_with("data/")).count(), 4);
    assert_eq!(generation(a), (4, false));
}

async fn method(run: &Run, machine: &Machine, secs: u64) -> Result<(), Error> {
    tokio::select! {
        () = machine.env.sleep(Duration::from_secs(secs)) => Ok(()),
        () = run.beat() => unreachable!(),
        error = run.lost() => Err(error),
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_beats_is_never_taken_over() {
    let world = World::new(5);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let run = a.begin(X).await.unwrap();
    let contender = async {
        let error = b.clone.begin(new_run(X, Duration::from_secs(500))).await.unwrap_err();
        assert_eq!(error.code(), "lock_timeout");
    };
    let (worked, ()) = tokio::join!(method(&run, &a, 600), contender);
    worked.unwrap();
    run.end(change_end(X)).await.unwrap();
    assert!(world.memory.keys().iter().all(|key| !key.starts_with("beat/")));
    // A short run never beats.
    let (run, requests) = a.counted(async { a.begin(X).await.unwrap() }).await;
    assert_eq!(requests.of(Op::Put), 0);
    method(&run, &a, 4).await.unwrap();
    run.end(change_end(X)).await.unwrap();
    assert!(world.memory.keys().iter().all(|key| !key.starts_with("beat/")));
}

#[tokio::test(start_paused = true)]
async fn observations_accumulate_over_invocations_but_not_over_gaps() {
    for (pause, taken) in [(2, true), (20, false)] {
        let world = World::new(6);
        let a = world.open("a").await;
        let _run = a.begin(X).await.unwrap();
        let mut won = false;
        for _ in 0..12 {
            let b = world.open("b").await;
            won |= b.clone.begin(new_run(X, Duration::from_secs(2))).await.is_ok();
            drop(b);
            secs(&world, pause).await;
        }
        assert_eq!(won, taken, "pause {pause}");
    }
}

#[tokio::test(start_paused = true)]
async fn a7_failed_reads_of_a_beat_prove_nothing() {
    let world = World::new(7);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let _run = a.begin(X).await.unwrap();
    b.faults.script_times(Op::Get, |key| key.starts_with("beat/"), 1, 100_000, Fault::Status(503));
    let error = b.clone.begin(new_run(X, Duration::from_secs(200))).await.unwrap_err();
    assert_eq!(error.code(), "lock_timeout");
    b.faults.heal();
    b.clone.begin(new_run(X, Duration::from_secs(60))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_beat_that_stops_and_goes_on_counts_from_then() {
    let world = World::new(8);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let run = a.begin(X).await.unwrap();
    let before = world.env.monotonic();
    let (held, ()) = tokio::join!(b.begin(X), async {
        method(&run, &a, 18).await.unwrap();
        // From here on the process stands still; its last beat was at 15 s.
        secs(&world, 100).await;
    });
    drop(held.unwrap());
    let lease_time = b.clone.leases().unwrap()[0].lease.since;
    let took = lease_time.millis_since(peat_testkit::clock::START) - i64::try_from(before.as_millis()).unwrap();
    assert!((45_000..52_000).contains(&took), "{took}");
}

/// Where the probe found the server's clock to be sane, one reply can be enough.
#[tokio::test(start_paused = true)]
async fn an_old_beat_by_the_servers_clock_proves_death_at_once() {
    for sane in [true, false] {
        let mut world = World::new(11);
        world.probe = serde_json::to_value(peat_objects::Verdict {
            at: peat_types::Timestamp::from_millis(0),
            rival_creates: 16,
            unanswered: 0,
            server_time: sane,
            clock_ahead_ms: None,
            may_delete: true,
        })
        .unwrap();
        let (a, b) = (world.open("a").await, world.open("b").await);
        let run = a.begin(X).await.unwrap();
        method(&run, &a, 18).await.unwrap();
        secs(&world, 100).await;
        assert_eq!(b.clone.begin(new_run(X, Duration::ZERO)).await.is_ok(), sane);
    }
}

#[tokio::test(start_paused = true)]
async fn offline_runs_do_not_begin_and_unleased_ones_commit_later() {
    let world = World::new(24);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.pull().await;
    secs(&world, 10).await;
    for op in [Op::Get, Op::List, Op::Create, Op::Put] {
        a.faults.script_times(op, |_| true, 1, 100_000, Fault::Status(503));
    }
    let error = a.begin(X).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Offline, "offline"));
    assert!(a.clone.pending().unwrap().is_empty());
    let mut new = new_run(X, Duration::ZERO);
    new.lease = LeaseMode::Unleased;
    let run = a.clone.begin(new).await.unwrap();
    assert!(run.capability().is_none() && run.started().is_none());
    let error = run.end(change_end(X)).await.unwrap_err();
    assert_eq!(error.code(), "commit_pending");
    a.faults.heal();
    b.begin(X).await.unwrap().end(change_end(X)).await.unwrap();
    let settled = a.clone.settle().await.unwrap();
    assert_eq!(settled.committed[0].answer["version"], 2);
    assert_eq!(a.text(X, "unleased/model/x").await.as_deref(), Some("yes"));
}

#[tokio::test(start_paused = true)]
async fn a_child_process_works_under_its_parents_lease() {
    let world = World::new(25);
    let (a, other) = (world.open("a").await, world.open("other").await);
    let parent = a.begin(X).await.unwrap();
    let text = parent.capability().unwrap().to_string();
    let held = other.begin("model/y").await.unwrap();
    // The child is another process of the same clone.
    let child = world.open("a").await;
    let capability: Capability = text.parse().unwrap();
    let under = |mut change: NewChange| {
        change.capability = Some(capability.clone());
        change
    };
    child.clone.commit(under(change_append(X, "1"))).await.unwrap();
    let before = world.env.monotonic();
    let nested =
        child.clone.begin(NewRun::new(under(NewChange::new("start", vec![unit(X)], json!({}))))).await.unwrap();
    nested.end(change_end(X)).await.unwrap();
    assert_eq!(generation(&child), (1, true), "still the parent's");
    // A free one is taken, a held one is not waited for.
    let free =
        child.clone.begin(NewRun::new(under(NewChange::new("start", vec![unit("model/z")], json!({}))))).await.unwrap();
    free.end(change_end("model/z")).await.unwrap();
    let error = child
        .clone
        .begin(NewRun::new(under(NewChange::new("start", vec![unit("model/y")], json!({})))))
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Contended, "contended"));
    assert!(error.to_string().contains("model/y") && error.to_string().contains(X), "{error}");
    assert_eq!(world.env.monotonic(), before);
    // A change to another unit under the lease stands and falls with it.
    child.clone.commit(under(change_put("model/w", "data/w", "1"))).await.unwrap();
    parent.end(change_end(X)).await.unwrap();
    let error = child.clone.commit(under(change_put("model/w", "data/w", "2"))).await.unwrap_err();
    assert_eq!(error.code(), "lease_lost");
    let error =
        child.clone.begin(NewRun::new(under(NewChange::new("start", vec![unit(X)], json!({}))))).await.unwrap_err();
    assert_eq!(error.code(), "lease_lost");
    held.end(change_end("model/y")).await.unwrap();
    assert_eq!(a.pull().await.to, a.clone.head().unwrap().unwrap());
    assert!("{".parse::<Capability>().is_err());
}

#[tokio::test(start_paused = true)]
async fn several_units_are_taken_and_freed_in_one_step() {
    let world = World::new(26);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let both = || NewRun::new(NewChange::new("start", vec![unit("model/y"), unit(X)], json!({})));
    let run = a.clone.begin(both()).await.unwrap();
    for on in [X, "model/y"] {
        assert_eq!(b.clone.begin(new_run(on, Duration::ZERO)).await.unwrap_err().code(), "lock_timeout");
    }
    let end = NewChange::new("each", vec![unit(X), unit("model/y")], json!({ "text": "1" }));
    let committed = run.end(end).await.unwrap();
    assert_eq!(committed.items.len(), 2);
    b.pull().await;
    assert!(b.clone.leases().unwrap().iter().all(|info| !info.lease.held));
    // One of the two is held: nothing is taken.
    let held = b.begin("model/y").await.unwrap();
    let mut new = both();
    new.wait = Duration::from_secs(3);
    assert_eq!(a.clone.begin(new).await.unwrap_err().code(), "lock_timeout");
    b.begin(X).await.unwrap().end(change_end(X)).await.unwrap();
    held.end(change_end("model/y")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_is_seen_by_the_holder() {
    let world = World::new(27);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let run = a.begin(X).await.unwrap();
    let (worked, ()) = tokio::join!(method(&run, &a, 300), async {
        secs(&world, 60).await;
        b.clone.force_release(&unit(X)).await.unwrap().unwrap();
    });
    assert_eq!(worked.unwrap_err().code(), "lease_lost");
    let since = world.env.monotonic();
    assert!(since < Duration::from_secs(75), "{since:?}");
    assert_eq!(generation(&b), (2, false));
    assert_eq!(output(&b).await.as_deref(), Some("interrupted"));
    assert_eq!(run.end(change_end(X)).await.unwrap_err().code(), "lease_lost");
    assert!(b.clone.force_release(&unit(X)).await.unwrap().is_none());
    assert!(b.clone.force_release(&unit("model/none")).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_beats_do_not_get_through_hears_of_it() {
    let world = World::new(28);
    let a = world.open("a").await;
    let run = a.begin(X).await.unwrap();
    a.faults.script_times(Op::Put, |_| true, 3, 100_000, Fault::Status(503));
    tokio::select! {
        () = run.silent() => {}
        () = run.beat() => unreachable!(),
    }
    // Beats at 5 s and 15 s came through; then nothing for 20 s.
    let at = world.env.monotonic();
    assert!(at >= Duration::from_secs(35) && at <= Duration::from_secs(46), "{at:?}");
    a.faults.heal();
    run.end(change_end(X)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_generation_of_a_lease_never_decreases() {
    let run = async |mutation: Option<Mutation>| {
        let world = World::new(29);
        let a = world.open_with("a", Opening { mutation, ..Opening::default() }).await;
        for _ in 0..3 {
            a.begin(X).await.unwrap().end(change_end(X)).await.unwrap();
        }
        a.clone.leases().unwrap().first().map(|info| info.lease.generation)
    };
    assert_eq!(run(None).await, Some(3));
    assert_eq!(run(Some(Mutation::LeaseFreeDeletes)).await, None);
}

#[tokio::test(start_paused = true)]
async fn results_that_are_refused_do_not_keep_the_lease() {
    let world = World::new(30);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let run = a.begin(X).await.unwrap();
    let error = run.end(NewChange::new("refuse", vec![unit(X)], json!({}))).await.unwrap_err();
    assert_eq!(error.to_string(), "no");
    assert_eq!(a.clone.pending().unwrap()[0].status, PendingStatus::Parked);
    b.clone.begin(new_run(X, Duration::ZERO)).await.unwrap();
    assert!(b.paths(X).contains(&"interrupted/model/x/1".to_owned()));
}

/// A start that its planner refuses leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn a_refused_start_leaves_nothing() {
    let world = World::new(31);
    let a = world.open("a").await;
    let mut start = NewChange::new("refuse", vec![unit(X)], json!({}));
    start.on_refusal = OnRefusal::Park;
    assert_eq!(a.clone.begin(NewRun::new(start)).await.unwrap_err().to_string(), "no");
    assert!(a.clone.pending().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(world.dir("a").join("run")).unwrap().count(), 0);
    assert!(a.clone.leases().unwrap().is_empty());
}

/// The budget of the design: 20 writers on the held unit, and the end still gets through.
#[tokio::test(start_paused = true)]
async fn the_end_gets_through_among_twenty_writers() {
    let world = World::new(32);
    let a = world.open("a").await;
    a.pull().await;
    let run = a.begin(X).await.unwrap();
    let mut writers = Vec::new();
    for at in 0..20 {
        let machine = world.open(&format!("w{at}")).await;
        machine.pull().await;
        writers.push(tokio::spawn(async move {
            machine.env.sleep(machine.env.jitter(Duration::from_millis(100))).await;
            machine.clone.commit(change_append(X, "1")).await.unwrap();
        }));
    }
    world.env.sleep(Duration::from_millis(50)).await;
    let before = world.env.monotonic();
    let (ended, requests) = a.counted(run.end(change_end(X))).await;
    ended.unwrap();
    let took = world.env.monotonic() - before;
    assert!(took <= Duration::from_secs(2) && requests.of(Op::Create) <= 6, "{took:?}, {requests}");
    for writer in writers {
        writer.await.unwrap();
    }
    a.clone.pull(&Scope::All).await.unwrap();
    assert_eq!(a.paths(X).iter().filter(|path| path.starts_with("data/")).count(), 21);
    let item = a.clone.item(&unit(X), &path(OUTPUT)).unwrap().unwrap();
    assert_eq!(&a.clone.content(&item).await.unwrap()[..], b"done");
}

/// Packs of a large result take longer than a lease lives: the run beats on while they are sent, and nobody takes over.
#[tokio::test(start_paused = true)]
async fn a_run_that_beats_beside_its_end_is_not_taken_over_while_it_sends() {
    for beats in [true, false] {
        let world = World::new(17);
        let (a, b) = (world.open("a").await, world.open("b").await);
        let run = a.begin(X).await.unwrap();
        let slow = Fault::Slow(Duration::from_secs(50));
        a.faults.script_times(Op::Put, |key| key.starts_with("pack/"), 1, 1000, slow);
        let mut end = change_end(X);
        end.contents = vec![noise(1, 1_000_000).into()];
        let ended = async {
            let beat = async {
                if beats {
                    run.beat().await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                ended = run.end(end) => ended,
                () = beat => unreachable!("a run beats until it is dropped"),
            }
        };
        let contender = async {
            secs(&world, 5).await;
            b.clone.begin(new_run(X, Duration::from_secs(300))).await.unwrap()
        };
        let (ended, other) = tokio::join!(ended, contender);
        if beats {
            assert_eq!(ended.unwrap().answer["version"], 1);
        } else {
            assert_eq!(ended.unwrap_err().code(), "lease_lost");
        }
        other.end(change_end(X)).await.unwrap();
        let left = world.memory.keys().into_iter().filter(|key| key.starts_with("beat/")).count();
        assert_eq!(left, 0, "{beats}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_record_that_a_checkpoint_moved_is_found_where_it_is_now() {
    let world = World::new(61);
    let a = world.open("a").await;
    let run = a.begin("model/x").await.unwrap();
    run.end(change_end("model/x")).await.unwrap();
    let b = world.open_with("b", Opening { hydration: Hydration::Lazy, ..Opening::default() }).await;
    b.pull().await;
    a.clone.checkpoint(true, true).await.unwrap();
    let freed = a.clone.kept().await.unwrap().head().0;
    for key in world.memory.keys() {
        // The slots that nothing needs any more.
        if key.starts_with("log/") && !key.ends_with(&format!(".{freed}")) {
            world.memory.delete(&key).await.unwrap();
        }
    }
    b.clone.all_leases().await.unwrap();
    assert_eq!(b.clone.leases().unwrap().len(), 1);
}
