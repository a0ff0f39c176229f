//! Moving a large ledger from one store to another, against a plain copy of the same objects.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use peat_types::Env;

use crate::generate::Generate;
use crate::measure::{self, Login, Machine, Took, run};
use crate::writers::{self, machine, today};
use crate::{Failure, repo_id};

/// What to move.
#[derive(Clone, Debug, Args)]
pub(crate) struct Copy {
    /// Files of the ledger
    #[arg(long, default_value_t = 100_000)]
    paths: u64,
    /// Models that they are spread over
    #[arg(long, default_value_t = 4_000)]
    units: u64,
    /// Bytes of all contents
    #[arg(long, default_value_t = 200_000_000)]
    bytes: u64,
    /// Files in one commit
    #[arg(long, default_value_t = 1_000)]
    commit: u64,
    /// What everything is derived from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Store to move to and from again: s3://bucket/prefix; without it only folders are
    #[arg(long, env = "PEAT_TEST_STORE")]
    store: Option<String>,
    #[command(flatten)]
    login: Login,
    /// What the server is, for the results
    #[arg(long, default_value = "")]
    server: String,
    /// The plain copier for S3
    #[arg(long, default_value = "rclone")]
    rclone: PathBuf,
    /// The binary to measure; by default `peat` beside this program
    #[arg(long)]
    peat: Option<PathBuf>,
    /// Leaves out copies of the same paths as plain files, which take minutes on S3
    #[arg(long)]
    no_files: bool,
    /// File whose section on copies is replaced
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// What others take, in milliseconds.
struct Peers {
    /// The plain copier.
    name: &'static str,
    /// A plain copy of the objects of the ledger.
    copy: f64,
    /// Making that copy durable, as every object is that `peat` writes; on S3 it is by itself.
    sync: Option<f64>,
    /// A comparison of that copy with what was copied, byte by byte.
    check: f64,
    /// A plain copy of the same paths as files, which is one object for each.
    files: Option<f64>,
}

/// One way, measured.
struct Way {
    name: &'static str,
    objects: u64,
    bytes: u64,
    peat_ms: f64,
    peers: Peers,
}

impl Copy {
    /// Moves the ledger around, and gives the section of the results.
    pub(crate) fn run(&self, tell: &dyn Fn(&str)) -> Result<String, Failure> {
        let temp = tempfile::tempdir()?;
        let dir = temp.path();
        let beside = std::env::current_exe()?.with_file_name("peat");
        let peat = std::fs::canonicalize(self.peat.clone().unwrap_or(beside))?;
        let (repo, home, files) = (dir.join("repo"), dir.join("home"), dir.join("files"));
        for folder in [&repo, &home, &files, &dir.join("a"), &dir.join("b"), &dir.join("c")] {
            std::fs::create_dir_all(folder)?;
        }
        let machine = Machine { peat, repo, home, keys: Some(self.login.keys()) };
        machine.measure(&["init"])?;
        self.generate(&format!("file://{}", dir.join("a").display()), &repo_id(&machine.repo)?, &files)?;
        let folder = |name: &str| format!("file://{}", dir.join(name).display());
        let join =
            ["datastore", "setup", &folder("a"), "--namespace", "bench", "--skip-migration", "--hydration", "lazy"];
        machine.measure(&join)?;
        tell("the ledger is there");
        let mut ways = Vec::new();
        let peers = self.folders(dir)?;
        ways.push(self.way("folder → folder", &machine, &folder("b"), peers)?);
        if let Some(store) = &self.store {
            let tag: String = Env::system([]).random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
            let store = format!("{}/copy-{tag}", store.trim_end_matches('/'));
            let remote = |name: &str| format!(":s3:{}/{name}", store.trim_start_matches("s3://"));
            let target = format!("{store}/peat");
            let there =
                self.rclones(&local(dir, "b"), &remote("plain"), &local(dir, "files"), &remote("files"), dir)?;
            ways.push(self.way("folder → S3", &machine, &target, there)?);
            let back = (local(dir, "back"), local(dir, "files-back"));
            let back = self.rclones(&remote("plain"), &back.0, &remote("files"), &back.1, dir)?;
            ways.push(self.way("S3 → folder", &machine, &folder("c"), back)?);
        }
        for Way { name, peat_ms, peers, .. } in &ways {
            let Peers { name: peer, copy, sync, check, files } = peers;
            let sync = sync.map_or_else(String::new, |ms| format!(", sync {ms:.0} ms"));
            let files = files.map_or_else(String::new, |ms| format!(", files {ms:.0} ms"));
            tell(&format!("{name}: {peat_ms:.0} ms, {peer} {copy:.0} ms{sync}, check {check:.0} ms{files}"));
        }
        self.section(&ways)
    }

    /// Makes the ledger, and the same paths as plain files if these are wanted.
    fn generate(&self, url: &str, owner: &str, files: &Path) -> Result<(), Failure> {
        let number = |value: u64| value.to_string();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["generate", url, "--owner", owner, "--commit", &number(self.commit)]);
        command.args(["--paths", &number(self.paths), "--units", &number(self.units)]);
        command.args(["--bytes", &number(self.bytes), "--seed", &number(self.seed)]);
        let output = command.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        if self.no_files {
            return Ok(());
        }
        let same = Generate {
            url: url.to_owned(),
            paths: self.paths,
            units: self.units,
            bytes: self.bytes,
            seed: self.seed,
            commit: self.commit,
            namespace: "bench".to_owned(),
            owner: owner.to_owned(),
        };
        same.lay_out(files)
    }

    /// One move. The repository is at the target afterwards.
    fn way(&self, name: &'static str, machine: &Machine, url: &str, peers: Peers) -> Result<Way, Failure> {
        let mut args = vec!["datastore", "setup", url, "--namespace", "bench", "--hydration", "lazy"];
        if url.starts_with("s3:") {
            args.extend(["--endpoint", &self.login.endpoint, "--path-style"]);
        }
        let (took, report) = machine.report(&args)?;
        let figure = |name: &str| report.get(name).and_then(serde_json::Value::as_u64).unwrap_or_default();
        let (objects, bytes) = (figure("objectsCopied"), figure("bytesCopied"));
        Ok(Way { name, objects, bytes, peat_ms: took.ms, peers })
    }

    /// `cp -r`, `sync -f`, `diff -r`, and `cp -r` of the files.
    fn folders(&self, dir: &Path) -> Result<Peers, Failure> {
        let cp =
            |from: &str, to: &str| self.plain(Path::new("/bin/cp"), &["-r", &local(dir, from), &local(dir, to)], dir);
        self.settle(dir)?;
        let copy = cp("a", "plain")?;
        let sync = self.sync(&local(dir, "plain"), dir)?;
        let check = self.plain(Path::new("/usr/bin/diff"), &["-r", &local(dir, "a"), &local(dir, "plain")], dir)?;
        let files = if self.no_files { None } else { Some(cp("files", "files-plain")?) };
        std::fs::remove_dir_all(dir.join("plain"))?;
        if files.is_some() {
            std::fs::remove_dir_all(dir.join("files-plain"))?;
        }
        self.settle(dir)?;
        Ok(Peers { name: "cp -r", copy, sync: Some(sync), check, files })
    }

    /// Lets the disk finish what was written before, so that nobody is charged for it.
    fn settle(&self, dir: &Path) -> Result<(), Failure> {
        self.plain(Path::new("/bin/sync"), &[], dir).map(drop)
    }

    /// Makes what was written to a folder durable.
    fn sync(&self, folder: &str, dir: &Path) -> Result<f64, Failure> {
        self.plain(Path::new("/bin/sync"), &["-f", folder], dir)
    }

    fn rclones(&self, from: &str, to: &str, files: &str, files_to: &str, dir: &Path) -> Result<Peers, Failure> {
        let rclone = |how: &[&str], from: &str, to: &str| {
            let args = [how, &[from, to, "--transfers", "32", "--checkers", "64"]].concat();
            self.plain(&self.rclone, &args, dir)
        };
        self.settle(dir)?;
        let copy = rclone(&["copy"], from, to)?;
        let sync = if to.starts_with(':') { None } else { Some(self.sync(to, dir)?) };
        let check = rclone(&["check", "--download"], from, to)?;
        let files = if self.no_files { None } else { Some(rclone(&["copy"], files, files_to)?) };
        self.settle(dir)?;
        Ok(Peers { name: "rclone copy", copy, sync, check, files })
    }

    fn plain(&self, program: &Path, args: &[&str], dir: &Path) -> Result<f64, Failure> {
        let vars = [
            ("PATH", measure::path()),
            ("HOME", dir.join("home").display().to_string()),
            ("RCLONE_CONFIG", dir.join("home/none").display().to_string()),
            ("RCLONE_S3_PROVIDER", "Ceph".to_owned()),
            ("RCLONE_S3_ENDPOINT", self.login.endpoint.clone()),
            ("RCLONE_S3_ACCESS_KEY_ID", self.login.key.clone()),
            ("RCLONE_S3_SECRET_ACCESS_KEY", self.login.secret.clone()),
        ];
        let Took { ms, status, err, .. } = run(program, args, dir, &vars)?;
        if status == 0 { Ok(ms) } else { Err(format!("{}: exit {status}\n{err}", program.display()).into()) }
    }

    fn section(&self, ways: &[Way]) -> Result<String, Failure> {
        let files = if self.no_files { " --no-files" } else { "" };
        let server = if self.server.is_empty() { String::new() } else { format!(" --server \"{}\"", self.server) };
        let mut text = format!(
            "\n## Moving a ledger\n\nMade by `cargo run --release -p peat-bench -- copy{server} --paths {}{files} --out bench/RESULTS.md` on {}, \
             {}; see `bench/README.md`. {} paths in {} models, {:.0} MB, committed {} at a time; the clone is lazy, \
             so that what is measured is the ledger and not the files of a tree. *Copy* is a plain copy of the objects of the \
             ledger, *copy and check* is followed by a comparison of both sides, as `peat` makes one, *durable* is that with a \
             `sync -f` of the target in between, for every file that `peat` writes is synced, and *plain files* is a \
             copy of the same {} paths as files, one object for each. Ratios are of `peat` to them.\n\n\
             | way | objects | MB | `peat datastore setup` | copy | ratio | copy and check | ratio | durable | ratio | plain files | ratio |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
            self.paths,
            today()?,
            machine()?,
            self.paths,
            self.units,
            self.bytes as f64 / 1e6,
            self.commit,
            self.paths,
        );
        for Way { name, objects, bytes, peat_ms, peers } in ways {
            let megabytes = *bytes as f64 / 1e6;
            let _ = write!(text, "| {name} | {objects} | {megabytes:.1} | {:.2} s |", peat_ms / 1000.0);
            let checked = peers.copy + peers.check;
            let durable = peers.sync.map(|sync| checked + sync);
            for (peer, ms) in [(peers.name, Some(peers.copy)), ("", Some(checked)), ("", durable), ("", peers.files)] {
                let Some(ms) = ms else {
                    text.push_str(" – | – |");
                    continue;
                };
                let peer = if peer.is_empty() { String::new() } else { format!(" (`{peer}`)") };
                let ratio = peat_ms / ms.max(0.1);
                let digits = if ratio < 0.1 { 3 } else { 2 };
                let _ = write!(text, " {:.2} s{peer} | {ratio:.digits$} |", ms / 1000.0);
            }
            text.push('\n');
        }
        Ok(text)
    }
}

fn local(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

/// Measures, prints, and writes what was asked for.
#[allow(clippy::print_stdout, clippy::print_stderr)] // the table is this program's output
pub(crate) fn copy(how: &Copy) -> Result<(), Failure> {
    let text = how.run(&|line| eprintln!("{line}"))?;
    print!("{text}");
    how.out.as_deref().map_or(Ok(()), |out| writers::replace(out, "copy", &text))
}
