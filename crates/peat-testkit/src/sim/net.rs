use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_objects::{Created, List, Meta, Object, Page, Range, Store};
use peat_types::{Error, Kind, Result};
use tokio::sync::oneshot;

use super::Sim;
use super::process::Life;

/// How long a client waits for a reply that never comes.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

/// How often things go wrong, each between 0 and 1 per request (`kill`: per place where a process may be killed).
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Mean time of one way in milliseconds.
    pub latency_ms: u64,
    /// One way takes up to a hundred times longer.
    pub slow: f64,
    /// The request never arrives; the client waits in vain.
    pub lost_request: f64,
    /// The request is carried out; the reply never arrives.
    pub lost_reply: f64,
    /// A write is carried out long after its client gave up.
    pub late: f64,
    /// Longest delay of a late landing.
    pub late_by: Duration,
    /// The process that sent a write that will land late is killed while it waits.
    pub orphaned: f64,
    /// The request arrives twice; the client gets the reply to the second.
    pub doubled: f64,
    /// The server answers 409, 429 or 503 and does nothing.
    pub status: f64,
    /// A create is answered with "exists" although nothing is there and nothing was done.
    pub false_exists: f64,
    /// The process is killed.
    pub kill: f64,
}

impl Faults {
    /// A network that works.
    pub fn none() -> Self {
        Self {
            latency_ms: 15,
            slow: 0.0,
            lost_request: 0.0,
            lost_reply: 0.0,
            late: 0.0,
            late_by: Duration::ZERO,
            orphaned: 0.0,
            doubled: 0.0,
            status: 0.0,
            false_exists: 0.0,
            kill: 0.0,
        }
    }

    /// A network and machines on a bad day.
    pub fn bad_day() -> Self {
        Self {
            slow: 0.03,
            lost_request: 0.03,
            lost_reply: 0.06,
            late: 0.04,
            late_by: Duration::from_secs(60),
            orphaned: 0.2,
            doubled: 0.05,
            status: 0.04,
            false_exists: 0.02,
            kill: 0.01,
            ..Self::none()
        }
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    LostRequest,
    LostReply,
    Late(Duration),
    Doubled,
    Status(u16),
    FalseExists,
}

/// The way from one process to the store.
pub struct SimNet {
    sim: Sim,
    life: Arc<Life>,
}

impl SimNet {
    pub(super) fn new(sim: Sim, life: Arc<Life>) -> Self {
        Self { sim, life }
    }

    fn latency(&self) -> Duration {
        let faults = self.sim.faults();
        // Skewed like real ones: mostly around the mean, with a tail.
        let mean = faults.latency_ms * 1000;
        let micros = mean / 2 + self.sim.below(mean.max(1)) * (1 + self.sim.below(2));
        let factor = if self.sim.chance(faults.slow) { 1 + self.sim.below(100) } else { 1 };
        Duration::from_micros(micros * factor)
    }

    fn fate(&self, write: bool, create: bool) -> Fate {
        let faults = self.sim.faults();
        if self.sim.chance(faults.lost_request) {
            Fate::LostRequest
        } else if self.sim.chance(faults.lost_reply) {
            Fate::LostReply
        } else if write && self.sim.chance(faults.late) {
            let most = u64::try_from(faults.late_by.as_millis()).unwrap_or(u64::MAX).max(1);
            Fate::Late(Duration::from_millis(self.sim.below(most)))
        } else if self.sim.chance(faults.doubled) {
            Fate::Doubled
        } else if create && self.sim.chance(faults.false_exists) {
            Fate::FalseExists
        } else if self.sim.chance(faults.status) {
            Fate::Status(*[409, 429, 503].get(usize::try_from(self.sim.below(3)).unwrap_or(0)).unwrap_or(&503))
        } else {
            Fate::Fine
        }
    }

    /// Sends one request. `act` is what it does when it arrives; `told` makes a reply out of nothing, for a create.
    async fn request<T: Send + Clone + 'static>(
        &self,
        what: String,
        write: Option<String>,
        told: Option<T>,
        act: impl Fn(&Sim) -> Acting<T> + Send + Sync + 'static,
        shown: impl Fn(&Result<T>) -> String,
    ) -> Result<T> {
        self.life.pass(&what).await;
        let fate = self.fate(write.is_some(), told.is_some());
        let fate = if self.life.is_cut_off() { Fate::LostRequest } else { fate };
        self.sim.log().requests += 1;
        self.sim.event(format_args!("{} {what} {fate:?}", self.life.name));
        let (there, back) = (self.latency(), self.latency());
        let again = if fate == Fate::Doubled { Some(self.latency()) } else { None };
        let (reply, answer) = oneshot::channel();
        let sim = self.sim.clone();
        // What is under way arrives whether or not its sender still lives.
        let arrives = !matches!(fate, Fate::LostRequest | Fate::Status(_) | Fate::FalseExists);
        if arrives {
            let delay = if let Fate::Late(by) = fate { there + by } else { there };
            let (name, what) = (self.life.name.clone(), what.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let mut value = act(&sim).await;
                if let Some(again) = again {
                    if let Some(key) = &write {
                        sim.wrote(key);
                    }
                    tokio::time::sleep(again).await;
                    value = act(&sim).await;
                }
                if matches!(fate, Fate::Late(_)) {
                    sim.event(format_args!("{name} {what} lands late"));
                }
                if let Some(key) = &write {
                    sim.wrote(key);
                }
                let _ = reply.send(value);
            });
        }
        let outcome = match fate {
            Fate::Fine | Fate::Doubled => match answer.await {
                Ok(value) => {
                    tokio::time::sleep(back).await;
                    value
                }
                Err(_) => Err(offline(&what, "the connection broke")),
            },
            Fate::Status(status) => {
                tokio::time::sleep(there + back).await;
                Err(offline(&what, &format!("status {status}")))
            }
            Fate::FalseExists => {
                tokio::time::sleep(there + back).await;
                told.ok_or_else(|| offline(&what, "status 409"))
            }
            Fate::LostRequest | Fate::LostReply | Fate::Late(_) => {
                // Sometimes the connection breaks at once, sometimes nothing comes back at all.
                let orphaned = matches!(fate, Fate::Late(_)) && self.sim.chance(self.sim.faults().orphaned);
                let at_once = orphaned || self.sim.chance(0.6);
                tokio::time::sleep(if at_once { there + back } else { CLIENT_TIMEOUT }).await;
                if orphaned {
                    self.life.die(&what);
                }
                Err(offline(&what, "no reply"))
            }
        };
        self.sim.event(format_args!("{} {what} -> {}", self.life.name, shown(&outcome)));
        self.life.pass(&what).await;
        outcome
    }
}

type Acting<T> = std::pin::Pin<Box<dyn Future<Output = Result<T>> + Send>>;

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
        let act = move |sim: &Sim| -> Acting<Option<Object>> {
            let (store, name) = (sim.store().clone(), name.clone());
            Box::pin(async move { store.get(&name, range).await })
        };
        let shown = |reply: &Result<Option<Object>>| match reply {
            Ok(None) => "absent".to_owned(),
            Ok(Some(object)) => brief(&object.bytes),
            Err(e) => error(e),
        };
        self.request(format!("get {key}"), None, None, act, shown).await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Created> {
        let name = key.to_owned();
        let what = format!("create {key} {}", brief(&body));
        let act = move |sim: &Sim| -> Acting<Created> {
            let (store, name, body) = (sim.store().clone(), name.clone(), body.clone());
            Box::pin(async move { store.create(&name, body).await })
        };
        let shown = |reply: &Result<Created>| match reply {
            Ok(Created::Created(_)) => "created".to_owned(),
            Ok(Created::Exists) => "exists".to_owned(),
            Err(e) => error(e),
        };
        self.request(what, Some(key.to_owned()), Some(Created::Exists), act, shown).await
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Meta> {
        let name = key.to_owned();
        let what = format!("put {key} {}", brief(&body));
        let act = move |sim: &Sim| -> Acting<Meta> {
            let (store, name, body) = (sim.store().clone(), name.clone(), body.clone());
            Box::pin(async move { store.put(&name, body).await })
        };
        let shown = |reply: &Result<Meta>| reply.as_ref().map_or_else(error, |_| "done".to_owned());
        self.request(what, Some(key.to_owned()), None, act, shown).await
    }

    async fn list(&self, list: &List) -> Result<Page> {
        let asked = list.clone();
        let act = move |sim: &Sim| -> Acting<Page> {
            let (store, asked) = (sim.store().clone(), asked.clone());
            Box::pin(async move { store.list(&asked).await })
        };
        let shown = |reply: &Result<Page>| {
            reply.as_ref().map_or_else(error, |page| {
                format!("{} keys, first {:?}", page.keys.len(), page.keys.first().map(|listed| &listed.key))
            })
        };
        self.request(format!("list {}", list.prefix), None, None, act, shown).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let name = key.to_owned();
        let act = move |sim: &Sim| -> Acting<()> {
            let (store, name) = (sim.store().clone(), name.clone());
            Box::pin(async move { store.delete(&name).await })
        };
        let shown = |reply: &Result<()>| reply.as_ref().map_or_else(error, |()| "done".to_owned());
        self.request(format!("delete {key}"), Some(key.to_owned()), None, act, shown).await
    }
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
