//! Namespaces of any size from a seed, through the same commits that everybody makes: journal, packs, one entry for many
//! models at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use clap::Args;
use peat_clone::{
    Change, Durability, Hydration, Interrupted, LocalClone, NewChange, NewNamespace, Options, Plan, PlanContent,
    PlanOp, Planner, Rank, Refusal, Silent, Source, Together, View,
};
use peat_objects::{Meter, OpenOptions, PrefixStore, StoreUrl, open};
use peat_types::{Env, Error, Hash, ItemPath, Result, Unit};
use serde::{Deserialize, Serialize};

use crate::Failure;

/// What to generate. The same numbers give the same paths and contents.
#[derive(Clone, Debug, Args)]
pub(crate) struct Generate {
    /// Store: file:///path, s3://bucket/prefix, …
    pub url: String,
    /// Files in all
    #[arg(long, default_value_t = 100_000)]
    pub paths: u64,
    /// Models that they are spread over
    #[arg(long, default_value_t = 4_000)]
    pub units: u64,
    /// Bytes of all contents
    #[arg(long, default_value_t = 200_000_000)]
    pub bytes: u64,
    /// What everything is derived from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Files in one commit at most
    #[arg(long, default_value_t = 50_000)]
    pub commit: u64,
    /// Namespace, made if it is not there
    #[arg(long, default_value = "bench")]
    pub namespace: String,
    /// Repository that owns it
    #[arg(long, default_value = "bench")]
    pub owner: String,
}

/// Units of one commit, and all that their files are derived from.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Batch {
    seed: u64,
    from: u64,
    to: u64,
    files: u64,
}

impl Batch {
    fn units(&self) -> impl Iterator<Item = (u64, String)> + use<> {
        let seed = self.seed;
        (self.from..self.to).map(move |n| (n, id(seed, n)))
    }
}

fn noise(seed: u64, n: u64, k: u64) -> Hash {
    Hash::of(&[seed.to_le_bytes(), n.to_le_bytes(), k.to_le_bytes()].concat())
}

/// Id of a model.
pub(crate) fn id(seed: u64, n: u64) -> String {
    let hex = noise(seed, n, u64::MAX).to_string();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32])
}

/// A file of a model: pairs of content and metadata, of which the newest two versions are current.
fn path(id: &str, k: u64, files: u64) -> Result<(ItemPath, Rank)> {
    let (version, newest) = (k / 2 + 1, files.div_ceil(2));
    let name = if k.is_multiple_of(2) { "raw" } else { "metadata.yaml" };
    let rank = if version + 2 > newest { Rank::Current } else { Rank::History(version) };
    Ok((format!("data/command/shell/{id}/result/{version}/{name}").parse()?, rank))
}

/// A content of about `mean` bytes, half text that compresses and half noise, as ids and times are.
pub(crate) fn content(seed: u64, n: u64, k: u64, mean: u64) -> Bytes {
    let own = noise(seed, n, k);
    let size = usize::try_from(mean / 2 + u64::from(own.as_bytes()[0]) * mean / 255).unwrap_or(usize::MAX);
    let mut text = String::with_capacity(size + 128);
    let mut line = 0;
    while text.len() < size {
        text.push_str("result of a run, as many others: ");
        text.push_str(&noise(seed ^ line, n, k).to_string()[..32]);
        text.push('\n');
        line += 1;
    }
    text.truncate(size);
    text.into()
}

/// Carries out batches, and changes of one file (`path` in the payload).
pub(crate) struct Generator;

#[async_trait]
impl Planner for Generator {
    async fn plan(&self, change: &Change, view: &dyn View) -> Result<Plan, Refusal> {
        let mut ops = Vec::new();
        if let Some(path) = change.payload.as_str() {
            let unit = view.units().first().cloned().ok_or_else(|| Error::internal("a change of nothing"))?;
            let (path, content) = (path.parse()?, PlanContent::Journalled(0));
            ops.push(PlanOp::Put { unit, path, rank: Rank::Current, executable: false, content });
            return Ok(Plan { ops, answer: serde_json::Value::Null });
        }
        let batch: Batch = serde_json::from_value(change.payload.clone())
            .map_err(|e| Error::invalid("this is no change of the bench").with_source(e))?;
        for (_, id) in batch.units() {
            let unit = Unit::model(&id)?;
            for k in 0..batch.files {
                let (path, rank) = path(&id, k, batch.files)?;
                let content = PlanContent::Journalled(ops.len());
                ops.push(PlanOp::Put { unit: unit.clone(), path, rank, executable: false, content });
            }
        }
        Ok(Plan { ops, answer: serde_json::Value::Null })
    }

    async fn interrupt(&self, _: &Interrupted, _: &dyn View) -> Result<Plan, Refusal> {
        Ok(Plan::default())
    }
}

/// What a clone in `dir` is opened from.
pub(crate) fn options(
    env: &Env,
    url: &str,
    namespace: &str,
    owner: &str,
    dir: &Path,
    hydration: Hydration,
    meter: &Meter,
) -> Result<Options, Failure> {
    let url: StoreUrl = url.parse()?;
    let open_options = OpenOptions { meter: Some(meter.clone()), ..OpenOptions::default() };
    Ok(Options {
        folder: None,
        store: Arc::new(PrefixStore::new(open(&url, &open_options, env)?, namespace)?),
        url: url.to_string(),
        namespace: namespace.parse()?,
        dir: dir.to_owned(),
        repo_id: owner.to_owned(),
        hydration,
        durability: Durability::Synced,
        together: Together::default(),
        user: "bench".to_owned(),
        host: "bench".to_owned(),
        reporter: Arc::new(Silent),
    })
}

impl Generate {
    /// Writes the same paths with the same contents as files of a folder: what a store of one object per file would hold.
    pub(crate) fn lay_out(&self, folder: &Path) -> Result<(), Failure> {
        let (files, mean) = (self.files(), self.mean());
        for n in 0..self.paths.div_ceil(files) {
            let id = id(self.seed, n);
            for k in 0..files {
                let at = folder.join(path(&id, k, files)?.0.as_str());
                std::fs::create_dir_all(at.parent().unwrap_or(folder))?;
                std::fs::write(at, content(self.seed, n, k, mean))?;
            }
        }
        Ok(())
    }

    /// Files of each model.
    fn files(&self) -> u64 {
        (self.paths / self.units.max(1)).max(1)
    }

    /// Bytes of a content, about.
    fn mean(&self) -> u64 {
        (self.bytes / self.paths.max(1)).max(1)
    }

    /// Makes the namespace, and tells what was committed after each commit.
    pub(crate) async fn run(&self, env: &Env, tell: &dyn Fn(&str)) -> Result<(), Failure> {
        let dir = tempfile::tempdir()?;
        let (scratch, meter): (PathBuf, _) = (dir.path().join("clone"), Meter::default());
        let options = options(env, &self.url, &self.namespace, &self.owner, &scratch, Hydration::Lazy, &meter)?;
        let clone = LocalClone::create(options, env.clone(), Arc::new(Generator), NewNamespace::default()).await?;
        let (files, mean) = (self.files(), self.mean());
        let units = self.paths.div_ceil(files);
        let step = (self.commit / files).max(1);
        let mut from = 0;
        while from < units {
            let batch = Batch { seed: self.seed, from, to: units.min(from + step), files };
            let all: Result<Vec<Unit>, Error> = batch.units().map(|(_, id)| Unit::model(&id)).collect();
            let mut change = NewChange::new("generate", all?, serde_json::to_value(batch)?);
            change.contents = batch
                .units()
                .flat_map(|(n, _)| (0..files).map(move |k| (n, k)))
                .map(|(n, k)| Source::Bytes(content(self.seed, n, k, mean)))
                .collect();
            let seq = clone.commit(change).await?.seq;
            from = batch.to;
            tell(&format!("entry {seq}: {} of {} files", from * files, units * files));
        }
        Ok(())
    }
}
