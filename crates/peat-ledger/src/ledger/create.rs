//! Creating and opening a ledger.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peat_objects::{Created, List, Pages, Range, Store, time_to_send};
use peat_types::{CloneId, Env, Error, InstanceId, Kind, LedgerId, Result, Seq};

use super::{Ledger, NewLedger, key};
use crate::format;
use crate::model::{Claim, NsInfo};

/// How long a creation is tried before it gives up. It can be repeated at any time.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn create(
    store: Arc<dyn Store>,
    env: &Env,
    new: NewLedger,
    clone: CloneId,
    instance: InstanceId,
) -> Result<Ledger> {
    let info = match read(&*store).await? {
        Some(info) => info,
        None => match trace_of_ledger(&*store).await? {
            None => announce(&*store, env, &new).await?,
            // Looked for before the key was listed: somebody may have created the ledger in between.
            Some(key) => read(&*store).await?.ok_or_else(|| {
                Error::damaged(format!("{store} holds {key} but no {}", key::NS))
                    .with_code("half_a_ledger")
                    .with_hint(
                        "if a move to here was interrupted, run the same 'peat datastore setup <url>' again where it began",
                    )
                    .with_hint("otherwise restore ns.json from a backup, or choose another namespace or prefix")
            })?,
        },
    };
    if info.owner != new.owner {
        return Err(Error::new(
            Kind::AlreadyExists,
            format!("namespace '{}' in {store} belongs to repository {}", info.namespace, info.owner),
        )
        .with_code("namespace_taken")
        .with_hint("choose another namespace with --namespace, or join it from a clone of that repository"));
    }
    if info.namespace != new.namespace {
        return Err(misplaced(&*store, &info, new.namespace.as_str()));
    }
    let ledger = Ledger::with_info(store, env, info, clone, instance);
    ledger.finish_creation().await?;
    Ok(ledger)
}

impl Ledger {
    /// Writes the first entry, should whoever made the namespace have been interrupted before it did. For clones that never
    /// saw an entry.
    ///
    /// # Errors
    /// `Damaged` when the log is empty and once was not.
    pub async fn finish_creation(&self) -> Result<()> {
        if self.list_head().await?.is_some() {
            return Ok(());
        }
        if !self.info.origin.is_empty() {
            // The entries of a copy are there before its ns.json.
            return Err(self.empty_log());
        }
        finish(self).await
    }
}

pub(super) async fn open(
    store: Arc<dyn Store>,
    env: &Env,
    clone: CloneId,
    instance: InstanceId,
) -> Result<Option<Ledger>> {
    Ok(read(&*store).await?.map(|info| Ledger::with_info(store, env, info, clone, instance)))
}

fn misplaced(store: &dyn Store, info: &NsInfo, wanted: &str) -> Error {
    Error::damaged(format!("{store}{} says it is namespace '{}', not '{wanted}'", key::NS, info.namespace))
        .with_code("fork")
        .with_hint("objects were copied from another namespace: a copy needs a ledger id of its own")
}

pub(super) async fn read(store: &dyn Store) -> Result<Option<NsInfo>> {
    let Some(object) = store.get(key::NS, Range::All).await? else { return Ok(None) };
    parse(store, &object.bytes).map(Some)
}

/// # Errors
/// `Damaged` with code `half_a_ledger` while a ledger is moved there.
pub(super) fn parse(store: &dyn Store, bytes: &Bytes) -> Result<NsInfo> {
    if Claim::of(bytes).is_some() {
        return Err(Error::damaged(format!("a ledger is being moved to {store}, and has not arrived yet"))
            .with_code("half_a_ledger")
            .with_hint("if that was interrupted, run the same 'peat datastore setup <url>' again where it began")
            .with_hint("otherwise choose another namespace with --namespace, or another prefix"));
    }
    // The version first: a newer format may have other fields.
    let bad = |e| {
        Error::damaged(format!("{} in {store} cannot be read", key::NS))
            .with_hint("on a machine that has a clone of it 'peat doctor --repair' writes it again; else restore it")
            .with_source(e)
    };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(bad)?;
    let version = value.get("format").and_then(serde_json::Value::as_u64);
    if version.is_some_and(|version| version > u64::from(format::VERSION)) {
        return Err(Error::new(
            Kind::Unsupported,
            format!(
                "{store} has format {}, this version of peat knows up to {}",
                version.unwrap_or_default(),
                format::VERSION
            ),
        )
        .with_code("unsupported_version")
        .with_hint("install a newer version of peat"));
    }
    serde_json::from_value(value).map_err(bad)
}

/// An object that only an existing ledger has.
async fn trace_of_ledger(store: &dyn Store) -> Result<Option<String>> {
    match first_key(store, key::LOG).await? {
        None => first_key(store, key::PACK).await,
        found => Ok(found),
    }
}

async fn first_key(store: &dyn Store, prefix: &str) -> Result<Option<String>> {
    let mut pages = Pages::new(store, List { prefix: prefix.to_owned(), max_keys: Some(1), ..List::default() });
    while let Some(page) = pages.next().await? {
        if let Some(found) = page.keys.into_iter().next() {
            return Ok(Some(found.key));
        }
    }
    Ok(None)
}

/// Writes `ns.json`, or learns whose is there.
async fn announce(store: &dyn Store, env: &Env, new: &NewLedger) -> Result<NsInfo> {
    let info = NsInfo {
        format: format::VERSION,
        ledger: LedgerId::from_bytes(env.random_bytes()),
        namespace: new.namespace.clone(),
        owner: new.owner.clone(),
        origin: Vec::new(),
        created: env.now(),
        params: new.params.clone(),
        probe: new.probe.clone(),
        rest: serde_json::Map::new(),
    };
    let body = serde_json::to_vec_pretty(&info).map_err(|e| Error::internal("cannot write ns.json").with_source(e))?;
    let stored = create_or_read(store, env, key::NS, body.into(), &new.params).await?;
    parse(store, &stored)
}

/// Entry 0 is a pure function of `ns.json`: whoever finds it missing writes the same bytes. A log that was emptied later
/// looks the same; what it left behind tells it apart, and every clone that saw a head reports it as set back.
async fn finish(ledger: &Ledger) -> Result<()> {
    if let Some(key) = first_key(&*ledger.store, key::PACK).await? {
        if ledger.list_head().await?.is_some() {
            return Ok(());
        }
        return Err(ledger.empty_log().with_hint(format!("{key} shows that it once had entries")));
    }
    ledger.env.step("create.genesis").await;
    let (body, _) = format::genesis(&ledger.info)?;
    let key = key::log(Seq::ZERO);
    let stored = create_or_read(&*ledger.store, &ledger.env, &key, body.clone(), &ledger.info.params).await?;
    // R6: whoever stood still since it was listed finds what a purge left there.
    if stored != body && !is_void(ledger, Seq::ZERO).await? {
        return Err(Error::damaged(format!("{key} in {} is the first entry of another ledger", ledger.store))
            .with_code("fork")
            .with_hint("the namespace was overwritten: restore it, or create a new one under another name"));
    }
    Ok(())
}

/// Whether a slot is below K. A head that cannot be read does not say so.
async fn is_void(ledger: &Ledger, seq: Seq) -> Result<bool> {
    match ledger.glance_head(Seq::ZERO).await {
        Ok(head) => Ok(head.state.root.keep > seq),
        Err(error) if error.kind() == Kind::Damaged => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates an object whose bytes everybody who creates it agrees on, or takes what is there. Any reply but a success is
/// unknown, so the key is read (A3).
pub(super) async fn create_or_read(
    store: &dyn Store,
    env: &Env,
    key: &str,
    body: Bytes,
    params: &crate::Params,
) -> Result<Bytes> {
    let limit = Duration::from_millis(params.create_timeout_ms) + time_to_send(body.len());
    let give_up = env.monotonic() + PATIENCE;
    let mut pause = Duration::from_millis(50);
    loop {
        let error = match env.timeout(limit, store.create(key, body.clone())).await {
            Some(Ok(Created::Created(_))) => return Ok(body),
            Some(Ok(Created::Exists)) => Error::new(Kind::Offline, format!("{key} exists, yet it cannot be read")),
            Some(Err(error)) => error,
            None => Error::new(Kind::Offline, format!("no answer while creating {key} in {store}")),
        };
        let error = match store.get(key, Range::All).await {
            Ok(Some(object)) => return Ok(object.bytes),
            Ok(None) => error,
            Err(unread) => unread,
        };
        let asked = error.retry_after().unwrap_or_default();
        if error.kind() != Kind::Offline || env.monotonic() + asked >= give_up {
            return Err(error);
        }
        env.sleep(asked + env.jitter(pause)).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}
