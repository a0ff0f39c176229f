use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_objects::{Created, List, MemoryStore, Meta, Object, Page, Range, Store};
use peat_types::{Error, Kind, Result, Timestamp};
use tokio::sync::oneshot;

use super::faults::{Passing, Verb};
use super::process::Life;
use super::{Dice, Fault, Sim, Wrote};

/// How long a client waits for a reply that never comes.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);
/// More keys than this a listing that lags does not look through.
const LAG_KEYS: u16 = 64;

/// The way from one process to the store.
pub struct SimNet {
    sim: Sim,
    life: Arc<Life>,
}

/// A request on its way.
struct Request<T> {
    verb: Verb,
    key: String,
    /// What it does when it arrives; a listing may not know what was written in the last so long.
    act: Act<T>,
    /// A reply made out of nothing, for a create.
    told: Option<T>,
    shown: fn(&Result<T>) -> String,
}

type Act<T> = Box<dyn Fn(&Sim, Duration) -> Acting<T> + Send + Sync>;
type Acting<T> = std::pin::Pin<Box<dyn Future<Output = Result<T>> + Send>>;

impl SimNet {
    pub(super) fn new(sim: Sim, life: Arc<Life>) -> Self {
        Self { sim, life }
    }

    /// Skewed like real ones: mostly around the mean, with a tail.
    fn latency(&self, dice: &mut Dice) -> Duration {
        let mean = self.sim.latency_ms() * 1000;
        Duration::from_micros(mean / 2 + dice.below(mean.max(1)) * (1 + dice.below(2)))
    }

    /// Sends one request.
    async fn request<T: Send + Clone + 'static>(&self, request: Request<T>) -> Result<T> {
        let Request { verb, key, act, told, shown } = request;
        let (sim, life) = (&self.sim, &self.life);
        let what = format!("{} {key}", verb.name());
        life.go_on().await;
        let writes = !matches!(verb, Verb::Get | Verb::List);
        if writes && life.reading.load(Ordering::Relaxed) {
            sim.violation(format_args!("A6: {} only reads, and sends {what}", life.name));
        }
        let (fault, dice) = life.strike(Passing::Request(verb), &what);
        let mut dice = dice();
        let fault = life.suffer(fault);
        life.go_on().await;
        let fault = if life.is_cut_off() { Some(Fault::LostRequest) } else { fault };
        sim.log().requests += 1;
        sim.event(format_args!("{} {what}{}", life.name, fault.map(|f| format!(" {f}")).unwrap_or_default()));
        let (mut there, mut back, again) = (self.latency(&mut dice), self.latency(&mut dice), self.latency(&mut dice));
        // Sometimes the connection breaks at once, sometimes nothing comes back at all.
        let breaks = dice.chance(0.6);
        match fault {
            Some(Fault::SlowRequest(by) | Fault::Late(by) | Fault::Orphan(by)) => there += by,
            Some(Fault::SlowReply(by)) => back += by,
            _ => {}
        }
        let (reply, answer) = oneshot::channel();
        // What is under way arrives whether or not its sender still lives.
        if !matches!(fault, Some(Fault::LostRequest | Fault::Status(_) | Fault::FalseExists)) {
            let (sim, life, key, what) = (sim.clone(), life.clone(), key.clone(), what.clone());
            let answered = !matches!(fault, Some(Fault::LostReply | Fault::Late(_) | Fault::Orphan(_)));
            let doubled = fault == Some(Fault::Doubled);
            let lag = if let Some(Fault::Lag(by)) = fault { by } else { Duration::ZERO };
            tokio::spawn(async move {
                tokio::time::sleep(there).await;
                let arrived = |first: bool| {
                    if !first || matches!(fault, Some(Fault::Late(_) | Fault::Orphan(_))) {
                        sim.event(format_args!("{} {what} lands {}", life.name, if first { "late" } else { "again" }));
                    }
                    if writes {
                        let answered = answered && !life.is_dead();
                        sim.wrote(&Wrote { verb: verb.name(), key: &key, by: &life.name, answered });
                    }
                };
                let mut value = act(&sim, lag).await;
                arrived(true);
                if doubled {
                    tokio::time::sleep(again).await;
                    value = act(&sim, lag).await;
                    arrived(false);
                }
                tokio::time::sleep(back).await;
                let _ = reply.send(value);
            });
        }
        let outcome = match fault {
            Some(Fault::LostRequest | Fault::LostReply | Fault::Late(_) | Fault::Orphan(_)) => {
                let orphan = matches!(fault, Some(Fault::Orphan(_)));
                tokio::time::sleep(if breaks || orphan { again + back } else { CLIENT_TIMEOUT }).await;
                if orphan {
                    life.die(&what);
                }
                Err(offline(&what, "no reply"))
            }
            Some(Fault::Status(status)) => {
                tokio::time::sleep(there + back).await;
                Err(offline(&what, &format!("status {status}")))
            }
            Some(Fault::FalseExists) => {
                tokio::time::sleep(there + back).await;
                told.ok_or_else(|| offline(&what, "status 409"))
            }
            _ => {
                // A process that stood still meanwhile finds the reply when it goes on.
                tokio::select! {
                    biased;
                    value = answer => value.unwrap_or_else(|_| Err(offline(&what, "the connection broke"))),
                    () = tokio::time::sleep(CLIENT_TIMEOUT) => Err(offline(&what, "no reply in time")),
                }
            }
        };
        sim.event(format_args!("{} {what} -> {}", life.name, shown(&outcome)));
        life.go_on().await;
        let (fault, _) = life.strike(Passing::Step, &what);
        life.suffer(fault);
        life.go_on().await;
        outcome
    }
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }
}

fn offline(what: &str, why: &str) -> Error {
    Error::new(Kind::Offline, format!("{what}: {why} (simulated)"))
}

fn brief(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{} B {:08x}", bytes.len(), hasher.finish() >> 32)
}

fn error(error: &Error) -> String {
    format!("{:?}", error.kind())
}

#[async_trait]
impl Store for SimNet {
    async fn get(&self, key: &str, range: Range) -> Result<Option<Object>> {
        let name = key.to_owned();
        self.request(Request {
            verb: Verb::Get,
            key: key.to_owned(),
            act: Box::new(move |sim, _| {
                let (store, name) = (sim.store().clone(), name.clone());
                Box::pin(async move { store.get(&name, range).await })
            }),
            told: None,
            shown: |reply| match reply {
                Ok(None) => "absent".to_owned(),
                Ok(Some(object)) => brief(&object.bytes),
                Err(e) => error(e),
            },
        })
        .await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        let name = key.to_owned();
        self.request(Request {
            verb: Verb::Create,
            key: key.to_owned(),
            act: Box::new(move |sim, _| {
                let (store, name, body) = (sim.store().clone(), name.clone(), body.clone());
                Box::pin(async move { store.create(&name, body).await })
            }),
            told: Some(Created::Exists),
            shown: |reply| match reply {
                Ok(Created::Created(_)) => "created".to_owned(),
                Ok(Created::Exists) => "exists".to_owned(),
                Err(e) => error(e),
            },
        })
        .await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        let name = key.to_owned();
        self.request(Request {
            verb: Verb::Put,
            key: key.to_owned(),
            act: Box::new(move |sim, _| {
                let (store, name, body) = (sim.store().clone(), name.clone(), body.clone());
                Box::pin(async move { store.put(&name, body).await })
            }),
            told: None,
            shown: |reply| reply.as_ref().map_or_else(error, |_| "done".to_owned()),
        })
        .await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        let asked = list.clone();
        self.request(Request {
            verb: Verb::List,
            key: list.prefix.clone(),
            act: Box::new(move |sim, lag| {
                let (store, asked, now) = (sim.store().clone(), asked.clone(), sim.server().now());
                Box::pin(async move {
                    if lag.is_zero() { store.list(&asked).await } else { lagging(&store, &asked, now, lag).await }
                })
            }),
            told: None,
            shown: |reply| {
                reply.as_ref().map_or_else(error, |page| {
                    format!("{} keys, first {:?}", page.keys.len(), page.keys.first().map(|listed| &listed.key))
                })
            },
        })
        .await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let name = key.to_owned();
        self.request(Request {
            verb: Verb::Delete,
            key: key.to_owned(),
            act: Box::new(move |sim, _| {
                let (store, name) = (sim.store().clone(), name.clone());
                Box::pin(async move { store.delete(&name).await })
            }),
            told: None,
            shown: |reply| reply.as_ref().map_or_else(error, |()| "done".to_owned()),
        })
        .await
    }
}

/// The first page of a listing as it was `lag` ago, for what has been written since. (Deleted keys do not come back.)
/// A folder that would look empty is shown as it is: a store that hides what it just accepted is refused by the probe.
pub(super) async fn lagging(store: &MemoryStore, asked: &List, now: Timestamp, lag: Duration) -> Result<Page> {
    let most = asked.max_keys.unwrap_or(LAG_KEYS);
    let more = List { max_keys: Some(most.max(LAG_KEYS)), ..asked.clone() };
    let mut page = store.list(&more).await?;
    let lag = i64::try_from(lag.as_millis()).unwrap_or(i64::MAX);
    page.keys.retain(|listed| listed.last_modified.is_none_or(|at| now.millis_since(at) >= lag));
    if page.keys.is_empty() {
        return store.list(asked).await;
    }
    if page.keys.len() > usize::from(most) {
        page.keys.truncate(usize::from(most));
        page.token = page.keys.last().map(|listed| listed.key.clone());
    }
    Ok(page)
}

impl fmt::Display for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sim:")
    }
}

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNet").field("process", &self.life.name).finish_non_exhaustive()
    }
}
