//! Repairs: what can be had from anywhere is readable again, the rest is named, and nothing is ever worse than before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{
    Broken, Checkpointing, Commit, Copies, Dead, Flaw, KnownUnit, Ledger, MendPlan, Mended, Mending, Params, State,
};
use peat_objects::{MemoryStore, Range, Store};
use peat_types::{Hash, Result, Seq};

use super::bench::{Bench, MapCache};
use super::checkpoint::{busy, checkpoint, forced, params, sync};
use super::history::{Dying, Files, files, handle};

/// A machine that has these files.
#[derive(Clone, Default)]
struct Machine(BTreeMap<Hash, Bytes>);

impl Machine {
    fn with(files: &Files) -> Self {
        Self(files.values().map(|bytes| (Hash::of(bytes), bytes.clone())).collect())
    }
}

impl Copies for Machine {
    fn each(&self, _: &mut dyn FnMut(KnownUnit) -> Result<()>) -> Result<Option<State>> {
        Ok(None)
    }

    fn copy(&self, wanted: &Broken) -> Result<Option<Bytes>> {
        Ok(self.0.get(&wanted.hash).cloned())
    }
}

pub fn how() -> Mending {
    Mending { author: "ann@here".into(), patience: Duration::from_secs(60) }
}

async fn mend(ledger: &Ledger, machine: &Machine) -> (MendPlan, Mended) {
    let found = ledger.verify(true).await.expect("verified");
    let plan = ledger.plan_mend(&found, machine).await.expect("planned");
    let done = ledger.mend(&plan, machine, &how()).await.expect("mended");
    (plan, done)
}

/// What is wrong with the newest state.
pub async fn wrong(ledger: &Ledger) -> Vec<Flaw> {
    let found = ledger.verify(true).await.expect("verified").findings;
    found.into_iter().filter(|flaw| !flaw.past).collect()
}

pub fn packs(memory: &MemoryStore) -> Vec<String> {
    memory.keys().into_iter().filter(|key| key.starts_with("pack/")).collect()
}

/// A ledger with contents in packs of their own, in packs of a checkpoint, and in the log; and all that it holds.
async fn filled() -> (Bench, Files) {
    let mut bench = Bench::with(params()).await;
    busy(&mut bench, 20).await;
    checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    busy(&mut bench, 9).await;
    let all = files(&bench.ledger, &bench.state).await.expect("files");
    (bench, all)
}

/// Another process over the same objects.
pub fn fresh(bench: &Bench) -> Ledger {
    handle(bench, Arc::new(bench.memory.clone()))
}

pub async fn now(bench: &Bench) -> Result<Files> {
    let ledger = fresh(bench);
    let head = ledger.head().await?.state;
    files(&ledger, &head).await
}

/// Removes every pack of contents that is in the table.
async fn destroy(bench: &Bench) -> usize {
    let table = peat_ledger::format::packs(&bench.state, &super::bench::RawPages(bench.memory.clone())).await;
    let mut gone = 0;
    for (_, base, id, _) in table.expect("table").into_iter().filter(|(_, _, _, row)| !row.metadata) {
        bench.memory.delete(&format!("pack/{:016x}-{id}", base.0)).await.expect("delete");
        gone += 1;
    }
    gone
}

#[tokio::test(start_paused = true)]
async fn destroyed_packs_are_put_back_by_a_machine_that_has_the_files() {
    let (bench, all) = filled().await;
    assert!(destroy(&bench).await >= 3);
    let found = fresh(&bench).verify(false).await.expect("verified");
    assert!(found.broken.len() >= 10 && found.spoilt.len() >= 3, "{found:?}");
    for broken in &found.broken {
        let named = found.findings.iter().filter(|flaw| flaw.path.as_ref() == Some(&broken.path));
        assert!(named.filter(|flaw| flaw.unit.as_ref() == Some(&broken.unit)).count() > 0, "{broken:?}");
    }
    let machine = Machine::with(&all);
    let before = bench.memory.keys();
    let (plan, done) = mend(&fresh(&bench), &machine).await;
    assert_eq!((plan.lost.len(), done.contents), (0, found.broken.len() as u64), "{plan:?}");
    assert!(done.kept.is_none() && done.dropped >= 3, "{done:?}");
    assert!(before.iter().all(|key| bench.memory.keys().contains(key)), "nothing is deleted");
    assert_eq!(now(&bench).await.expect("files"), all);
    assert_eq!(wrong(&fresh(&bench)).await, []);
    let (plan, done) = mend(&fresh(&bench), &machine).await;
    assert!(plan.is_empty() && done == Mended::default(), "there is nothing left to be done: {plan:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_log_or_a_dropped_pack_still_holds_is_found_without_any_machine() {
    let (mut bench, all) = filled().await;
    let full = Checkpointing { full: true, ..forced() };
    checkpoint(&bench.ledger, &full).await;
    sync(&mut bench).await;
    assert!(destroy_live(&bench).await > 0);
    assert!(now(&bench).await.is_err());
    let (plan, _) = mend(&fresh(&bench), &Machine::default()).await;
    assert!(plan.here.is_empty() && plan.lost.is_empty() && plan.elsewhere.len() >= 20, "{plan:?}");
    assert_eq!(now(&bench).await.expect("files"), all);
    assert_eq!(wrong(&fresh(&bench)).await, []);
}

/// Removes the packs of contents that are live.
async fn destroy_live(bench: &Bench) -> usize {
    let table = peat_ledger::format::packs(&bench.state, &super::bench::RawPages(bench.memory.clone())).await;
    let mut gone = 0;
    for (dropped, base, id, row) in table.expect("table") {
        if !dropped && !row.metadata {
            bench.memory.delete(&format!("pack/{:016x}-{id}", base.0)).await.expect("delete");
            gone += 1;
        }
    }
    gone
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_stays_listed_and_is_lost_until_somebody_comes() {
    let (bench, all) = filled().await;
    destroy(&bench).await;
    // Slots below the checkpoint are gone, too, so the ledger has nothing but what is in the tail.
    let some = all.iter().filter(|((unit, _), _)| unit != "model/1").map(|(k, v)| (k.clone(), v.clone())).collect();
    for key in bench.memory.keys().into_iter().filter(|key| key.starts_with("log/")) {
        let seq: u64 = key.rsplit_once('.').expect("number").1.parse().expect("number");
        if seq < 20 {
            bench.memory.delete(&key).await.expect("delete");
        }
    }
    let (plan, done) = mend(&fresh(&bench), &Machine::with(&some)).await;
    assert!(!plan.lost.is_empty() && plan.lost.iter().all(|lost| lost.unit.as_str() == "model/1"), "{plan:?}");
    assert!(done.contents > 0);
    let ledger = fresh(&bench);
    let head = ledger.head().await.expect("head").state;
    let mut listed = 0;
    for (unit, row) in ledger.directory(&head, &MapCache::default()).await.expect("directory") {
        for (_, path, file) in ledger.tables(&[&row], &MapCache::default()).await.expect("table").remove(0) {
            listed += 1;
            let lost = plan.lost.iter().any(|lost| lost.path == path && lost.unit == unit);
            match ledger.contents(&[&file], &[]).await {
                Ok(bytes) => assert_eq!((lost, &bytes[0]), (false, &all[&(unit.to_string(), path.to_string())])),
                Err(error) => assert!(lost && Ledger::is_lost(&error), "{path}: {error:?}"),
            }
        }
    }
    assert_eq!(listed, all.len(), "all stay listed");
    let named: Vec<_> = wrong(&ledger).await.into_iter().filter_map(|flaw| flaw.path).collect();
    assert!(plan.lost.iter().all(|lost| named.contains(&lost.path)), "{named:?}");
    // It holds up no maintenance: what it was in stays where it is.
    let full = Checkpointing { full: true, ..forced() };
    checkpoint(&ledger, &full).await;
    let (plan, _) = mend(&fresh(&bench), &Machine::with(&all)).await;
    assert!(plan.lost.is_empty());
    assert_eq!(now(&bench).await.expect("files"), all);
}

#[tokio::test(start_paused = true)]
async fn a_flipped_byte_costs_only_what_is_in_its_block() {
    let (bench, all) = filled().await;
    for key in packs(&bench.memory) {
        let body = bench.memory.get(&key, Range::All).await.expect("get").expect("there").bytes;
        let index = peat_ledger::format::decode_pack(&body).expect("a pack");
        let Some(block) = index.blocks.last() else { continue };
        let mut bytes = body.to_vec();
        bytes[usize::try_from(block.off).expect("small") + block.len as usize / 2] ^= 4;
        bench.memory.put(&key, bytes.into()).await.expect("put");
    }
    assert!(wrong(&fresh(&bench)).await.iter().all(|flaw| flaw.path.is_some()), "each names its item");
    let (plan, _) = mend(&fresh(&bench), &Machine::with(&all)).await;
    assert!(plan.drops.is_empty() && plan.lost.is_empty() && !plan.is_empty());
    assert_eq!(now(&bench).await.expect("files"), all);
    assert_eq!(wrong(&fresh(&bench)).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_repair_killed_at_any_request_leaves_nothing_worse() {
    for applied in [false, true] {
        let mut request = 1;
        loop {
            let (bench, all) = filled().await;
            destroy(&bench).await;
            let before = bench.memory.keys();
            let readable = count(&bench).await;
            let store = Dying::at(Arc::new(bench.memory.clone()), request, applied);
            let ledger = handle(&bench, store.clone());
            let machine = Machine::with(&all);
            let repair = async {
                let found = ledger.verify(false).await?;
                let plan = ledger.plan_mend(&found, &machine).await?;
                ledger.mend(&plan, &machine, &Mending { patience: Duration::ZERO, ..how() }).await
            };
            let done = repair.await;
            assert!(
                before.iter().all(|key| bench.memory.keys().contains(key)),
                "request {request}: nothing is deleted"
            );
            assert!(count(&bench).await >= readable, "request {request}: fewer can be read");
            let (plan, _) = mend(&fresh(&bench), &machine).await;
            assert!(plan.lost.is_empty());
            assert_eq!(now(&bench).await.expect("files"), all, "request {request}");
            assert_eq!(wrong(&fresh(&bench)).await, [], "request {request}");
            if store.lives() {
                done.expect("nothing went wrong");
                break;
            }
            // Some requests at the beginning only read.
            request += if request < 20 { 7 } else { 3 };
        }
        assert!(request > 40, "{request} requests");
    }
}

/// How many contents can be read.
async fn count(bench: &Bench) -> usize {
    let ledger = fresh(bench);
    let head = ledger.head().await.expect("head").state;
    let mut readable = 0;
    for (_, row) in ledger.directory(&head, &MapCache::default()).await.expect("directory") {
        for (_, _, file) in ledger.tables(&[&row], &MapCache::default()).await.expect("table").remove(0) {
            readable += usize::from(ledger.contents(&[&file], &[]).await.is_ok());
        }
    }
    readable
}

#[tokio::test(start_paused = true)]
async fn a_repair_undoes_nothing_that_others_did_meanwhile() {
    let (mut bench, mut all) = filled().await;
    destroy(&bench).await;
    let machine = Machine::with(&all);
    let ledger = fresh(&bench);
    let found = ledger.verify(false).await.expect("verified");
    let plan = ledger.plan_mend(&found, &machine).await.expect("planned");
    // One item is written anew, one is deleted, and one transaction was planned on the tables of before.
    let (unit, path) = (plan.here[0].unit.to_string(), plan.here[0].path.to_string());
    bench.put(&unit, &[(&path, &[9; 3000])]).await;
    all.insert((unit, path), Bytes::from(vec![9; 3000]));
    let late = bench.draft("model/2", &[("late", b"planned before the repair")]).await;
    let mut peer = bench.peer(9).await;
    peer.put("model/new", &[("data", b"unharmed")]).await;
    all.insert(("model/new".into(), "data".into()), Bytes::from_static(b"unharmed"));
    ledger.mend(&plan, &machine, &how()).await.expect("mended");
    assert_eq!(now(&bench).await.expect("files"), all);
    match bench.send(&late).await {
        Commit::Lost { why, .. } => assert_eq!(why, Dead::Gone, "R3: it would undo the repair"),
        other => unreachable!("{other:?}"),
    }
    assert_eq!(wrong(&fresh(&bench)).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_repair_of_many_models_takes_several_entries_and_equal_contents_are_stored_once() {
    let mut bench = Bench::with(Params { entry_max: 8 << 10, inline_file: 500, ..params() }).await;
    let same = bench.env.random_bytes::<3000>();
    for n in 0..60 {
        let own = bench.env.random_bytes::<600>();
        bench.put(&format!("model/{n:02}"), &[("same", &same), ("own", &own)]).await;
    }
    let all = files(&bench.ledger, &bench.state).await.expect("files");
    assert_eq!(destroy(&bench).await, 60);
    let (_, done) = mend(&fresh(&bench), &Machine::with(&all)).await;
    assert_eq!((done.contents, done.stored), (120, 60 * 600 + 3000));
    assert_eq!(done.dropped, 60);
    assert!(done.entries.len() > 2, "{done:?}");
    assert_eq!(now(&bench).await.expect("files"), all);
    assert_eq!(wrong(&fresh(&bench)).await, []);
    let seq = fresh(&bench).head().await.expect("head").state.seq;
    assert!(seq > Seq(60));
}
