//! Faults, counts and URLs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peat_objects::{
    Count, Created, Fault, FaultStore, List, MemoryStore, Metered, Op, PrefixStore, Range, Rates, Store, StoreUrl,
};
use peat_testkit::clock::tokio_env;
use peat_types::Kind;

async fn has(store: &MemoryStore, key: &str) -> bool {
    matches!(store.get(key, Range::All).await, Ok(Some(_)))
}

fn faulty(seed: u64) -> (MemoryStore, FaultStore) {
    let memory = MemoryStore::new();
    let store = FaultStore::new(Arc::new(memory.clone()), &tokio_env(seed));
    (memory, store)
}

#[tokio::test(start_paused = true)]
async fn scripted_faults_do_what_they_say() {
    let (memory, store) = faulty(1);
    let log = |key: &str| key.starts_with("log/");
    store.script(Op::Create, log, 1, Fault::LostRequest);
    store.script(Op::Create, log, 2, Fault::LostReply);
    store.script(Op::Create, log, 3, Fault::Doubled);
    store.script(Op::Create, log, 4, Fault::Status(409));
    store.script(Op::Create, log, 5, Fault::AppliedStatus(500));
    store.script(Op::Create, log, 6, Fault::Late(Duration::from_secs(40)));
    assert!(store.create("tx/0", Bytes::new()).await.is_ok());
    for (key, applied) in [("log/1", false), ("log/2", true)] {
        assert_eq!(store.create(key, Bytes::new()).await.unwrap_err().kind(), Kind::Offline);
        assert_eq!(has(&memory, key).await, applied, "{key}");
    }
    assert_eq!(store.create("log/3", Bytes::new()).await.unwrap(), Created::Exists);
    assert!(has(&memory, "log/3").await);
    let error = store.create("log/4", Bytes::new()).await.unwrap_err();
    assert!(error.to_string().contains("create memory:/log/4: status 409"), "{error}");
    assert!(!has(&memory, "log/4").await);
    assert!(store.create("log/5", Bytes::new()).await.is_err());
    assert!(has(&memory, "log/5").await);
    let env = tokio_env(9);
    assert!(store.create("log/6", Bytes::new()).await.is_err());
    env.sleep(Duration::from_secs(39)).await;
    assert!(!has(&memory, "log/6").await);
    env.sleep(Duration::from_secs(2)).await;
    assert!(has(&memory, "log/6").await);
    assert!(matches!(store.create("log/7", Bytes::new()).await.unwrap(), Created::Created(_)));
    assert_eq!(store.fired().len(), 6);
}

#[tokio::test]
async fn a_stale_list_is_an_earlier_one() {
    let (_, store) = faulty(1);
    let list = List { prefix: "log/".to_owned(), ..List::default() };
    store.create("log/1", Bytes::new()).await.unwrap();
    let first = store.list(&list).await.unwrap();
    store.create("log/2", Bytes::new()).await.unwrap();
    store.script(Op::List, |_| true, 1, Fault::StaleList);
    assert_eq!(store.list(&list).await.unwrap(), first);
    assert_eq!(store.list(&list).await.unwrap().keys.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn chance_is_seeded() {
    let run = async |seed| {
        let (_, store) = faulty(seed);
        let late_by = Duration::from_secs(1);
        store.set_rates(Rates {
            lost_request: 0.1,
            lost_reply: 0.1,
            late: 0.1,
            status: 0.1,
            late_by,
            ..Rates::default()
        });
        for slot in 0..100 {
            let _ = store.create(&format!("log/{slot}"), Bytes::new()).await;
        }
        store.fired()
    };
    let fired = run(7).await;
    assert!((20..60).contains(&fired.len()), "{}", fired.len());
    assert_eq!(run(7).await, fired);
    assert_ne!(run(8).await, fired);
}

#[tokio::test]
async fn a_meter_counts_by_operation_and_first_segment() {
    let store = Metered::new(Arc::new(MemoryStore::new()));
    let meter = store.meter().clone();
    store.create("log/1", Bytes::from("12345")).await.unwrap();
    let before = meter.snapshot();
    store.get("log/1", Range::Part { offset: 1, len: 3 }).await.unwrap();
    store.get("log/2", Range::All).await.unwrap();
    store.put("beat/1", Bytes::from("1")).await.unwrap();
    store.list(&List { prefix: "log/".to_owned(), ..List::default() }).await.unwrap();
    let counts = meter.since(&before);
    assert_eq!(counts.total(), Count { requests: 4, bytes_in: 8, bytes_out: 1 });
    assert_eq!(counts.of(Op::Get), Count { requests: 2, bytes_in: 3, bytes_out: 0 });
    assert_eq!(counts.sum(|_, segment| segment != "beat").requests, 3);
    assert_eq!(counts.rows().count(), 3);
    assert_eq!(meter.snapshot().of(Op::Create).requests, 1);
}

#[tokio::test]
async fn a_store_names_itself() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    assert_eq!(PrefixStore::new(memory, "default").unwrap().to_string(), "memory:default");
}

#[test]
fn urls_read_and_print() {
    for (text, canonical) in [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://my.bucket/Team_A/peat/", "s3://my.bucket/Team_A/peat"),
        ("gs://bucket/", "gs://bucket"),
        ("gs://my.bucket/team_a/peat/", "gs://my.bucket/team_a/peat"),
        ("az://container/peat", "az://container/peat"),
        ("file:///srv/peat", "file:///srv/peat"),
        ("file:///srv//peat/", "file:///srv/peat"),
        ("file:///srv/with space", "file:///srv/with%20space"),
        ("memory:", "memory:"),
    ] {
        let url: StoreUrl = text.parse().unwrap();
        assert_eq!(url.to_string(), canonical);
        assert_eq!(canonical.parse::<StoreUrl>().unwrap(), url);
    }
}

#[test]
fn wrong_urls_say_what_to_write() {
    for (text, kind, hint) in [
        ("/srv/peat", Kind::Invalid, "write file:///srv/peat"),
        ("bucket", Kind::Invalid, "az://container/prefix or file:///absolute/folder"),
        ("file://srv/peat", Kind::Invalid, "write file:///absolute/folder"),
        ("s3://", Kind::Invalid, "s3://bucket/prefix"),
        ("s3://bucket//x", Kind::Invalid, "plain prefix"),
        ("s3://bucket/../x", Kind::Invalid, "plain prefix"),
        ("s3://bucket?region=x", Kind::Invalid, "settings of their own"),
        ("s3://AKIA:secret@bucket/x", Kind::Invalid, "AWS_ACCESS_KEY_ID"),
        ("https://s3.example.com/bucket", Kind::Invalid, "AWS_ENDPOINT_URL_S3=https://"),
        ("gcs://bucket/x", Kind::Invalid, "write gs://bucket/x"),
        ("gs://bucket/../x", Kind::Invalid, "gs://bucket/team/peat"),
        ("abfss://container@account.dfs.core.windows.net/x", Kind::Invalid, "az://container/prefix"),
        ("az://secret@container/x", Kind::Invalid, "AZURE_STORAGE_ACCOUNT"),
        ("az://c/x", Kind::Invalid, "az://container/prefix"),
        ("ftp://x/y", Kind::Invalid, "s3://bucket/prefix"),
    ] {
        let error = text.parse::<StoreUrl>().unwrap_err();
        assert_eq!(error.kind(), kind, "{text}");
        assert!(error.hints().iter().any(|h| h.contains(hint)), "{error:?}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
