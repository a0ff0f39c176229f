//! Who stood still while the slots it knew were collected, and created again by somebody who slept as well: what it finds
//! there is void (R6), so nothing of it is damage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use peat_ledger::{Commit, Dead, Ledger, State};
use peat_objects::{Range, Store};
use peat_types::{Error, Kind, Seq};

use super::bench::{Bench, MapCache, log_key};
use super::checkpoint::{busy, checkpoint, forced, sync};
use super::gc::{DAY, collect, keep, timed};
use super::history::handle;

/// A ledger whose slots up to the state are void, and hold what another history left there; the state from before that.
async fn slept() -> (Bench, State) {
    let mut bench = timed().await;
    busy(&mut bench, 8).await;
    let (before, old) = (bench.memory.fork(), bench.state.clone());
    checkpoint(&bench.ledger, &forced()).await;
    bench.env.sleep(DAY * 60).await;
    sync(&mut bench).await;
    busy(&mut bench, 3).await;
    checkpoint(&bench.ledger, &forced()).await;
    bench.env.sleep(DAY * 60).await;
    collect(&bench.ledger, &keep(1)).await;
    sync(&mut bench).await;
    assert!(bench.state.root.keep > old.seq, "{} {}", bench.state.root.keep, old.seq);
    // Entries as sleepers would make them: of this ledger, and with other things at the same places.
    let mut other = Bench::on(before, super::checkpoint::params(), 77).await;
    let mut bytes = Vec::new();
    for n in 0..8_u64 {
        other.put(&format!("model/{}", n % 5), &[("other", &other.env.random_bytes::<900>())]).await;
        bytes.push(other.memory.get(&log_key(other.state.seq), Range::All).await.expect("get").expect("there").bytes);
    }
    for (slot, body) in (1..).zip(bytes) {
        bench.memory.create(&log_key(Seq(slot)), body).await.expect("created again");
    }
    (bench, old)
}

fn is_gone(error: &Error) -> bool {
    Ledger::is_gone(error)
}

#[tokio::test(start_paused = true)]
async fn r6_what_lies_in_void_slots_is_gone_and_not_damaged() {
    let (bench, old) = slept().await;
    let cache = MapCache::default();
    let error = bench.ledger.directory(&old, &cache).await.expect_err("void");
    assert!(is_gone(&error), "{error:?}");
    let unit = "model/1".parse().expect("unit");
    let error = bench.ledger.unit(&old, &unit, &cache).await.expect_err("void");
    assert!(is_gone(&error), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn r6_tables_and_contents_of_a_clone_that_slept_are_gone_and_not_damaged() {
    // Rows as a clone noted them, read before it slept.
    let mut bench = timed().await;
    busy(&mut bench, 8).await;
    let cache = MapCache::default();
    let rows: Vec<_> = bench.ledger.directory(&bench.state, &cache).await.expect("directory");
    let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    let tables = bench.ledger.tables(&rows.iter().collect::<Vec<_>>(), &cache).await.expect("tables");
    let files: Vec<_> = tables.into_iter().flatten().map(|(_, _, row)| row).collect();
    checkpoint(&bench.ledger, &forced()).await;
    bench.env.sleep(DAY * 60).await;
    collect(&bench.ledger, &keep(1)).await;
    for slot in 0..=8 {
        bench.memory.put(&log_key(Seq(slot)), vec![7; 9000].into()).await.expect("put");
    }
    let error = bench.ledger.tables(&rows.iter().collect::<Vec<_>>(), &MapCache::default()).await.expect_err("void");
    assert!(is_gone(&error), "{error:?}");
    let inline = files.iter().find(|row| row.size == 700).expect("in an entry");
    let error = bench.ledger.contents(&[inline], &[]).await.expect_err("void");
    assert!(is_gone(&error), "{error:?}");
    // A slot that is valid tells of damage as before.
    sync(&mut bench).await;
    bench.put("model/1", &[("data/9999", &[9; 900])]).await;
    bench.memory.put(&log_key(bench.state.seq), vec![7; 9000].into()).await.expect("put");
    let ledger = handle(&bench, Arc::new(bench.memory.clone()));
    let error = ledger.head().await.expect_err("damaged");
    assert_eq!(error.kind(), Kind::Damaged);
}

#[tokio::test(start_paused = true)]
async fn r6_a_change_that_would_lie_in_a_void_slot_cannot_be_told() {
    let (bench, old) = slept().await;
    let unit = "model/1".parse().expect("unit");
    let (state, cache) = (old, bench.cache);
    let change = peat_types::ChangeId::from_bytes([5; 16]);
    let found = bench.ledger.find_change(&state, &unit, Seq::ZERO, change, &cache).await;
    let error = found.expect_err("nobody knows");
    assert_eq!(error.code(), "history_gone", "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn r6_a_commit_on_a_head_known_in_part_that_is_void_by_now_is_lost() {
    let (mut bench, old) = slept().await;
    let draft = bench.draft("model/1", &[("latest", b"x")]).await;
    bench.state = State { hash: [0; 16], ..old };
    let sent = bench.send(&draft).await;
    assert!(matches!(sent, Commit::Lost { why: Dead::Gone, .. }), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn r6_a_head_that_was_listed_long_before_it_was_read_is_looked_at_again() {
    let mut bench = timed().await;
    busy(&mut bench, 8).await;
    // Between the listing and the read: two months of others, who collect the slot; a sleeper creates it again.
    let zombie = bench.memory.get(&log_key(bench.state.seq), Range::All).await.expect("get").expect("there").bytes;
    let slot = bench.state.seq;
    let pages = bench.memory.fork();
    checkpoint(&bench.ledger, &forced()).await;
    bench.env.sleep(DAY * 60).await;
    sync(&mut bench).await;
    busy(&mut bench, 3).await;
    collect(&bench.ledger, &keep(1)).await;
    bench.memory.create(&log_key(slot), zombie).await.expect("created again");
    sync(&mut bench).await;
    let calls = Arc::new(AtomicU32::new(0));
    let (count, env) = (calls.clone(), bench.env.clone());
    let old = pages.list(&peat_objects::List { prefix: "log/".into(), max_keys: Some(2), ..Default::default() }).await;
    let old = old.expect("listed");
    bench.hooks.on_list(move |_, page| Ok(if count.fetch_add(1, Ordering::Relaxed) == 0 { old.clone() } else { page }));
    let stall = env.clone();
    let reader = handle(&bench, Arc::new(Stalling(bench.hooks.clone(), stall)));
    let head = reader.head().await.expect("head").state;
    assert_eq!(head.seq, bench.state.seq, "not the void slot {slot}");
    assert!(calls.load(Ordering::Relaxed) >= 2);
}

/// Stands still for a day before each read.
#[derive(Debug)]
struct Stalling(super::bench::Hooked, peat_types::Env);

impl std::fmt::Display for Stalling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stalling:")
    }
}

#[async_trait::async_trait]
impl Store for Stalling {
    async fn get(&self, key: &str, range: Range) -> peat_types::Result<Option<peat_objects::Object>> {
        self.1.sleep(Duration::from_secs(24 * 3600)).await;
        self.0.get(key, range).await
    }

    async fn create(&self, key: &str, body: bytes::Bytes) -> peat_types::Result<peat_objects::Created> {
        self.0.create(key, body).await
    }

    async fn put(&self, key: &str, body: bytes::Bytes) -> peat_types::Result<peat_objects::Meta> {
        self.0.put(key, body).await
    }

    async fn list(&self, list: &peat_objects::List) -> peat_types::Result<peat_objects::Page> {
        self.0.list(list).await
    }

    async fn delete(&self, key: &str) -> peat_types::Result<()> {
        self.0.delete(key).await
    }
}
