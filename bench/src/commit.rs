//! One commit, without the method around it: a change of one file through journal, plan, create and index.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use nix::sys::resource::{UsageWho, getrusage};
use peat_clone::{
    Change, Durability, Hydration, Interrupted, LocalClone, NewChange, NewNamespace, Options, Plan, PlanContent,
    PlanOp, Planner, Rank, Refusal, Silent, Together, View,
};
use peat_objects::{Meter, OpenOptions, PrefixStore, StoreUrl, open};
use peat_types::{Env, Unit};
use serde::{Deserialize, Serialize};

use crate::Failure;

/// What one commit took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Committed {
    pub requests: u64,
    pub sent: u64,
    pub received: u64,
    pub ms: f64,
    pub rss_kib: i64,
}

/// Puts the first content of a change at the path in its payload.
pub(crate) struct OneFile;

#[async_trait]
impl Planner for OneFile {
    async fn plan(&self, change: &Change, view: &dyn View) -> Result<Plan, Refusal> {
        let path = change.payload.as_str().unwrap_or_default().parse()?;
        let unit = view.units().first().cloned().ok_or_else(|| peat_types::Error::internal("a change of nothing"))?;
        let op =
            PlanOp::Put { unit, path, rank: Rank::Current, executable: false, content: PlanContent::Journalled(0) };
        Ok(Plan { ops: vec![op], answer: serde_json::Value::Null })
    }

    async fn interrupt(&self, _: &Interrupted, _: &dyn View) -> Result<Plan, Refusal> {
        Ok(Plan::default())
    }
}

/// Commits `rounds` changes of 1 KiB to a unit in the namespace `bench`, after one that is not counted. The clone is
/// opened anew for each, as a command would.
#[allow(clippy::disallowed_methods)] // measuring real time is what this program is for
pub(crate) async fn commits(
    env: &Env,
    url: &str,
    owner: &str,
    dir: &Path,
    rounds: usize,
) -> Result<Vec<Committed>, Failure> {
    let url: StoreUrl = url.parse()?;
    let unit = Unit::model("bench")?;
    let mut out = Vec::new();
    for round in 0..=rounds {
        let meter = Meter::default();
        let begun = std::time::Instant::now();
        let options = OpenOptions { meter: Some(meter.clone()), ..OpenOptions::default() };
        let options = Options {
            folder: None,
            store: Arc::new(PrefixStore::new(open(&url, &options, env)?, "bench")?),
            url: url.to_string(),
            namespace: "bench".parse()?,
            dir: dir.to_owned(),
            repo_id: owner.to_owned(),
            hydration: Hydration::Lazy,
            durability: Durability::Synced,
            together: Together::default(),
            user: "bench".to_owned(),
            host: "bench".to_owned(),
            reporter: Arc::new(Silent),
        };
        let clone = if round == 0 {
            LocalClone::create(options, env.clone(), Arc::new(OneFile), NewNamespace::default()).await?
        } else {
            LocalClone::open(options, env.clone(), Arc::new(OneFile)).await?
        };
        let mut change = NewChange::new("put", vec![unit.clone()], format!("data/bench/file-{round}").into());
        change.contents = vec![Bytes::from(vec![b'x'; 1024]).into()];
        clone.commit(change).await?;
        let took: Duration = begun.elapsed();
        if round > 0 {
            let total = meter.snapshot().total();
            out.push(Committed {
                requests: total.requests,
                sent: total.bytes_out,
                received: total.bytes_in,
                ms: took.as_secs_f64() * 1000.0,
                rss_kib: getrusage(UsageWho::RUSAGE_SELF)?.max_rss(),
            });
        }
    }
    Ok(out)
}
