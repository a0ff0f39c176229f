//! Garbage collection: what may go, and what nothing can make it take.

use std::sync::Arc;
use std::time::Duration;

use peat_ledger::{
    Beat, Checkpointing, Collected, Collecting, Commit, Dead, Follow, GcPlan, Ledger, ObjectKind, format,
};
use peat_objects::{MemoryStore, Store};
use peat_types::{CloneId, Env, InstanceId, Kind, Result, Seq};

use super::bench::{Bench, MapCache, RawPages, env, log_key};
use super::checkpoint::{busy, checkpoint, forced, params, sync};
use super::history::{Dying, History, files, handle, state_at};

pub const DAY: Duration = Duration::from_secs(24 * 3600);

pub fn keep(days: u32) -> Collecting {
    Collecting { author: "ann@here".into(), keep: DAY * days, patience: Duration::from_secs(60) }
}

/// A ledger whose store has a clock.
pub async fn timed() -> Bench {
    Bench::on(MemoryStore::with_clock(&env(1)), params(), 1).await
}

pub async fn collect(ledger: &Ledger, how: &Collecting) -> (GcPlan, Collected) {
    let plan = ledger.plan_gc(how).await.expect("planned");
    let done = ledger.gc(&plan, how, &|_, _| {}).await.expect("collected");
    (plan, done)
}

/// Two months with work on the first and the last day of each, and a checkpoint after each piece of work.
async fn months(bench: &mut Bench) {
    for _ in 0..2 {
        for _ in 0..2 {
            busy(bench, 8).await;
            checkpoint(&bench.ledger, &forced()).await;
            sync(bench).await;
            bench.env.sleep(DAY * 15).await;
        }
    }
    busy(bench, 3).await;
}

/// A probe that was killed, or may not delete, leaves objects that no entry knows; one that is at work is left alone.
#[tokio::test(start_paused = true)]
async fn what_a_probe_left_goes_after_a_day() {
    let mut bench = timed().await;
    busy(&mut bench, 2).await;
    let (old, young) = ("probe/0000000000000001-other/deleted", "probe/0000000000000002/x");
    bench.memory.put(old, "1".into()).await.expect("put");
    bench.env.sleep(DAY * 2).await;
    bench.memory.put(young, "1".into()).await.expect("put");
    let (_, done) = collect(&bench.ledger, &keep(30)).await;
    let probes = done.deleted.iter().filter(|doomed| doomed.kind == ObjectKind::Probe);
    assert!(probes.map(|doomed| doomed.key.as_str()).eq([old]), "{done:?}");
    let left: Vec<_> = bench.memory.keys().into_iter().filter(|key| key.starts_with("probe/")).collect();
    assert_eq!(left, [young]);
}

#[tokio::test(start_paused = true)]
async fn a10_states_of_the_retention_stay_and_older_ones_go() {
    let mut bench = timed().await;
    let mut history = History::default();
    months(&mut bench).await;
    history.note(&bench).await;
    let before = bench.memory.keys();
    let mark = bench.mark();
    let (plan, done) = collect(&bench.ledger, &keep(30)).await;
    let requests = bench.metered.meter().since(&mark).total().requests - done.deleted.len() as u64;
    assert!(requests <= 16, "{requests} requests besides deletions");
    // Work of the days 0, 15, 30, 45 and 60: the state of day 30 is that of the work of day 15 until then.
    assert_eq!(plan.floor, (Seq(0), Seq(27)));
    assert_eq!(plan.horizon.1, Seq(36), "a day ago");
    assert_eq!(plan.keep.1, Seq(27), "a checkpoint lies at the floor");
    assert_eq!(done.entry, Some(plan.head.next()));
    assert!(done.left.is_empty() && done.denied.is_none());
    assert!(done.deleted.iter().any(|doomed| doomed.kind == ObjectKind::Pack), "dropped packs go, too");
    history.holds(&bench.memory).await;
    let head = bench.ledger.head().await.expect("head").state;
    assert_eq!((head.root.floor, head.root.keep, head.root.horizon), (plan.floor.1, plan.keep.1, plan.horizon.1));

    // The preview is what happened.
    let after = bench.memory.keys();
    let mut gone: Vec<_> = before.into_iter().filter(|key| !after.contains(key)).collect();
    let mut said: Vec<_> = plan.doomed.iter().map(|doomed| doomed.key.clone()).collect();
    gone.sort();
    said.sort();
    assert_eq!(gone, said);
    // Again: nothing to do, and nothing is written.
    let (plan, done) = collect(&bench.ledger, &keep(30)).await;
    assert!(!plan.raises() && plan.doomed.is_empty(), "{plan:?}");
    assert_eq!((done, bench.memory.keys()), (Collected::default(), after));
    // Life goes on.
    sync(&mut bench).await;
    busy(&mut bench, 5).await;
    history.note(&bench).await;
    history.holds(&bench.memory).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_checkpoint_every_entry_stays() {
    let mut bench = timed().await;
    busy(&mut bench, 10).await;
    bench.env.sleep(DAY * 90).await;
    let (plan, done) = collect(&bench.ledger, &keep(30)).await;
    assert_eq!((plan.floor.1, plan.horizon.1, plan.keep.1), (Seq(10), Seq(10), Seq(0)));
    assert!(done.deleted.is_empty() && done.entry.is_some());
}

#[tokio::test(start_paused = true)]
async fn retention_is_at_least_what_clients_rely_on() {
    let bench = timed().await;
    let how = Collecting { keep: DAY - Duration::from_secs(1), ..keep(1) };
    let error = bench.ledger.plan_gc(&how).await.expect_err("too short");
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("24 hours"), "{error}");
    bench.ledger.plan_gc(&keep(1)).await.expect("long enough");
}

/// A client of the same store with its own clock.
async fn with_clock(bench: &Bench, skew_days: i64, seed: u64) -> Bench {
    let skew_ms = skew_days * 24 * 3600 * 1000;
    let clock = peat_testkit::sim::SimClock::new(Duration::from_secs(1_000_000), skew_ms);
    // The clock starts counting now, and the others started a while ago.
    let passed = bench.env.now().as_millis() - env(9).now().as_millis();
    let clock = Shifted(clock, passed);
    let env = Env::seeded(Arc::new(clock), seed, []);
    let mut other = Bench::on(bench.memory.clone(), params(), seed).await;
    let info = other.ledger.info().clone();
    let (clone, instance) = (CloneId::random(&env), InstanceId::random(&env));
    other.ledger = Ledger::with_info(Arc::new(other.metered.clone()), &env, info, clone, instance);
    other.env = env;
    other
}

struct Shifted(peat_testkit::sim::SimClock, i64);

impl peat_types::Clock for Shifted {
    fn now(&self) -> peat_types::Timestamp {
        peat_types::Timestamp::from_millis(self.0.now().as_millis() + self.1)
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.sleep(duration)
    }
}

#[tokio::test(start_paused = true)]
async fn study_15_wrong_clocks_only_make_it_keep_more() {
    let mut bench = timed().await;
    busy(&mut bench, 6).await;
    bench.env.sleep(DAY * 20).await;
    // A writer whose clock is a year ahead, and one who lives in 1970.
    for (skew, seed) in [(365, 5), (-20_000, 6), (3, 7)] {
        let mut writer = with_clock(&bench, skew, seed).await;
        writer.put("model/1", &[("latest", b"wrong")]).await;
    }
    sync(&mut bench).await;
    assert_eq!(bench.state.seq, Seq(9));
    bench.env.sleep(DAY * 15).await;
    bench.put("model/1", &[("latest", b"right")]).await;
    let planned = |ledger: Ledger, days| async move { ledger.plan_gc(&keep(days)).await.expect("planned").floor.1 };
    // 35 days after the first work, 15 after that of the wrong clocks.
    assert_eq!(planned(bench.ledger.clone(), 30).await, Seq(6));
    assert_eq!(planned(bench.ledger.clone(), 14).await, Seq(8), "the entry of the clock 3 days ahead says 12 days");
    assert_eq!(planned(bench.ledger.clone(), 36).await, Seq(0));
    // The collector's own clock is wrong: a year ahead changes nothing, ten days behind keeps more.
    assert_eq!(planned(with_clock(&bench, 365, 8).await.ledger, 30).await, Seq(6));
    assert_eq!(planned(with_clock(&bench, -10, 8).await.ledger, 30).await, Seq(0));
    assert_eq!(planned(with_clock(&bench, -20_000, 8).await.ledger, 1).await, Seq(0));

    // A year later the entry of the year ahead looks young no more than any other.
    bench.env.sleep(DAY * 400).await;
    assert_eq!(planned(bench.ledger.clone(), 30).await, Seq(10));
}

#[tokio::test(start_paused = true)]
async fn a_store_without_times_keeps_everything() {
    let mut bench = Bench::with(params()).await;
    busy(&mut bench, 6).await;
    checkpoint(&bench.ledger, &forced()).await;
    bench.env.sleep(DAY * 400).await;
    let (plan, done) = collect(&bench.ledger, &keep(30)).await;
    assert!(!plan.raises() && plan.doomed.is_empty());
    assert_eq!(done, Collected::default());
}

#[tokio::test(start_paused = true)]
async fn study_07_r2_a_slow_upload_is_refused_and_sent_again() {
    let mut bench = timed().await;
    busy(&mut bench, 6).await;
    // The pack is uploaded for slot 7; then its writer sleeps.
    let draft = bench.draft("model/1", &[("large", &[9; 9000])]).await;
    let (state, read_at) = (bench.state.clone(), bench.read_at);
    let mut other = Bench::on(bench.memory.clone(), params(), 2).await;
    other.put("model/2", &[("latest", b"x")]).await;
    other.put("model/2", &[("latest", b"y")]).await;
    bench.env.sleep(DAY * 2).await;
    let (plan, _) = collect(&other.ledger, &keep(1)).await;
    assert_eq!(plan.horizon.1, Seq(8));
    let mut pack_id = || peat_types::PackId::from_bytes([3; 16]);
    let pages = RawPages(bench.memory.clone());
    let section = format::plan(&draft, &state, &params(), &pages, &mut pack_id).await.expect("planned");
    let head = other.ledger.head().await.expect("head").state;
    assert_eq!(format::check(&section, &head, &pages).await.expect("checked"), Some(Dead::Horizon));
    // And so it goes for the whole commit, which learns it by losing its slot.
    let sent = bench.ledger.commit(&state, read_at, &draft, &MapCache::default(), 1000).await.expect("sent");
    assert!(matches!(sent, Commit::Lost { .. }), "{sent:?}");
    sync(&mut bench).await;
    bench.put("model/1", &[("large", &[9; 9000])]).await;
    let mut history = History::default();
    history.note(&bench).await;
    bench.env.sleep(DAY * 2).await;
    collect(&bench.ledger, &keep(1)).await;
    assert!(
        !bench.memory.keys().iter().any(|key| key.starts_with("pack/0000000000000007-")),
        "what was uploaded in vain is gone"
    );
    history.holds(&bench.memory).await;
}

#[tokio::test(start_paused = true)]
async fn dead_transactions_and_beats_go_living_ones_stay() {
    let mut bench = timed().await;
    busy(&mut bench, 3).await;
    let beat = Beat { count: 1, nonces: Vec::new() };
    let runner = |seed: u64| {
        let env = env(seed);
        let info = bench.ledger.info().clone();
        let store: Arc<dyn Store> = Arc::new(bench.memory.clone());
        Ledger::with_info(store, &bench.env, info, CloneId::random(&env), InstanceId::random(&env))
    };
    let (dead, alive) = (runner(11), runner(12));
    for ledger in [&dead, &alive] {
        ledger.beat_put(Seq(2), &beat).await.expect("beat");
    }
    let staged = |base: Seq| format!("tx/{}-{}", base.inverted(), peat_types::TxId::from_bytes([7; 16]));
    for base in [Seq(2), Seq(4)] {
        bench.memory.put(&staged(base), "anything".into()).await.expect("put");
    }
    bench.env.sleep(DAY * 2).await;
    alive.beat_put(Seq(2), &beat).await.expect("beat");
    let (plan, _) = collect(&bench.ledger, &keep(1)).await;
    assert_eq!(plan.horizon.1, Seq(3));
    let left: Vec<_> =
        bench.memory.keys().into_iter().filter(|key| key.starts_with("tx/") || key.starts_with("beat/")).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&staged(Seq(4))), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn study_09_a_collector_that_slept_a_month_deletes_only_what_is_doomed() {
    let mut bench = timed().await;
    let mut history = History::default();
    months(&mut bench).await;
    history.note(&bench).await;
    let zombie = handle(&bench, Arc::new(bench.memory.clone()));
    let plans = [zombie.plan_gc(&keep(30)).await.expect("planned"), zombie.plan_gc(&keep(1)).await.expect("planned")];
    // Meanwhile: more work, checkpoints, collections.
    months(&mut bench).await;
    collect(&bench.ledger, &keep(30)).await;
    sync(&mut bench).await;
    busy(&mut bench, 6).await;
    history.note(&bench).await;
    for plan in &plans {
        let before = bench.memory.keys();
        zombie.gc(plan, &keep(30), &|_, _| {}).await.expect("collected");
        history.holds(&bench.memory).await;
        let after = bench.memory.keys();
        for gone in before.iter().filter(|key| !after.contains(key)) {
            assert!(plan.doomed.iter().any(|doomed| doomed.key == *gone), "{gone} was not in the plan");
        }
        sync(&mut bench).await;
        history.note(&bench).await;
    }
    // Two at once, each with its plan.
    bench.env.sleep(DAY * 40).await;
    let how = keep(1);
    let (one, two) = (handle(&bench, Arc::new(bench.memory.clone())), handle(&bench, Arc::new(bench.memory.clone())));
    let plans = [one.plan_gc(&how).await.expect("planned"), two.plan_gc(&how).await.expect("planned")];
    let progress = |_, _| {};
    let (first, second) = tokio::join!(one.gc(&plans[0], &how, &progress), two.gc(&plans[1], &how, &progress));
    let (first, second) = (first.expect("collected"), second.expect("collected"));
    assert!(first.entry.is_some() != second.entry.is_some(), "the second has nothing to raise");
    history.holds(&bench.memory).await;
}

#[tokio::test(start_paused = true)]
async fn a_collector_whose_slot_was_cleared_away_does_not_believe_its_own_entry() {
    let mut bench = timed().await;
    let mut history = History::default();
    busy(&mut bench, 8).await;
    // It reads the head, and sleeps before it creates its slot: 10, then cleared away.
    let stuck = bench.memory.fork();
    months(&mut bench).await;
    collect(&bench.ledger, &keep(1)).await;
    sync(&mut bench).await;
    assert!(bench.state.root.keep > Seq(9), "{}", bench.state.root.keep);
    history.note(&bench).await;
    // Bytes of an entry that follows entry 8 perfectly, and says that nothing but its own packs is alive.
    let mut zombie = Bench::on(stuck.clone(), params(), 5).await;
    zombie.put("model/z", &[("latest", b"z")]).await;
    let object = stuck.get(&log_key(Seq(9)), peat_objects::Range::All).await.expect("get").expect("there");
    bench.memory.create(&log_key(Seq(9)), object.bytes).await.expect("resurrected");
    history.holds(&bench.memory).await;
    // (What is void goes when it was left alone for a day: see `rested`.)
    let young = bench.ledger.plan_gc(&keep(30)).await.expect("planned");
    assert!(young.doomed.is_empty(), "{:?}", young.doomed);
    bench.env.sleep(DAY + Duration::from_secs(1)).await;
    let (plan, done) = collect(&bench.ledger, &keep(30)).await;
    assert_eq!(plan.doomed.iter().map(|doomed| doomed.key.clone()).collect::<Vec<_>>(), [log_key(Seq(9))]);
    assert_eq!(done.deleted.len(), 1, "A12: void slots go");
    history.holds(&bench.memory).await;
}

#[tokio::test(start_paused = true)]
async fn study_10_a_collection_killed_at_any_request_is_simply_done_again() {
    let mut bench = timed().await;
    months(&mut bench).await;
    let mut history = History::default();
    history.note(&bench).await;
    let how = Collecting { patience: Duration::ZERO, ..keep(30) };
    let whole = bench.memory.fork();
    let (_, all) = collect(&handle(&bench, Arc::new(whole.clone())), &how).await;
    let mut requests = 0;
    'all: for n in 1.. {
        for applied in [false, true] {
            let memory = bench.memory.fork();
            let dying = Dying::at(Arc::new(memory.clone()), n, applied);
            let ledger = handle(&bench, dying.clone());
            let killed: Result<Collected> = async {
                let plan = ledger.plan_gc(&how).await?;
                ledger.gc(&plan, &how, &|_, _| {}).await
            }
            .await;
            if dying.lives() {
                killed.expect("it lived");
                break 'all;
            }
            assert!(killed.is_err(), "died at request {n}");
            history.holds(&memory).await;
            collect(&handle(&bench, Arc::new(memory.clone())), &how).await;
            history.holds(&memory).await;
            assert_eq!(memory.keys().len(), whole.keys().len(), "the same is left as after one collection");
        }
        requests = n;
    }
    assert!(requests > 10 + all.deleted.len() as i64, "{requests} requests");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_delete_it_reports_what_it_could_free() {
    let mut bench = timed().await;
    months(&mut bench).await;
    let store = Arc::new(Odd { inner: Arc::new(bench.memory.clone()), deletes: false, rival: None });
    let (plan, done) = collect(&handle(&bench, store), &keep(30)).await;
    assert!(done.denied.as_ref().is_some_and(|why| why.contains("403")), "{:?}", done.denied);
    assert!(done.deleted.is_empty() && done.entry.is_some());
    assert_eq!(done.left.len(), plan.doomed.len());
    // Somebody who may does the rest, and nothing is raised for it.
    let (again, done) = collect(&bench.ledger, &keep(30)).await;
    assert_eq!((again.doomed.len(), done.entry), (plan.doomed.len(), None));
    assert_eq!(done.deleted.len(), plan.doomed.len());
}

#[tokio::test(start_paused = true)]
async fn a_collector_without_patience_says_that_nothing_was_raised() {
    let mut bench = timed().await;
    months(&mut bench).await;
    // Somebody else is faster, by one entry.
    let elsewhere = bench.memory.fork();
    let mut other = Bench::on(elsewhere.clone(), params(), 5).await;
    other.put("model/z", &[("latest", b"z")]).await;
    let key = log_key(other.state.seq);
    let rival = elsewhere.get(&key, peat_objects::Range::All).await.expect("get").expect("there").bytes;
    let store = Odd { inner: Arc::new(bench.memory.clone()), deletes: true, rival: Some((key, rival)) };
    let ledger = handle(&bench, Arc::new(store));
    let how = Collecting { patience: Duration::ZERO, ..keep(30) };
    let plan = ledger.plan_gc(&how).await.expect("planned");
    let error = ledger.gc(&plan, &how, &|_, _| {}).await.expect_err("too late");
    assert_eq!(error.kind(), Kind::Contended);
    assert!(error.chain().join(": ").starts_with("the floors were not raised: others were faster"), "{error:?}");
    let (again, done) = collect(&ledger, &keep(30)).await;
    assert_eq!((again.floor, done.entry), (plan.floor, Some(again.head.next())));
}

/// A store that may refuse to delete, and to which somebody else writes an object just before it is created here.
#[derive(Debug)]
struct Odd {
    inner: Arc<dyn Store>,
    deletes: bool,
    rival: Option<(String, bytes::Bytes)>,
}

/// A store that lets nothing be deleted.
pub fn deletes_nothing(inner: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Odd { inner, deletes: false, rival: None })
}

impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl Store for Odd {
    async fn get(&self, key: &str, range: peat_objects::Range) -> Result<Option<peat_objects::Object>> {
        self.inner.get(key, range).await
    }

    async fn create(&self, key: &str, body: bytes::Bytes) -> Result<peat_objects::Created> {
        if let Some((_, rival)) = self.rival.as_ref().filter(|(of, _)| of == key) {
            self.inner.create(key, rival.clone()).await?;
        }
        self.inner.create(key, body).await
    }

    async fn put(&self, key: &str, body: bytes::Bytes) -> Result<peat_objects::Meta> {
        self.inner.put(key, body).await
    }

    async fn list(&self, list: &peat_objects::List) -> Result<peat_objects::Page> {
        self.inner.list(list).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        if self.deletes {
            return self.inner.delete(key).await;
        }
        Err(peat_types::Error::new(Kind::Denied, format!("delete {key}: status 403")))
    }
}

#[tokio::test(start_paused = true)]
async fn study_06_r6_a_reader_behind_the_floor_compares_directories() {
    let mut bench = timed().await;
    busy(&mut bench, 6).await;
    let behind = bench.state.clone();
    months(&mut bench).await;
    collect(&bench.ledger, &keep(1)).await;
    let head = bench.ledger.head().await.expect("head").state;
    let reader = handle(&bench, Arc::new(bench.memory.clone()));
    let Follow::Jump(state) = reader.follow(&behind, true).await.expect("followed") else { unreachable!("behind") };
    assert_eq!(*state, head);
    let units: [peat_types::Unit; 2] = ["model/1".parse().expect("unit"), "model/7".parse().expect("unit")];
    let asked: Vec<_> = units.iter().map(|unit| (unit.clone(), Some(Seq(2)))).collect();
    let scoped = reader.scoped(&behind, true, &asked, &MapCache::default()).await.expect("scoped");
    assert_eq!(scoped.state.seq, head.seq);
    let all = files(&reader, &scoped.state).await.expect("files");
    assert!(all.contains_key(&("model/1".into(), "latest".into())));
}

#[tokio::test(start_paused = true)]
async fn compaction_frees_what_deleted_contents_held() {
    let mut bench = timed().await;
    // Packs of which one content after the other is replaced.
    for n in 0..12_u8 {
        let name = format!("large/{}", n % 6);
        bench.put("model/1", &[(name.as_str(), &bench.env.random_bytes::<6000>())]).await;
        bench.put(&format!("model/{n}"), &[("latest", &[n; 50])]).await;
    }
    let full = Checkpointing { full: true, ..forced() };
    checkpoint(&bench.ledger, &full).await;
    sync(&mut bench).await;
    let rows = format::packs(&bench.state, &RawPages(bench.memory.clone())).await.expect("packs");
    let live: u64 = rows.iter().filter(|(dropped, _, _, row)| !dropped && !row.metadata).map(|row| row.3.size).sum();
    assert!((36_000..40_000).contains(&live), "six contents are alive, {live} bytes are kept");
    let dropped = rows.iter().filter(|(dropped, ..)| *dropped).count();
    assert_eq!(dropped, 12, "each of the packs was small, half of them dead");
    let mut history = History::default();
    history.note(&bench).await;
    bench.env.sleep(DAY * 40).await;
    collect(&bench.ledger, &keep(30)).await;
    history.holds(&bench.memory).await;
    let packs = bench.memory.keys().into_iter().filter(|key| key.starts_with("pack/")).count();
    assert_eq!(packs, 2, "one of contents, one of pages");
    let head = state_at(&bench.memory, bench.state.seq.next()).await.expect("entry");
    assert_eq!(head.root.floor, bench.state.seq);
}
