//! Moving a large ledger from one store to another, against a plain copy of the same objects.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use peat_types::Env;

use crate::measure::{self, Machine, Took, run};
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
    /// Where its server is
    #[arg(long, env = "AWS_ENDPOINT_URL_S3", default_value = "")]
    endpoint: String,
    #[arg(long, env = "AWS_ACCESS_KEY_ID", default_value = "", hide_env_values = true)]
    key: String,
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", default_value = "", hide_env_values = true)]
    secret: String,
    /// What the server is, for the results
    #[arg(long, default_value = "")]
    server: String,
    /// The plain copier for S3
    #[arg(long, default_value = "rclone")]
    rclone: PathBuf,
    /// The binary to measure; by default `peat` beside this program
    #[arg(long)]
    peat: Option<PathBuf>,
    /// File whose section on copies is replaced
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// One way, measured.
struct Way {
    name: &'static str,
    objects: u64,
    bytes: u64,
    peat_ms: f64,
    plain: &'static str,
    plain_ms: f64,
}

impl Copy {
    /// Moves the ledger around, and gives the section of the results.
    pub(crate) fn run(&self, tell: &dyn Fn(&str)) -> Result<String, Failure> {
        let temp = tempfile::tempdir()?;
        let dir = temp.path();
        let beside = std::env::current_exe()?.with_file_name("peat");
        let peat = std::fs::canonicalize(self.peat.clone().unwrap_or(beside))?;
        let (repo, home) = (dir.join("repo"), dir.join("home"));
        for folder in [&repo, &home, &dir.join("a"), &dir.join("b"), &dir.join("c")] {
            std::fs::create_dir_all(folder)?;
        }
        let machine = Machine { peat, repo, home, keys: Some((self.key.clone(), self.secret.clone())) };
        machine.measure(&["init"])?;
        self.generate(&format!("file://{}", dir.join("a").display()), &repo_id(&machine.repo)?)?;
        let folder = |name: &str| format!("file://{}", dir.join(name).display());
        let join =
            ["datastore", "setup", &folder("a"), "--namespace", "bench", "--skip-migration", "--hydration", "lazy"];
        machine.measure(&join)?;
        tell("the ledger is there");
        let mut ways = Vec::new();
        let plain = self.plain(Path::new("/bin/cp"), &["-r", &local(dir, "a"), &local(dir, "plain")], dir)?;
        ways.push(self.way("folder → folder", &machine, &folder("b"), ("cp -r", plain))?);
        if let Some(store) = &self.store {
            let tag: String = Env::system([]).random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
            let store = format!("{}/copy-{tag}", store.trim_end_matches('/'));
            let remote = |name: &str| format!(":s3:{}/{name}", store.trim_start_matches("s3://"));
            let there = self.rclone(&local(dir, "b"), &remote("plain"), dir)?;
            let target = format!("{store}/peat");
            ways.push(self.way("folder → S3", &machine, &target, ("rclone copy", there))?);
            let back = self.rclone(&remote("plain"), &local(dir, "back"), dir)?;
            ways.push(self.way("S3 → folder", &machine, &folder("c"), ("rclone copy", back))?);
        }
        for way in &ways {
            tell(&format!("{}: {:.0} ms, {} {:.0} ms", way.name, way.peat_ms, way.plain, way.plain_ms));
        }
        self.section(&ways)
    }

    fn generate(&self, url: &str, owner: &str) -> Result<(), Failure> {
        let number = |value: u64| value.to_string();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["generate", url, "--owner", owner, "--commit", &number(self.commit)]);
        command.args(["--paths", &number(self.paths), "--units", &number(self.units)]);
        command.args(["--bytes", &number(self.bytes), "--seed", &number(self.seed)]);
        let output = command.output()?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
    }

    /// One move. The repository is at the target afterwards.
    fn way(
        &self,
        name: &'static str,
        machine: &Machine,
        url: &str,
        (plain, plain_ms): (&'static str, f64),
    ) -> Result<Way, Failure> {
        let mut args = vec!["datastore", "setup", url, "--namespace", "bench", "--hydration", "lazy"];
        if url.starts_with("s3:") {
            args.extend(["--endpoint", &self.endpoint, "--path-style"]);
        }
        let (took, report) = machine.report(&args)?;
        let figure = |name: &str| report.get(name).and_then(serde_json::Value::as_u64).unwrap_or_default();
        let (objects, bytes) = (figure("objectsCopied"), figure("bytesCopied"));
        Ok(Way { name, objects, bytes, peat_ms: took.ms, plain, plain_ms })
    }

    fn rclone(&self, from: &str, to: &str, dir: &Path) -> Result<f64, Failure> {
        self.plain(&self.rclone, &["copy", from, to, "--transfers", "32", "--checkers", "64"], dir)
    }

    fn plain(&self, program: &Path, args: &[&str], dir: &Path) -> Result<f64, Failure> {
        let vars = [
            ("PATH", measure::path()),
            ("HOME", dir.join("home").display().to_string()),
            ("RCLONE_CONFIG", dir.join("home/none").display().to_string()),
            ("RCLONE_S3_PROVIDER", "Ceph".to_owned()),
            ("RCLONE_S3_ENDPOINT", self.endpoint.clone()),
            ("RCLONE_S3_ACCESS_KEY_ID", self.key.clone()),
            ("RCLONE_S3_SECRET_ACCESS_KEY", self.secret.clone()),
        ];
        let Took { ms, status, err, .. } = run(program, args, dir, &vars)?;
        if status == 0 { Ok(ms) } else { Err(format!("{}: exit {status}\n{err}", program.display()).into()) }
    }

    fn section(&self, ways: &[Way]) -> Result<String, Failure> {
        let server = if self.server.is_empty() { String::new() } else { format!(" --server \"{}\"", self.server) };
        let mut text = format!(
            "\n## Moving a ledger\n\nMade by `cargo run --release -p peat-bench -- copy{server} --paths {} --out bench/RESULTS.md` on {}, \
             {}; see `bench/README.md`. {} paths in {} models, {:.0} MB, committed {} at a time; the clone is lazy, \
             so that what is measured is the ledger and not the files of a tree.\n\n\
             | way | objects | MB | `peat datastore setup` | plain copy | ratio |\n| --- | ---: | ---: | ---: | ---: | ---: |\n",
            self.paths,
            today()?,
            machine()?,
            self.paths,
            self.units,
            self.bytes as f64 / 1e6,
            self.commit,
        );
        for way in ways {
            let _ = writeln!(
                text,
                "| {} | {} | {:.1} | {:.1} s | {:.1} s (`{}`) | {:.1} |",
                way.name,
                way.objects,
                way.bytes as f64 / 1e6,
                way.peat_ms / 1000.0,
                way.plain_ms / 1000.0,
                way.plain,
                way.peat_ms / way.plain_ms.max(0.1),
            );
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
