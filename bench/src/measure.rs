//! One command, measured: its time, its peak memory, and what it says it cost.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::resource::{UsageWho, getrusage};
use peat_types::{Env, Hasher};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Failure;

/// What one run of a command took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Took {
    /// Wall-clock time in milliseconds, from spawn to exit.
    pub ms: f64,
    /// Largest resident set of the process or any of its children, in KiB.
    pub rss_kib: i64,
    /// Exit status.
    pub status: i32,
    /// What it printed.
    pub out: String,
    /// What it said.
    pub err: String,
}

/// A server, and who comes to it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Login {
    /// Where the server of the store is
    #[arg(long, env = "AWS_ENDPOINT_URL_S3", default_value = "")]
    pub(crate) endpoint: String,
    #[arg(long, env = "AWS_ACCESS_KEY_ID", default_value = "", hide_env_values = true)]
    pub(crate) key: String,
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", default_value = "", hide_env_values = true)]
    pub(crate) secret: String,
}

impl Login {
    pub(crate) fn keys(&self) -> (String, String) {
        (self.key.clone(), self.secret.clone())
    }
}

/// Where and as whom commands run.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The binary.
    pub peat: PathBuf,
    /// The repository.
    pub repo: PathBuf,
    /// Its `PEAT_HOME`.
    pub home: PathBuf,
    /// Key and secret for the store.
    pub keys: Option<(String, String)>,
}

impl Machine {
    /// Runs `peat` with these arguments through a process of its own, so that the peak memory is that command's alone.
    pub fn measure(&self, args: &[&str]) -> Result<Took, Failure> {
        let vars = self.environment();
        let took = run(&self.peat, args, &self.repo, &vars)?;
        if took.status != 0 {
            return Err(format!("peat {}: exit {}\n{}{}", args.join(" "), took.status, took.out, took.err).into());
        }
        Ok(took)
    }

    /// Runs `peat … --json --stats` and gives its report, with the figures beside it.
    pub fn report(&self, args: &[&str]) -> Result<(Took, Value), Failure> {
        let mut all = args.to_vec();
        all.extend(["--json", "--stats"]);
        let took = self.measure(&all)?;
        let report = serde_json::from_str(&took.out)?;
        Ok((took, report))
    }

    /// The variables that commands run with.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let home = self.home.display().to_string();
        let mut vars = vec![
            ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME", home.clone()),
            ("PEAT_HOME", home),
            ("USER", "bench".to_owned()),
        ];
        if let Some((key, secret)) = &self.keys {
            vars.extend([("AWS_ACCESS_KEY_ID", key.clone()), ("AWS_SECRET_ACCESS_KEY", secret.clone())]);
            vars.push(("AWS_REGION", "us-east-1".to_owned()));
        }
        vars
    }
}

/// Where programs are looked for.
#[allow(clippy::disallowed_methods)] // commands get the variables that are named, and no others
pub(crate) fn path() -> String {
    Env::system(std::env::vars()).var("PATH").unwrap_or_default().to_owned()
}

/// Runs a program in a folder, with these variables and no others, through a process of its own, so that the peak memory is
/// that program's alone.
pub(crate) fn run(
    program: &Path,
    args: &[impl AsRef<OsStr>],
    cwd: &Path,
    vars: &[(&str, String)],
) -> Result<Took, Failure> {
    run_as("measure", program, args, cwd, vars)
}

/// As [`run`]; `how` is `measure`, or `swallow` for a program that prints very much.
pub(crate) fn run_as(
    how: &str,
    program: &Path,
    args: &[impl AsRef<OsStr>],
    cwd: &Path,
    vars: &[(&str, String)],
) -> Result<Took, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(how).arg(program).args(args).current_dir(cwd).env_clear();
    command.envs(vars.iter().map(|(name, value)| (name, value)));
    let output = command.stderr(Stdio::inherit()).output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The other side of [`run`]: spawns the command, waits, and prints a [`Took`] as JSON.
#[allow(clippy::disallowed_methods)] // measuring real time is what this program is for
pub(crate) fn measured(program: &Path, args: &[String]) -> Result<String, Failure> {
    let begun = std::time::Instant::now();
    let output = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    let ms = begun.elapsed().as_secs_f64() * 1000.0;
    let took = Took {
        ms,
        rss_kib: getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss(),
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    Ok(serde_json::to_string(&took)?)
}

/// As [`measured`], of a command that prints more than memory holds: `out` becomes its length and hash.
#[allow(clippy::disallowed_methods)] // measuring real time is what this program is for
pub(crate) fn swallowed(program: &Path, args: &[String]) -> Result<String, Failure> {
    let begun = std::time::Instant::now();
    let mut child =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut out = child.stdout.take().ok_or("no pipe")?;
    let (mut hasher, mut size, mut buffer) = (Hasher::default(), 0, vec![0; 1 << 20]);
    loop {
        let len = out.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..len).filter(|bytes| !bytes.is_empty()) else { break };
        hasher.update(bytes);
        size += len;
    }
    let output = child.wait_with_output()?;
    let took = Took {
        ms: begun.elapsed().as_secs_f64() * 1000.0,
        rss_kib: getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss(),
        status: output.status.code().unwrap_or(-1),
        out: format!("{size} {}", hasher.finish()),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    Ok(serde_json::to_string(&took)?)
}
