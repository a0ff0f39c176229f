//! Stores that are busy, and listings that are not what they should be.

use std::time::Duration;

use peat_ledger::{Commit, LogQuery};
use peat_objects::{List, Page, Store};
use peat_types::{Error, Kind, Seq};

use super::bench::{Bench, log_key};

fn busy(pause: u64) -> Error {
    Error::new(Kind::Offline, "status 429").with_code("store_busy").with_retry_after(Duration::from_secs(pause))
}

fn logs(bench: &Bench) -> usize {
    bench.memory.keys().iter().filter(|key| key.starts_with("log/")).count()
}

#[tokio::test(start_paused = true)]
async fn f14_a_create_waits_as_asked_and_looks_before_it_tries_again() {
    let bench = Bench::new().await;
    let draft = bench.draft("model/a", &[("data/1", b"a")]).await;
    let left = std::sync::atomic::AtomicU32::new(3);
    bench.hooks.on_create(move |_| {
        let refuse =
            left.fetch_update(std::sync::atomic::Ordering::Relaxed, std::sync::atomic::Ordering::Relaxed, |n| {
                n.checked_sub(1)
            });
        refuse.is_ok().then(|| Err(busy(5)))
    });
    let (mark, begin) = (bench.mark(), bench.env.monotonic());
    assert!(matches!(bench.send(&draft).await, Commit::Committed { .. }));
    assert!(bench.env.monotonic() - begin >= Duration::from_secs(15));
    assert_eq!((bench.used(&mark).0, logs(&bench)), (4 + 3, 2), "a look at the slot after every refusal");
}

#[tokio::test(start_paused = true)]
async fn a_pause_longer_than_the_patience_is_told_at_once() {
    let bench = Bench::new().await;
    let draft = bench.draft("model/a", &[("data/1", b"a")]).await;
    for read_too in [false, true] {
        bench.hooks.on_create(|_| Some(Err(busy(3600))));
        if read_too {
            bench.hooks.on_get(|key, object| if key.starts_with("log/") { Err(busy(3600)) } else { Ok(object) });
        }
        let (mark, begin) = (bench.mark(), bench.env.monotonic());
        let sent = bench.send(&draft).await;
        let Commit::Unknown { error, .. } = sent else { unreachable!("{sent:?}") };
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3600)));
        assert!(bench.env.monotonic() - begin < Duration::from_secs(1));
        assert_eq!(bench.used(&mark).0, 2);
    }
    assert_eq!(logs(&bench), 1);
}

/// What a client that knows nothing yet does with a store that lists like this.
async fn newcomer(lists: impl Fn(&List, Page) -> Page + Send + Sync + 'static) -> (Bench, Error) {
    let mut bench = Bench::new().await;
    for n in 0..9_u8 {
        bench.put("model/a", &[("data/1", &[n])]).await;
    }
    let keys = bench.memory.keys();
    bench.hooks.on_list(move |list, page| Ok(lists(list, page)));
    let error = bench.ledger.head().await.expect_err("a listing that is wrong");
    assert_eq!(bench.memory.keys(), keys, "nothing was written");
    (bench, error)
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_listed_out_of_order_is_reported() {
    // Oldest first.
    let (bench, error) = newcomer(|_, page| {
        let mut page = page;
        page.keys.reverse();
        page
    })
    .await;
    assert_eq!((error.kind(), error.code()), (Kind::Damaged, "bad_listing"), "{error:?}");
    assert_eq!(bench.ledger.log(&LogQuery::newest(5), &bench.cache).await.expect_err("order").code(), "bad_listing");
    bench.hooks.calm();
    assert_eq!(bench.ledger.head().await.expect("head").state.seq, Seq(9));

    // In no order at all, the first two by chance a later one before an earlier one.
    let (_, error) = newcomer(|list, page| {
        let order: &[u64] = if list.token.is_none() { &[6, 3] } else { &[9, 1, 8, 0, 7, 2, 5, 4] };
        let mut page = page;
        let template = page.keys[0].clone();
        page.keys =
            order.iter().map(|seq| peat_objects::Listed { key: log_key(Seq(*seq)), ..template.clone() }).collect();
        page.token = list.token.is_none().then(|| "rest".to_owned());
        page
    })
    .await;
    assert_eq!(error.code(), "bad_listing", "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_never_ends_is_reported() {
    let (_, error) = newcomer(|_, _| Page { token: Some("again".to_owned()), ..Page::default() }).await;
    assert_eq!((error.kind(), error.code()), (Kind::Damaged, "bad_listing"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn slots_missing_below_the_floor_are_no_disorder() {
    let mut bench = Bench::new().await;
    for n in 0..9_u8 {
        bench.put("model/a", &[("data/1", &[n])]).await;
    }
    bench.collect(Seq(10)).await;
    // A collector on its way removed some of what is void.
    for seq in [1, 2, 3] {
        bench.memory.put(&log_key(Seq(seq)), bytes::Bytes::from_static(b"void")).await.expect("put");
    }
    assert_eq!(bench.ledger.head().await.expect("head").state.seq, Seq(10));
}

/// A portal that answers everything with its own page, as a success.
#[tokio::test(start_paused = true)]
async fn a_page_of_html_is_never_data() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", &[7; 200])]).await;
    let row = bench.ledger.unit(&bench.state, &"model/a".parse().expect("unit"), &bench.cache).await;
    let row = row.expect("row").expect("there");
    let table = bench.ledger.tables(&[&row], &bench.cache).await.expect("table").remove(0);
    let draft = bench.draft("model/a", &[("data/2", b"a")]).await;
    let keys = bench.memory.keys();
    bench.hooks.on_get(|_, object| {
        Ok(object.map(|mut object| {
            object.bytes = bytes::Bytes::from_static(b"<html><body><h1>Welcome to the hotel</h1></body></html>");
            object.size = object.bytes.len() as u64;
            object
        }))
    });
    let damaged = |error: Error| assert!(matches!(error.kind(), Kind::Damaged | Kind::NotFound), "{error:?}");
    damaged(bench.ledger.head().await.expect_err("head"));
    damaged(bench.ledger.log(&LogQuery::newest(3), &bench.cache).await.expect_err("log"));
    damaged(bench.ledger.contents(&[&table[0].2], &[]).await.expect_err("contents"));
    damaged(bench.ledger.cat("ns.json").await.expect_err("cat"));
    let store = std::sync::Arc::new(bench.hooks.clone());
    let (clone, instance) = (peat_types::CloneId::random(&bench.env), peat_types::InstanceId::random(&bench.env));
    let opened = peat_ledger::Ledger::open(store.clone(), &bench.env, clone, instance).await;
    damaged(opened.expect_err("open"));
    let new = super::bench::new_ledger("repo", peat_ledger::Params::default());
    damaged(peat_ledger::Ledger::create(store, &bench.env, new, clone, instance).await.expect_err("create"));
    // A slot that was lost to a page is not built upon.
    bench.hooks.on_create(|_| Some(Ok(peat_objects::Created::Exists)));
    bench.memory.put(&log_key(Seq(2)), bytes::Bytes::from_static(b"<html></html>")).await.expect("put");
    let sent = bench.ledger.commit(&bench.state, bench.read_at, &draft, &bench.cache, 30_000).await;
    damaged(sent.expect_err("commit"));
    bench.memory.delete(&log_key(Seq(2))).await.expect("delete");
    assert_eq!(bench.memory.keys(), keys, "nothing was written");
}
