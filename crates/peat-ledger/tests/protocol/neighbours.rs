//! Processes of one clone that come at the same time, one situation at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{join, join_all};
use peat_ledger::{Commit, Dead, Draft, Ledger, LogQuery, News, Params, TxKind, format};
use peat_objects::{LatencyStore, MemoryStore, Metered, Op, Range, Store};
use peat_types::{CloneId, Error, InstanceId, Kind, LedgerId, Seq, TxId};

use super::bench::{Bench, Hooked, MapCache, RawPages, env, log_key};
use super::street::Street;

const THERE_AND_BACK: Duration = Duration::from_millis(30);

/// A clone whose processes have seen everything, at some distance from a store whose head is old.
struct House {
    first: Bench,
    street: Street,
    clone: CloneId,
}

impl House {
    async fn new(seed: u64) -> Self {
        let mut first = Bench::at(MemoryStore::with_clock(&env(7)), Params::default(), seed, THERE_AND_BACK).await;
        first.put("model/first", &[("data/1", b"a")]).await;
        first.env.sleep(Duration::from_secs(60)).await;
        Self { clone: CloneId::random(&first.env), first, street: Street::default() }
    }

    /// Another process.
    fn process(&self, seed: u64) -> Bench {
        let env = env(1000 + seed);
        let hooks = Hooked::new(Arc::new(self.first.memory.clone()));
        let far = LatencyStore::new(Arc::new(hooks.clone()), &env, THERE_AND_BACK, Duration::ZERO);
        let metered = Metered::new(Arc::new(far));
        let info = self.first.ledger.info().clone();
        let ledger = Ledger::with_info(Arc::new(metered.clone()), &env, info, self.clone, InstanceId::random(&env))
            .with_neighbours(Arc::new(self.street.clone()));
        let (memory, state, read_at) = (self.first.memory.clone(), self.first.state.clone(), env.monotonic());
        Bench { env, memory, hooks, metered, ledger, cache: MapCache::default(), state, read_at }
    }

    /// So many processes, each with a change of a model of its own, planned on the same head.
    async fn at_work(&self, count: u64) -> Vec<(Bench, Draft)> {
        join_all((0..count).map(|n| async move {
            let process = self.process(n);
            let draft = process.draft(&format!("model/{n:03}"), &[("data/1", b"x")]).await;
            (process, draft)
        }))
        .await
    }

    /// The entries that hold a transaction.
    async fn holding(&self, tx: TxId) -> Vec<Seq> {
        let log = self.first.ledger.log(&LogQuery::newest(100), &MapCache::default()).await.expect("log").lines;
        log.iter().filter(|line| line.txs.iter().any(|head| head.tx == tx)).map(|line| line.seq).collect()
    }

    /// Each told the truth, and nothing is there twice.
    async fn judge(&self, sent: impl IntoIterator<Item = (&Draft, &Commit)>) {
        for (draft, commit) in sent {
            assert_eq!(self.holding(draft.tx).await, [seq_of(commit)]);
        }
        assert!(self.first.ledger.verify(true).await.expect("verify").findings.is_empty());
    }

    async fn staged(&self, draft: &Draft, ledger: LedgerId, base: Seq) -> Bytes {
        let pages = RawPages(self.first.memory.clone());
        let mut pack_id = || unreachable!("small");
        let section = format::plan(draft, &self.first.state, &Params::default(), &pages, &mut pack_id).await;
        format::encode_staged(ledger, base, &section.expect("plan")).expect("staged")
    }
}

fn seq_of(sent: &Commit) -> Seq {
    let Commit::Committed { entry, .. } = sent else { unreachable!("{sent:?}") };
    entry.state.seq
}

async fn all_send(work: &[(Bench, Draft)]) -> Vec<Commit> {
    join_all(work.iter().map(|(process, draft)| process.send(draft))).await
}

fn drafts(work: &[(Bench, Draft)]) -> impl Iterator<Item = &Draft> {
    work.iter().map(|(_, draft)| draft)
}

#[tokio::test(start_paused = true)]
async fn changes_of_processes_that_come_at_once_cost_two_creates() {
    for count in [2, 10, 65] {
        let house = House::new(1).await;
        let work = house.at_work(count).await;
        let marks: Vec<_> = work.iter().map(|(process, _)| process.mark()).collect();
        let begun = house.first.env.monotonic();
        let sent = all_send(&work).await;
        let took = house.first.env.monotonic() - begun;
        let used = |op| -> u64 {
            let each = work.iter().zip(&marks).map(|((process, _), mark)| process.metered.meter().since(mark));
            each.map(|counts| counts.of(op).requests).sum()
        };
        assert_eq!((used(Op::Create), used(Op::Put), used(Op::List), used(Op::Delete)), (2, 0, 0, 0), "{count}");
        // What came first, and the entry that holds it.
        assert!(used(Op::Get) <= 2 * count, "{} GET for {count}", used(Op::Get));
        assert!(took < THERE_AND_BACK * 6, "{count} took {took:?}");
        house.judge(drafts(&work).zip(&sent)).await;
        for commit in &sent {
            // What came in between is told in order, so that an index can follow.
            let Commit::Committed { passed, entry } = commit else { unreachable!() };
            let seqs: Vec<u64> = passed.iter().map(|entry| entry.state.seq.0).chain([entry.state.seq.0]).collect();
            assert_eq!(seqs, (house.first.state.seq.0 + 1..=entry.state.seq.0).collect::<Vec<_>>());
        }
        assert!(house.street.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_alone_waits_for_nobody() {
    let house = House::new(2).await;
    let mut process = house.process(1);
    for n in 0..5 {
        let draft = process.draft("model/a", &[(&format!("data/{n}"), b"x")]).await;
        let (mark, begun) = (process.mark(), process.env.monotonic());
        let Commit::Committed { entry, .. } = process.send(&draft).await else { unreachable!() };
        assert_eq!((process.used(&mark).0, process.env.monotonic() - begun), (1, THERE_AND_BACK));
        process.pass(&[*entry]);
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_with_an_old_base_hears_of_it_and_loses_no_slot() {
    let house = House::new(3).await;
    let work = house.at_work(5).await;
    for (n, (process, draft)) in work.iter().enumerate() {
        let mark = process.mark();
        process.send(draft).await;
        let used = process.metered.meter().since(&mark);
        assert_eq!((used.of(Op::Create).requests, used.of(Op::Get).requests), (1, n as u64), "{used}");
        assert_eq!(used.total().requests, 1 + n as u64, "{used}");
    }
}

/// Whatever the moment: what waits beside a process that dies is neither lost nor doubled.
#[tokio::test(start_paused = true)]
async fn one_that_dies_at_any_moment_neither_loses_nor_repeats_what_others_left() {
    let (mut landed, mut lost) = (0, 0);
    for litters in [false, true] {
        for after in (1..170).step_by(6) {
            for doomed in [0, 1] {
                let house = House::new(4).await;
                house.street.lock().litters = litters;
                let work = house.at_work(5).await;
                let (process, draft) = &work[doomed];
                let dies = process.env.timeout(Duration::from_millis(after), process.send(draft));
                let rest: Vec<_> = work.iter().enumerate().filter(|(n, _)| *n != doomed).map(|(_, one)| one).collect();
                let sends = join_all(rest.iter().map(|(process, draft)| process.send(draft)));
                let (died, sent) = join(dies, sends).await;
                house.judge(rest.iter().map(|(_, draft)| draft).zip(&sent)).await;
                let there = house.holding(draft.tx).await;
                assert!(there.len() <= 1, "A3: {there:?}");
                if died.is_none() {
                    *if there.is_empty() { &mut lost } else { &mut landed } += 1;
                }
                // Nothing that lies about is committed once more.
                let next = house.process(99);
                let late = next.draft("model/late", &[("data/1", b"x")]).await;
                let sent = next.send(&late).await;
                house.judge([(&late, &sent)]).await;
                for (_, draft) in &work {
                    assert!(house.holding(draft.tx).await.len() <= 1);
                }
            }
        }
    }
    assert!(landed > 5 && lost > 5, "{landed} landed, {lost} did not");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_stuck_is_left_behind() {
    let house = House::new(5).await;
    let work = house.at_work(4).await;
    // A stopped process keeps its lock.
    let mut stuck = Box::pin(work[0].0.send(&work[0].1));
    assert!(futures::poll!(&mut stuck).is_pending());
    let begun = house.first.env.monotonic();
    let sent = all_send(&work[1..3]).await;
    let took = house.first.env.monotonic() - begun;
    assert!(took < Duration::from_millis(2700), "{took:?}");
    // Nobody waits for it a second time.
    let begun = house.first.env.monotonic();
    let last = work[3].0.send(&work[3].1).await;
    let took = house.first.env.monotonic() - begun;
    assert!(took <= THERE_AND_BACK * 5, "{took:?}");
    // And it finds its own way when it goes on.
    let first = stuck.await;
    house.judge(drafts(&work).zip([&first].into_iter().chain(&sent).chain([&last]))).await;
    assert!(house.street.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_given_up_is_never_committed() {
    let house = House::new(6).await;
    house.street.lock().litters = true;
    let mut work = house.at_work(2).await;
    work[1].1.kind = TxKind::Start;
    // While it waits it dies; what it left lies about.
    let (process, start) = &work[1];
    let dies = process.env.timeout(Duration::from_millis(10), process.send(start));
    let (sent, died) = join(work[0].0.send(&work[0].1), dies).await;
    assert!(died.is_none());
    assert!(house.street.lock().places.contains_key(&start.tx));
    // Whoever gives it up commits nothing to its unit (`peat-clone`), in a process that meets no neighbours.
    let mut elsewhere = Bench::peer(&house.first, 50).await;
    let mut nothing = elsewhere.draft("model/001", &[]).await;
    nothing.kind = TxKind::Abort;
    let Commit::Committed { entry, .. } = elsewhere.send(&nothing).await else { unreachable!() };
    elsewhere.pass(&[*entry]);
    let next = house.process(60);
    let draft = next.draft("model/next", &[("data/1", b"x")]).await;
    let done = next.send(&draft).await;
    house.judge([(&work[0].1, &sent), (&draft, &done)]).await;
    assert!(house.holding(start.tx).await.is_empty());
    // Its process learns it, were it alive.
    let again = process.send(start).await;
    assert!(matches!(again, Commit::Lost { why: Dead::Moved(_), .. }), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn what_lies_in_the_queue_is_checked() {
    let house = House::new(7).await;
    let (ledger, next) = (house.first.state.ledger, house.first.state.seq.next());
    let draft = async |unit: &str| house.first.draft(unit, &[("data/2", b"x")]).await;
    let (foreign, ahead, dead, cut, good) = (
        draft("model/foreign").await,
        draft("model/ahead").await,
        Draft { units: draft("model/first").await.units, ..draft("model/dead").await },
        draft("model/cut").await,
        draft("model/good").await,
    );
    let mut stranger = Bench::peer(&house.first, 50).await;
    let dead_body = house.staged(&dead, ledger, next).await;
    stranger.put("model/first", &[("data/9", b"moved")]).await;
    let half = house.staged(&cut, ledger, next).await;
    let bodies = [
        (foreign.tx, house.staged(&foreign, LedgerId::from_bytes([9; 16]), next).await),
        (ahead.tx, house.staged(&ahead, ledger, Seq(next.0 + 9)).await),
        (dead.tx, dead_body),
        (cut.tx, half.slice(..half.len() - 1)),
        (TxId::from_bytes([1; 16]), Bytes::from_static(b"nobody reads this")),
        (TxId::from_bytes([2; 16]), Bytes::new()),
        (good.tx, house.staged(&good, ledger, next).await),
    ];
    house.first.env.sleep(Duration::from_secs(60)).await;
    house.street.lock().places.extend(bodies);
    for head in [Seq::ZERO, next, Seq(next.0 + 5), Seq(u64::MAX)] {
        house.street.lock().news = News { head, crowd: Seq::ZERO };
        let process = house.process(head.0 % 97);
        let own = process.draft(&format!("model/own{}", head.0 % 97), &[("data/1", b"x")]).await;
        let sent = process.send(&own).await;
        house.judge([(&own, &sent)]).await;
    }
    assert_eq!(house.holding(good.tx).await.len(), 1, "what is good is taken along, once");
    for draft in [&foreign, &ahead, &dead, &cut] {
        assert!(house.holding(draft.tx).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn who_meets_strangers_stages_what_waits_beside_it() {
    let house = House::new(8).await;
    let work = house.at_work(4).await;
    let mut stranger = Bench::peer(&house.first, 50).await;
    let taken = log_key(stranger.put("model/s", &[("data/1", b"s")]).await);
    for (process, _) in &work {
        let taken = taken.clone();
        process.hooks.on_create(move |key| (key != taken).then(|| Err(Error::new(Kind::Denied, "status 403"))));
    }
    let sent = all_send(&work).await;
    // What is in others' hands is never called refused.
    assert!(sent.iter().all(|commit| matches!(commit, Commit::Unknown { .. })), "{sent:?}");
    let keys = house.first.memory.keys();
    let staged: Vec<&String> = keys.iter().filter(|key| key.starts_with("tx/")).collect();
    assert_eq!(staged.len(), 1, "{staged:?}");
    let body = house.first.memory.get(staged[0], Range::All).await.expect("get").expect("there").bytes;
    assert_eq!(format::decode_group(&body).expect("staged").len(), 4);
    // Who learns of the strangers from a neighbour helps, too.
    assert!(house.street.lock().news.head >= stranger.state.seq);
    // A newcomer who meets the crowd takes all of them along.
    let newcomer = Bench::peer(&house.first, 51).await;
    let draft = newcomer.draft("model/n", &[("data/1", b"n")]).await;
    let Commit::Committed { entry, .. } = newcomer.send(&draft).await else { unreachable!() };
    assert_eq!(entry.txs.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_is_told_as_it_is() {
    let house = House::new(9).await;
    let work = house.at_work(3).await;
    for (process, _) in &work {
        process.hooks.on_create(|_| Some(Err(Error::new(Kind::Denied, "status 403"))));
    }
    let sent = all_send(&work).await;
    assert!(matches!(sent[0], Commit::Refused { .. }), "nobody has seen it: {:?}", sent[0]);
    for commit in &sent[1..] {
        assert!(matches!(commit, Commit::Unknown { .. }), "a neighbour may still have it: {commit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn strangers_that_a_neighbour_met_are_helped() {
    let house = House::new(10).await;
    let mut work = house.at_work(2).await;
    // A neighbour that has met strangers.
    let mut stranger = Bench::peer(&house.first, 50).await;
    stranger.put("model/s", &[("data/1", b"s")]).await;
    let sent = work[0].0.send(&work[0].1).await;
    assert_eq!(house.street.lock().news, News { head: seq_of(&sent), crowd: seq_of(&sent) });
    // The other one has seen all but the neighbour's entry.
    let Commit::Committed { passed, .. } = &sent else { unreachable!() };
    work[1].0.pass(passed);
    // Another stranger waits.
    let waits = stranger.draft("model/t", &[("data/1", b"t")]).await;
    let base = stranger.state.seq.next();
    let pages = RawPages(stranger.memory.clone());
    let mut pack_id = || unreachable!("small");
    let section = format::plan(&waits, &stranger.state, &Params::default(), &pages, &mut pack_id).await.expect("plan");
    let body = format::encode_staged(stranger.state.ledger, base, &section).expect("staged");
    stranger.memory.put(&format!("tx/{}-{}", base.inverted(), waits.tx), body).await.expect("put");
    let next = work[1].0.send(&work[1].1).await;
    assert_eq!(house.holding(waits.tx).await, [seq_of(&next)]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_each_process_goes_along() {
    let house = House::new(11).await;
    let processes: Vec<Bench> = (0..3).map(|n| house.process(n)).collect();
    let mut work = Vec::new();
    for (at, process) in processes.iter().enumerate() {
        for n in 0..5 {
            work.push((process, process.draft(&format!("model/{at}{n}"), &[("data/1", b"x")]).await));
        }
    }
    let marks: Vec<_> = processes.iter().map(Bench::mark).collect();
    let sent = join_all(work.iter().map(|(process, draft)| process.send(draft))).await;
    let used = processes.iter().zip(&marks).map(|(process, mark)| process.metered.meter().since(mark));
    let used: Vec<_> = used.collect();
    let of = |op| used.iter().map(|counts| counts.of(op).requests).sum::<u64>();
    assert!(of(Op::Create) <= 5, "{} creates for 15 changes", of(Op::Create));
    assert_eq!((of(Op::Put), of(Op::List)), (0, 0));
    house.judge(work.iter().map(|(_, draft)| draft).zip(&sent)).await;
    assert!(house.street.is_empty());
}
