//! Writers of one process that come at the same time, one situation at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use peat_ledger::{Commit, Draft, LogQuery, Params, format};
use peat_objects::{MemoryStore, Op, Range, Store};
use peat_types::{Error, Kind, Seq, TxId};

use super::bench::{Bench, env, log_key};

const THERE_AND_BACK: Duration = Duration::from_millis(30);

/// A process at some distance from a store whose head is old.
async fn process(seed: u64) -> Bench {
    let mut bench = Bench::at(MemoryStore::with_clock(&env(7)), Params::default(), seed, THERE_AND_BACK).await;
    bench.put("model/first", &[("data/1", b"a")]).await;
    bench.env.sleep(Duration::from_secs(60)).await;
    bench
}

/// Changes of models of their own, all planned on the same head.
async fn drafts(bench: &Bench, count: usize) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for n in 0..count {
        drafts.push(bench.draft(&format!("model/{n:03}"), &[("data/1", b"x")]).await);
    }
    drafts
}

fn tx_keys(bench: &Bench) -> Vec<String> {
    bench.memory.keys().into_iter().filter(|key| key.starts_with("tx/")).collect()
}

/// In which entries `drafts` are. Each is in one.
async fn entries_of(bench: &Bench, drafts: &[Draft]) -> Vec<Seq> {
    let log = bench.ledger.log(&LogQuery::newest(100), &bench.cache).await.expect("log").lines;
    let holding = |tx: TxId| {
        let seqs: Vec<Seq> =
            log.iter().filter(|line| line.txs.iter().any(|head| head.tx == tx)).map(|line| line.seq).collect();
        assert_eq!(seqs.len(), 1, "A3: {tx} is in entries {seqs:?}");
        seqs[0]
    };
    drafts.iter().map(|draft| holding(draft.tx)).collect()
}

fn seq_of(sent: &Commit) -> Seq {
    let Commit::Committed { entry, .. } = sent else { unreachable!("{sent:?}") };
    entry.state.seq
}

#[tokio::test(start_paused = true)]
async fn changes_of_one_process_that_come_at_once_cost_two_creates() {
    for (count, creates) in [(2, 2), (30, 2), (65, 2), (66, 2), (100, 3)] {
        let bench = process(1).await;
        let drafts = drafts(&bench, count).await;
        let (mark, begun) = (bench.mark(), bench.env.monotonic());
        let sent = join_all(drafts.iter().map(|draft| bench.send(draft))).await;
        let used = bench.metered.meter().since(&mark);
        assert_eq!(used.total().requests, used.of(Op::Create).requests, "nothing else was asked: {used}");
        assert_eq!(used.of(Op::Create).requests, creates, "{count} changes");
        let round_trips = u32::try_from(creates).expect("few");
        assert!(bench.env.monotonic() - begun < THERE_AND_BACK * round_trips + Duration::from_millis(5));
        assert_eq!(entries_of(&bench, &drafts).await, sent.iter().map(seq_of).collect::<Vec<_>>());
        for commit in &sent {
            // What came in between is told in order, so that an index can follow.
            let Commit::Committed { passed, entry } = commit else { unreachable!() };
            let seqs: Vec<u64> = passed.iter().map(|entry| entry.state.seq.0).chain([entry.state.seq.0]).collect();
            assert_eq!(seqs, (bench.state.seq.0 + 1..=entry.state.seq.0).collect::<Vec<_>>());
        }
        assert!(bench.ledger.verify(true).await.expect("verify").findings.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_alone_waits_for_nobody() {
    let mut bench = process(2).await;
    for n in 0..5 {
        let (mark, begun) = (bench.mark(), bench.env.monotonic());
        bench.put("model/a", &[(&format!("data/{n}"), b"x")]).await;
        assert_eq!(bench.used(&mark).0, 1, "one's own entries do not make it busy");
        assert_eq!(bench.env.monotonic() - begun, THERE_AND_BACK);
    }
}

#[tokio::test(start_paused = true)]
async fn entries_full_of_ones_own_do_not_make_it_busy() {
    let mut bench = process(3).await;
    let drafts = drafts(&bench, 10).await;
    let sent = join_all(drafts.iter().map(|draft| bench.send(draft))).await;
    let Some(Commit::Committed { passed, entry }) = sent.into_iter().next_back() else { unreachable!() };
    bench.pass(&passed);
    bench.pass(&[*entry]);
    let mark = bench.mark();
    bench.put("model/000", &[("data/2", b"x")]).await;
    assert_eq!(bench.used(&mark).0, 1);
}

#[tokio::test(start_paused = true)]
async fn two_on_one_unit_are_never_in_one_entry() {
    let bench = process(4).await;
    let mut drafts = drafts(&bench, 4).await;
    let rival = bench.draft("model/001", &[("data/1", b"rival")]).await;
    drafts.push(rival);
    let sent = join_all(drafts.iter().map(|draft| bench.send(draft))).await;
    // A2: of those who planned on one state of a unit, one is committed; the other learns it, and nothing is staged.
    let committed = |commit: &Commit| matches!(commit, Commit::Committed { .. });
    assert_eq!(sent.iter().filter(|commit| committed(commit)).count(), 4);
    assert!(matches!(&sent[4], Commit::Lost { passed, .. } if passed.len() == 2), "{:?}", sent[4]);
    entries_of(&bench, &drafts[..4]).await;
    assert!(tx_keys(&bench).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_dropped_neither_loses_nor_repeats_what_it_carries() {
    // The first goes to the store alone; the second leads the others and is dropped: before its request arrived, after
    // it arrived, and while nothing is known of it.
    for (drop_after, lands) in [(33, false), (44, false), (46, true), (58, true)] {
        let bench = process(5).await;
        let drafts = drafts(&bench, 8).await;
        let doomed = async {
            // It comes second.
            bench.env.sleep(Duration::from_millis(1)).await;
            bench.env.timeout(Duration::from_millis(drop_after - 1), bench.send(&drafts[1])).await
        };
        let first = bench.send(&drafts[0]);
        let rest = join_all(drafts[2..].iter().map(|draft| async {
            bench.env.sleep(Duration::from_millis(2)).await;
            bench.send(draft).await
        }));
        let ((first, doomed), rest) = join(join(first, doomed), rest).await;
        assert!(doomed.is_none(), "it was dropped");
        assert_eq!(seq_of(&first), Seq(2));
        let seqs = entries_of(&bench, &drafts[2..]).await;
        assert_eq!(rest.iter().map(seq_of).collect::<Vec<_>>(), seqs, "each knows the truth");
        assert_eq!(seqs, vec![Seq(3); 6]);
        let log = bench.ledger.log(&LogQuery::newest(10), &bench.cache).await.expect("log").lines;
        let landed = log.iter().any(|line| line.txs.iter().any(|head| head.tx == drafts[1].tx));
        assert_eq!(landed, lands, "dropped after {drop_after} ms");
        assert!(bench.ledger.verify(true).await.expect("verify").findings.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_can_leave() {
    let bench = process(6).await;
    let drafts = drafts(&bench, 4).await;
    let leaves = bench.env.timeout(Duration::from_millis(10), bench.send(&drafts[1]));
    let (sent, left) =
        join(join_all([&drafts[0], &drafts[2], &drafts[3]].map(|draft| bench.send(draft))), leaves).await;
    assert!(left.is_none());
    assert_eq!(sent.iter().map(seq_of).collect::<Vec<_>>(), [Seq(2), Seq(3), Seq(3)]);
    let log = bench.ledger.log(&LogQuery::newest(10), &bench.cache).await.expect("log").lines;
    assert!(log.iter().all(|line| line.txs.iter().all(|head| head.tx != drafts[1].tx)), "it was never sent");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_stuck_is_left_behind() {
    let bench = process(7).await;
    let drafts = drafts(&bench, 4).await;
    // A future that was begun and is not polled any more, as in a loop that waits for something else.
    let mut stuck = Box::pin(bench.send(&drafts[0]));
    assert!(futures::poll!(&mut stuck).is_pending());
    let begun = bench.env.monotonic();
    let sent = join_all(drafts[1..3].iter().map(|draft| bench.send(draft))).await;
    let took = bench.env.monotonic() - begun;
    assert!(took < Duration::from_millis(2100), "{took:?}");
    // Nobody waits for it a second time.
    let begun = bench.env.monotonic();
    let last = bench.send(&drafts[3]).await;
    assert!(bench.env.monotonic() - begun <= THERE_AND_BACK * 3, "{:?}", bench.env.monotonic() - begun);
    // And it finds its own way when it goes on.
    let first = stuck.await;
    let told: Vec<Seq> = [&first].into_iter().chain(&sent).chain([&last]).map(seq_of).collect();
    assert_eq!(entries_of(&bench, &drafts).await, told);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_tells_everybody_so() {
    let bench = process(8).await;
    let drafts = drafts(&bench, 5).await;
    bench.hooks.on_create(|_| Some(Err(Error::new(Kind::Denied, "status 403"))));
    let sent = join_all(drafts.iter().map(|draft| bench.send(draft))).await;
    for commit in &sent {
        assert!(matches!(commit, Commit::Refused { .. }), "definitely not applied: {commit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_taken_along_is_never_called_refused_while_it_may_be_there() {
    // Whether the entry that carries the others landed cannot be told. Their own ones are refused for certain.
    let bench = process(9).await;
    let drafts = drafts(&bench, 4).await;
    let (third, asked) = (log_key(Seq(3)), AtomicBool::new(false));
    bench.hooks.on_get(move |key, object| match key == third && !asked.swap(true, Ordering::Relaxed) {
        true => Err(Error::new(Kind::Denied, "status 403")),
        false => Ok(object),
    });
    let second = log_key(Seq(2));
    bench.hooks.on_create(move |key| (key != second).then(|| Err(Error::new(Kind::Denied, "status 403"))));
    let sent = join_all(drafts.iter().map(|draft| bench.send(draft))).await;
    assert_eq!(seq_of(&sent[0]), Seq(2));
    for commit in &sent[1..] {
        assert!(matches!(commit, Commit::Unknown { .. }), "{commit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_one_process_is_staged_as_one_and_carried_as_one() {
    let bench = process(10).await;
    let drafts = drafts(&bench, 6).await;
    let mut stranger = bench.peer(11).await;
    stranger.put("model/s", &[("data/1", b"s")]).await;
    // Whoever is first learns of the stranger and stages; every slot after that one is refused to this process.
    let taken = log_key(stranger.state.seq);
    bench.hooks.on_create(move |key| (key != taken).then(|| Err(Error::new(Kind::Denied, "status 403"))));
    let mark = bench.mark();
    let sent = join_all(drafts.iter().map(|draft| bench.send(draft))).await;
    assert!(sent.iter().all(|commit| matches!(commit, Commit::Unknown { .. })), "{sent:?}");
    let keys = tx_keys(&bench);
    assert_eq!((keys.len(), bench.metered.meter().since(&mark).of(Op::Put).requests), (1, 1), "{keys:?}");
    let body = bench.memory.get(&keys[0], Range::All).await.expect("get").expect("there").bytes;
    assert_eq!(format::decode_group(&body).expect("staged").len(), 6);
    // A newcomer who has just read the stranger's entry takes all of them along.
    let newcomer = bench.peer(12).await;
    let draft = newcomer.draft("model/n", &[("data/1", b"n")]).await;
    let sent = newcomer.send(&draft).await;
    let Commit::Committed { entry, .. } = sent else { unreachable!("{sent:?}") };
    let carried: Vec<TxId> = entry.txs.iter().map(|head| head.tx).collect();
    for draft in &drafts {
        assert!(carried.contains(&draft.tx), "{} is not among {carried:?}", draft.tx);
    }
    assert!(bench.ledger.verify(true).await.expect("verify").findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_one_of_a_group_is_wrong_with_it_alone() {
    let bench = process(14).await;
    let drafts = drafts(&bench, 3).await;
    let pages = super::bench::RawPages(bench.memory.clone());
    let mut body = Vec::new();
    for (n, draft) in drafts.iter().enumerate() {
        let mut pack_id = || unreachable!("small");
        let section = format::plan(draft, &bench.state, &Params::default(), &pages, &mut pack_id).await.expect("plan");
        // The second is of another ledger.
        let ledger = if n == 1 { peat_types::LedgerId::from_bytes([9; 16]) } else { bench.state.ledger };
        body.extend_from_slice(&format::encode_staged(ledger, bench.state.seq.next(), &section).expect("staged"));
    }
    let key = format!("tx/{}-{}", bench.state.seq.next().inverted(), drafts[0].tx);
    bench.memory.put(&key, body.into()).await.expect("put");
    // The first one's unit moves on.
    let mut stranger = bench.peer(15).await;
    stranger.put("model/000", &[("data/1", b"s")]).await;
    let newcomer = bench.peer(16).await;
    let draft = newcomer.draft("model/n", &[("data/1", b"n")]).await;
    let sent = newcomer.send(&draft).await;
    let Commit::Committed { entry, .. } = sent else { unreachable!("{sent:?}") };
    assert_eq!(entry.txs.iter().map(|head| head.tx).collect::<Vec<_>>(), [draft.tx, drafts[2].tx]);
}

#[tokio::test(start_paused = true)]
async fn who_comes_with_an_old_base_reads_nothing_that_is_known_here() {
    let bench = process(17).await;
    let late = bench.draft("model/late", &[("data/1", b"x")]).await;
    let mut ahead = bench.state.clone();
    for n in 0..5 {
        let draft = bench.draft(&format!("model/{n}"), &[("data/1", b"x")]).await;
        let sent = bench.ledger.commit(&ahead, bench.env.monotonic(), &draft, &bench.cache, 1000).await.expect("sent");
        let Commit::Committed { entry, .. } = sent else { unreachable!("{sent:?}") };
        ahead = entry.state;
    }
    let mark = bench.mark();
    assert_eq!(seq_of(&bench.send(&late).await), ahead.seq.next());
    assert_eq!(bench.used(&mark).0, 1);
}
