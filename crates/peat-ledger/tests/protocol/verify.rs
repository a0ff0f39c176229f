//! Verification finds what is wrong and names it.

use peat_ledger::{Flaw, LogQuery, Params};
use peat_objects::{Range, Store};
use peat_types::Seq;

use super::bench::{Bench, log_key};
use super::checkpoint::{checkpoint, forced};

async fn sound() -> Bench {
    let mut bench = Bench::with(Params { inline_file: 2000, ..Params::default() }).await;
    for n in 0..6_u8 {
        let name = format!("model/{}", n % 3);
        bench
            .put(&name, &[(&format!("data/{n}"), &[n; 900]), (&format!("big/{n}"), &bench.env.random_bytes::<4000>())])
            .await;
    }
    bench
}

async fn findings(bench: &Bench, deep: bool) -> Vec<Flaw> {
    bench.ledger.verify(deep).await.expect("verified").findings
}

async fn spoil(bench: &Bench, key: &str, at: usize) {
    let mut bytes = bench.memory.get(key, Range::All).await.expect("get").expect("there").bytes.to_vec();
    bytes[at] ^= 1;
    bench.memory.put(key, bytes.into()).await.expect("put");
}

#[tokio::test(start_paused = true)]
async fn a_sound_ledger_has_no_findings() {
    let bench = sound().await;
    let verified = bench.ledger.verify(true).await.expect("verified");
    assert!(verified.findings.is_empty(), "{:?}", verified.findings);
    assert_eq!((verified.entries, verified.contents), (7, 12));
    let mut bench = Bench::new().await;
    for n in 0..4_u8 {
        bench.put("model/a", &[("data/1", &[n; 100])]).await;
    }
    assert!(findings(&bench, false).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_or_damaged_is_named() {
    let bench = sound().await;
    bench.memory.delete(&log_key(Seq(3))).await.expect("delete");
    assert!(
        findings(&bench, false)
            .await
            .iter()
            .any(|flaw| flaw.object == log_key(Seq(3)) && flaw.what.contains("missing"))
    );

    let bench = sound().await;
    spoil(&bench, &log_key(Seq(2)), 200).await;
    assert!(findings(&bench, false).await.iter().any(|flaw| flaw.object == log_key(Seq(2))));

    let bench = sound().await;
    let pack = bench.memory.keys().into_iter().find(|key| key.starts_with("pack/")).expect("a pack");
    spoil(&bench, &pack, 300).await;
    assert!(findings(&bench, false).await.is_empty(), "not looked into");
    assert!(findings(&bench, true).await.iter().any(|flaw| flaw.object == pack && flaw.path.is_some()));
    bench.memory.delete(&pack).await.expect("delete");
    assert!(findings(&bench, false).await.iter().any(|flaw| flaw.object == pack && flaw.what.contains("missing")));
}

#[tokio::test(start_paused = true)]
async fn the_log_reads_newest_first_and_every_object_as_json() {
    let bench = sound().await;
    let lines = bench.ledger.log(&LogQuery::newest(4), &bench.cache).await.expect("recent").lines;
    assert_eq!(lines.iter().map(|line| line.seq.0).collect::<Vec<_>>(), [6, 5, 4, 3]);
    assert_eq!(lines[0].txs[0].message, "a change");
    for key in bench.memory.keys() {
        let json = bench.ledger.cat(&key).await.expect("json");
        assert!(json.is_object(), "{key}: {json}");
    }
    assert!(bench.ledger.cat("log/nothing").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn tables_of_many_units_are_verified_in_few_reads() {
    let mut bench = Bench::new().await;
    for n in 0..40_u8 {
        bench.put(&format!("model/{n}"), &[("data/1", &[n; 100])]).await;
    }
    checkpoint(&bench.ledger, &forced()).await;
    let mark = bench.mark();
    let verified = bench.ledger.verify(false).await.expect("verified");
    assert!(verified.findings.is_empty(), "{:?}", verified.findings);
    let (requests, _) = bench.used(&mark);
    // ns.json, two listings, the head, directory, packs and tables.
    assert!(requests <= verified.entries + 8, "{requests} requests for {} entries", verified.entries);
}
