//! Taking changes back: undo and restore are changes like any other, planned on the state of the moment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Machine, World, change_append, change_bytes, change_end, noise, path, unit};
use peat_clone::{Checkpoint, LeaseMode, NewChange, Restore, Scope, TxKind, Undo};
use peat_objects::{Fault, Op};
use peat_types::{Kind, Result, Seq};
use serde_json::json;

const X: &str = "model/x";
const Y: &str = "model/y";

async fn plan(machine: &Machine, seq: Seq) -> Result<Undo> {
    let kept = machine.clone.kept().await?;
    machine.clone.plan_undo(&kept, seq, None).await
}

async fn undo(machine: &Machine, seq: Seq) -> Result<Seq> {
    let undo = plan(machine, seq).await?;
    Ok(machine.clone.rewrite(&undo.rewrite, format!("undo {seq}")).await?.seq)
}

async fn plan_restore(machine: &Machine, seq: u64, scope: &Scope) -> Result<Restore> {
    let kept = machine.clone.kept().await?;
    let past = machine.clone.past(&kept, Seq(seq)).await?;
    machine.clone.plan_restore(&past, scope).await
}

async fn restore(machine: &Machine, seq: u64, scope: &Scope) -> Result<Seq> {
    let plan = plan_restore(machine, seq, scope).await?;
    Ok(machine.clone.rewrite(&plan.rewrite, format!("restore {seq}")).await?.seq)
}

/// All items of a machine but leases, with their contents.
async fn contents(machine: &Machine) -> BTreeMap<(String, String), String> {
    let mut out = BTreeMap::new();
    for known in machine.clone.units().unwrap() {
        for item in machine.clone.items(&known.unit, "").unwrap() {
            if !item.path.as_str().starts_with("leases/") {
                let bytes = machine.clone.content(&item).await.unwrap();
                let text = format!("{} {}", item.row.executable, String::from_utf8_lossy(&bytes));
                out.insert((known.unit.to_string(), item.path.to_string()), text);
            }
        }
    }
    out
}

fn lease(machine: &Machine, on: &str) -> (u64, bool) {
    let leases = machine.clone.leases().unwrap();
    let info = leases.iter().find(|info| info.unit == unit(on)).unwrap();
    (info.lease.generation, info.lease.held)
}

/// A run; gives the entries of its start and its end.
async fn run(machine: &Machine, on: &str) -> (Seq, Seq) {
    let run = machine.begin(on).await.unwrap();
    let start = run.started().unwrap().seq;
    (start, run.end(change_end(on)).await.unwrap().seq)
}

#[tokio::test(start_paused = true)]
async fn an_undo_puts_back_what_was_there() {
    let world = World::new(1);
    let a = world.open("a").await;
    a.put(X, "kept", "as it is").await;
    a.put(X, "gone", "was here").await;
    let before = contents(&a).await;
    a.put(X, "kept", "changed").await;
    let changed = a.clone.head().unwrap().unwrap();
    let deleted = a.clone.commit(NewChange::new("delete", vec![unit(X)], json!({"path": "gone"}))).await.unwrap().seq;
    let added = a.put(X, "new", "added").await.seq;
    let after = contents(&a).await;
    for seq in [changed, deleted, added] {
        undo(&a, seq).await.unwrap();
    }
    assert_eq!(contents(&a).await, before);
    assert_eq!(a.file("gone").as_deref(), Some("was here"), "the tree follows");
    assert_eq!(a.file("new"), None);
    // Undone once is undone.
    assert_eq!(undo(&a, added).await.unwrap_err().code(), "nothing_to_undo");
    // An undo can be undone, the newest first or in any order.
    for seq in [Seq(added.0 + 2), Seq(added.0 + 1), Seq(added.0 + 3)] {
        undo(&a, seq).await.unwrap();
    }
    assert_eq!(contents(&a).await, after);
    let b = world.open("b").await;
    b.pull().await;
    assert_eq!(contents(&b).await, after);
    assert!(a.clone.verify(true).await.unwrap().findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_is_undone_whole_and_its_lease_stays() {
    let world = World::new(2);
    let a = world.open("a").await;
    run(&a, X).await;
    let before = contents(&a).await;
    let generation = lease(&a, X);
    let (start, end) = run(&a, X).await;
    assert_ne!(lease(&a, X), generation);
    let lease_now = lease(&a, X);
    for half in [start, end] {
        let undone: Vec<(Seq, TxKind)> =
            plan(&a, half).await.unwrap().undone.iter().map(|(seq, tx)| (*seq, tx.kind)).collect();
        assert_eq!(undone, [(start, TxKind::Start), (end, TxKind::End)], "whichever half is named");
    }
    let undone = undo(&a, start).await.unwrap();
    assert_eq!(contents(&a).await, before);
    assert_eq!(lease(&a, X), lease_now, "leases are never undone");
    // The next run is one more, and the version is given again.
    let work = a.begin(X).await.unwrap();
    let other = NewChange::new("end", vec![unit(X)], json!({"text": "another result"}));
    let end = work.end(other).await.unwrap().seq;
    assert!(lease(&a, X).0 > lease_now.0);
    assert!(a.text(X, "data/model/x/000002").await.is_some());
    // What was built upon the undo stands in the way of undoing that.
    let error = undo(&a, undone).await.unwrap_err();
    assert_eq!(error.code(), "changed_since");
    assert!(error.to_string().contains(&format!("entry {end} by a@box")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_run_in_progress_is_left_alone() {
    let world = World::new(3);
    let (a, b) = (world.open("a").await, world.open("b").await);
    a.put(X, "one", "1").await;
    a.put(Y, "one", "1").await;
    let work = a.begin(X).await.unwrap();
    let start = work.started().unwrap().seq;
    for refused in [
        plan(&b, start).await.map(drop),
        plan(&b, Seq(1)).await.map(drop),
        plan_restore(&b, 1, &Scope::All).await.map(drop),
        plan_restore(&b, 1, &Scope::Units(vec![unit(X)])).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.code()), (Kind::Contended, "run_in_progress"));
        assert!(error.to_string().contains("a@box"), "{error}");
    }
    // Another unit is at rest.
    restore(&b, 1, &Scope::Units(vec![unit(Y)])).await.unwrap();
    work.end(change_end(X)).await.unwrap();
    undo(&b, start).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_that_begins_between_plan_and_commit_refuses_the_undo() {
    let world = World::new(4);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let put = a.put(X, "one", "1").await.seq;
    b.pull().await;
    let planned = plan(&b, put).await.unwrap();
    let work = a.begin(X).await.unwrap();
    let error = b.clone.rewrite(&planned.rewrite, "undo".into()).await.unwrap_err();
    assert!(error.has_code("run_in_progress"), "{error:?}");
    assert!(b.clone.pending().unwrap().is_empty(), "a refused undo leaves nothing behind");
    work.end(change_end(X)).await.unwrap();
    undo(&b, put).await.unwrap();
    assert!(b.text(X, "one").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn two_machines_at_once_an_undo_takes_back_its_own_items_only() {
    let world = World::new(5);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let put = a.put(X, "mine", "1").await.seq;
    let planned = plan(&b, put).await.unwrap();
    // Somebody works on another item of the unit meanwhile: no conflict.
    a.put(X, "other", "2").await;
    b.clone.rewrite(&planned.rewrite, "undo".into()).await.unwrap();
    assert_eq!((b.text(X, "mine").await, b.text(X, "other").await.as_deref()), (None, Some("2")));

    // On the same item: refused, and the next plan says who and where.
    let again = a.put(X, "mine", "3").await.seq;
    let planned = plan(&b, again).await.unwrap();
    let later = a.put(X, "mine", "4").await.seq;
    let error = b.clone.rewrite(&planned.rewrite, "undo".into()).await.unwrap_err();
    assert!(error.has_code("changed_since"), "{error:?}");
    let error = plan(&b, again).await.unwrap_err();
    assert_eq!(error.code(), "changed_since");
    let said = error.to_string();
    assert!(said.contains("mine") && said.contains(&format!("entry {later} by a@box")), "{said}");
    assert!(error.hints().join(" ").contains(&format!("'peat show {0}'", later)));
    assert!(b.clone.pending().unwrap().is_empty());
    assert_eq!(b.text(X, "mine").await.as_deref(), Some("4"));

    // A unit that changed at all refuses a restore that did not see it.
    let planned = plan_restore(&b, put.0, &Scope::Units(vec![unit(X)])).await.unwrap();
    a.put(X, "third", "5").await;
    let error = b.clone.rewrite(&planned.rewrite, "restore".into()).await.unwrap_err();
    assert!(error.has_code("changed_since"), "{error:?}");
    restore(&b, put.0, &Scope::Units(vec![unit(X)])).await.unwrap();
    assert_eq!(b.paths(X), ["mine"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_undone_says_why() {
    let world = World::new(6);
    let a = world.open("a").await;
    a.put(X, "one", "1").await;
    assert!(matches!(a.clone.checkpoint(true, false).await.unwrap(), Checkpoint::Done { .. }));
    let head = a.clone.kept().await.unwrap().head();
    for (seq, why) in [(Seq(0), "created the ledger"), (head, "maintenance")] {
        let error = plan(&a, seq).await.unwrap_err();
        assert_eq!(error.code(), "not_undoable");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(plan(&a, Seq(99)).await.unwrap_err().code(), "entry_not_found");
}

#[tokio::test(start_paused = true)]
async fn of_an_entry_with_several_changes_one_must_be_named() {
    let world = World::new(7);
    let a = world.open("a").await;
    common::carried::carried(&world.memory, &a, 3).await;
    let error = plan(&a, Seq(1)).await.unwrap_err();
    assert_eq!(error.code(), "several_changes");
    a.pull().await;
    let all = common::changes_in_log(&a).await;
    let second = all[2].1.clone();
    assert!(error.to_string().contains(&format!("{second} (x@y: change 1)")), "{error}");
    let kept = a.clone.kept().await.unwrap();
    assert_eq!(a.clone.plan_undo(&kept, Seq(1), Some("zz")).await.unwrap_err().kind(), Kind::NotFound);
    let undo = a.clone.plan_undo(&kept, Seq(1), Some(&second[..12])).await.unwrap();
    a.clone.rewrite(&undo.rewrite, "undo".into()).await.unwrap();
    let left: Vec<String> = contents(&a).await.into_keys().map(|(_, path)| path).collect();
    assert_eq!(left, ["c0", "c2"]);
}

#[tokio::test(start_paused = true)]
async fn what_lies_in_dropped_packs_or_below_the_log_is_stored_again() {
    let world = World::new(8);
    let a = world.open("a").await;
    // One content in an entry, one in a pack of its own.
    a.clone.commit(change_bytes(X, "small", noise(1, 900))).await.unwrap();
    a.clone.commit(change_bytes(X, "large", noise(2, 300_000))).await.unwrap();
    let full = contents(&a).await;
    let mut gone = Vec::new();
    for at in ["small", "large"] {
        gone.push(a.clone.commit(NewChange::new("delete", vec![unit(X)], json!({"path": at}))).await.unwrap().seq);
    }
    // Nothing refers to them any more: a full checkpoint copies neither, and drops the pack.
    assert!(matches!(a.clone.checkpoint(true, true).await.unwrap(), Checkpoint::Done { .. }));
    // Whoever has the bytes, and whoever has nothing but the ledger.
    let b = world.open("b").await;
    undo(&b, gone[0]).await.unwrap();
    undo(&b, gone[1]).await.unwrap();
    assert_eq!(contents(&b).await, full);
    a.pull().await;
    assert_eq!(contents(&a).await, full);
    assert!(a.clone.verify(true).await.unwrap().findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_can_be_referred_to_is_not_sent_again() {
    let world = World::new(9);
    let a = world.open("a").await;
    a.clone.commit(change_bytes(X, "large", noise(2, 3_000_000))).await.unwrap();
    let seq = a.clone.commit(NewChange::new("delete", vec![unit(X)], json!({"path": "large"}))).await.unwrap().seq;
    let b = world.open("b").await;
    b.pull().await;
    let planned = plan(&b, seq).await.unwrap();
    let (done, requests) = b.counted(b.clone.rewrite(&planned.rewrite, "undo".into())).await;
    done.unwrap();
    assert!(requests.count().bytes_out < 20_000, "{requests}");
    assert!(b.text_len(X, "large").await == 3_000_000);
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_step_an_undo_happens_once_or_not_at_all() {
    for step in ["journal.added", "commit.planned", "commit.sent", "commit.applied", "commit.removed"] {
        let world = World::new(10);
        let a = world.open("a").await;
        a.put(X, "one", "1").await;
        let put = a.put(X, "one", "2").await.seq;
        let planned = plan(&a, put).await.unwrap();
        a.killer.arm(step, 1);
        let done = a.killer.run(a.clone.rewrite(&planned.rewrite, "undo".into())).await;
        drop(a);
        let a = world.open("a").await;
        a.clone.settle().await.unwrap();
        a.pull().await;
        assert!(a.clone.pending().unwrap().is_empty(), "{step}");
        assert_eq!(a.text(X, "one").await.as_deref(), Some("1"), "{step} {}", done.is_some());
        let undone = common::changes_in_log(&a).await;
        assert_eq!(undone.len(), 4, "{step}: {undone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_found_after_a_crash_is_parked_when_it_no_longer_fits() {
    let world = World::new(11);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let put = a.put(X, "one", "1").await.seq;
    let planned = plan(&a, put).await.unwrap();
    a.killer.arm("commit.planned", 1);
    assert!(a.killer.run(a.clone.rewrite(&planned.rewrite, "undo".into())).await.is_none());
    drop(a);
    b.put(X, "one", "2").await;
    let a = world.open("a").await;
    let settled = a.clone.settle().await.unwrap();
    assert_eq!(settled.parked.len(), 1, "{settled:?}");
    assert_eq!(settled.parked[0].reason.as_ref().unwrap().0, "changed_since");
    assert_eq!(a.text(X, "one").await.as_deref(), Some("2"));
    a.clone.drop_change(settled.parked[0].change).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_the_store_nothing_is_planned_and_what_was_planned_waits() {
    let world = World::new(12);
    let a = world.open("a").await;
    let put = a.put(X, "one", "1").await.seq;
    let planned = plan(&a, put).await.unwrap();
    a.faults.script_times(Op::Get, |_| true, 1, 100_000, Fault::Status(503));
    a.faults.script_times(Op::List, |_| true, 1, 100_000, Fault::Status(503));
    a.faults.script_times(Op::Create, |_| true, 1, 100_000, Fault::Status(503));
    assert_eq!(plan(&a, put).await.unwrap_err().kind(), Kind::Offline);
    assert!(a.clone.pending().unwrap().is_empty());
    let error = a.clone.rewrite(&planned.rewrite, "undo".into()).await.unwrap_err();
    assert!(["commit_pending", "outcome_unknown"].contains(&error.code()), "{error:?}");
    a.faults.heal();
    a.clone.settle().await.unwrap();
    assert!(a.text(X, "one").await.is_none() && a.clone.pending().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn below_the_floor_nothing_is_undone_or_restored() {
    let world = World::new(13);
    let a = world.open("a").await;
    let put = a.put(X, "one", "1").await.seq;
    a.put(X, "one", "2").await;
    let day = Duration::from_secs(24 * 3600);
    a.clone.checkpoint(true, true).await.unwrap();
    world.env.sleep(day * 3).await;
    let gc = a.clone.plan_gc(day).await.unwrap();
    a.clone.gc(&gc, day).await.unwrap();
    let kept = a.clone.kept().await.unwrap();
    assert!(kept.floor() > put);
    assert!(["entry_not_found", "state_not_kept"].contains(&plan(&a, put).await.unwrap_err().code()));
    assert_eq!(plan_restore(&a, put.0, &Scope::All).await.unwrap_err().code(), "state_not_kept");
    // The floor itself is a state that can be restored, but not what made it undone.
    a.put(X, "one", "3").await;
    restore(&a, kept.floor().0, &Scope::All).await.unwrap();
    assert_eq!(a.text(X, "one").await.as_deref(), Some("2"));
}

/// Whatever happened in between, restoring a state makes the present equal to it: contents, modes and ranks, leases
/// aside.
#[tokio::test(start_paused = true)]
async fn a_restored_present_is_equal_to_the_past() {
    for seed in 0..6_u64 {
        let world = World::new(100 + seed);
        let (a, b) = (world.open("a").await, world.open("b").await);
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = |sides: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % sides
        };
        let mut states = BTreeMap::from([(0, BTreeMap::new())]);
        for n in 0..30_u64 {
            let machine = if roll(2) == 0 { &a } else { &b };
            let on = format!("model/{}", roll(3));
            let at = format!("item-{}-{}", &on[6..], roll(4));
            match roll(7) {
                0 | 1 => drop(machine.put(&on, &at, &n.to_string()).await),
                2 => drop(machine.clone.commit(change_bytes(&on, &at, noise(n, 90_000))).await.unwrap()),
                3 => drop(
                    machine.clone.commit(NewChange::new("delete", vec![unit(&on)], json!({"path": at}))).await.unwrap(),
                ),
                4 => drop(run(machine, &on).await),
                5 => drop(
                    machine.clone.commit(NewChange::new("rank", vec![unit(&on)], json!({"path": at}))).await.unwrap(),
                ),
                _ => drop(machine.clone.checkpoint(true, roll(2) == 0).await.unwrap()),
            }
            a.pull().await;
            states.insert(a.clone.kept().await.unwrap().head().0, contents(&a).await);
        }
        for _ in 0..6 {
            let machine = if roll(2) == 0 { &a } else { &b };
            let wanted: Vec<u64> = states.keys().copied().collect();
            let seq = wanted[usize::try_from(roll(wanted.len() as u64)).unwrap()];
            let planned = plan_restore(machine, seq, &Scope::All).await.unwrap();
            if !planned.rewrite.units.is_empty() {
                let done = machine.clone.rewrite(&planned.rewrite, "restore".into()).await.unwrap().seq;
                assert!(done > planned.from);
            }
            machine.pull().await;
            assert_eq!(contents(machine).await, states[&seq], "seed {seed}, entry {seq}");
            // And there is nothing left to restore, ranks included.
            assert!(plan_restore(machine, seq, &Scope::All).await.unwrap().rewrite.units.is_empty(), "seed {seed}");
        }
        assert!(a.clone.verify(true).await.unwrap().findings.is_empty(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn restoring_one_unit_touches_no_other() {
    let world = World::new(14);
    let a = world.open("a").await;
    a.put(X, "x", "1").await;
    let then = a.put(Y, "y", "1").await.seq;
    a.put(X, "x", "2").await;
    a.put(Y, "y", "2").await;
    a.put("model/z", "z", "new").await;
    let planned = plan_restore(&a, then.0, &Scope::Units(vec![unit(X)])).await.unwrap();
    assert_eq!(planned.rewrite.units(), [unit(X)]);
    assert_eq!(planned.items, 1);
    let (_, requests) = a.counted(a.clone.rewrite(&planned.rewrite, "restore".into())).await;
    assert_eq!(requests.of(Op::Create), 1, "one transaction");
    assert_eq!(a.text(X, "x").await.as_deref(), Some("1"));
    assert_eq!(a.text(Y, "y").await.as_deref(), Some("2"));
    // All of it: one entry as well.
    let before = a.clone.kept().await.unwrap().head();
    restore(&a, then.0, &Scope::All).await.unwrap();
    assert_eq!(a.clone.kept().await.unwrap().head(), before.next());
    assert_eq!(a.text(Y, "y").await.as_deref(), Some("1"));
    assert!(a.paths("model/z").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unleased_run_is_undone_by_itself() {
    let world = World::new(15);
    let a = world.open("a").await;
    let mut new = common::new_run(X, Duration::from_secs(5));
    new.lease = LeaseMode::Unleased;
    let work = a.clone.begin(new).await.unwrap();
    let end = work.end(change_end(X)).await.unwrap().seq;
    assert_eq!(plan(&a, end).await.unwrap().undone.len(), 1);
    undo(&a, end).await.unwrap();
    assert!(contents(&a).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn undo_and_show_cost_a_handful_of_requests() {
    let world = World::new(16);
    let a = world.open("a").await;
    for n in 0..40 {
        a.clone.commit(change_append(&format!("model/{}", n % 10), "x")).await.unwrap();
    }
    let (start, end) = run(&a, X).await;
    // Long enough ago for nobody to seem to be writing.
    world.env.sleep(Duration::from_secs(600)).await;
    let b = world.open("b").await;
    b.pull().await;
    let kept = b.clone.kept().await.unwrap();
    let (read, requests) = b.counted(b.clone.entry(&kept, end)).await;
    read.unwrap();
    assert_eq!(requests.total(), 1);
    let (planned, requests) = b.counted(plan(&b, end)).await;
    // LIST and head; both halves; the states around them; pages of tables; the probe of the pull.
    assert!(requests.total() <= 14, "{requests}");
    let (_, requests) = b.counted(b.clone.rewrite(&planned.unwrap().rewrite, "undo".into())).await;
    assert!(requests.total() <= 3, "{requests}");
    assert!(start < end && b.clone.item(&unit(X), &path("outputs/model/x/latest")).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_somebody_else_has_done_makes_no_second_entry() {
    let world = World::new(18);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let put = a.put(X, "one", "1").await.seq;
    let planned = plan(&a, put).await.unwrap();
    let done = undo(&b, put).await.unwrap();
    let error = a.clone.rewrite(&planned.rewrite, "undo".into()).await.unwrap_err();
    assert!(error.has_code("changed_since"), "{error:?}");
    assert_eq!(plan(&a, put).await.unwrap_err().code(), "nothing_to_undo");
    assert_eq!(a.clone.kept().await.unwrap().head(), done);
}
