//! Measures the `peat` binary as a team uses it: in one run, on namespaces of several sizes and at several distances
//! to the store, what each command costs in requests, bytes, time and memory. Prints a Markdown table.
//!
//! `cargo run --release -p peat-bench` builds the binary's neighbours; the binary itself is `--peat` (by default the
//! `peat` beside this program). See `bench/README.md`.

mod commit;
mod copy;
mod data;
mod generate;
mod large;
mod measure;
mod peers;
mod retained;
mod scale;
mod table;
mod writers;
mod year;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{Parser, Subcommand};
use peat_testkit::s3::{Fault, S3Server};

use crate::measure::{Machine, Took};
use crate::table::{Row, Table};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(about)]
struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    /// The binary to measure; by default `peat` beside this program
    #[arg(long)]
    peat: Option<PathBuf>,
    /// Sizes of the namespace in paths
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    paths: Vec<usize>,
    /// Milliseconds the store takes for a request
    #[arg(long, value_delimiter = ',', default_values_t = [0, 30])]
    delays: Vec<u64>,
    /// Times each command is measured
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// File the Markdown goes to as well
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// Measures many writers at once on a real server
    Writers(writers::Load),
    /// Makes a namespace of any size from a seed, through ordinary commits
    Generate(generate::Generate),
    /// Measures a large namespace against a small one, and fails when a budget is broken
    Scale(scale::Scale),
    /// Carries out one step of it (used by the benchmark itself)
    #[command(hide = true)]
    Step(scale::Step),
    /// Compares with what people use today, on the same files and the same server
    Peers(peers::Peers),
    /// Moves a large ledger between stores, against a plain copy of its objects
    Copy(copy::Copy),
    /// Makes a content of several GiB and takes it all the way, and fails when a step takes more memory than is constant
    Large(large::Large),
    /// Lets a team work for a year of simulated time, and tells what is left of it
    Year(year::Year),
    /// Is one of the writers (used by the benchmark itself)
    #[command(hide = true)]
    Writer(writers::Worker),
    /// Runs one command and prints what it took (used by the benchmark itself)
    #[command(hide = true, disable_help_flag = true)]
    Measure {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// As `measure`, for a command that prints very much (used by the benchmark itself)
    #[command(hide = true, disable_help_flag = true)]
    Swallow {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Prints bytes that do not compress (used by the benchmark itself)
    #[command(hide = true)]
    Noise { bytes: u64, seed: u64 },
    /// Commits changes through a clone in DIR and prints what each took (used by the benchmark itself)
    #[command(hide = true)]
    Commits { url: String, owner: String, dir: PathBuf, rounds: usize },
}

#[allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)] // the table is this program's output
fn main() -> Result<(), Failure> {
    let options = Options::parse();
    match &options.other {
        Some(Other::Measure { command }) => {
            let (program, args) = command.split_first().ok_or("no command")?;
            println!("{}", measure::measured(Path::new(program), args)?);
            return Ok(());
        }
        Some(Other::Swallow { command }) => {
            let (program, args) = command.split_first().ok_or("no command")?;
            println!("{}", measure::swallowed(Path::new(program), args)?);
            return Ok(());
        }
        Some(Other::Noise { bytes, seed }) => return large::noise(*bytes, *seed, &mut std::io::stdout()).map(drop),
        Some(Other::Large(how)) => {
            let (text, broken) = how.run(&|line| eprintln!("{line}"))?;
            print!("{text}");
            how.out.as_deref().map_or(Ok(()), |out| writers::replace(out, how.section(), &text))?;
            return if broken.is_empty() { Ok(()) } else { Err(broken.join("; ").into()) };
        }
        Some(Other::Commits { url, owner, dir, rounds }) => {
            let env = peat_types::Env::system(std::env::vars());
            let took = runtime()?.block_on(commit::commits(&env, url, owner, dir, *rounds))?;
            println!("{}", serde_json::to_string(&took)?);
            return Ok(());
        }
        Some(Other::Writer(worker)) => return writers::worker(worker),
        Some(Other::Generate(generate)) => {
            let env = peat_types::Env::system(std::env::vars());
            return runtime()?.block_on(generate.run(&env, &|line| eprintln!("{line}")));
        }
        Some(Other::Step(step)) => {
            let env = peat_types::Env::system(std::env::vars());
            println!("{}", runtime()?.block_on(step.run(&env))?);
            return Ok(());
        }
        Some(Other::Scale(scale)) => {
            let (text, broken) = scale.run(&|line| eprintln!("{line}"))?;
            print!("{text}");
            scale.out.as_deref().map_or(Ok(()), |out| writers::replace(out, "scale", &text))?;
            return if broken.is_empty() { Ok(()) } else { Err(broken.join("; ").into()) };
        }
        Some(Other::Peers(how)) => return peers::peers(how),
        Some(Other::Copy(how)) => return copy::copy(how),
        Some(Other::Year(how)) => {
            let text = year::year(how)?;
            print!("{text}");
            return how.out.as_deref().map_or(Ok(()), |out| writers::replace(out, "year", &text));
        }
        Some(Other::Writers(load)) => {
            let text = writers::writers(load)?;
            print!("{text}");
            return load.out.as_deref().map_or(Ok(()), |out| writers::replace(out, "writers", &text));
        }
        None => {}
    }
    let beside = std::env::current_exe()?.with_file_name("peat");
    let peat = std::fs::canonicalize(options.peat.clone().unwrap_or(beside))?;
    let mut text = String::new();
    let local = local(&peat, options.rounds)?;
    text.push_str(&local.markdown());
    for paths in &options.paths {
        for delay in &options.delays {
            eprintln!("{paths} paths, {delay} ms");
            text.push_str(&shared(&peat, *paths, *delay, options.rounds)?.markdown());
        }
    }
    print!("{text}");
    if let Some(out) = &options.out {
        let how = format!("\nMade by `cargo run --release -p peat-bench -- --out {}`.\n{text}", out.display());
        writers::replace(out, "commands", &how)?;
    }
    Ok(())
}

/// A repository of its own, with the ledger in a folder.
fn local(peat: &Path, rounds: usize) -> Result<Table, Failure> {
    let dir = tempfile::tempdir()?;
    let machine = machine(peat, dir.path(), None)?;
    machine.measure(&["init"])?;
    machine.measure(&["model", "create", "command/shell", "hello"])?;
    let mut table = Table::new("Local repository, ledger in a folder");
    table.push("`sh -c 'echo hi'` (peer)", peer(&machine, rounds)?);
    table.push("process start: `peat model search`", rows(&machine, rounds, &["model", "search"])?);
    table.push("`peat model method run`, echo hi", rows(&machine, rounds, RUN)?);
    table.push("no-op `peat datastore sync --pull`", rows(&machine, rounds, PULL)?);
    Ok(table)
}

const RUN: &[&str] = &["model", "method", "run", "hello", "execute", "--input", "run=echo hi"];
const PULL: &[&str] = &["datastore", "sync", "--pull"];

/// Two machines and a store at some distance, holding a namespace of some size.
fn shared(peat: &Path, paths: usize, delay: u64, rounds: usize) -> Result<Table, Failure> {
    let dir = tempfile::tempdir()?;
    let server = S3Server::start()?;
    let vars = server.vars();
    let keys = Some((vars[0].1.clone(), vars[1].1.clone()));
    let a = machine(peat, &dir.path().join("a"), keys.clone())?;
    a.measure(&["init"])?;
    a.measure(&["model", "create", "command/shell", "hello"])?;
    let owner = repo_id(&a.repo)?;
    let models = runtime()?.block_on(data::build(&server.url(), &vars, "bench", &owner, paths))?;
    setup(&a, &server)?;
    let b = machine(peat, &dir.path().join("b"), keys)?;
    copy_repo(&a.repo, &b.repo)?;
    if delay > 0 {
        for method in [http::Method::GET, http::Method::PUT, http::Method::DELETE] {
            server.script_times(method, "", 1, u32::MAX, Fault::Slow(Duration::from_millis(delay)));
        }
    }
    let mut table = Table::new(&format!("{paths} paths in {models} models, store at {delay} ms"));
    table.push("first `peat datastore sync --pull`", rows(&b, 1, PULL)?);
    table.push("process start: `peat model search`", rows(&a, rounds, &["model", "search"])?);
    rows(&a, 1, PULL)?;
    table.push("`peat model method run`, echo hi", rows(&a, rounds, RUN)?);
    table.push("no-op `peat datastore sync --pull`", rows(&a, rounds, PULL)?);
    table.push("one commit (library, clone opened anew)", commits(&server, &owner, &dir.path().join("c"), rounds)?);
    let mut polls = Vec::new();
    rows(&b, 1, PULL)?;
    for _ in 0..rounds {
        rows(&a, 1, RUN)?;
        polls.extend(rows(&b, 1, PULL)?);
    }
    table.push("`sync --pull` after one run elsewhere", polls);
    Ok(table)
}

fn machine(peat: &Path, dir: &Path, keys: Option<(String, String)>) -> Result<Machine, Failure> {
    let (repo, home) = (dir.join("repo"), dir.join("home"));
    std::fs::create_dir_all(&repo)?;
    std::fs::create_dir_all(&home)?;
    Ok(Machine { peat: peat.to_owned(), repo, home, keys })
}

fn setup(machine: &Machine, server: &S3Server) -> Result<(), Failure> {
    let endpoint = server.endpoint();
    let url = server.url();
    machine.measure(&["datastore", "setup", &url, "--endpoint", &endpoint, "--path-style", "--namespace", "bench"])?;
    Ok(())
}

/// What a git clone would bring: everything but the ignored folder.
fn copy_repo(from: &Path, to: &Path) -> Result<(), Failure> {
    let status = Command::new("cp").arg("-r").arg(from.join("models")).arg(from.join(".peat.yaml")).arg(to).status()?;
    if status.success() { Ok(()) } else { Err("cannot copy the repository".into()) }
}

fn repo_id(repo: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(repo.join(".peat.yaml"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("repoId:")).ok_or("no repoId in .peat.yaml")?;
    Ok(line.trim().trim_matches(['"', '\'']).to_owned())
}

fn rows(machine: &Machine, rounds: usize, args: &[&str]) -> Result<Vec<Row>, Failure> {
    (0..rounds).map(|_| machine.report(args).map(|(took, report)| Row::of(&took, report.get("stats")))).collect()
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Commits in a process of their own, for the sake of its memory.
fn commits(server: &S3Server, owner: &str, dir: &Path, rounds: usize) -> Result<Vec<Row>, Failure> {
    std::fs::create_dir_all(dir)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["commits", &server.url(), owner]).arg(dir).arg(rounds.to_string());
    let output = command.envs(server.vars()).stderr(std::process::Stdio::inherit()).output()?;
    let took: Vec<commit::Committed> = serde_json::from_slice(&output.stdout)?;
    Ok(took.into_iter().map(Row::of_commit).collect())
}

fn peer(machine: &Machine, rounds: usize) -> Result<Vec<Row>, Failure> {
    let sh = Machine { peat: PathBuf::from("/bin/sh"), ..machine.clone() };
    (0..rounds).map(|_| sh.measure(&["-c", "echo hi"]).map(|took: Took| Row::of(&took, None))).collect()
}
