//! A namespace of a given size, as a team's runs would have left it.

use std::sync::Arc;

use bytes::Bytes;
use peat_ledger::{
    Commit, Draft, DraftUnit, Entry, Ledger, NewContent, NewLedger, Op, PageCache, Params, Rank, Ref, TxKind,
};
use peat_objects::{Durability, OpenOptions, PrefixStore, StoreUrl, open};
use peat_types::{ChangeId, CloneId, Env, InstanceId, TxId, Unit};

use crate::Failure;

/// Files of one model: four versions of a result and of a log, each with its metadata.
const FILES: usize = 16;
/// Models per transaction while building.
const BATCH: usize = 50;

/// Keeps every page: the builder writes far more than it reads.
#[derive(Debug, Default)]
struct Pages(std::sync::Mutex<std::collections::HashMap<Ref, Bytes>>);

impl PageCache for Pages {
    fn get(&self, at: &Ref) -> Option<Bytes> {
        self.0.lock().ok()?.get(at).cloned()
    }

    fn put(&self, at: &Ref, record: &Bytes) {
        if let Ok(mut pages) = self.0.lock() {
            pages.insert(*at, record.clone());
        }
    }
}

/// Creates the namespace `namespace` of the repository `owner` at `url` with about `paths` files, and `ledger` limits.
/// Gives the number of models.
pub(crate) async fn build(
    url: &str,
    vars: &[(String, String)],
    namespace: &str,
    owner: &str,
    paths: usize,
) -> Result<usize, Failure> {
    let env = Env::system(vars.to_vec());
    let url: StoreUrl = url.parse()?;
    let options = OpenOptions { durability: Durability::Process, ..OpenOptions::default() };
    let store = Arc::new(PrefixStore::new(open(&url, &options, &env)?, namespace)?);
    let new = NewLedger {
        namespace: namespace.parse()?,
        owner: owner.to_owned(),
        params: Params::default(),
        probe: serde_json::Value::Null,
    };
    let ledger = Ledger::create(store, &env, new, CloneId::random(&env), InstanceId::random(&env)).await?;
    let cache = Pages::default();
    let mut state = ledger.head().await?.state;
    let models = paths.div_ceil(FILES);
    let mut left = models;
    while left > 0 {
        let units = (0..left.min(BATCH)).map(|_| unit(&env)).collect::<Result<Vec<_>, _>>()?;
        left -= units.len();
        let draft = Draft {
            tx: TxId::random(&env),
            change: ChangeId::random(&env),
            kind: TxKind::Change,
            author: "bench@bench".to_owned(),
            message: "filler".to_owned(),
            time: env.now(),
            guard: None,
            units: {
                let mut units = units;
                units.sort_by(|a, b| a.unit.cmp(&b.unit));
                units
            },
        };
        state = match ledger.commit(&state, env.monotonic(), &draft, &cache, 60_000).await? {
            Commit::Committed { entry, .. } => keep(&cache, *entry),
            other => return Err(format!("building the namespace: {other:?}").into()),
        };
    }
    Ok(models)
}

fn keep(cache: &Pages, entry: Entry) -> peat_ledger::State {
    for page in &entry.pages {
        let from = usize::try_from(page.off).unwrap_or(usize::MAX);
        let to = from.saturating_add(page.len as usize);
        if to <= entry.body.len() {
            cache.put(page, &entry.body.slice(from..to));
        }
    }
    entry.state
}

fn unit(env: &Env) -> Result<DraftUnit, Failure> {
    let id = env.random_bytes::<16>();
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let id = format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    let mut ops = Vec::new();
    for name in ["log", "result"] {
        for version in 1..=4u64 {
            let rank = if version == 4 { Rank::Current } else { Rank::History(version) };
            for (file, size) in [("metadata.yaml", 620), ("raw", 180)] {
                // Metadata is text that zstd takes together; results are half noise, as ids and times are.
                let noise = env.random_bytes::<32>();
                let line = format!(
                    "{name} {version} of {id}: {}\n",
                    noise.iter().map(|b| format!("{b:02x}")).collect::<String>()
                );
                let body = line.repeat(size / line.len() + 1);
                ops.push(Op::Put {
                    path: format!("data/command/shell/{id}/{name}/{version}/{file}").parse()?,
                    rank,
                    old: None,
                    executable: false,
                    content: NewContent::Bytes(Bytes::from(body.into_bytes()[..size].to_vec())),
                });
            }
        }
    }
    Ok(DraftUnit { unit: Unit::model(&id)?, expected: None, ops })
}
