//! Looking back: the state of a time, what differs between two states, the chain of a unit, and what is no longer kept.

use std::time::Duration;

use peat_ledger::{LogQuery, Params};
use peat_objects::{MemoryStore, Store};
use peat_types::{Kind, Seq, Timestamp, Unit};

use super::bench::{Bench, MapCache, env, log_key};
use super::checkpoint::{checkpoint, forced};

const MINUTE: Duration = Duration::from_secs(60);

async fn timed() -> Bench {
    Bench::on(MemoryStore::with_clock(&env(1)), Params::default(), 1).await
}

/// A ledger with an entry each minute; entry `n` sets `model/<n % units>`.
async fn minutes(entries: u32, units: u32) -> Bench {
    let mut bench = timed().await;
    for n in 1..=entries {
        bench.env.sleep(MINUTE).await;
        bench.put(&format!("model/{}", n % units), &[("data/1", format!("{n}").as_bytes())]).await;
    }
    bench
}

fn unit(n: u32) -> Unit {
    format!("model/{n}").parse().expect("unit")
}

fn later(time: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(time.as_millis() + ms)
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_time_is_found_by_halving() {
    let bench = minutes(100, 7).await;
    let kept = bench.ledger.kept().await.expect("kept");
    let mut written = Vec::new();
    for seq in 0..=100 {
        written.push(bench.ledger.past(&kept, Seq(seq)).await.expect("kept").written);
    }
    for (seq, at) in written.iter().enumerate() {
        for (shift, expected) in [(0, Some(seq)), (1, Some(seq)), (-1, seq.checked_sub(1)), (59_000, Some(seq))] {
            let mark = bench.mark();
            let found = bench.ledger.past_at(&kept, later(*at, shift)).await;
            // One for the oldest, and one for each doubling of 101.
            assert!(bench.used(&mark).0 <= 1 + 7, "{} requests", bench.used(&mark).0);
            match expected {
                Some(expected) => assert_eq!(found.expect("found").state.seq.0, expected as u64, "{seq} {shift}"),
                None => assert_eq!(found.expect_err("none").code(), "state_not_kept"),
            }
        }
    }
    let error = bench.ledger.past_at(&kept, later(written[0], -1)).await.expect_err("before all");
    assert!(error.to_string().contains("before the ledger was created"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn where_the_store_tells_no_times_those_of_the_writers_count() {
    let mut bench = Bench::new().await;
    for n in 0..20 {
        bench.env.sleep(MINUTE).await;
        bench.put("model/a", &[("data/1", format!("{n}").as_bytes())]).await;
    }
    let kept = bench.ledger.kept().await.expect("kept");
    let wanted = bench.ledger.entry_at(&kept, Seq(13)).await.expect("entry").0.time;
    assert_eq!(bench.ledger.past_at(&kept, wanted).await.expect("found").state.seq, Seq(13));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_of_a_writer_moves_no_state_where_the_store_tells_times() {
    let mut bench = minutes(6, 1).await;
    // A year behind.
    let mut draft = bench.draft("model/b", &[("data/1", b"x")]).await;
    draft.time = Timestamp::from_millis(0);
    bench.env.sleep(MINUTE).await;
    bench.send(&draft).await;
    bench.put("model/c", &[("data/1", b"x")]).await;
    let kept = bench.ledger.kept().await.expect("kept");
    let fifth = bench.ledger.past(&kept, Seq(5)).await.expect("kept").written;
    assert_eq!(bench.ledger.past_at(&kept, later(fifth, 10)).await.expect("found").state.seq, Seq(5));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_kept_says_what_is() {
    let mut bench = minutes(12, 3).await;
    bench.collect(Seq(8)).await;
    let kept = bench.ledger.kept().await.expect("kept");
    let oldest = bench.ledger.past(&kept, Seq(8)).await.expect("kept").written.to_string();
    for error in [
        bench.ledger.past(&kept, Seq(7)).await.expect_err("gone"),
        bench.ledger.past_at(&kept, Timestamp::from_millis(0)).await.expect_err("gone"),
    ] {
        assert_eq!((error.kind(), error.code()), (Kind::NotFound, "state_not_kept"));
        let said = error.to_string();
        assert!(said.contains("entry 8") && said.contains(&oldest), "{said}");
    }
    let error = bench.ledger.entry_at(&kept, Seq(7)).await.expect_err("gone");
    assert!(error.code() == "entry_not_found" && error.to_string().contains("begins with entry 8"), "{error}");
    let error = bench.ledger.past(&kept, Seq(14)).await.expect_err("not yet");
    assert!(error.code() == "entry_not_found" && error.to_string().contains("the newest is 13"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_collection_that_overtakes_a_reader_is_no_damage() {
    let mut bench = minutes(12, 3).await;
    let peer = bench.peer(2).await;
    let kept = peer.ledger.kept().await.expect("kept");
    bench.collect(Seq(8)).await;
    assert_eq!(peer.ledger.past(&kept, Seq(9)).await.expect("kept").state.seq, Seq(9));
    assert_eq!(peer.ledger.past(&kept, Seq(5)).await.expect_err("gone").code(), "entry_not_found");
    assert_eq!(peer.ledger.entry_at(&kept, Seq(5)).await.expect_err("gone").code(), "entry_not_found");
    let chain = LogQuery { unit: Some(unit(1)), ..LogQuery::default() };
    let page = peer.ledger.log(&chain, &MapCache::default()).await.expect("log");
    assert_eq!(page.lines.iter().map(|line| line.seq.0).collect::<Vec<_>>(), [10], "7 and below are gone");
    assert_eq!((page.first, page.more), (Seq(8), false));
    // A hole above the floor is damage.
    peer.memory.delete(&log_key(Seq(9))).await.expect("delete");
    assert_eq!(peer.ledger.past(&kept, Seq(9)).await.expect_err("missing").kind(), Kind::Damaged);
}

#[tokio::test(start_paused = true)]
async fn a_slot_created_again_while_a_reader_slept_is_not_believed() {
    let mut bench = minutes(12, 3).await;
    let peer = bench.peer(2).await;
    let kept = peer.ledger.kept().await.expect("kept");
    let void = bench.memory.get(&log_key(Seq(5)), peat_objects::Range::All).await.expect("get").expect("there").bytes;
    bench.collect(Seq(8)).await;
    bench.memory.create(&log_key(Seq(5)), void).await.expect("create");
    peer.env.sleep(Duration::from_secs(3 * 3600)).await;
    assert_eq!(peer.ledger.past(&kept, Seq(5)).await.expect_err("void").code(), "state_not_kept");
    assert_eq!(peer.ledger.entry_at(&kept, Seq(5)).await.expect_err("void").code(), "entry_not_found");
}

#[tokio::test(start_paused = true)]
async fn comparing_two_states_costs_what_differs() {
    let mut bench = minutes(300, 150).await;
    for on in ["model/3", "model/77"] {
        bench.put(on, &[("data/1", b"other"), ("data/2", b"new")]).await;
    }
    let peer = bench.peer(2).await;
    let kept = peer.ledger.kept().await.expect("kept");
    let before = peer.ledger.past(&kept, Seq(300)).await.expect("kept");
    for after_a_checkpoint in [false, true] {
        let now = peer.ledger.kept().await.expect("kept").newest;
        let mark = peer.mark();
        let diffs = peer.ledger.compare(&before, &now, None, &MapCache::default()).await.expect("compared");
        let (requests, bytes) = peer.used(&mark);
        let found: Vec<String> = diffs
            .iter()
            .flat_map(|diff| {
                diff.files.iter().map(|(path, (was, _))| format!("{} {path} {}", diff.unit, was.is_some()))
            })
            .collect();
        let expected = ["model/3 data/1 true", "model/3 data/2 false", "model/77 data/1 true", "model/77 data/2 false"];
        assert_eq!(found, expected, "after a checkpoint: {after_a_checkpoint}");
        // Both directories whole after a checkpoint, else the pages on the way to two units.
        let most = if after_a_checkpoint { (40, 200_000) } else { (16, 60_000) };
        assert!(requests <= most.0 && bytes < most.1, "{requests} requests, {bytes} bytes");
        if !after_a_checkpoint {
            checkpoint(&bench.ledger, &forced()).await;
        }
    }
    // One unit: nothing is asked about others.
    let now = peer.ledger.kept().await.expect("kept").newest;
    let one = peer.ledger.compare(&before, &now, Some(&[unit(77), unit(9)]), &MapCache::default()).await;
    assert_eq!(one.expect("compared").iter().map(|diff| diff.files.len()).collect::<Vec<_>>(), [2]);
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_unit_follows_its_chain_one_get_for_each_entry() {
    let bench = minutes(200, 50).await;
    let peer = bench.peer(2).await;
    let mark = peer.mark();
    let query = LogQuery { unit: Some(unit(7)), ..LogQuery::default() };
    let page = peer.ledger.log(&query, &MapCache::default()).await.expect("log");
    assert_eq!(page.lines.iter().map(|line| line.seq.0).collect::<Vec<_>>(), [157, 107, 57, 7]);
    assert!(!page.more);
    // LIST and head, at most three pages of the directory, and the four entries.
    assert!(peer.used(&mark).0 <= 2 + 3 + 4, "{}", peer.used(&mark).0);

    let page = peer.ledger.log(&LogQuery { count: Some(2), ..query.clone() }, &MapCache::default()).await.expect("log");
    assert!(page.lines.len() == 2 && page.more);
    let since = page.lines[1].written;
    let recent = LogQuery { since: Some(since), ..query.clone() };
    assert_eq!(peer.ledger.log(&recent, &MapCache::default()).await.expect("log").lines.len(), 2);
    let from = LogQuery { from: Some(Seq(57)), ..query };
    assert_eq!(peer.ledger.log(&from, &MapCache::default()).await.expect("log").lines.len(), 3);
    let nobody = LogQuery { unit: Some("model/nobody".parse().expect("unit")), ..LogQuery::default() };
    assert!(peer.ledger.log(&nobody, &MapCache::default()).await.expect("log").lines.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_log_since_a_time_stops_there() {
    let bench = minutes(100, 7).await;
    let since = bench.ledger.log(&LogQuery::newest(10), &bench.cache).await.expect("log").lines[9].written;
    let mark = bench.mark();
    let page =
        bench.ledger.log(&LogQuery { since: Some(since), ..LogQuery::default() }, &bench.cache).await.expect("log");
    assert_eq!(page.lines.iter().map(|line| line.seq.0).collect::<Vec<_>>(), (91..=100).rev().collect::<Vec<_>>());
    // One LIST, and what is read ahead at most.
    assert!(bench.used(&mark).0 <= 1 + 16, "{}", bench.used(&mark).0);
}
