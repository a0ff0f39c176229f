//! A store that fails in the ways real ones do, by script or by chance.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{Env, Error, Kind, Result};

use crate::{Created, List, Meta, Object, Op, Page, Range, Store};

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request never arrives.
    LostRequest,
    /// The request is applied; its reply never arrives.
    LostReply,
    /// The request seems lost and is applied this much later, when its caller has long gone on.
    Late(Duration),
    /// The request arrives twice; the caller sees the reply to the second.
    Doubled,
    /// The server refuses with this status without applying the request.
    Status(u16),
    /// The server refuses with 503 and asks to be left alone for so long.
    Busy(Duration),
    /// The server applies the request and answers with this status.
    AppliedStatus(u16),
    /// The reply takes this much longer.
    Slow(Duration),
    /// A listing is answered as it was when it was last asked for. Other operations are not affected.
    StaleList,
}

/// How often each kind of fault happens by chance, each between 0 and 1. What does not fit an operation is not drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// [`Fault::LostRequest`]
    pub lost_request: f64,
    /// [`Fault::LostReply`]
    pub lost_reply: f64,
    /// [`Fault::Late`], writes only, up to `late_by`.
    pub late: f64,
    /// Longest delay of a late landing.
    pub late_by: Duration,
    /// [`Fault::Doubled`]
    pub doubled: f64,
    /// [`Fault::Status`] or [`Fault::AppliedStatus`] of 409, 429, 500 or 503.
    pub status: f64,
    /// [`Fault::StaleList`]
    pub stale_list: f64,
}

type KeyPredicate = Box<dyn Fn(&str) -> bool + Send + Sync>;

struct Rule {
    op: Op,
    keys: KeyPredicate,
    /// Matching requests to let pass before.
    skip: u32,
    /// Matching requests to fail after that.
    times: u32,
    fault: Fault,
}

#[derive(Default)]
struct Plan {
    rules: Vec<Rule>,
    rates: Rates,
    /// Replies to listings by everything that was asked.
    lists: BTreeMap<String, Page>,
    fired: Vec<(Op, String, Fault)>,
}

/// A store that fails by plan. Clones share the plan.
#[derive(Clone)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    env: Env,
    plan: Arc<Mutex<Plan>>,
}

impl FaultStore {
    /// A store that does not fail until told to. Chance and time come from `env`.
    pub fn new(inner: Arc<dyn Store>, env: &Env) -> Self {
        Self { inner, env: env.clone(), plan: Arc::default() }
    }

    /// Lets the `nth` request (from now, counting from 1) of `op` to a key (or list prefix) that `keys` accepts fail.
    pub fn script(&self, op: Op, keys: impl Fn(&str) -> bool + Send + Sync + 'static, nth: u32, fault: Fault) {
        self.script_times(op, keys, nth, 1, fault);
    }

    /// Like [`Self::script`], for `times` requests in a row.
    pub fn script_times(
        &self,
        op: Op,
        keys: impl Fn(&str) -> bool + Send + Sync + 'static,
        nth: u32,
        times: u32,
        fault: Fault,
    ) {
        self.plan().rules.push(Rule { op, keys: Box::new(keys), skip: nth.saturating_sub(1), times, fault });
    }

    /// From now on, requests without a scripted fault fail by chance.
    pub fn set_rates(&self, rates: Rates) {
        self.plan().rates = rates;
    }

    /// From now on nothing fails.
    pub fn heal(&self) {
        let mut plan = self.plan();
        plan.rules.clear();
        plan.rates = Rates::default();
    }

    /// The faults that happened, in order.
    pub fn fired(&self) -> Vec<(Op, String, Fault)> {
        self.plan().fired.clone()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, op: Op, rates: &Rates) -> Option<Fault> {
        let write = matches!(op, Op::Create | Op::Put | Op::Delete);
        let status = [409, 429, 500, 503][usize::from(self.env.random_bytes::<1>()[0] % 4)];
        let applied = write && status >= 500 && self.env.random_unit() < 0.5;
        let table = [
            (rates.lost_request, Fault::LostRequest),
            (rates.lost_reply, Fault::LostReply),
            (if write { rates.late } else { 0.0 }, Fault::Late(self.env.jitter(rates.late_by))),
            (rates.doubled, Fault::Doubled),
            (rates.status, if applied { Fault::AppliedStatus(status) } else { Fault::Status(status) }),
            (if op == Op::List { rates.stale_list } else { 0.0 }, Fault::StaleList),
        ];
        let mut dice = self.env.random_unit();
        for (rate, fault) in table {
            if dice < rate {
                return Some(fault);
            }
            dice -= rate;
        }
        None
    }

    fn next(&self, op: Op, key: &str) -> Option<Fault> {
        let mut plan = self.plan();
        let mut scripted = None;
        for rule in plan.rules.iter_mut().filter(|rule| rule.op == op && (rule.keys)(key)) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 && scripted.is_none() {
                rule.times -= 1;
                scripted = Some(rule.fault);
            }
        }
        plan.rules.retain(|rule| rule.times > 0);
        let fault = scripted.or_else(|| if plan.rates == Rates::default() { None } else { self.draw(op, &plan.rates) });
        if let Some(fault) = fault {
            plan.fired.push((op, key.to_owned(), fault));
        }
        fault
    }

    fn error(&self, op: Op, key: &str, fault: Fault) -> Error {
        let why = match fault {
            Fault::Status(status) | Fault::AppliedStatus(status) => format!("status {status}"),
            Fault::Busy(pause) => format!("status 503, not before {} s", pause.as_secs()),
            _ => "no reply".to_owned(),
        };
        let error = Error::new(Kind::Offline, format!("{op} {}/{key}: {why} (injected fault)", self.inner));
        match fault {
            Fault::Busy(pause) => error.with_code("store_busy").with_retry_after(pause),
            Fault::Status(429 | 503) => error.with_code("store_busy"),
            _ => error,
        }
    }

    /// Runs one request under the fault that is due. `request` makes a fresh future of it that owns what it needs.
    async fn run<T, F>(&self, op: Op, key: &str, request: impl Fn(Arc<dyn Store>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        self.run_under(self.next(op, key), op, key, request).await
    }

    async fn run_under<T, F>(
        &self,
        fault: Option<Fault>,
        op: Op,
        key: &str,
        request: impl Fn(Arc<dyn Store>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        let Some(fault) = fault else { return request(self.inner.clone()).await };
        match fault {
            Fault::LostRequest | Fault::Status(_) | Fault::Busy(_) => Err(self.error(op, key, fault)),
            Fault::LostReply | Fault::AppliedStatus(_) => {
                // Whatever the reply was, nobody hears it.
                let _ = request(self.inner.clone()).await;
                Err(self.error(op, key, fault))
            }
            Fault::Late(delay) => {
                let (env, late) = (self.env.clone(), request(self.inner.clone()));
                tokio::spawn(async move {
                    env.sleep(delay).await;
                    late.await
                });
                Err(self.error(op, key, fault))
            }
            Fault::Doubled => {
                let _ = request(self.inner.clone()).await;
                request(self.inner.clone()).await
            }
            Fault::Slow(delay) => {
                let reply = request(self.inner.clone()).await;
                self.env.sleep(delay).await;
                reply
            }
            Fault::StaleList => request(self.inner.clone()).await,
        }
    }
}

#[async_trait]
impl Store for FaultStore {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        self.run(Op::Get, key, |store| {
            let key = key.to_owned();
            async move { store.get(&key, range).await }
        })
        .await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        self.run(Op::Create, key, |store| {
            let (key, body) = (key.to_owned(), body.clone());
            async move { store.create(&key, body).await }
        })
        .await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        self.run(Op::Put, key, |store| {
            let (key, body) = (key.to_owned(), body.clone());
            async move { store.put(&key, body).await }
        })
        .await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        let question = format!("{list:?}");
        let fault = self.next(Op::List, &list.prefix);
        let page = self
            .run_under(fault, Op::List, &list.prefix, |store| {
                let list = list.clone();
                async move { store.list(&list).await }
            })
            .await?;
        let mut plan = self.plan();
        if fault == Some(Fault::StaleList)
            && let Some(old) = plan.lists.get(&question)
        {
            return Ok(old.clone());
        }
        plan.lists.insert(question, page.clone());
        Ok(page)
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.run(Op::Delete, key, |store| {
            let key = key.to_owned();
            async move { store.delete(&key).await }
        })
        .await
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
