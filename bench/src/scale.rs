//! What commands cost in a large namespace, against a small one: a check that fails when a budget is broken.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use nix::sys::resource::{UsageWho, getrusage};
use peat_clone::{Hydration, LocalClone, NewChange, Scope};
use peat_objects::Meter;
use peat_types::{Env, Unit};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::generate::{Generator, options};

/// Most memory that any step may take.
const MAX_RSS_KIB: i64 = 300 * 1024;
/// Bytes that a commit may send more than in a small namespace.
const MAX_MORE: u64 = 5 << 10;

/// Sizes to compare.
#[derive(Clone, Debug, Args)]
pub(crate) struct Scale {
    /// Files of the large namespace
    #[arg(long, default_value_t = 1_000_000)]
    paths: u64,
    /// Models of the large namespace
    #[arg(long, default_value_t = 40_000)]
    units: u64,
    /// Bytes of a content on the average
    #[arg(long, default_value_t = 200)]
    mean: u64,
    /// What everything is derived from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Whether clones keep all contents (full) or fetch them when they are wanted (lazy)
    #[arg(long, value_enum, default_value = "full")]
    clones: Kind,
    /// Where stores and clones are made; a temporary folder unless said
    #[arg(long)]
    dir: Option<PathBuf>,
    /// File whose section on scale is replaced
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// How clones are made.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Full,
    Lazy,
}

/// A step, in a process of its own for the sake of its memory.
#[derive(Clone, Debug, Args)]
pub(crate) struct Step {
    what: What,
    url: String,
    namespace: String,
    dir: PathBuf,
    #[arg(value_enum)]
    clones: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Checkpoint,
    Clone,
    Pull,
    Commit,
}

/// What a step took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Took {
    requests: u64,
    sent: u64,
    received: u64,
    ms: f64,
    rss_kib: i64,
}

impl Step {
    /// Carries the step out and gives what it took as JSON.
    #[allow(clippy::disallowed_methods)] // measuring real time is what this program is for
    pub(crate) async fn run(&self, env: &Env) -> Result<String, Failure> {
        let (begun, meter) = (Instant::now(), Meter::default());
        let hydration = match self.clones {
            Kind::Full => Hydration::Full,
            Kind::Lazy => Hydration::Lazy,
        };
        let options = options(env, &self.url, &self.namespace, "bench", &self.dir, hydration, &meter)?;
        let clone = LocalClone::open(options, env.clone(), Arc::new(Generator)).await?;
        match self.what {
            What::Checkpoint => {
                clone.checkpoint(true, true).await?;
            }
            What::Clone | What::Pull => {
                clone.pull(&Scope::All).await?;
            }
            What::Commit => {
                let mut change = NewChange::new("put", vec![Unit::model("one")?], "data/one".into());
                change.contents = vec![Bytes::from(vec![b'x'; 1024]).into()];
                clone.commit(change).await?;
            }
        }
        let total = meter.snapshot().total();
        let took = Took {
            requests: total.requests,
            sent: total.bytes_out,
            received: total.bytes_in,
            ms: begun.elapsed().as_secs_f64() * 1000.0,
            rss_kib: getrusage(UsageWho::RUSAGE_SELF)?.max_rss(),
        };
        Ok(serde_json::to_string(&took)?)
    }
}

/// Figures of one namespace, by step.
struct Figures(Vec<(&'static str, Took)>);

impl Figures {
    fn of(&self, name: &str) -> Result<Took, Failure> {
        let found = self.0.iter().find(|(step, _)| *step == name);
        found.map(|(_, took)| *took).ok_or_else(|| format!("no step '{name}'").into())
    }
}

impl Scale {
    /// Measures, and gives the Markdown and what broke a budget.
    pub(crate) fn run(&self, tell: &dyn Fn(&str)) -> Result<(String, Vec<String>), Failure> {
        let temp = tempfile::tempdir()?;
        let dir = self.dir.clone().unwrap_or_else(|| temp.path().to_owned());
        std::fs::create_dir_all(&dir)?;
        let small = self.measure(&dir, "small", 1000, 40, tell)?;
        let large = self.measure(&dir, "large", self.paths, self.units, tell)?;
        let mut text = format!("\n### {} paths in {} models, against 1,000 in 40\n\n", self.paths, self.units);
        text.push_str(
            "| step | requests | sent | received | time | peak memory |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        let mut broken = Vec::new();
        for ((step, a), (_, b)) in small.0.iter().zip(&large.0) {
            let both = |small: String, large: String| format!("{small} → {large}");
            let kb = |bytes: u64| format!("{:.1} KB", bytes as f64 / 1000.0);
            let _ = writeln!(
                text,
                "| {step} | {} | {} | {} | {} | {} |",
                both(a.requests.to_string(), b.requests.to_string()),
                both(kb(a.sent), kb(b.sent)),
                both(kb(a.received), kb(b.received)),
                both(format!("{:.0} ms", a.ms), format!("{:.0} ms", b.ms)),
                both(format!("{} MiB", a.rss_kib >> 10), format!("{} MiB", b.rss_kib >> 10)),
            );
            if b.rss_kib >= MAX_RSS_KIB && *step != "generate" {
                broken.push(format!("{step}: {} MiB of memory", b.rss_kib >> 10));
            }
        }
        let (a, b) = (small.of("pull, nothing new")?, large.of("pull, nothing new")?);
        if b.requests > a.requests || b.received > a.received + 100 {
            broken.push(format!("a pull without news took {} requests, {} bytes", b.requests, b.received));
        }
        let (a, b) = (small.of("commit")?, large.of("commit")?);
        if b.sent > a.sent + MAX_MORE {
            broken.push(format!("a commit sent {} bytes, {} in the small namespace", b.sent, a.sent));
        }
        Ok((text, broken))
    }

    fn measure(&self, dir: &Path, name: &str, paths: u64, units: u64, tell: &dyn Fn(&str)) -> Result<Figures, Failure> {
        let url = format!("file://{}", dir.join("store").display());
        std::fs::create_dir_all(dir.join("store"))?;
        tell(&format!("{name}: {paths} paths"));
        let number = |value: u64| value.to_string();
        let this = std::env::current_exe()?;
        let status = Command::new(&this)
            .args(["generate", &url, "--namespace", name, "--paths", &number(paths), "--units", &number(units)])
            .args(["--bytes", &number(paths * self.mean), "--seed", &number(self.seed)])
            .status()?;
        if !status.success() {
            return Err("the namespace could not be generated".into());
        }
        let clone = dir.join(format!("clone-{name}"));
        let keeper = dir.join(format!("keeper-{name}"));
        let mut out = Vec::new();
        for (step, what, dir) in [
            ("checkpoint", "checkpoint", &keeper),
            ("clone", "clone", &clone),
            ("pull, nothing new", "pull", &clone),
            ("commit", "commit", &clone),
        ] {
            let kind = match self.clones {
                Kind::Full => "full",
                Kind::Lazy => "lazy",
            };
            let mut command = Command::new(&this);
            command.args(["step", what, &url, name]).arg(dir).arg(kind);
            let output = command.stderr(Stdio::inherit()).output()?;
            let took: Took = serde_json::from_slice(&output.stdout).map_err(|e| format!("{step}: {e}"))?;
            tell(&format!("{name}: {step} {:.1} s, {} MiB", took.ms / 1000.0, took.rss_kib >> 10));
            out.push((step, took));
        }
        Ok(Figures(out))
    }
}
