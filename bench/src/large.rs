//! One very large content on its way through everything that touches it: a check that fails when a step takes more memory
//! than a constant.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use peat_types::{Env, Hash, Hasher};
use serde_json::Value;

use crate::measure::{Login, Machine, Took, run_as};
use crate::writers::{self, today};
use crate::{Failure, copy_repo};

/// Most memory that any step may take. Four packs of up to 24 MiB are in flight when something is sent, 96 MiB of objects
/// when a ledger moves; the rest is the program, its buffers, and what the allocator keeps.
const MAX_RSS_KIB: i64 = 256 << 10;
/// The name of the data item.
const NAME: &str = "large";

/// What to carry.
#[derive(Clone, Debug, Args)]
pub(crate) struct Large {
    /// Bytes of the content
    #[arg(long, default_value_t = 5 << 30)]
    bytes: u64,
    /// Where stores, repositories and clones are made (some six times as large as the content); a temporary folder unless said
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Store: s3://bucket/prefix; a folder unless said
    #[arg(long, env = "PEAT_TEST_STORE")]
    store: Option<String>,
    #[command(flatten)]
    login: Login,
    /// What the server is, for the results
    #[arg(long, default_value = "a folder")]
    server: String,
    /// The binary to measure; by default `peat` beside this program
    #[arg(long)]
    peat: Option<PathBuf>,
    /// File whose section on large contents is replaced
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// Writes bytes that do not compress, and gives their hash.
pub(crate) fn noise(bytes: u64, seed: u64, to: &mut dyn Write) -> Result<Hash, Failure> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let (mut hasher, mut block, mut left) = (Hasher::default(), vec![0_u8; 1 << 20], bytes);
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
        }
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        let some = block.get(..len).unwrap_or_default();
        to.write_all(some)?;
        hasher.update(some);
        left -= len as u64;
    }
    to.flush()?;
    Ok(hasher.finish())
}

/// What a step took.
struct Step {
    name: &'static str,
    requests: u64,
    took: Took,
}

/// A folder with machines that share a store.
struct Place<'a> {
    how: &'a Large,
    dir: PathBuf,
    peat: PathBuf,
    url: String,
    tell: &'a dyn Fn(&str),
    steps: Vec<Step>,
}

impl Place<'_> {
    fn machine(&self, name: &str) -> Result<Machine, Failure> {
        let (repo, home) = (self.dir.join(name).join("repo"), self.dir.join(name).join("home"));
        std::fs::create_dir_all(&repo)?;
        std::fs::create_dir_all(&home)?;
        let keys = self.how.store.as_ref().map(|_| self.how.login.keys());
        Ok(Machine { peat: self.peat.clone(), repo, home, keys })
    }

    /// Runs a command; what it costs must be its own, so nothing is left to a process in the background.
    fn command(&self, how: &str, machine: &Machine, args: &[&str]) -> Result<Took, Failure> {
        let mut vars = machine.environment();
        vars.push(("PEAT_MAINTENANCE", "off".to_owned()));
        let took = run_as(how, &machine.peat, args, &machine.repo, &vars)?;
        if took.status != 0 {
            return Err(format!("peat {}: exit {}\n{}", args.join(" "), took.status, took.err).into());
        }
        Ok(took)
    }

    fn note(&mut self, name: &'static str, requests: u64, took: Took) {
        (self.tell)(&format!("{name}: {:.1} s, {} MiB, {requests} requests", took.ms / 1000.0, took.rss_kib >> 10));
        self.steps.push(Step { name, requests, took });
    }

    /// A step that gives a report.
    fn report(&mut self, name: &'static str, machine: &Machine, args: &[&str]) -> Result<Value, Failure> {
        let took = self.command("measure", machine, &[args, &["--json", "--stats"]].concat())?;
        let report: Value = serde_json::from_str(&took.out).map_err(|e| format!("{name}: {e}: {}", took.out))?;
        let requests = report["stats"]["requests"].as_u64().unwrap_or_default();
        self.note(name, requests, took);
        Ok(report)
    }

    /// A step that writes the content to a pipe, which must have this size, and this hash if it is known.
    fn pipe(
        &mut self,
        name: &'static str,
        machine: &Machine,
        args: &[&str],
        (size, hash): (u64, Option<Hash>),
    ) -> Result<(), Failure> {
        let took = self.command("swallow", machine, &[args, &["--stats"]].concat())?;
        let expected = hash.map_or_else(|| took.out.clone(), |hash| format!("{size} {hash}"));
        if took.out != expected || !took.out.starts_with(&format!("{size} ")) {
            return Err(format!("{name}: {} came, {expected} should", took.out).into());
        }
        let words: Vec<&str> = took.err.split_whitespace().collect();
        let said =
            words.windows(2).find(|pair| pair[0] == "stats:").and_then(|pair| pair[1].replace(',', "").parse().ok());
        self.note(name, said.ok_or("no stats")?, took);
        Ok(())
    }

    fn setup(&self, machine: &Machine, url: &str, more: &[&str]) -> Result<(), Failure> {
        let mut args = vec!["datastore", "setup", url, "--namespace", "bench"];
        if self.how.store.is_some() {
            args.extend(["--endpoint", &self.how.login.endpoint, "--path-style"]);
        }
        args.extend(more);
        self.command("measure", machine, &args).map(drop)
    }

    fn free(&self, name: &str) -> Result<(), Failure> {
        Ok(std::fs::remove_dir_all(self.dir.join(name))?)
    }
}

/// The tree of the only clone of a machine.
fn tree(machine: &Machine) -> Result<PathBuf, Failure> {
    let clones = std::fs::read_dir(machine.home.join("clones"))?;
    let trees = clones.filter_map(|entry| Some(entry.ok()?.path().join("tree"))).find(|tree| tree.is_dir());
    trees.ok_or_else(|| "no clone has a tree".into())
}

/// Puts noise where the content of the data item is, and gives its hash.
fn write(tree: &Path, folder: &str, bytes: u64, seed: u64) -> Result<Hash, Failure> {
    std::fs::create_dir_all(tree.join(folder))?;
    noise(bytes, seed, &mut BufWriter::new(File::create(tree.join(folder).join("raw"))?))
}

fn hash_of(path: &Path) -> Result<Hash, Failure> {
    let mut hasher = HashWriter(Hasher::default());
    std::io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(hasher.0.finish())
}

struct HashWriter(Hasher);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Large {
    /// The section of the results.
    pub(crate) const fn section(&self) -> &'static str {
        if self.store.is_some() { "large on a server" } else { "large" }
    }

    /// Measures, and gives the Markdown and what broke the bound.
    pub(crate) fn run(&self, tell: &dyn Fn(&str)) -> Result<(String, Vec<String>), Failure> {
        let temp = match &self.dir {
            Some(dir) => {
                std::fs::create_dir_all(dir)?;
                tempfile::tempdir_in(dir)?
            }
            None => tempfile::tempdir()?,
        };
        let beside = std::env::current_exe()?.with_file_name("peat");
        let peat = std::fs::canonicalize(self.peat.clone().unwrap_or(beside))?;
        let tag: String = Env::system([]).random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
        let dir = temp.path().to_owned();
        let url = match &self.store {
            Some(store) => format!("{}/large-{tag}", store.trim_end_matches('/')),
            None => format!("file://{}", dir.join("store").display()),
        };
        let mut place = Place { how: self, dir, peat, url, tell, steps: Vec::new() };
        self.a_run(&mut place)?;
        self.by_hand(&mut place)?;
        let broken = place.steps.iter().filter(|step| step.took.rss_kib > MAX_RSS_KIB);
        let broken = broken.map(|step| format!("{}: {} MiB of memory", step.name, step.took.rss_kib >> 10)).collect();
        Ok((self.table(&place.steps)?, broken))
    }

    /// A run that prints the content.
    fn a_run(&self, place: &mut Place<'_>) -> Result<(), Failure> {
        let machine = place.machine("run")?;
        place.command("measure", &machine, &["init"])?;
        place.command("measure", &machine, &["model", "create", "command/shell", "m"])?;
        let url = format!("{}-run", place.url);
        place.setup(&machine, &url, &[])?;
        let run = format!("run={} noise {} 1", std::env::current_exe()?.display(), self.bytes);
        let words = ["model", "method", "run", "m", "execute", "--input", &run];
        place.report("`peat model method run`, printing it", &machine, &words)?;
        let size = self.bytes + "[stdout]\n\n[stderr]\n\n".len() as u64;
        place.pipe("`peat data get` of its log", &machine, &["data", "get", "m", "log"], (size, None))?;
        place.free("run")?;
        match &self.store {
            Some(_) => Ok(()),
            None => place.free("store-run"),
        }
    }

    /// A file that somebody put into the tree, on several machines.
    fn by_hand(&self, place: &mut Place<'_>) -> Result<(), Failure> {
        let (a, b, c) = (place.machine("a")?, place.machine("b")?, place.machine("c")?);
        place.command("measure", &a, &["init"])?;
        let made = place.command("measure", &a, &["model", "create", "command/shell", "m", "--json"])?;
        let made: Value = serde_json::from_str(&made.out)?;
        let id = made["id"].as_str().ok_or("no id")?;
        let url = place.url.clone();
        place.setup(&a, &url, &[])?;
        copy_repo(&a.repo, &b.repo)?;
        copy_repo(&a.repo, &c.repo)?;
        place.command("measure", &a, &["model", "method", "run", "m", "execute", "--input", "run=true"])?;
        let (folder, here) = (format!("data/command/shell/{id}/{NAME}/1"), tree(&a)?);
        let get = ["data", "get", "m", NAME];
        let one = (self.bytes, Some(write(&here, &folder, self.bytes, 1)?));
        std::fs::write(here.join(&folder).join("metadata.yaml"), metadata(id))?;
        let added = place.report("`peat add`, a file put into the tree", &a, &["add", &folder])?;
        let entry = added["entries"][0].as_u64().ok_or("no entry")?.to_string();
        place.report("`peat datastore sync --pull`, on a second machine", &b, &["datastore", "sync", "--pull"])?;
        same(&tree(&b)?.join(&folder).join("raw"), one.1)?;
        place.setup(&c, &url, &["--hydration", "lazy"])?;
        place.pipe("`peat data get`, lazy, from the store to a pipe", &c, &get, one)?;
        place.free("c")?;
        place.pipe("`peat data get`, from the tree to a pipe", &b, &get, one)?;
        let two = (self.bytes, Some(write(&here, &folder, self.bytes, 2)?));
        place.report("`peat add`, the file changed", &a, &["add", &folder])?;
        let at = [&get[..], &["--at", &entry]].concat();
        place.pipe("`peat data get --at`, what it was before", &a, &at, one)?;
        place.report("`peat datastore sync --pull` of the change", &b, &["datastore", "sync", "--pull"])?;
        same(&tree(&b)?.join(&folder).join("raw"), two.1)?;
        place.free("b")?;
        place.report("`peat ledger verify --deep`", &a, &["ledger", "verify", "--deep"])?;
        place.report("`peat doctor --deep`", &a, &["doctor", "--deep"])?;
        place.report("`peat ledger maintain --full`", &a, &["ledger", "maintain", "--full"])?;
        place.report("`peat restore` to what it was", &a, &["restore", "--at", &entry])?;
        if self.store.is_none() {
            let url = format!("file://{}", place.dir.join("other").display());
            let words = ["datastore", "setup", &url, "--namespace", "bench"];
            place.report("`peat datastore setup`, moving the ledger", &a, &words)?;
            place.free("store")?;
            place.pipe("`peat data get`, after all that", &a, &get, one)?;
            // Of older states nobody has the contents, so this comes last.
            let lost = lose(&place.dir.join("other"))?;
            (place.tell)(&format!("{lost} packs are lost"));
            place.report("`peat doctor --repair`, a fifth of the packs lost", &a, &["doctor", "--repair", "--yes"])?;
        }
        Ok(())
    }

    fn table(&self, steps: &[Step]) -> Result<String, Failure> {
        let gib = self.bytes as f64 / f64::from(1 << 30);
        let mut text = format!(
            "\n## A content of {gib:.1} GiB, on {}\n\nMade by `cargo run --release -p peat-bench -- large --bytes {}` on {}, on {}. Each step is \
             a process of its own; none may take more than {} MiB.\n\n| step | requests | time | peak memory |\n| --- | ---: | \
             ---: | ---: |\n",
            self.server,
            self.bytes,
            today()?,
            writers::machine()?,
            MAX_RSS_KIB >> 10,
        );
        for Step { name, requests, took } in steps {
            writeln!(text, "| {name} | {requests} | {:.1} s | {} MiB |", took.ms / 1000.0, took.rss_kib >> 10)?;
        }
        Ok(text)
    }
}

fn same(file: &Path, expected: Option<Hash>) -> Result<(), Failure> {
    if Some(hash_of(file)?) == expected { Ok(()) } else { Err(format!("{} is another content", file.display()).into()) }
}

/// Removes every fifth large pack of a store in a folder.
fn lose(store: &Path) -> Result<usize, Failure> {
    let (mut dirs, mut packs) = (vec![store.to_owned()], Vec::new());
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.is_dir() {
                dirs.push(entry.path());
            } else if meta.len() > 1 << 20 {
                packs.push(entry.path());
            }
        }
    }
    packs.sort_unstable();
    let lost: Vec<&PathBuf> = packs.iter().step_by(5).collect();
    lost.iter().try_for_each(std::fs::remove_file)?;
    Ok(lost.len())
}

fn metadata(id: &str) -> String {
    format!(
        "id: 6f1c1f5e-0d3a-4a57-9f3e-2a0a7b1c9d10\nname: {NAME}\nversion: 1\ncontentType: application/octet-stream\n\
         lifetime: infinite\ngarbageCollection: 10\nstreaming: false\ntags:\n  type: file\n  modelName: m\n\
         ownerDefinition:\n  ownerType: manual\n  ownerRef: {id}\ncreatedAt: 2026-12-01T00:00:00.000Z\n"
    )
}
