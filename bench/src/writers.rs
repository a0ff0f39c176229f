//! Many writers on one namespace at once: latency and requests of a commit, by how the writers get on with one another.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use peat_clone::{Durability, Hydration, LocalClone, NewChange, Options, Scope, Silent, Together};
use peat_objects::{LatencyStore, Meter, Op, OpenOptions, PrefixStore, StoreUrl, open};
use peat_types::{Env, Unit};
use serde::{Deserialize, Serialize};

use crate::commit::OneFile;
use crate::{Failure, data};

/// A load of writers.
#[derive(Clone, Debug, Args)]
pub(crate) struct Load {
    /// Store to write to; where it is, and with which keys, is said by the variables that the AWS tools use
    #[arg(long, env = "PEAT_TEST_STORE")]
    store: String,
    /// What the server is, for the results
    #[arg(long)]
    server: String,
    /// What is measured: processes x writers in each, with `s` when the processes share one clone
    #[arg(long, value_delimiter = ',', default_values_t = ["1x1", "10x1", "50x1", "100x1", "1x10", "1x100", "10x10", "10x1s"].map(String::from))]
    loads: Vec<String>,
    /// Milliseconds added to every request
    #[arg(long, default_value_t = 30)]
    delay: u64,
    /// Commits of each writer
    #[arg(long, default_value_t = 3)]
    commits: usize,
    /// Seconds a commit may take
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// File whose section on writers is replaced
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// One worker process.
#[derive(Clone, Debug, Args)]
pub(crate) struct Worker {
    url: String,
    namespace: String,
    owner: String,
    dir: PathBuf,
    number: usize,
    writers: usize,
    commits: usize,
    delay: u64,
    limit: u64,
    how: How,
}

/// [`Together`], as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    Batched,
    Helped,
    Alone,
}

impl How {
    fn together(self) -> Together {
        match self {
            Self::Batched => Together::Batched,
            Self::Helped => Together::Helped,
            Self::Alone => Together::Alone,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Batched => "helping and batching",
            Self::Helped => "helping only",
            Self::Alone => "jittered retries",
        }
    }
}

/// What one worker saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Seen {
    /// Milliseconds of every commit that went through.
    ms: Vec<f64>,
    /// Why others did not.
    failed: Vec<String>,
    puts: u64,
    gets: u64,
    lists: u64,
    deletes: u64,
}

/// Processes, writers in each, and whether they share a clone.
#[derive(Clone, Copy, Debug)]
struct Shape {
    processes: usize,
    writers: usize,
    shared: bool,
}

impl std::str::FromStr for Shape {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let (text, shared) = text.strip_suffix('s').map_or((text, false), |text| (text, true));
        let (processes, writers) = text.split_once('x').ok_or("a load is written as 10x1")?;
        Ok(Self { processes: processes.parse()?, writers: writers.parse()?, shared })
    }
}

impl Shape {
    fn name(self) -> String {
        let Self { processes, writers, shared } = self;
        let place = if shared { ", on one clone" } else { "" };
        match (processes, writers) {
            (1, 1) => "1 writer".to_owned(),
            (_, 1) => format!("{processes} processes{place}"),
            (1, _) => format!("{writers} writers in 1 process"),
            _ => format!("{processes} processes with {writers} writers each{place}"),
        }
    }

    /// What differs for this load: batching is about several writers of a process.
    fn ways(self) -> &'static [How] {
        if self.writers > 1 { &[How::Batched, How::Helped, How::Alone] } else { &[How::Batched, How::Alone] }
    }
}

/// Everything about one load under one way.
struct Figures {
    seen: Seen,
    seconds: f64,
    /// Share of all cores that were busy meanwhile, whoever kept them so.
    busy: Option<f64>,
}

/// Runs all loads and gives the section of the results.
#[allow(clippy::print_stderr)] // progress of a benchmark
pub(crate) fn writers(load: &Load) -> Result<String, Failure> {
    let mut text = format!(
        "\n## Many writers at once\n\n\
         Made by `cargo run --release -p peat-bench -- writers --server \"{}\" --loads {} --out bench/RESULTS.md` on {}, {}, with {} ms \
         added to every request; see `bench/README.md`. All processes and the server share these cores: where they were \
         busy all the time, latency is theirs and not the protocol's.\n\n\
         | writers | way | p50 | p99 | worst | PUT | GET | LIST | DELETE | failed within {} s | all done after | cores busy |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        load.server,
        load.loads.join(","),
        today()?,
        machine()?,
        load.delay,
        load.limit,
    );
    for shape in &load.loads {
        let shape: Shape = shape.parse()?;
        for how in shape.ways() {
            let figures = one(load, shape, *how)?;
            let row = figures.row(shape, *how, shape.processes * shape.writers * load.commits);
            eprint!("{row}");
            for why in figures.seen.failed.iter().take(3) {
                eprintln!("  {why}");
            }
            text.push_str(&row);
        }
    }
    Ok(text)
}

impl Figures {
    fn row(&self, shape: Shape, how: How, asked: usize) -> String {
        let mut ms = self.seen.ms.clone();
        ms.sort_by(f64::total_cmp);
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)] // small
        let at = |share: f64| ms.get(((ms.len() as f64 * share) as usize).min(ms.len().saturating_sub(1)));
        let time = |share| at(share).map_or_else(|| "–".to_owned(), |ms| format!("{ms:.0} ms"));
        #[allow(clippy::cast_precision_loss)] // small
        let each = |count: u64| count as f64 / ms.len().max(1) as f64;
        let Seen { puts, gets, lists, deletes, .. } = self.seen;
        format!(
            "| {} | {} | {} | {} | {} | {:.2} | {:.1} | {:.2} | {:.2} | {} of {asked} | {:.1} s | {} |\n",
            shape.name(),
            how.name(),
            time(0.5),
            time(0.99),
            time(1.0),
            each(puts),
            each(gets),
            each(lists),
            each(deletes),
            asked - ms.len(),
            self.seconds,
            self.busy.map_or_else(|| "–".to_owned(), |busy| format!("{:.0} %", busy * 100.0)),
        )
    }
}

/// One load under one way, in a namespace of its own.
#[allow(clippy::disallowed_methods)] // measuring real time is what this program is for
fn one(load: &Load, shape: Shape, how: How) -> Result<Figures, Failure> {
    let dir = tempfile::tempdir()?;
    let vars: Vec<(String, String)> = std::env::vars().collect();
    let env = Env::system(vars.clone());
    let tag: String = env.random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
    let (namespace, owner) = (format!("writers-{tag}"), "bench".to_owned());
    crate::runtime()?.block_on(data::build(&load.store, &vars, &namespace, &owner, 1_000))?;
    let mut workers = Vec::new();
    for number in 0..shape.processes {
        let clone = dir.path().join(if shape.shared { "clone".to_owned() } else { number.to_string() });
        std::fs::create_dir_all(&clone)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["writer", &load.store, &namespace, &owner]).arg(&clone);
        for number in [number, shape.writers, load.commits] {
            command.arg(number.to_string());
        }
        command.args([load.delay.to_string(), load.limit.to_string()]);
        command.arg(how.to_possible_value().ok_or("no such way")?.get_name());
        workers.push(Running::start(command)?);
    }
    for worker in &mut workers {
        worker.line()?;
    }
    // What was written to set up is no longer young, and nobody looked at the head within the last second.
    std::thread::sleep(Duration::from_secs(2));
    let (before, begun) = (cpu(), Instant::now());
    for worker in &mut workers {
        worker.go()?;
    }
    let mut seen = Seen::default();
    for worker in &mut workers {
        let one: Seen = serde_json::from_str(&worker.line()?)?;
        seen.ms.extend(one.ms);
        seen.failed.extend(one.failed);
        seen.puts += one.puts;
        seen.gets += one.gets;
        seen.lists += one.lists;
        seen.deletes += one.deletes;
    }
    let (seconds, after) = (begun.elapsed().as_secs_f64(), cpu());
    for mut worker in workers {
        worker.child.wait()?;
    }
    #[allow(clippy::cast_precision_loss)] // a share
    let busy = before.zip(after).map(|(before, after)| {
        let (all, idle) = (after.0 - before.0, after.1 - before.1);
        1.0 - idle as f64 / all.max(1) as f64
    });
    Ok(Figures { seen, seconds, busy })
}

/// A worker that was started; killed when the benchmark fails.
struct Running {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Result<Self, Failure> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, out })
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.out.read_line(&mut line)? == 0 {
            return Err("a worker ended early".into());
        }
        Ok(line)
    }

    fn go(&mut self) -> Result<(), Failure> {
        Ok(self.child.stdin.as_mut().ok_or("no input")?.write_all(b"go\n")?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The worker: opens its clone, says so, waits for the word, commits, and tells what it saw.
#[allow(clippy::print_stdout)] // its output is what its parent reads
pub(crate) fn worker(worker: &Worker) -> Result<(), Failure> {
    let runtime = if worker.writers == 1 {
        crate::runtime()?
    } else {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?
    };
    let (clone, meter, env) = runtime.block_on(opened(worker))?;
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    let before = meter.snapshot();
    let mut tasks = Vec::new();
    for n in 0..worker.writers {
        let (worker, clone, env) = (worker.clone(), clone.clone(), env.clone());
        tasks.push(runtime.spawn(async move { commits(&worker, n, &clone, &env).await }));
    }
    let mut seen = Seen::default();
    for task in tasks {
        let one = runtime.block_on(task)??;
        seen.ms.extend(one.ms);
        seen.failed.extend(one.failed);
    }
    let used = meter.since(&before);
    seen.puts = used.of(Op::Create).requests + used.of(Op::Put).requests;
    seen.gets = used.of(Op::Get).requests;
    seen.lists = used.of(Op::List).requests;
    seen.deletes = used.of(Op::Delete).requests;
    println!("{}", serde_json::to_string(&seen)?);
    Ok(())
}

fn unit(worker: &Worker, n: usize) -> Result<Unit, Failure> {
    Ok(Unit::model(&format!("bench-{}-{n}", worker.number))?)
}

#[allow(clippy::disallowed_methods)] // a worker is a program of its own
async fn opened(worker: &Worker) -> Result<(LocalClone, Meter, Env), Failure> {
    let env = Env::system(std::env::vars());
    let url: StoreUrl = worker.url.parse()?;
    let meter = Meter::default();
    let near = open(&url, &OpenOptions { meter: Some(meter.clone()), ..OpenOptions::default() }, &env)?;
    let far = Arc::new(LatencyStore::new(near, &env, Duration::from_millis(worker.delay), Duration::ZERO));
    let options = Options {
        folder: None,
        store: Arc::new(PrefixStore::new(far, &worker.namespace)?),
        url: url.to_string(),
        namespace: worker.namespace.parse()?,
        dir: worker.dir.clone(),
        repo_id: worker.owner.clone(),
        hydration: Hydration::Lazy,
        durability: Durability::Synced,
        together: worker.how.together(),
        user: "bench".to_owned(),
        host: format!("bench-{}", worker.number),
        reporter: Arc::new(Silent),
    };
    let clone = LocalClone::open(options, env.clone(), Arc::new(OneFile)).await?;
    let units = (0..worker.writers).map(|n| unit(worker, n)).collect::<Result<Vec<_>, _>>()?;
    clone.pull(&Scope::Units(units)).await?;
    Ok((clone, meter, env))
}

async fn commits(worker: &Worker, n: usize, clone: &LocalClone, env: &Env) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    for commit in 0..worker.commits {
        let begun = env.monotonic();
        let mut change = NewChange::new("put", vec![unit(worker, n)?], format!("data/bench/file-{commit}").into());
        change.contents = vec![Bytes::from(vec![b'x'; 1024]).into()];
        change.patience = Duration::from_secs(worker.limit);
        match clone.commit(change).await {
            Ok(_) => seen.ms.push(env.monotonic().saturating_sub(begun).as_secs_f64() * 1000.0),
            Err(error) => seen.failed.push(error.chain().join(": ")),
        }
    }
    Ok(seen)
}

/// Jiffies of all cores so far: all, and those in which nothing was to be done.
fn cpu() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let figures: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
    Some((figures.iter().take(8).sum(), figures.get(3)? + figures.get(4)?))
}

#[allow(clippy::disallowed_methods)] // a benchmark tells when it was run
pub(crate) fn today() -> Result<String, Failure> {
    let output = Command::new("date").arg("+%Y-%m-%d").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

pub(crate) fn machine() -> Result<String, Failure> {
    let cores = std::thread::available_parallelism()?;
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": cores of some kind");
    Ok(format!("{cores} shared cores ({})", model.trim_start_matches([' ', '\t', ':'])))
}

/// Replaces the section `name` of a file of results, or adds it at its end.
pub(crate) fn replace(path: &Path, name: &str, section: &str) -> Result<(), Failure> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "# Results\n".to_owned(),
        Err(error) => return Err(error.into()),
    };
    let mut out = String::new();
    match text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1))) {
        Some((before, after)) => write!(out, "{before}{begin}{section}{end}{after}")?,
        None => write!(out, "{text}\n{begin}{section}{end}")?,
    }
    Ok(std::fs::write(path, out)?)
}
