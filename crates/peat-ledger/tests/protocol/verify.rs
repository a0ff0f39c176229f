//! Verification finds what is wrong and names it.

use bytes::Bytes;
use peat_ledger::{Flaw, LogQuery, Params, State, format};
use peat_objects::{Op, Range, Store};
use peat_types::{CloneId, EntryId, InstanceId, PackId, Seq, TxId, Unit};

use super::bench::{Bench, RawPages, log_key};
use super::checkpoint::{checkpoint, forced, sync};

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

/// However the tables of units lie in it: whole entries, and packs of pages.
#[tokio::test(start_paused = true)]
async fn every_entry_and_every_pack_of_pages_is_read_once() {
    let mut bench = sound().await;
    checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    for n in 0..30_u8 {
        bench.put(&format!("model/{}", n % 9), &[(&format!("data/late-{n}"), &[n; 900])]).await;
    }
    let mark = bench.mark();
    let verified = bench.ledger.verify(false).await.expect("verified");
    assert!(verified.findings.is_empty(), "{:?}", verified.findings);
    assert_eq!(verified.entries, 38);
    let used = bench.metered.meter().since(&mark);
    let gets = |of: &str| used.sum(|op, segment| op == Op::Get && segment == of).requests;
    assert_eq!((gets("log"), gets("pack"), gets("ns.json")), (38, 1, 1), "{used}");
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

/// What somebody with a defect makes of a state.
type Defect = fn(&mut State);

/// An entry of somebody with a defect: built on the newest state as `change` leaves that.
async fn forge(bench: &mut Bench, change: impl FnOnce(&mut State)) -> Seq {
    let draft = bench.draft("model/0", &[("data/forged", b"a change like any other")]).await;
    let mut state = bench.state.clone();
    change(&mut state);
    let (params, pages) = (bench.ledger.info().params.clone(), RawPages(bench.memory.clone()));
    let mut id = || unreachable!("small");
    let section = format::plan(&draft, &bench.state, &params, &pages, &mut id).await.expect("plan");
    let writer = format::Writer {
        clone: CloneId::random(&bench.env),
        instance: InstanceId::random(&bench.env),
        time: bench.env.now(),
    };
    let entry = EntryId::random(&bench.env);
    let (body, _) = format::build_entry(&state, &[section], entry, writer, &params, &pages).await.expect("build");
    let seq = state.seq.next();
    bench.memory.create(&log_key(seq), body).await.expect("create");
    seq
}

fn has(found: &[Flaw], object: &str, unit: Option<&str>, what: &str) -> bool {
    found
        .iter()
        .any(|flaw| flaw.object == object && flaw.unit.as_ref().map(Unit::as_str) == unit && flaw.what.contains(what))
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_loses_a_row_of_the_directory_is_named_with_the_unit() {
    let mut bench = sound().await;
    let old = bench.state.root.directory;
    bench.put("model/late", &[("data/1", &[1; 500])]).await;
    let seq = forge(&mut bench, |state| state.root.directory = old).await;
    let found = findings(&bench, false).await;
    assert!(has(&found, &log_key(seq), Some("model/late"), "does not list it, although entry 7"), "{found:?}");
    assert!(has(&found, &log_key(seq), None, "counts (units, files, bytes)"), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn what_an_entry_says_of_the_log_before_it_is_checked() {
    let cases: [(Defect, &str); 6] = [
        (|state| state.ring.entries.clear(), "its ring"),
        (|state| state.root.tail += 5, "bytes of the log since the last checkpoint"),
        (|state| state.root.files += 1, "counts (units, files, bytes)"),
        (|state| state.root.setsum = [0; 32], "the sum over all files"),
        (|state| state.root.minlog = Seq(0), "a horizon went back"),
        (|state| state.hash = [7; 16], "does not follow the entry before it"),
    ];
    for (change, what) in cases {
        let mut bench = sound().await;
        checkpoint(&bench.ledger, &forced()).await;
        sync(&mut bench).await;
        let seq = forge(&mut bench, change).await;
        let found = findings(&bench, false).await;
        assert!(has(&found, &log_key(seq), None, what), "{what}: {found:?}");
        assert!(found.iter().all(|flaw| !flaw.remedy.is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_cut_off_or_damaged_in_a_page_is_named_with_those_who_need_it() {
    let mut bench = sound().await;
    checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    let sound_bytes: Vec<(String, Bytes)> = {
        let mut all = Vec::new();
        for key in bench.memory.keys() {
            let bytes = bench.memory.get(&key, Range::All).await.expect("get").expect("there").bytes;
            all.push((key, bytes));
        }
        all
    };
    for (key, bytes) in sound_bytes.iter().filter(|(key, _)| key != "ns.json") {
        bench.memory.put(key, bytes.slice(..bytes.len() - 1)).await.expect("put");
        let found = findings(&bench, true).await;
        assert!(found.iter().any(|flaw| flaw.object == *key), "{key} is cut off: {found:?}");
        let names = bench.ledger.inventory().await.expect("looked").findings;
        let newest = *key == log_key(bench.state.seq);
        assert!(newest || key.starts_with("log/") || names.iter().any(|flaw| flaw.object == *key), "{key}: {names:?}");
        bench.memory.put(key, bytes.clone()).await.expect("put");
        if let Ok(pack) = format::decode_pack(bytes) {
            // The last page of a checkpoint is the root of a tree; the first is a table of some model.
            for at in pack.pages.iter().take(1) {
                spoil(&bench, key, usize::try_from(at.off).expect("small") + at.len as usize - 1).await;
                let found = findings(&bench, false).await;
                assert!(found.iter().any(|flaw| flaw.object == *key && flaw.unit.is_some()), "{key}: {found:?}");
                bench.memory.put(key, bytes.clone()).await.expect("put");
            }
        }
    }
    assert_eq!(findings(&bench, true).await, [], "all is as it was");
}

#[tokio::test(start_paused = true)]
async fn what_is_foreign_is_a_finding_and_what_nobody_needs_is_not() {
    let bench = sound().await;
    let id = PackId::random(&bench.env);
    let tx = TxId::random(&bench.env);
    let (pack, staged) = (format!("pack/{:016x}-{id}", 3), format!("tx/{}-{tx}", Seq(3).inverted()));
    for key in [&pack, &staged] {
        bench.memory.put(key, Bytes::from_static(b"left over")).await.expect("put");
    }
    let seen = bench.ledger.inventory().await.expect("looked");
    assert!(seen.findings.is_empty(), "{:?}", seen.findings);
    let orphans: Vec<_> = seen.orphans.iter().map(|orphan| orphan.key.as_str()).collect();
    assert_eq!(orphans, [pack.as_str(), staged.as_str()]);
    assert!(seen.orphans[0].what.contains("may still become part of the ledger"), "H is 0: {:?}", seen.orphans);
    let foreign = ["log/notes", "pack/mine", "tx/x", "beat/y", "notes.txt", "old/backup"];
    for key in foreign {
        bench.memory.put(key, Bytes::from_static(b"mine")).await.expect("put");
    }
    let found = bench.ledger.inventory().await.expect("looked").findings;
    for key in foreign {
        let named = if key == "old/backup" { "old/" } else { key };
        assert!(has(&found, named, None, "does not belong to the ledger"), "{key}: {found:?}");
    }
    assert_eq!(found.len(), foreign.len());
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
    // ns.json, five listings, the head, directory, packs and tables.
    assert!(requests <= verified.entries + 11, "{requests} requests for {} entries", verified.entries);
}

#[tokio::test(start_paused = true)]
async fn damage_of_a_pack_where_no_row_points_is_found_by_the_deep_look() {
    let bench = sound().await;
    let pack = bench.memory.keys().into_iter().find(|key| key.starts_with("pack/")).expect("a pack");
    let whole = bench.memory.get(&pack, Range::All).await.expect("get").expect("there").bytes;
    // In the header, in the index, in its length, and in the end mark.
    for at in [2, 30, 53, whole.len() - 20, whole.len() - 10, whole.len() - 1] {
        spoil(&bench, &pack, at).await;
        assert!(findings(&bench, false).await.is_empty(), "not looked into");
        let found = findings(&bench, true).await;
        assert!(found.iter().any(|flaw| flaw.object == pack && !flaw.past), "byte {at}: {found:?}");
        bench.memory.put(&pack, whole.clone()).await.expect("put");
    }
    assert!(findings(&bench, true).await.is_empty());
}
