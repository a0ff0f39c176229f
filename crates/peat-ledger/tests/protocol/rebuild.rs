//! Pages of the trees that are lost: built again where what they held is known for sure, and left alone where it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{
    Broken, Built, Checkpointing, Copies, FileRow, KnownUnit, Ledger, MendPlan, Mended, Mending, Params, State, format,
};
use peat_objects::{Range, Store};
use peat_types::{EntryId, Hash, ItemPath, PackId, Result, Seq, Unit};

use super::bench::{Bench, MapCache, log_key};
use super::checkpoint::{busy, checkpoint, cut_off, forced, params, sync};
use super::gc::{DAY, collect, keep, timed};
use super::history::{Dying, Files, files, handle};
use super::mend::{fresh, how, now, packs, wrong};

/// A machine that was in step with the ledger at some entry, and has the files, or not.
#[derive(Clone, Default)]
struct Apart {
    units: Vec<KnownUnit>,
    upto: Option<State>,
    files: Files,
}

impl Copies for Apart {
    fn each(&self, see: &mut dyn FnMut(KnownUnit) -> Result<()>) -> Result<Option<State>> {
        self.units.iter().cloned().try_for_each(see)?;
        Ok(self.upto.clone())
    }

    fn copy(&self, wanted: &Broken) -> Result<Option<Bytes>> {
        Ok(self.files.values().find(|bytes| Hash::of(bytes) == wanted.hash).cloned())
    }
}

/// What a machine knows that looked just now.
async fn in_step(bench: &Bench) -> Apart {
    let ledger = fresh(bench);
    let state = ledger.head().await.expect("head").state;
    let mut units = Vec::new();
    for (unit, row) in ledger.directory(&state, &MapCache::default()).await.expect("directory") {
        let files = ledger.tables(&[&row], &MapCache::default()).await.expect("table").remove(0);
        units.push(KnownUnit { unit, seq: row.last_seq, as_of: state.seq, files });
    }
    Apart { units, upto: Some(state), files: Files::new() }
}

async fn look(ledger: &Ledger, machine: &Apart) -> MendPlan {
    let found = ledger.verify(true).await.expect("verified");
    ledger.plan_mend(&found, machine).await.expect("planned")
}

/// As the doctor does it: what is lost is built again, then the rest is looked at.
async fn repair(ledger: &Ledger, machine: &Apart) -> Mended {
    let plan = look(ledger, machine).await;
    let mut done = ledger.mend(&plan, machine, &how()).await.expect("mended");
    if done.built != Built::default() {
        let next = ledger.mend(&look(ledger, machine).await, machine, &how()).await.expect("mended");
        done.entries.extend(next.entries);
        (done.contents, done.dropped, done.kept) = (next.contents, next.dropped, next.kept);
    }
    done
}

/// The units and what is said of them, and all files.
async fn said(bench: &Bench) -> (Vec<(Unit, Seq, u64, u64)>, Vec<(ItemPath, FileRow)>) {
    let ledger = fresh(bench);
    let state = ledger.head().await.expect("head").state;
    let (mut units, mut all) = (Vec::new(), Vec::new());
    for (unit, row) in ledger.directory(&state, &MapCache::default()).await.expect("directory") {
        for (_, path, file) in ledger.tables(&[&row], &MapCache::default()).await.expect("table").remove(0) {
            all.push((path, FileRow { content: peat_ledger::Content::Tiny(Bytes::new()), ..file }));
        }
        units.push((unit, row.last_seq, row.files, row.bytes));
    }
    (units, all)
}

async fn flip(bench: &Bench, key: &str, at: u64) {
    let mut bytes = bench.memory.get(key, Range::All).await.expect("get").expect("there").bytes.to_vec();
    bytes[usize::try_from(at).expect("small")] ^= 1;
    bench.memory.put(key, bytes.into()).await.expect("put");
}

/// The packs of pages, and where in them pages lie.
async fn pages(bench: &Bench) -> Vec<(String, Vec<u64>)> {
    let mut out = Vec::new();
    for key in packs(&bench.memory) {
        let body = bench.memory.get(&key, Range::All).await.expect("get").expect("there").bytes;
        let index = format::decode_pack(&body).expect("a pack");
        let at: Vec<u64> = index.pages.iter().map(|at| at.off + u64::from(at.len) - 2).collect();
        if !at.is_empty() {
            out.push((key, at));
        }
    }
    out
}

async fn sound(bench: &Bench, all: &Files) {
    assert_eq!(&now(bench).await.expect("files"), all);
    assert_eq!(wrong(&fresh(bench)).await, []);
}

/// Everything in the store.
async fn snapshot(bench: &Bench) -> BTreeMap<String, Bytes> {
    let mut out = BTreeMap::new();
    for key in bench.memory.keys() {
        let bytes = bench.memory.get(&key, Range::All).await.expect("get").expect("there").bytes;
        out.insert(key, bytes);
    }
    out
}

async fn restore(bench: &Bench, to: &BTreeMap<String, Bytes>) {
    for key in bench.memory.keys().into_iter().filter(|key| !to.contains_key(key)) {
        bench.memory.delete(&key).await.expect("delete");
    }
    for (key, bytes) in to {
        bench.memory.put(key, bytes.clone()).await.expect("put");
    }
}

/// Many packs and models, so that each tree has several pages, which lie in packs.
async fn town() -> (Bench, Files) {
    let mut bench = Bench::with(params()).await;
    for n in 0..110 {
        let (small, large) = (bench.env.random_bytes::<200>(), bench.env.random_bytes::<2500>());
        let name = format!("data/{n:04}");
        bench.put(&format!("model/{:02}", n % 30), &[(&name, &small), ("large", &large)]).await;
    }
    checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    bench.put("model/00", &[("more", &[7; 300])]).await;
    checkpoint(&bench.ledger, &Checkpointing { full: true, ..forced() }).await;
    sync(&mut bench).await;
    let all = files(&bench.ledger, &bench.state).await.expect("files");
    (bench, all)
}

async fn lose_trees(bench: &Bench) {
    for (key, _) in pages(bench).await {
        bench.memory.delete(&key).await.expect("delete");
    }
}

/// Each page by itself: what lies above others comes first.
async fn each_page(bench: &Bench) -> Vec<(String, u64)> {
    let all = pages(bench).await;
    let mut all: Vec<_> = all.iter().flat_map(|(key, at)| at.iter().map(|at| (key.clone(), *at))).collect();
    all.reverse();
    all
}

/// What is said of pages that cannot be read, and in which objects.
async fn torn(bench: &Bench) -> Vec<(String, String)> {
    let found = fresh(bench).verify(false).await.expect("verified").findings;
    let torn = found.into_iter().filter(|flaw| flaw.what.starts_with("holds a part of"));
    torn.map(|flaw| {
        assert!(flaw.remedy.contains("'peat doctor --repair' builds"), "{flaw:?}");
        (flaw.object, flaw.what.split(':').next().expect("a part").to_owned())
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn each_page_that_is_damaged_is_built_again_by_a_machine_that_was_in_step() {
    let (bench, all) = town().await;
    let (before, machine) = (said(&bench).await, in_step(&bench).await);
    // Slots before the last checkpoint are not there to be asked.
    cut_off(&bench.memory, bench.state.seq).await;
    let start = snapshot(&bench).await;
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for (key, at) in each_page(&bench).await {
        flip(&bench, &key, at).await;
        let torn = torn(&bench).await;
        let [(object, what)] = &torn[..] else {
            // A page that the newest state does not refer to.
            assert!(torn.is_empty() || torn.iter().all(|(object, _)| *object == key), "{torn:?}");
            restore(&bench, &start).await;
            continue;
        };
        assert_eq!(*object, key);
        let times = seen.entry(what.clone()).or_default();
        *times += 1;
        if *times <= 3 {
            let keys = bench.memory.keys();
            let done = repair(&fresh(&bench), &machine).await;
            assert!(done.built != Built::default() && done.built.left.is_none(), "{done:?}");
            assert!(keys.iter().all(|key| bench.memory.keys().contains(key)), "nothing is deleted");
            assert_eq!(now(&bench).await.expect("files"), all);
            assert_eq!(said(&bench).await, before);
            let left = wrong(&fresh(&bench)).await;
            assert!(left.iter().all(|flaw| flaw.what.contains("is missing although later")), "{left:?}");
            assert!(look(&fresh(&bench), &machine).await.is_empty(), "there is nothing left to be done");
        }
        restore(&bench, &start).await;
        if seen.len() == 3 && seen.values().sum::<u32>() >= 8 {
            return;
        }
    }
    unreachable!("not every tree was hit: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_pack_of_all_trees_is_made_up_for_from_the_log_alone() {
    let (mut bench, all) = town().await;
    let before = said(&bench).await;
    lose_trees(&bench).await;
    now(&bench).await.expect_err("nothing can be read");
    let plan = look(&fresh(&bench), &Apart::default()).await;
    let pages = plan.rebuild.as_ref().expect("pages are lost");
    assert!(pages.directory && pages.packs && pages.why.is_none() && pages.untold.is_empty(), "{:?}", pages.why);
    assert!(pages.units.values().all(|here| !here), "the ledger tells: {:?}", pages.units);
    let done = repair(&fresh(&bench), &Apart::default()).await;
    assert!(done.built.directory && done.built.packs && done.built.tables == 30, "{done:?}");
    assert_eq!(said(&bench).await, before);
    sound(&bench, &all).await;
    // Life goes on: checkpoints, too.
    sync(&mut bench).await;
    busy(&mut bench, 7).await;
    checkpoint(&bench.ledger, &Checkpointing { full: true, ..forced() }).await;
    assert_eq!(wrong(&fresh(&bench)).await, []);
}

/// A ledger whose log does not reach back to its beginning, and a machine that was in step before the last changes.
async fn old() -> (Bench, Apart) {
    let mut bench = timed().await;
    busy(&mut bench, 12).await;
    checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    let behind = in_step(&bench).await;
    bench.put("model/4", &[("late", b"the machine does not know of it")]).await;
    bench.put("model/0", &[("later", b"nor of this")]).await;
    for _ in 0..2 {
        bench.env.sleep(DAY * 40).await;
        checkpoint(&bench.ledger, &Checkpointing { full: true, ..forced() }).await;
        sync(&mut bench).await;
    }
    bench.env.sleep(DAY * 40).await;
    collect(&bench.ledger, &keep(30)).await;
    sync(&mut bench).await;
    assert!(bench.state.root.keep > Seq(15), "{:?}", bench.state.root.keep);
    (bench, behind)
}

#[tokio::test(start_paused = true)]
async fn where_the_log_is_cut_a_machine_that_was_in_step_tells_all() {
    let (bench, _) = old().await;
    let (machine, before) = (in_step(&bench).await, said(&bench).await);
    let all = files(&fresh(&bench), &bench.state).await.expect("files");
    lose_trees(&bench).await;
    let done = repair(&fresh(&bench), &machine).await;
    assert!(done.built.directory && done.built.tables == 5, "{done:?}");
    assert_eq!(said(&bench).await, before);
    sound(&bench, &all).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_behind_supplies_what_it_knows_for_sure_and_nothing_else() {
    let (bench, behind) = old().await;
    let machine = in_step(&bench).await;
    let all = files(&fresh(&bench), &bench.state).await.expect("files");
    // All tables, and nothing else.
    for (key, at) in pages(&bench).await {
        for at in at {
            flip(&bench, &key, at).await;
            if torn(&bench).await.iter().any(|(_, what)| !what.ends_with("the table of a model")) {
                flip(&bench, &key, at).await;
            }
        }
    }
    let mut liar = behind.clone();
    liar.units[1].files.iter_mut().for_each(|(_, _, row)| row.hash = Hash::of(b"something else"));
    let plan = look(&fresh(&bench), &liar).await;
    assert!(plan.is_empty(), "it proves nothing: {:?}", plan.rebuild);
    let plan = look(&fresh(&bench), &behind).await;
    let pages = plan.rebuild.as_ref().expect("pages are lost");
    let untold: Vec<&str> = pages.untold.iter().map(Unit::as_str).collect();
    assert_eq!(untold, ["model/0", "model/4"], "those that changed since");
    assert!(pages.why.is_some() && pages.units.values().all(|here| *here) && pages.units.len() == 3);
    let done = fresh(&bench).mend(&plan, &behind, &how()).await.expect("mended");
    assert_eq!(done.built.tables, 3);
    let left: BTreeSet<_> = wrong(&fresh(&bench)).await.into_iter().filter_map(|flaw| flaw.unit).collect();
    assert_eq!(left.iter().map(Unit::as_str).collect::<Vec<_>>(), ["model/0", "model/4"]);
    // One that was in step does the rest.
    repair(&fresh(&bench), &machine).await;
    sound(&bench, &all).await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_add_up_changes_nothing() {
    let (bench, behind) = old().await;
    let in_step = in_step(&bench).await;
    lose_trees(&bench).await;
    // The same counts and sizes, another content; a unit too few; one too many.
    let (mut liar, mut less, mut more) = (in_step.clone(), in_step.clone(), in_step.clone());
    let file = liar.units[1].files.iter_mut().find(|(_, _, row)| row.size > 64).expect("a file");
    file.2.hash = Hash::of(b"something else");
    less.units.remove(2);
    more.units.push(KnownUnit { unit: "model/x".parse().expect("unit"), files: Vec::new(), ..more.units[0].clone() });
    // Those of another past: the store was set back, or replaced.
    let (mut ahead, mut forked) = (in_step.clone(), in_step);
    ahead.upto.as_mut().expect("a state").seq.0 += 1;
    forked.upto.as_mut().expect("a state").entry = EntryId::random(&bench.env);
    for machine in [liar, less, more, ahead, forked, behind, Apart::default()] {
        let plan = look(&fresh(&bench), &machine).await;
        let pages = plan.rebuild.as_ref().expect("pages are lost");
        assert!(pages.is_empty() && pages.why.is_some(), "{:?}", pages.units);
        let keys = bench.memory.keys();
        assert_eq!(fresh(&bench).mend(&plan, &machine, &how()).await.expect("nothing"), Mended::default());
        assert_eq!(bench.memory.keys(), keys);
    }
}

#[tokio::test(start_paused = true)]
async fn contents_that_moved_since_the_machine_heard_of_them_are_found_or_stored_again() {
    for content_too in [false, true] {
        let mut bench = timed().await;
        busy(&mut bench, 12).await;
        let mut machine = in_step(&bench).await;
        machine.files = files(&bench.ledger, &bench.state).await.expect("files");
        for _ in 0..2 {
            checkpoint(&bench.ledger, &Checkpointing { full: true, ..forced() }).await;
            sync(&mut bench).await;
            bench.env.sleep(DAY * 40).await;
        }
        collect(&bench.ledger, &keep(30)).await;
        sync(&mut bench).await;
        for key in packs(&bench.memory) {
            let body = bench.memory.get(&key, Range::All).await.expect("get").expect("there").bytes;
            if content_too || !format::decode_pack(&body).expect("a pack").pages.is_empty() {
                bench.memory.delete(&key).await.expect("delete");
            }
        }
        // It is in step again, by entries: these do not tell where contents went.
        let head = bench.ledger.head().await.expect("head").state;
        machine.units.iter_mut().for_each(|known| known.as_of = head.seq);
        machine.upto = Some(head);
        let done = repair(&fresh(&bench), &machine).await;
        assert!(done.built.directory, "{done:?}");
        assert_eq!(done.stored > 0, content_too, "{done:?}");
        sound(&bench, &machine.files).await;
    }
}

/// Pages that lie in the section of an entry: the slot itself is a person's to restore, and nothing of the newest state
/// hangs on it any more.
#[tokio::test(start_paused = true)]
async fn pages_of_a_lost_entry_are_built_again_and_its_contents_put_back() {
    let mut bench = Bench::with(params()).await;
    busy(&mut bench, 20).await;
    let mut machine = in_step(&bench).await;
    machine.files = files(&bench.ledger, &bench.state).await.expect("files");
    let before = said(&bench).await;
    let start = snapshot(&bench).await;
    // The last one of model/2 is entry 18: its table and a content lie there.
    let slot = log_key(Seq(18));
    for lost in [false, true] {
        restore(&bench, &start).await;
        if lost {
            bench.memory.delete(&slot).await.expect("delete");
        } else {
            flip(&bench, &slot, start[&slot].len() as u64 - 2).await;
        }
        assert!(torn(&bench).await.iter().any(|(object, _)| *object == slot));
        let done = repair(&fresh(&bench), &machine).await;
        assert!(done.built.tables > 0 && done.built.left.is_none(), "{done:?}");
        assert_eq!(said(&bench).await, before);
        assert_eq!(now(&bench).await.expect("files"), machine.files);
        let left = wrong(&fresh(&bench)).await;
        assert!(left.iter().all(|flaw| flaw.object == slot && flaw.unit.is_none()), "{left:?}");
        assert!(look(&fresh(&bench), &machine).await.is_empty(), "there is nothing left to be done");
        // Without the machine nobody knows what that entry did.
        restore(&bench, &start).await;
        bench.memory.delete(&slot).await.expect("delete");
        assert!(look(&fresh(&bench), &Apart::default()).await.rebuild.expect("lost").why.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_is_lost_and_its_table_is_not() {
    let (bench, _) = old().await;
    let machine = in_step(&bench).await;
    let before = said(&bench).await;
    for key in packs(&bench.memory) {
        bench.memory.delete(&key).await.expect("delete");
    }
    let done = repair(&fresh(&bench), &machine).await;
    assert!(done.built.directory, "{done:?}");
    assert_eq!(said(&bench).await, before, "all stay listed");
    let left = wrong(&fresh(&bench)).await;
    assert!(left.iter().all(|flaw| flaw.path.is_some() || flaw.what == "is missing"), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn what_others_enter_meanwhile_stays_and_two_repairs_do_no_harm() {
    let (mut bench, mut all) = town().await;
    let machine = in_step(&bench).await;
    // A table of some model.
    let (key, at) = pages(&bench).await.pop().expect("a pack");
    flip(&bench, &key, at[3]).await;
    assert_eq!(torn(&bench).await[0].1, "holds a part of the table of a model");
    let (one, other) = (fresh(&bench), fresh(&bench));
    let (plan, second) = (look(&one, &machine).await, look(&other, &machine).await);
    let unit = plan.rebuild.as_ref().expect("lost").units.keys().next().expect("a model").to_string();
    bench.put("model/new", &[("data", b"unharmed")]).await;
    all.insert(("model/new".into(), "data".into()), Bytes::from_static(b"unharmed"));
    let done = one.mend(&plan, &machine, &how()).await.expect("mended");
    assert_eq!((done.built.tables, done.built.left), (1, None));
    sync(&mut bench).await;
    bench.put(&unit, &[("after", b"on the table that was built")]).await;
    all.insert((unit, "after".into()), Bytes::from_static(b"on the table that was built"));
    let done = other.mend(&second, &machine, &how()).await.expect("mended");
    assert_eq!(done.built.tables, 0);
    sound(&bench, &all).await;
    assert!(look(&fresh(&bench), &machine).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rebuilt_table_of_packs_keeps_what_older_states_need_and_lets_uploads_in() {
    let (bench, _) = town().await;
    let machine = in_step(&bench).await;
    let id = PackId::random(&bench.env);
    let upload = format!("pack/{:016x}-{id}", bench.state.seq.0 + 1);
    let start = snapshot(&bench).await;
    for (key, at) in each_page(&bench).await {
        flip(&bench, &key, at).await;
        if torn(&bench).await.iter().any(|(_, what)| what.ends_with("the table of all packs")) {
            break;
        }
        restore(&bench, &start).await;
    }
    bench.memory.put(&upload, Bytes::from_static(b"on its way")).await.expect("put");
    let done = repair(&fresh(&bench), &machine).await;
    assert!(done.built.packs && !done.built.directory && done.built.tables == 0, "{done:?}");
    let found = fresh(&bench).verify(true).await.expect("verified");
    assert_eq!(found.findings, [], "the past is whole, too");
    // What older states need is in the table, and goes with no collection; what is on its way is not.
    let orphans: Vec<&str> = found.orphans.iter().map(|orphan| orphan.key.as_str()).collect();
    assert_eq!(orphans, [upload.as_str()]);
    for seq in (0..bench.state.seq.0).step_by(10) {
        let object = bench.memory.get(&log_key(Seq(seq)), Range::All).await.expect("get").expect("there");
        let state = format::decode_entry(Seq(seq), &object.bytes).expect("decode").state;
        files(&fresh(&bench), &state).await.expect("an older state");
    }
}

#[tokio::test(start_paused = true)]
async fn tables_of_many_models_take_several_entries() {
    let mut bench = Bench::with(Params { entry_max: 16 << 10, ..params() }).await;
    let names: Vec<String> = (0..40).map(|n| format!("data/{n:03}")).collect();
    for n in 0..20 {
        let own: Vec<[u8; 60]> = names.iter().map(|_| bench.env.random_bytes()).collect();
        let files: Vec<(&str, &[u8])> = names.iter().zip(&own).map(|(name, own)| (name.as_str(), &own[..])).collect();
        bench.put(&format!("model/{n:02}"), &files).await;
    }
    checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    // The last page of each table is in the log, and so is a content; the first one is in the pack.
    for n in 0..20 {
        bench.put(&format!("model/{n:02}"), &[("zz", &[n; 100])]).await;
    }
    let all = files(&bench.ledger, &bench.state).await.expect("files");
    lose_trees(&bench).await;
    let done = repair(&fresh(&bench), &Apart::default()).await;
    assert_eq!(done.built.tables, 20);
    assert!(done.entries.len() > 3, "{done:?}");
    sound(&bench, &all).await;
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_killed_at_any_request_leaves_nothing_worse() {
    let (bench, _) = old().await;
    let machine = in_step(&bench).await;
    let all = files(&bench.ledger, &bench.state).await.expect("files");
    lose_trees(&bench).await;
    let start = snapshot(&bench).await;
    for applied in [false, true] {
        for request in 1.. {
            restore(&bench, &start).await;
            let store = Dying::at(Arc::new(bench.memory.clone()), request, applied);
            let ledger = handle(&bench, store.clone());
            let attempt = async {
                let how = Mending { patience: Duration::ZERO, ..how() };
                for _ in 0..2 {
                    let found = ledger.verify(false).await?;
                    let plan = ledger.plan_mend(&found, &machine).await?;
                    ledger.mend(&plan, &machine, &how).await?;
                }
                Result::<()>::Ok(())
            };
            let done = attempt.await;
            assert!(start.keys().all(|key| bench.memory.keys().contains(key)), "request {request}");
            repair(&fresh(&bench), &machine).await;
            assert_eq!(now(&bench).await.expect("files"), all, "request {request}");
            assert_eq!(wrong(&fresh(&bench)).await, [], "request {request}");
            if store.lives() {
                done.expect("nothing went wrong");
                assert!(request > 40, "{request} requests");
                break;
            }
        }
    }
}
