//! Staging and helping, one situation at a time.

use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{Commit, Draft, TxKind, format};
use peat_objects::{Created, MemoryStore, Store};
use peat_types::{Error, Kind, LedgerId, Seq, TxId};

use super::bench::{Bench, RawPages, env, log_key};

/// A ledger in a store that knows the time, with a head that is old.
pub async fn bench() -> Bench {
    let memory = MemoryStore::with_clock(&env(7));
    let mut bench = Bench::on(memory, peat_ledger::Params::default(), 1).await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    bench.env.sleep(Duration::from_secs(60)).await;
    bench
}

fn tx_keys(bench: &Bench) -> Vec<String> {
    bench.memory.keys().into_iter().filter(|key| key.starts_with("tx/")).collect()
}

/// Leaves `draft` under `tx/`, as a writer that then vanished.
pub async fn stage(bench: &Bench, draft: &Draft, ledger: Option<LedgerId>) -> String {
    let pages = RawPages(bench.memory.clone());
    let params = peat_ledger::Params::default();
    let mut pack_id = || unreachable!("small");
    let section = format::plan(draft, &bench.state, &params, &pages, &mut pack_id).await.expect("plan");
    let (ledger, base) = (ledger.unwrap_or(bench.state.ledger), bench.state.seq.next());
    let key = format!("tx/{}-{}", base.inverted(), draft.tx);
    let body = format::encode_staged(ledger, base, &section).expect("staged");
    bench.memory.put(&key, body).await.expect("put");
    key
}

/// A client that meets a crowd: it has just read a stranger's entry.
pub async fn newcomer(bench: &Bench, seed: u64) -> Bench {
    let mut stranger = bench.peer(seed + 100).await;
    stranger.put(&format!("model/s{seed}"), &[("data/1", b"s")]).await;
    bench.peer(seed).await
}

pub async fn commits(newcomer: &mut Bench, unit: &str) -> Vec<TxId> {
    let draft = newcomer.draft(unit, &[("data/n", b"n")]).await;
    let sent = newcomer.send(&draft).await;
    let Commit::Committed { entry, .. } = sent else { unreachable!("{sent:?}") };
    let txs: Vec<TxId> = entry.txs.iter().map(|tx| tx.tx).collect();
    assert_eq!(txs[0], draft.tx);
    txs
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_carries_those_who_wait() {
    let bench = bench().await;
    let one = bench.draft("model/a", &[("data/2", b"one")]).await;
    let two = bench.draft("model/b", &[("data/2", b"two")]).await;
    let rival = bench.draft("model/b", &[("data/2", b"rival")]).await;
    for draft in [&one, &two, &rival] {
        stage(&bench, draft, None).await;
    }
    let txs = commits(&mut newcomer(&bench, 2).await, "model/c").await;
    assert_eq!(txs.len(), 3, "no two on one unit");
    assert!(txs.contains(&one.tx) && (txs.contains(&two.tx) != txs.contains(&rival.tx)));

    // Whoever staged it adopts the stored entry, and creates nothing.
    let sent = bench.send(&one).await;
    let Commit::Committed { entry, .. } = sent else { unreachable!("{sent:?}") };
    assert_eq!(entry.state, bench.ledger.head().await.expect("head").state);
    // What became impossible is said so.
    let dead = if txs.contains(&two.tx) { &rival } else { &two };
    assert!(matches!(bench.send(dead).await, Commit::Lost { .. }));
    assert!(bench.ledger.verify(true).await.expect("verify").findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_quiet_head_is_not_asked_for_company() {
    let mut bench = bench().await;
    let draft = bench.draft("model/a", &[("data/2", b"waits")]).await;
    stage(&bench, &draft, None).await;
    let mut peer = bench.peer(2).await;
    peer.put("model/b", &[("data/0", b"b")]).await;
    let mark = peer.mark();
    peer.put("model/b", &[("data/1", b"b")]).await;
    peer.put("model/b", &[("data/2", b"b")]).await;
    assert_eq!(peer.used(&mark).0, 2, "one's own uncontended entries do not make it busy");
    bench.state = peer.state.clone();
}

#[tokio::test(start_paused = true)]
async fn what_lies_broken_under_tx_never_fails_a_helper() {
    let bench = bench().await;
    let drafts = [
        bench.draft("model/a", &[("data/2", b"vanishes")]).await,
        bench.draft("model/b", &[("data/2", b"is damaged")]).await,
        bench.draft("model/c", &[("data/2", b"is of another ledger")]).await,
        bench.draft("model/d", &[("data/2", b"lies under another name")]).await,
        bench.draft("model/e", &[("data/2", b"is fine")]).await,
    ];
    let vanishes = stage(&bench, &drafts[0], None).await;
    let damaged = stage(&bench, &drafts[1], None).await;
    stage(&bench, &drafts[2], Some(LedgerId::from_bytes([9; 16]))).await;
    let moved = stage(&bench, &drafts[3], None).await;
    stage(&bench, &drafts[4], None).await;
    let other = TxId::random(&bench.env).to_string();
    let body = bench.memory.get(&moved, peat_objects::Range::All).await.expect("get").expect("there").bytes;
    bench.memory.put(&moved.replace(&drafts[3].tx.to_string(), &other), body).await.expect("put");
    bench.memory.delete(&moved).await.expect("delete");
    for key in ["tx/readme", "tx/0000000000000000-zz", "tx/ffffffffffffffff-00"] {
        bench.memory.put(key, Bytes::from_static(b"?")).await.expect("put");
    }
    let mut newcomer = newcomer(&bench, 2).await;
    newcomer.hooks.on_get(move |key, object| {
        if key == vanishes {
            return Ok(None);
        }
        Ok(object.map(|mut object| {
            if key == damaged {
                let mut bytes = object.bytes.to_vec();
                *bytes.last_mut().expect("not empty") ^= 1;
                object.bytes = bytes.into();
            }
            object
        }))
    });
    assert_eq!(commits(&mut newcomer, "model/x").await[1..], [drafts[4].tx]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_shows_nothing_under_tx_changes_nothing() {
    let bench = bench().await;
    let draft = bench.draft("model/a", &[("data/2", b"waits")]).await;
    stage(&bench, &draft, None).await;
    let mut newcomer = newcomer(&bench, 2).await;
    newcomer.hooks.on_get(|key, object| match key.starts_with("tx/") {
        true => Err(Error::new(Kind::Denied, "status 403")),
        false => Ok(object),
    });
    assert_eq!(commits(&mut newcomer, "model/x").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_old_start_is_left_alone_and_an_aborted_one_is_dead() {
    let bench = bench().await;
    let mut start = bench.draft("model/a", &[("data/2", b"start")]).await;
    start.kind = TxKind::Start;
    let key = stage(&bench, &start, None).await;
    bench.env.sleep(Duration::from_secs(11)).await;
    assert_eq!(commits(&mut newcomer(&bench, 2).await, "model/x").await.len(), 1, "older than ten seconds");

    // Its client gives up: an empty commit to the unit. Then not even a fresh copy of it gets in.
    let mut peer = bench.peer(3).await;
    peer.put("model/a", &[]).await;
    let body = bench.memory.get(&key, peat_objects::Range::All).await.expect("get").expect("there").bytes;
    bench.memory.put(&key, body).await.expect("put");
    assert_eq!(commits(&mut newcomer(&bench, 4).await, "model/x").await.len(), 1, "R1");
    assert!(matches!(bench.send(&start).await, Commit::Lost { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_young_start_is_carried() {
    let bench = bench().await;
    let mut start = bench.draft("model/a", &[("data/2", b"start")]).await;
    start.kind = TxKind::Start;
    stage(&bench, &start, None).await;
    bench.env.sleep(Duration::from_secs(5)).await;
    assert_eq!(commits(&mut newcomer(&bench, 2).await, "model/x").await[1..], [start.tx]);
}

/// Loses the next slot to a stranger's young entry, then gets `answer` for every create.
async fn after_a_loss(bench: &Bench, answer: fn(&str) -> Result<Created, Error>) {
    let mut stranger = bench.peer(9).await;
    stranger.put("model/s", &[("data/1", b"s")]).await;
    let taken = log_key(stranger.state.seq);
    bench.hooks.on_create(move |key| (key != taken).then(|| answer(key)));
}

#[tokio::test(start_paused = true)]
async fn what_was_staged_is_never_called_refused() {
    let bench = bench().await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    after_a_loss(&bench, |_| Err(Error::new(Kind::Denied, "status 403"))).await;
    let sent = bench.send(&draft).await;
    assert!(matches!(sent, Commit::Unknown { .. }), "{sent:?}");
    assert_eq!(tx_keys(&bench).len(), 1);
    // Whoever comes next commits it; the journal finds out.
    let mut peer = bench.peer(3).await;
    let helped = commits(&mut peer, "model/x").await;
    assert_eq!(helped[1..], [draft.tx]);
    let sent = bench.send(&draft).await;
    let Commit::Committed { entry, .. } = sent else { unreachable!("{sent:?}") };
    assert_eq!(entry.txs.iter().map(|tx| tx.tx).collect::<Vec<_>>(), helped);
}

#[tokio::test(start_paused = true)]
async fn a_loser_stages_waits_and_cleans_up() {
    let bench = bench().await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    let mut stranger = bench.peer(9).await;
    stranger.put("model/s", &[("data/1", b"s")]).await;
    let mark = bench.mark();
    let sent = bench.send(&draft).await;
    let Commit::Committed { passed, entry } = sent else { unreachable!("{sent:?}") };
    assert_eq!((passed.len(), entry.state.seq), (1, Seq(3)));
    assert!(tx_keys(&bench).is_empty(), "deleted after the answer");
    // create, get, put, list and four slots, create, delete
    assert_eq!(bench.used(&mark).0, 10, "{}", bench.metered.meter().since(&mark));
}

#[tokio::test(start_paused = true)]
async fn a_unit_that_moved_is_lost_without_staging() {
    let bench = bench().await;
    let draft = bench.draft("model/a", &[("data/2", b"b")]).await;
    let mut stranger = bench.peer(9).await;
    stranger.put("model/a", &[("data/9", b"s")]).await;
    let mark = bench.mark();
    assert!(matches!(bench.send(&draft).await, Commit::Lost { .. }));
    assert_eq!(bench.used(&mark).0, 2, "create and get");
}
