//! Purging: what is removed is in no object of the store afterwards, everything else is as it was, and nobody who looked a
//! moment before is led astray.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{
    Commit, Content, Dead, Draft, Follow, Ledger, Op, PurgePlan, Purged, Purging, Rank, Segment, format,
};
use peat_objects::{LatencyStore, MemoryStore, Range, Store};
use peat_types::{ChangeId, Kind, PackId, Result, Seq};

use super::bench::{Bench, MapCache, RawPages, env, log_key};
use super::checkpoint::{busy, checkpoint, forced, params, sync};
use super::gc::{DAY, collect, deletes_nothing, keep, timed};
use super::help::stage;
use super::history::{Dying, Files, files, handle};

fn what(path: &str) -> Purging {
    Purging {
        unit: "model/1".parse().expect("unit"),
        paths: vec![path.parse().expect("path")],
        author: "ann@here".into(),
        patience: Duration::from_secs(600),
    }
}

async fn purge(ledger: &Ledger, what: &Purging) -> (PurgePlan, Purged) {
    let plan = ledger.plan_purge(what).await.expect("planned");
    (plan, ledger.purge(what, &|_, _| {}).await.expect("purged"))
}

/// Keys of the objects that hold `secret`, wherever in them and however packed.
async fn holders(memory: &MemoryStore, ledger: &Ledger, secret: &[u8]) -> Vec<String> {
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let within = |bytes: &[u8]| bytes.windows(secret.len()).any(|part| part == secret);
    let mut found = Vec::new();
    for key in memory.keys() {
        let bytes = memory.get(&key, Range::All).await.expect("get").expect("there").bytes;
        let mut blocks = Vec::new();
        if let Some(number) = key.strip_prefix("log/").and_then(|name| name.split_once('.')) {
            let seq = Seq(number.1.parse().expect("number"));
            if let Ok(entry) = format::decode_entry(seq, &bytes) {
                let ops = entry.ops.iter().flatten().flat_map(|unit| &unit.ops);
                blocks.extend(ops.filter_map(|op| match op {
                    peat_ledger::OpRecord::Put(_, _, row) => match &row.content {
                        Content::At(at) if at.block.segment == Segment::Log(seq) => Some((at.block.off, at.block.len)),
                        _ => None,
                    },
                    _ => None,
                }));
            }
        } else if key.starts_with("pack/") {
            let index = format::decode_pack(&bytes).expect("a pack");
            blocks.extend(index.blocks.iter().map(|block| (block.off, block.len)));
        }
        let packed = blocks.into_iter().any(|(off, len)| {
            let start = usize::try_from(off).expect("small");
            let record = bytes.slice(start..start + len as usize);
            format::open_block(&record).is_ok_and(|block| within(&block))
        });
        let shown = ledger.cat(&key).await.is_ok_and(|json| json.to_string().contains(&hex));
        if within(&bytes) || packed || shown {
            found.push(key);
        }
    }
    found
}

/// A put of several units at once, so that they share blocks.
async fn together(bench: &mut Bench, puts: &[(&str, &str, &[u8])]) {
    let mut draft = bench.draft(puts[0].0, &[]).await;
    draft.units.clear();
    for (unit, path, bytes) in puts {
        let one = bench.draft(unit, &[(path, bytes)]).await.units.remove(0);
        match draft.units.iter_mut().find(|known| known.unit == one.unit) {
            Some(known) => known.ops.extend(one.ops),
            None => draft.units.push(one),
        }
    }
    draft.units.sort_by(|a, b| a.unit.cmp(&b.unit));
    let Commit::Committed { passed, entry } = bench.send(&draft).await else { unreachable!("not committed") };
    bench.pass(&passed);
    bench.pass(&[*entry]);
}

/// A ledger in which secrets of every size were written, superseded, shared, moved by checkpoints and deleted.
async fn leaked() -> (Bench, Vec<Vec<u8>>) {
    let mut bench = timed().await;
    let mut secrets = Vec::new();
    let noise = |bench: &Bench, len: usize| -> Vec<u8> {
        let mut out = bench.env.random_bytes::<12_000>().to_vec();
        out.truncate(len);
        out
    };
    busy(&mut bench, 3).await;
    for (n, size) in [48, 700, 1500, 9000, 600].into_iter().enumerate() {
        let (secret, beside, other) = (noise(&bench, size), noise(&bench, 400), noise(&bench, 500));
        let path = format!("secret/{n}/raw");
        together(
            &mut bench,
            &[
                ("model/1", &path, &secret),
                ("model/1", &format!("beside/{n}"), &beside),
                ("model/2", &format!("shares/{n}"), &other),
            ],
        )
        .await;
        secrets.push(secret);
        if n == 1 {
            checkpoint(&bench.ledger, &forced()).await;
            sync(&mut bench).await;
        }
    }
    // One was deleted long before anybody thought of a purge; its neighbours live.
    let mut draft = bench.draft("model/1", &[]).await;
    draft.units[0].ops = vec![Op::Delete { path: "secret/4/raw".parse().expect("path"), rank: Rank::Current }];
    let Commit::Committed { entry, .. } = bench.send(&draft).await else { unreachable!("not committed") };
    bench.pass(&[*entry]);
    busy(&mut bench, 3).await;
    (bench, secrets)
}

fn others(files: &Files) -> Files {
    files.iter().filter(|((_, path), _)| !path.starts_with("secret/")).map(|(k, v)| (k.clone(), v.clone())).collect()
}

async fn is_gone(bench: &Bench, secrets: &[Vec<u8>], before: &Files) {
    let ledger = handle(bench, Arc::new(bench.memory.clone()));
    for secret in secrets {
        let held = holders(&bench.memory, &ledger, secret).await;
        assert!(held.is_empty(), "{} bytes of a secret are in {held:?}", secret.len());
    }
    let head = ledger.head().await.expect("head").state;
    assert_eq!(files(&ledger, &head).await.expect("files"), others(before), "everything else is as it was");
    let verified = ledger.verify(true).await.expect("verified");
    assert!(verified.findings.is_empty(), "{:?}", verified.findings);
}

#[tokio::test(start_paused = true)]
async fn a_purged_item_is_in_no_object_and_everything_else_is_as_it_was() {
    let (bench, secrets) = leaked().await;
    let before = files(&bench.ledger, &bench.state).await.expect("files");
    for secret in &secrets {
        assert!(!holders(&bench.memory, &bench.ledger, secret).await.is_empty(), "it can be found");
    }
    // Somebody left it staged, somebody else uploaded it and never said so.
    let draft = bench.draft("model/1", &[("secret/9/raw", &secrets[1])]).await;
    stage(&bench, &draft, None).await;
    let upload = bench.draft("model/1", &[("secret/9/raw", &secrets[3])]).await;
    let mut pack_id = || PackId::from_bytes([9; 16]);
    let section = format::plan(&upload, &bench.state, &params(), &RawPages(bench.memory.clone()), &mut pack_id).await;
    for (pack, body) in section.expect("planned").packs {
        bench.memory.put(&format!("pack/{:016x}-{}", pack.base.0, pack.id), body).await.expect("put");
    }

    let mark = bench.memory.keys();
    let plan = bench.ledger.plan_purge(&what("secret")).await.expect("planned");
    assert_eq!(bench.memory.keys(), mark, "a plan changes nothing");
    assert_eq!(plan.items.len(), 4);
    assert!(plan.in_history && plan.twins.is_empty() && plan.pins.is_empty());
    assert!(plan.again.iter().any(|(unit, path, _)| unit.to_string() == "model/2" && path.as_str() == "shares/1"));
    assert!(plan.again.iter().any(|(_, path, _)| path.as_str() == "beside/4"), "next to what was deleted before");
    let (_, done) = purge(&bench.ledger, &what("secret")).await;
    assert_eq!(done.items, 4);
    assert!(done.overwritten > 10 && done.collected.denied.is_none() && done.collected.left.is_empty(), "{done:?}");
    is_gone(&bench, &secrets, &before).await;
    assert!(done.floor >= plan.head, "nothing older can be read");

    // Again: there is nothing to do, and nothing to be found.
    let plan = bench.ledger.plan_purge(&what("secret")).await.expect("planned");
    assert!(plan.items.is_empty() && plan.again.is_empty() && !plan.in_history && plan.unfinished == 0, "{plan:?}");
    let (_, done) = purge(&bench.ledger, &what("secret")).await;
    assert_eq!((done.items, done.again), (0, 0));
    is_gone(&bench, &secrets, &before).await;
}

#[tokio::test(start_paused = true)]
async fn a_purge_killed_at_any_request_is_done_again_to_the_end() {
    let (bench, secrets) = leaked().await;
    let before = files(&bench.ledger, &bench.state).await.expect("files");
    let impatient = Purging { patience: Duration::from_millis(1), ..what("secret") };
    let mut tried = 0;
    // Each request is the last one once, applied or not in turn.
    for n in 1.. {
        let memory = bench.memory.fork();
        let dying = Dying::at(Arc::new(memory.clone()), n, n % 2 == 0);
        let killed: Result<Purged> = handle(&bench, dying.clone()).purge(&impatient, &|_, _| {}).await;
        if dying.lives() {
            killed.expect("it lived");
            break;
        }
        if n % 5 != 0 {
            continue;
        }
        tried += 1;
        let again = handle(&bench, Arc::new(memory.clone()));
        let now = again.head().await.expect("head").state;
        assert_eq!(others(&files(&again, &now).await.expect("files")), others(&before), "killed at {n}");
        purge(&again, &what("secret")).await;
        let copy = Bench::on(memory, params(), 99).await;
        for secret in &secrets {
            assert!(holders(&copy.memory, &copy.ledger, secret).await.is_empty(), "killed at {n}");
        }
    }
    assert!(tried > 10, "only {tried}");
}

#[tokio::test(start_paused = true)]
async fn r6_who_looked_a_moment_before_a_purge_meets_stubs_and_looks_again() {
    let (mut bench, _) = leaked().await;
    // A follower, a scoped reader and two writers are a few entries behind, and know that nothing goes so soon.
    let (behind, read_at) = (super::history::state_at(&bench.memory, Seq(7)).await.expect("state"), bench.read_at);
    let reader = handle(&bench, Arc::new(bench.memory.clone()));
    let cache = MapCache::default();
    let draft: Draft = bench.draft("model/9", &[("latest", b"x")]).await;
    bench.put("model/4", &[("latest", b"later")]).await;
    purge(&bench.peer(5).await.ledger, &what("secret")).await;
    let stub = bench.memory.get(&log_key(Seq(8)), Range::All).await.expect("get").expect("taken, still").bytes;
    assert_eq!(stub, Bytes::from(format::void_slot()));

    let Follow::Jump(state) = reader.follow(&behind, false).await.expect("followed") else { unreachable!("behind") };
    let head = reader.head().await.expect("head").state;
    assert_eq!(*state, head);
    let unit = "model/2".parse().expect("unit");
    let scoped = reader.scoped(&behind, false, &[(unit, Some(Seq(3)))], &cache).await.expect("scoped");
    assert_eq!(scoped.state.seq, head.seq);
    let sent = reader.commit(&behind, read_at, &draft, &bench.cache, 10_000).await.expect("sent");
    assert!(matches!(sent, Commit::Lost { why: Dead::Gone, .. }), "{sent:?}");
    let change = ChangeId::from_bytes([3; 16]);
    let found = reader.find_change(&behind, &"model/1".parse().expect("unit"), Seq(1), change, &bench.cache).await;
    assert_eq!(found.expect_err("nobody knows").code(), "history_gone");
    let lines = reader.log(&peat_ledger::LogQuery::newest(100), &cache).await.expect("the log").lines;
    assert!(lines.iter().all(|line| line.seq >= head.root.keep), "{lines:?}");
    assert_eq!(reader.cat(&log_key(Seq(8))).await.expect("json")["kind"], "void");
    // And so on from there.
    sync(&mut bench).await;
    bench.put("model/9", &[("latest", b"x")]).await;
}

#[tokio::test(start_paused = true)]
async fn overwritten_slots_stay_taken_for_a_day_and_go_with_a_later_collection() {
    let (mut bench, _) = leaked().await;
    let (_, done) = purge(&bench.ledger, &what("secret")).await;
    let stubs = |bench: &Bench| bench.memory.keys().iter().filter(|key| key.starts_with("log/")).count();
    let before = stubs(&bench);
    collect(&bench.ledger, &keep(1)).await;
    assert!(stubs(&bench) >= before, "nobody collects them at once");
    bench.env.sleep(DAY + Duration::from_secs(60)).await;
    sync(&mut bench).await;
    bench.put("model/4", &[("latest", b"later")]).await;
    collect(&bench.ledger, &keep(1)).await;
    let left = stubs(&bench);
    assert!(left as u64 + done.overwritten <= before as u64 + 2, "{left} of {before}");
    assert!(bench.ledger.verify(true).await.expect("verified").findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pin_of_an_older_state_refuses_a_purge_and_is_named() {
    let (bench, secrets) = leaked().await;
    let patience = Duration::from_secs(60);
    bench.ledger.pin("release-1", Some(Seq(4)), "ann@here", patience).await.expect("pinned");
    let plan = bench.ledger.plan_purge(&what("secret")).await.expect("planned");
    assert_eq!(plan.pins, [("release-1".to_owned(), Seq(4))]);
    let error = bench.ledger.purge(&what("secret"), &|_, _| {}).await.expect_err("pinned");
    assert_eq!((error.kind(), error.code()), (Kind::Conflict, "pinned"));
    assert!(error.to_string().contains("release-1"), "{error}");
    let after = bench.ledger.plan_purge(&what("secret")).await.expect("planned");
    assert_eq!((after.head, &after.items), (plan.head, &plan.items), "nothing was done by halves");
    assert!(!holders(&bench.memory, &bench.ledger, &secrets[1]).await.is_empty());
    bench.ledger.unpin("release-1", "ann@here", patience).await.expect("removed");
    purge(&bench.ledger, &what("secret")).await;
    assert!(holders(&bench.memory, &bench.ledger, &secrets[1]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn equal_bytes_elsewhere_are_named_and_what_is_not_there_is_said() {
    let (mut bench, secrets) = leaked().await;
    bench.put("model/3", &[("copy", &secrets[2])]).await;
    let plan = bench.ledger.plan_purge(&what("secret")).await.expect("planned");
    assert_eq!(plan.twins, [("model/3".parse().expect("unit"), "copy".parse().expect("path"))]);
    let plan = bench.ledger.plan_purge(&what("secr")).await.expect("planned");
    assert!(plan.items.is_empty() && !plan.in_history, "a folder is a whole segment: {plan:?}");
    let error = bench.ledger.plan_purge(&what("leases/model/1")).await.expect_err("a lease");
    assert_eq!(error.kind(), Kind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn a_purge_among_writers_loses_nothing_of_theirs() {
    for seed in 0..6 {
        let (bench, secrets) = leaked().await;
        let far = |seed| {
            let store: Arc<dyn Store> = Arc::new(bench.memory.clone());
            Arc::new(LatencyStore::new(store, &env(seed), Duration::from_millis(15), Duration::from_millis(30)))
        };
        let purger = handle(&bench, far(seed));
        let write = async {
            let mut writer = Bench::on(bench.memory.clone(), params(), seed + 50).await;
            writer.ledger = handle(&bench, far(seed + 100));
            for n in 0..12_u8 {
                bench.env.sleep(bench.env.jitter(Duration::from_millis(150))).await;
                loop {
                    sync(&mut writer).await;
                    let name = format!("later/{n}");
                    let draft = writer.draft("model/1", &[(name.as_str(), &[n; 300])]).await;
                    match writer.send(&draft).await {
                        Commit::Committed { .. } => break,
                        Commit::Lost { .. } => {}
                        other => unreachable!("{other:?}"),
                    }
                }
            }
        };
        let wanted = what("secret");
        let (done, ()) = tokio::join!(purger.purge(&wanted, &|_, _| {}), write);
        done.expect("purged");
        let ledger = handle(&bench, Arc::new(bench.memory.clone()));
        let head = ledger.head().await.expect("head").state;
        let now = files(&ledger, &head).await.expect("files");
        for n in 0..12_u8 {
            assert_eq!(
                now.get(&("model/1".into(), format!("later/{n}"))),
                Some(&Bytes::from(vec![n; 300])),
                "seed {seed}"
            );
        }
        for secret in &secrets {
            assert!(holders(&bench.memory, &ledger, secret).await.is_empty(), "seed {seed}");
        }
        assert!(ledger.verify(true).await.expect("verified").findings.is_empty(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lets_nothing_be_deleted_is_reported() {
    let (bench, _) = leaked().await;
    let store = deletes_nothing(Arc::new(bench.memory.clone()));
    let done = handle(&bench, store).purge(&what("secret"), &|_, _| {}).await.expect("as far as it goes");
    assert!(done.collected.denied.is_some() && !done.collected.left.is_empty(), "{done:?}");
    assert!(done.overwritten > 0, "slots are overwritten, which is no deletion");
    // Somebody with the right to delete goes on.
    let (_, done) = purge(&bench.ledger, &what("secret")).await;
    assert!(done.collected.denied.is_none() && !done.collected.deleted.is_empty());
}
