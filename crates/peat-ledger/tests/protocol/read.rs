//! What readers believe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{Content, FileRow, Follow, Ledger, NsInfo, Params};
use peat_objects::{Fault, FaultStore, MemoryStore, Object, Op, Range, Store};
use peat_types::{CloneId, Error, InstanceId, Kind, LedgerId, Seq};

use super::bench::{Bench, MapCache, log_key};

fn handle(bench: &Bench, memory: MemoryStore, info: NsInfo) -> Ledger {
    Ledger::with_info(Arc::new(memory), &bench.env, info, CloneId::random(&bench.env), InstanceId::random(&bench.env))
}

#[tokio::test(start_paused = true)]
async fn study_13_a8_a_log_that_went_back_is_a_rollback() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let backup = bench.memory.fork();
    bench.put("model/a", &[("data/2", b"b")]).await;
    let ledger = handle(&bench, backup.clone(), bench.ledger.info().clone());
    let error = ledger.follow(&bench.state, true).await.expect_err("went back");
    assert_eq!((error.kind(), error.code()), (Kind::Damaged, "rollback"));
    let error = ledger.scoped(&bench.state, true, &[], &bench.cache).await.expect_err("went back");
    assert_eq!(error.code(), "rollback");
    // The probe of the next slot cannot notice; what the process has seen since can.
    for key in bench.memory.keys().into_iter().filter(|key| !backup.keys().contains(key)) {
        bench.memory.delete(&key).await.expect("delete");
    }
    let error = bench.ledger.head().await.expect_err("this handle saw more");
    assert_eq!(error.code(), "rollback");
    let behind = handle(&bench, backup.clone(), bench.ledger.info().clone()).head().await.expect("head").state;
    let error = bench.ledger.follow(&behind, false).await.expect_err("an absent slot that was seen");
    assert_eq!(error.code(), "rollback");
    assert_eq!(bench.memory.keys(), backup.keys(), "nothing was touched");
}

#[tokio::test(start_paused = true)]
async fn a8_a_listing_that_lags_is_no_rollback() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let store = FaultStore::new(Arc::new(bench.memory.clone()), &bench.env);
    let info = bench.ledger.info().clone();
    let (clone, instance) = (CloneId::random(&bench.env), InstanceId::random(&bench.env));
    let ledger = Ledger::with_info(Arc::new(store.clone()), &bench.env, info, clone, instance);
    ledger.follow(&bench.state, true).await.expect("the listing to be repeated");
    let unit = [("model/b".parse().expect("unit"), None)];
    let before = bench.state.clone();
    bench.put("model/b", &[("data/1", b"b")]).await;
    store.script_times(Op::List, |_| true, 1, 3, Fault::StaleList);
    let followed = ledger.follow(&bench.state, true).await.expect("follow");
    assert!(matches!(followed, Follow::Unchanged), "{followed:?}");
    let scoped = ledger.scoped(&before, false, &unit, &bench.cache).await.expect("scoped");
    assert_eq!((scoped.state.seq, scoped.units.len()), (bench.state.seq, 1));
    assert_eq!(ledger.head().await.expect("head").state, bench.state);
}

#[tokio::test(start_paused = true)]
async fn study_13_a8_another_history_and_another_ledger_are_forks() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let copy = bench.memory.fork();
    bench.put("model/a", &[("data/2", b"b")]).await;
    let mut other = Bench::on(copy.clone(), Params::default(), 3).await;
    other.put("model/b", &[("data/1", b"b")]).await;
    other.put("model/b", &[("data/2", b"b")]).await;
    for list in [false, true] {
        let ledger = handle(&bench, copy.clone(), bench.ledger.info().clone());
        let error = ledger.follow(&bench.state, list).await.expect_err("another history");
        assert_eq!((error.kind(), error.code()), (Kind::Damaged, "fork"), "{error:?}");
        let error = ledger.scoped(&bench.state, list, &[], &bench.cache).await;
        assert!(list || error.expect_err("another history").code() == "fork");
    }
    let mut info = bench.ledger.info().clone();
    info.ledger = LedgerId::from_bytes([1; 16]);
    let error = handle(&bench, bench.memory.clone(), info).head().await.expect_err("another ledger");
    assert_eq!(error.code(), "fork");
}

#[tokio::test(start_paused = true)]
async fn r6_a_reader_behind_the_floor_takes_no_slot_for_news() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let mut peer = bench.peer(2).await;
    for n in 0..6 {
        peer.put(&format!("model/x{n}"), &[("data/1", b"x")]).await;
    }
    peer.collect(Seq(6)).await;
    // The slot after the reader's is gone.
    let followed = bench.ledger.follow(&bench.state, true).await.expect("follow");
    assert!(matches!(&followed, Follow::Jump(state) if **state == peer.state), "{followed:?}");
    // Somebody who slept created it again, with other bytes.
    let zombie = bench.draft("model/z", &[("data/1", b"z")]).await;
    let sleeper = bench.peer(3).await;
    let sent = sleeper.ledger.commit(&bench.state, bench.env.monotonic(), &zombie, &bench.cache, 1000).await;
    assert!(sent.is_ok() && bench.memory.keys().contains(&log_key(Seq(2))));
    for list in [false, true] {
        let units = [("model/a".parse().expect("unit"), Some(Seq(1))), ("model/x3".parse().expect("unit"), None)];
        let scoped = bench.ledger.scoped(&bench.state, list, &units, &MapCache::default()).await.expect("scoped");
        assert_eq!((&scoped.state.seq, scoped.units.len()), (&peer.state.seq, 1));
        assert!(scoped.entries.iter().all(|entry| entry.state.seq >= Seq(6)));
    }
    let followed = bench.ledger.follow(&bench.state, true).await.expect("follow");
    assert!(matches!(&followed, Follow::Jump(state) if **state == peer.state), "{followed:?}");
    // Slots below K that are still there are void as well.
    let mut late = Bench::new().await;
    for n in 0..3 {
        late.put(&format!("model/x{n}"), &[("data/1", b"x")]).await;
    }
    let start = late.state.clone();
    late.put("model/a", &[("data/1", b"a")]).await;
    let keep = late.state.seq.next();
    let copy = late.memory.fork();
    late.collect(keep).await;
    let gc = late.memory.get(&log_key(keep), Range::All).await.expect("get").expect("there");
    copy.create(&log_key(keep), gc.bytes).await.expect("create");
    let ledger = handle(&late, copy, late.ledger.info().clone());
    let followed = ledger.follow(&start, false).await.expect("follow");
    assert!(matches!(&followed, Follow::Jump(state) if state.seq == keep), "{followed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hole_in_the_log_is_damage() {
    let mut bench = Bench::new().await;
    let start = bench.state.clone();
    for n in 0..3 {
        bench.put("model/a", &[("data/1", format!("{n}").as_bytes())]).await;
    }
    bench.memory.delete(&log_key(Seq(2))).await.expect("delete");
    let error = bench.ledger.follow(&start, true).await.expect_err("damaged");
    assert_eq!(error.kind(), Kind::Damaged);
    assert!(error.to_string().contains(&log_key(Seq(2))), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a7_only_a_definite_404_is_absence() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let unit = [("model/a".parse().expect("unit"), None)];
    for kind in [Kind::Offline, Kind::Denied, Kind::Damaged] {
        bench.hooks.on_get(move |_, _| Err(Error::new(kind, "no")));
        let error = bench.ledger.follow(&bench.state, false).await.expect_err("nothing is known");
        assert_eq!(error.kind(), kind);
        let error = bench.ledger.scoped(&bench.state, false, &unit, &bench.cache).await.expect_err("nothing is known");
        assert_eq!(error.kind(), kind);
    }
}

/// A unit with a content of each kind: in its row, in an entry, in a pack.
async fn contents() -> (Bench, Vec<FileRow>) {
    let mut bench = Bench::with(Params { inline_file: 2000, ..Params::default() }).await;
    let files: [(&str, &[u8]); 3] = [("data/large", &[3; 9000]), ("data/small", &[2; 900]), ("data/tiny", b"1")];
    bench.put("model/a", &files).await;
    let row = bench.ledger.unit(&bench.state, &"model/a".parse().expect("unit"), &bench.cache).await.expect("unit");
    let table = bench.ledger.tables(&[&row.expect("there")], &bench.cache).await.expect("table").remove(0);
    (bench, table.into_iter().map(|(_, _, row)| row).collect())
}

#[tokio::test(start_paused = true)]
async fn contents_are_read_together_and_verified() {
    let (bench, rows) = contents().await;
    let mark = bench.mark();
    let read = bench.ledger.contents(&rows.iter().collect::<Vec<_>>(), &[]).await.expect("contents");
    assert_eq!(read.iter().map(Bytes::len).collect::<Vec<_>>(), [9000, 900, 1]);
    assert_eq!(bench.used(&mark).0, 2, "one read for the entry, one for the pack");
    let head = bench.ledger.head().await.expect("head");
    let mark = bench.mark();
    bench.ledger.contents(&[&rows[1], &rows[2]], &[head]).await.expect("contents");
    assert_eq!(bench.used(&mark).0, 0, "all of it is at hand");
}

fn flip(object: &Object, at: usize) -> Object {
    let mut bytes = object.bytes.to_vec();
    bytes[at] ^= 1;
    Object { bytes: bytes.into(), ..object.clone() }
}

#[tokio::test(start_paused = true)]
async fn study_15_damaged_bytes_are_fetched_once_more_and_then_named() {
    let (bench, rows) = contents().await;
    let Content::At(at) = &rows[0].content else { unreachable!("in a pack") };
    let place = at.block.off;
    for (bad, good) in [(1, true), (2, false)] {
        let count = AtomicU32::new(0);
        bench.hooks.on_get(move |key, object| {
            let hit = key.starts_with("pack/") && count.fetch_add(1, Ordering::Relaxed) < bad;
            Ok(if hit { object.map(|object| flip(&object, 20)) } else { object })
        });
        let read = bench.ledger.contents(&[&rows[0]], &[]).await;
        assert_eq!(read.is_ok(), good);
        if let Err(error) = read {
            assert_eq!(error.kind(), Kind::Damaged);
            let text = error.to_string();
            assert!(text.contains("pack/") && text.contains(&format!("offset {place}")), "{text}");
        }
    }
    // An intact record with another content is no better.
    let mut wrong = rows[0].clone();
    wrong.hash = peat_types::Hash::of(b"something else");
    bench.hooks.calm();
    assert_eq!(bench.ledger.contents(&[&wrong], &[]).await.expect_err("hash").kind(), Kind::Damaged);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_is_named_with_its_offset() {
    let (bench, rows) = contents().await;
    let pack = bench.memory.keys().into_iter().find(|key| key.starts_with("pack/")).expect("a pack");
    bench.memory.delete(&pack).await.expect("delete");
    let error = bench.ledger.contents(&[&rows[0]], &[]).await.expect_err("gone");
    assert!(Ledger::is_gone(&error) && error.to_string().contains(&pack), "{error}");
    assert!(error.to_string().contains("offset"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_cache_costs_requests_only() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    bench.put("model/b", &[("data/1", b"a")]).await;
    bench.cache.damage();
    let directory = bench.ledger.directory(&bench.state, &bench.cache).await.expect("directory");
    assert_eq!(directory.len(), 2);
    bench.cache.damage();
    bench.put("model/a", &[("data/2", b"b")]).await;
}

#[tokio::test(start_paused = true)]
async fn an_entry_damaged_on_the_way_is_fetched_again() {
    let mut bench = Bench::new().await;
    let start = bench.state.clone();
    bench.put("model/a", &[("data/1", b"a")]).await;
    let count = AtomicU32::new(0);
    bench.hooks.on_get(move |key, object| {
        let hit =
            key.starts_with("log/") && object.is_some() && count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        Ok(if hit { object.map(|object| flip(&object, 100)) } else { object })
    });
    let followed = bench.ledger.follow(&start, false).await.expect("follow");
    assert!(matches!(&followed, Follow::Entries(entries) if entries.len() == 1), "{followed:?}");
    let unit = [("model/a".parse().expect("unit"), None)];
    assert_eq!(bench.ledger.scoped(&start, false, &unit, &MapCache::default()).await.expect("scoped").units.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn other_things_in_the_log_folder_do_not_hide_the_head() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    for key in ["log/0", "log/00.tmp", "log/fffffffffffffffe.7"] {
        bench.memory.put(key, Bytes::from_static(b"junk")).await.expect("put");
    }
    assert_eq!(bench.ledger.head().await.expect("head").state.seq, Seq(1));
    assert!(matches!(bench.ledger.follow(&bench.state, true).await.expect("follow"), Follow::Unchanged));
    bench.env.sleep(Duration::from_secs(1)).await;
}
