//! Clones of one ledger, each a process of its own on a machine of its own, all up to date when they begin.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use peat_ledger::{
    Commit, Draft, DraftUnit, Follow, Ledger, NewContent, NewLedger, NsInfo, Op, PageCache, Params, Rank, Ref, Segment,
    State, TxKind, format,
};
use peat_objects::{MemoryStore, Store};
use peat_testkit::sim::SimClock;
use peat_types::{ChangeId, CloneId, Env, InstanceId, Mutation, Namespace, PackId, Seq, TxId, Unit};

use super::far::{Asked, Far};
use super::street::Street;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything that was ever committed, as a clone that follows along would have it.
#[derive(Default)]
struct Past {
    states: Vec<State>,
    pages: BTreeMap<Ref, Bytes>,
    /// In how many entries each transaction is.
    txs: BTreeMap<TxId, u32>,
    changes: BTreeMap<ChangeId, u32>,
}

impl Past {
    fn take(&mut self, seq: Seq, body: &Bytes) {
        let entry = format::decode_entry(seq, body).expect("a sound entry");
        assert_eq!(self.states.last().map(|state| state.hash), (seq.0 > 0).then_some(entry.prev), "the chain");
        for at in &entry.pages {
            let start = usize::try_from(at.off).expect("small");
            self.pages.insert(*at, body.slice(start..start + at.len as usize));
        }
        for tx in &entry.txs {
            *self.txs.entry(tx.tx).or_default() += 1;
            *self.changes.entry(tx.change).or_default() += 1;
        }
        self.states.push(entry.state);
    }
}

/// What one clone has: the past up to where it was when it began, and what it read since.
struct Near {
    past: Arc<Mutex<Past>>,
    upto: Seq,
    own: Mutex<BTreeMap<Ref, Bytes>>,
}

impl PageCache for Near {
    fn get(&self, at: &Ref) -> Option<Bytes> {
        let old = matches!(at.segment, Segment::Log(seq) if seq <= self.upto);
        let past = if old { lock(&self.past).pages.get(at).cloned() } else { None };
        past.or_else(|| lock(&self.own).get(at).cloned())
    }

    fn put(&self, at: &Ref, record: &Bytes) {
        lock(&self.own).insert(*at, record.clone());
    }
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Done {
    committed: bool,
    latency: Duration,
    puts: u64,
    gets: u64,
    lists: u64,
}

/// What became of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    done: Vec<Done>,
    entries: usize,
}

impl Crowd {
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.done.extend(other.done);
        self.entries += other.entries;
        self
    }

    pub fn asked(&self) -> usize {
        self.done.len()
    }

    pub fn committed(&self) -> usize {
        self.done.iter().filter(|done| done.committed).count()
    }

    pub fn latencies(&self) -> Vec<Duration> {
        let mut all: Vec<_> = self.done.iter().map(|done| done.latency).collect();
        all.sort_unstable();
        all
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)] // small
    pub fn percentile(&self, share: f64) -> Duration {
        let all = self.latencies();
        let at = (share * all.len() as f64) as usize;
        all[at.min(all.len() - 1)]
    }

    #[allow(clippy::cast_precision_loss)] // small
    fn mean(&self, count: impl Fn(&Done) -> u64) -> f64 {
        self.done.iter().map(count).sum::<u64>() as f64 / self.done.len() as f64
    }

    pub fn puts(&self) -> f64 {
        self.mean(|done| done.puts)
    }

    #[allow(clippy::print_stderr)] // figures for the design
    pub fn show(&self, what: &str) {
        eprintln!(
            "{what}: {} of {} committed in {} entries; p50 {} ms, p99 {} ms, max {} ms; PUT {:.2}, GET {:.1}, LIST {:.2} each",
            self.committed(),
            self.asked(),
            self.entries,
            self.percentile(0.5).as_millis(),
            self.percentile(0.99).as_millis(),
            self.percentile(1.0).as_millis(),
            self.puts(),
            self.mean(|done| done.gets),
            self.mean(|done| done.lists),
        );
    }
}

/// The ledger, and all who write to it.
#[derive(Clone)]
struct Town {
    env: Env,
    store: MemoryStore,
    info: NsInfo,
    past: Arc<Mutex<Past>>,
    mutation: Option<Mutation>,
}

/// One clone at work.
struct Citizen {
    town: Town,
    env: Env,
    ledger: Ledger,
    asked: Arc<Asked>,
    cache: Near,
    state: State,
    read_at: Duration,
}

fn unit(n: usize) -> Unit {
    format!("model/{n:05}").parse().expect("unit")
}

impl Town {
    async fn new(seed: u64, mutation: Option<Mutation>) -> Self {
        let env = Env::seeded(Arc::new(SimClock::new(Duration::from_secs(1_000_000), 0)), seed, []);
        let store = MemoryStore::with_clock(&env);
        let new = NewLedger {
            namespace: Namespace::default(),
            owner: "repo".to_owned(),
            params: Params::default(),
            probe: serde_json::Value::Null,
        };
        let (clone, instance) = (CloneId::random(&env), InstanceId::random(&env));
        let ledger = Ledger::create(Arc::new(store.clone()), &env, new, clone, instance).await.expect("create");
        let past = Arc::<Mutex<Past>>::default();
        let head = ledger.head().await.expect("head");
        lock(&past).take(Seq::ZERO, &head.body);
        Self { env, store, info: ledger.info().clone(), past, mutation }
    }

    fn head(&self) -> State {
        lock(&self.past).states.last().expect("entries").clone()
    }

    /// A new process whose clone has seen everything up to `state`.
    fn citizen(&self, state: State) -> Citizen {
        self.citizen_of(None, state)
    }

    fn citizen_of(&self, clone: Option<CloneId>, state: State) -> Citizen {
        let env = self.env.with_mutation(self.mutation);
        let past = self.past.clone();
        let on_entry = Arc::new(move |key: &str, body: &Bytes| {
            let seq = key.split_once('.').and_then(|(_, seq)| seq.parse().ok()).expect("a slot");
            lock(&past).take(Seq(seq), body);
        });
        let asked = Arc::<Asked>::default();
        let far = Far { store: self.store.clone(), env: env.clone(), asked: asked.clone(), on_entry };
        let (own, instance) = (CloneId::random(&env), InstanceId::random(&env));
        let ledger = Ledger::with_info(Arc::new(far), &env, self.info.clone(), clone.unwrap_or(own), instance);
        let cache = Near { past: self.past.clone(), upto: state.seq, own: Mutex::default() };
        Citizen { town: self.clone(), read_at: env.monotonic(), env, ledger, asked, cache, state }
    }

    /// Units that exist when the crowd arrives, made by as few entries as possible, then `more` entries.
    async fn settle(&self, units: usize, more: usize) {
        let mut citizen = self.citizen(self.head());
        let all: Vec<Unit> = (0..units).map(unit).collect();
        for some in all.chunks(100) {
            citizen.commit_once(some, "data/first").await;
        }
        for n in 0..more {
            citizen.commit_once(&[unit(n % units.max(1))], &format!("data/{n}")).await;
        }
        // What was written meanwhile is no longer young.
        self.env.sleep(Duration::from_secs(60)).await;
    }

    fn crowd(&self, done: Vec<Done>, before: usize) -> Crowd {
        let past = lock(&self.past);
        assert!(
            past.txs.values().chain(past.changes.values()).all(|count| *count == 1),
            "something was committed twice"
        );
        Crowd { done, entries: past.states.len() - before }
    }
}

impl Citizen {
    /// Another task of this process.
    fn another(&self) -> Self {
        let cache = Near { past: self.town.past.clone(), upto: self.state.seq, own: Mutex::default() };
        let (town, env, ledger) = (self.town.clone(), self.env.clone(), self.ledger.clone());
        let (asked, state, read_at) = (self.asked.clone(), self.state.clone(), self.read_at);
        Self { town, env, ledger, asked, cache, state, read_at }
    }

    async fn draft(&self, units: &[Unit], name: &str) -> Draft {
        let mut out = Vec::new();
        for unit in units {
            let row = self.ledger.unit(&self.state, unit, &self.cache).await.expect("unit");
            let op = Op::Put {
                path: name.parse().expect("path"),
                rank: Rank::Current,
                old: None,
                executable: false,
                content: NewContent::Bytes(Bytes::from(format!("{name} of {unit}").repeat(20))),
            };
            out.push(DraftUnit { unit: unit.clone(), expected: row.map(|row| row.last_seq), ops: vec![op] });
        }
        Draft {
            tx: TxId::random(&self.env),
            change: ChangeId::random(&self.env),
            kind: TxKind::Change,
            author: "somebody@somewhere".to_owned(),
            message: "a change".to_owned(),
            time: self.env.now(),
            guard: None,
            units: out,
        }
    }

    async fn commit_once(&mut self, units: &[Unit], name: &str) {
        let draft = self.draft(units, name).await;
        let sent = self.ledger.commit(&self.state, self.read_at, &draft, &self.cache, 30_000).await.expect("sent");
        let Commit::Committed { entry, .. } = sent else { unreachable!("alone, yet {sent:?}") };
        entry.keep_pages(&self.cache);
        self.state = entry.state;
        self.read_at = self.env.monotonic();
    }

    /// Reads what there is to read.
    async fn follow(&mut self) {
        let read_at = self.env.monotonic();
        match self.ledger.follow(&self.state, false).await.expect("follow") {
            Follow::Unchanged => {}
            Follow::Entries(entries) => self.pass(&entries),
            Follow::Jump(state) => self.state = *state,
        }
        self.read_at = read_at;
    }

    fn pass(&mut self, entries: &[peat_ledger::Entry]) {
        for entry in entries {
            entry.keep_pages(&self.cache);
            self.state = entry.state.clone();
        }
    }

    /// Makes one change to a unit, planning it again as often as it takes. `yields`: after a loss it lets others go first.
    async fn change(&mut self, unit: Unit, name: &str, yields: bool) -> Done {
        let start = self.env.monotonic();
        let mut draft = self.draft(std::slice::from_ref(&unit), name).await;
        draft.kind = if name == "outputs/0" { TxKind::End } else { TxKind::Change };
        let mut committed = false;
        for tries in 1..=40 {
            let sent = self.ledger.commit(&self.state, self.read_at, &draft, &self.cache, 60_000).await.expect("sent");
            match sent {
                Commit::Committed { entry, .. } => {
                    assert!(entry.txs.iter().any(|tx| tx.tx == draft.tx), "the entry holds it");
                    committed = lock(&self.town.past).txs.contains_key(&draft.tx);
                    break;
                }
                Commit::Lost { passed, .. } => {
                    self.pass(&passed);
                    if yields {
                        let most = Duration::from_millis(20 << tries.min(6)).min(Duration::from_secs(1));
                        self.env.sleep(self.env.jitter(most)).await;
                    }
                    self.follow().await;
                    let again = self.draft(std::slice::from_ref(&unit), name).await;
                    draft = Draft { change: draft.change, kind: draft.kind, ..again };
                }
                Commit::Unknown { .. } | Commit::Refused { .. } => break,
            }
        }
        Done {
            committed,
            latency: self.env.monotonic() - start,
            puts: self.asked.puts.load(Ordering::Relaxed),
            gets: self.asked.gets.load(Ordering::Relaxed),
            lists: self.asked.lists.load(Ordering::Relaxed),
        }
    }
}

fn in_virtual_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(work)
}

/// `n` writers on models of their own that begin within 50 ms, all at the same head.
pub fn burst(seed: u64, n: usize) -> Crowd {
    in_virtual_time(async {
        let town = Town::new(seed, None).await;
        town.settle(n, 0).await;
        let (head, before) = (town.head(), lock(&town.past).states.len());
        let mut tasks = Vec::new();
        for i in 0..n {
            let mut citizen = town.citizen(head.clone());
            tasks.push(tokio::spawn(async move {
                citizen.env.sleep(citizen.env.jitter(Duration::from_millis(50))).await;
                citizen.change(unit(i), "data/burst", false).await
            }));
        }
        let mut done = Vec::new();
        for task in tasks {
            done.push(task.await.expect("no panic"));
        }
        town.crowd(done, before)
    })
}

/// `hosts` processes with `each` writers in it, all on models of their own, that begin within 50 ms at the same head.
pub fn hosts(seed: u64, hosts: usize, each: usize) -> Crowd {
    in_virtual_time(async {
        let town = Town::new(seed, None).await;
        town.settle(hosts * each, 0).await;
        let (head, before) = (town.head(), lock(&town.past).states.len());
        let mut tasks = Vec::new();
        for host in 0..hosts {
            let process = town.citizen(head.clone());
            for n in 0..each {
                let mut citizen = process.another();
                tasks.push(tokio::spawn(async move {
                    citizen.env.sleep(citizen.env.jitter(Duration::from_millis(50))).await;
                    let done = citizen.change(unit(host * each + n), "data/burst", false).await;
                    (done, citizen.asked)
                }));
            }
        }
        let mut done = Vec::new();
        for task in tasks {
            let (one, asked) = task.await.expect("no panic");
            // What its process asked in all is counted once.
            let (puts, gets, lists) = (&asked.puts, &asked.gets, &asked.lists);
            let [puts, gets, lists] = [puts, gets, lists].map(|count| count.swap(0, Ordering::Relaxed));
            done.push(Done { puts, gets, lists, ..one });
        }
        town.crowd(done, before)
    })
}

/// `n` processes of one clone, each with a change of a model of its own, that begin within 50 ms at the same head.
pub fn house(seed: u64, n: usize) -> Crowd {
    in_virtual_time(async {
        let town = Town::new(seed, None).await;
        town.settle(n, 0).await;
        let (head, before) = (town.head(), lock(&town.past).states.len());
        let (clone, street) = (CloneId::random(&town.env), Street::default());
        let mut tasks = Vec::new();
        for i in 0..n {
            let mut citizen = town.citizen_of(Some(clone), head.clone());
            citizen.ledger = citizen.ledger.with_neighbours(Arc::new(street.clone()));
            tasks.push(tokio::spawn(async move {
                citizen.env.sleep(citizen.env.jitter(Duration::from_millis(50))).await;
                citizen.change(unit(i), "data/burst", false).await
            }));
        }
        let mut done = Vec::new();
        for task in tasks {
            done.push(task.await.expect("no panic"));
        }
        town.crowd(done, before)
    })
}

/// `rate` changes a second (Poisson), each by a process that has seen all but the newest entry and looks for that first
/// (which counts). Under `tx/` lie 2,000 keys that nobody waits for, 100 of them not even old.
pub fn open_loop(seed: u64, rate: u32, time: Duration, mutation: Option<Mutation>) -> Crowd {
    const UNITS: usize = 400;
    in_virtual_time(async {
        let town = Town::new(seed, mutation).await;
        town.settle(UNITS, 300).await;
        town.litter().await;
        let before = lock(&town.past).states.len();
        let start = town.env.monotonic();
        let mut tasks = Vec::new();
        let mut at = Duration::ZERO;
        while at < time {
            at += Duration::from_secs_f64(-(1.0 - town.env.random_unit()).ln() / f64::from(rate));
            let (town, i) = (town.clone(), tasks.len());
            tasks.push(tokio::spawn(async move {
                town.env.sleep((start + at).saturating_sub(town.env.monotonic())).await;
                let state = {
                    let past = lock(&town.past);
                    past.states[past.states.len() - 2].clone()
                };
                let mut citizen = town.citizen(state);
                let begun = citizen.env.monotonic();
                citizen.follow().await;
                let mut done = citizen.change(unit(i % UNITS), &format!("new/{i}"), false).await;
                done.latency = citizen.env.monotonic() - begun;
                done
            }));
        }
        let mut done = Vec::new();
        for task in tasks {
            done.push(task.await.expect("no panic"));
        }
        town.crowd(done, before)
    })
}

impl Town {
    /// Leaves 2,000 keys under `tx/`: most with bases far back, a hundred near the head, staged by writers long gone.
    async fn litter(&self) {
        let head = self.head();
        let citizen = self.citizen(head.clone());
        let blank = lock(&self.past).states[0].clone();
        let pages = Pages(self.past.clone());
        let put = async |base: Seq, tx: TxId, body: Bytes| {
            self.store.put(&format!("tx/{}-{tx}", base.inverted()), body).await.expect("put");
        };
        for n in 0..1900 {
            put(Seq(1 + n % 40), TxId::random(&self.env), Bytes::from_static(b"nobody reads this")).await;
        }
        for n in 0..100 {
            let mut draft = citizen.draft(&[unit(0)], "data/litter").await;
            draft.units[0].expected = None;
            let mut pack_id = || PackId::random(&self.env);
            let section = format::plan(&draft, &blank, &self.info.params, &pages, &mut pack_id).await.expect("plan");
            let base = Seq(head.seq.0 - n);
            put(base, draft.tx, format::encode_staged(self.info.ledger, base, &section).expect("staged")).await;
        }
        self.env.sleep(Duration::from_secs(60)).await;
    }
}

struct Pages(Arc<Mutex<Past>>);

#[async_trait::async_trait]
impl format::PageSource for Pages {
    async fn page(&self, at: &Ref) -> peat_types::Result<Bytes> {
        Ok(lock(&self.0).pages.get(at).cloned().expect("a page of the past"))
    }
}

/// `n` processes that record an output of a read-kind method and one that ends a run, all on one unit.
pub fn unit_of_many(seed: u64, n: usize) -> (Crowd, Crowd) {
    in_virtual_time(async {
        let town = Town::new(seed, None).await;
        town.settle(3, 0).await;
        let (head, before) = (town.head(), lock(&town.past).states.len());
        let mut tasks = Vec::new();
        for i in 0..=n {
            let mut citizen = town.citizen(head.clone());
            tasks.push(tokio::spawn(async move {
                citizen.env.sleep(citizen.env.jitter(Duration::from_millis(50))).await;
                // Whoever ends a run does not wait for the others (`peat-clone` does the same).
                citizen.change(unit(1), &format!("outputs/{i}"), i > 0).await
            }));
        }
        let mut done = Vec::new();
        for task in tasks {
            done.push(task.await.expect("no panic"));
        }
        let holder = vec![done.remove(0)];
        (town.crowd(done, before), town.crowd(holder, before))
    })
}
