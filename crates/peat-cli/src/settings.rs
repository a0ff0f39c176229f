//! Flags, environment and folders resolved into one value before a command runs.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peat_types::{Env, Error, Kind, Result};

use crate::args::{Global, LogFormat, LogLevel};

/// The file that makes a folder a repo.
pub(crate) const MARKER: &str = ".peat.yaml";
/// Where a repo keeps what is local.
const LOCAL: &str = ".peat";
/// How far up the marker is looked for outside a git checkout.
const MAX_LEVELS: usize = 32;

/// Everything a command needs to know about how it was called.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub json: bool,
    pub stats: bool,
    pub quiet: bool,
    pub log_level: Option<LogLevel>,
    pub log_format: LogFormat,
    pub colour_out: bool,
    pub colour_err: bool,
    /// Stdout is a terminal.
    pub terminal_out: bool,
    /// Stderr is a terminal, so progress may be drawn.
    pub terminal_err: bool,
    /// Stdin is a terminal, so a person can be asked.
    pub terminal_in: bool,
    /// The folder named by flag or environment.
    repo_dir: Option<PathBuf>,
    /// Machine-wide folder of clones of shared stores.
    home: Option<PathBuf>,
    /// How long to wait for somebody else's lease or lock.
    pub lock_timeout: Option<Duration>,
    /// Who is named in leases and entries, for people only.
    pub user: String,
}

impl Settings {
    /// Resolves flags first, then the environment, then defaults.
    pub fn resolve(global: Global, env: &Env) -> Self {
        let (terminal_out, terminal_err) = (std::io::stdout().is_terminal(), std::io::stderr().is_terminal());
        let plain = global.no_color || env.var("NO_COLOR").is_some() || env.var("TERM") == Some("dumb");
        Self {
            json: global.json,
            stats: global.stats,
            quiet: global.quiet,
            log_level: log_level(&global, env),
            log_format: global.log_format,
            colour_out: terminal_out && !plain && !global.json,
            colour_err: terminal_err && !plain && !global.json,
            terminal_out,
            terminal_err,
            terminal_in: std::io::stdin().is_terminal(),
            repo_dir: global.repo_dir.or_else(|| env.var("PEAT_REPO_DIR").map(PathBuf::from)),
            home: home(env),
            lock_timeout: env.var("PEAT_LOCK_TIMEOUT_MS").and_then(|ms| ms.parse().ok()).map(Duration::from_millis),
            user: env.var("USER").or_else(|| env.var("LOGNAME")).unwrap_or("unknown").to_owned(),
        }
    }

    /// The folder given by flag or environment, else the current one. It need not be a repo yet.
    pub fn start_dir(&self) -> Result<PathBuf> {
        let current = std::env::current_dir().map_err(|e| Error::io("find", Path::new("the current folder"), e))?;
        Ok(self.repo_dir.as_ref().map_or_else(|| current.clone(), |dir| current.join(dir)))
    }

    /// The root of the repo this command works on.
    ///
    /// # Errors
    /// `not_a_repo` or `half_initialised`, with the command that helps.
    pub fn repo_root(&self) -> Result<PathBuf> {
        let start = self.start_dir()?;
        let found = if self.repo_dir.is_some() {
            start.join(MARKER).is_file().then(|| start.clone())
        } else {
            ancestor(&start)
        };
        found.ok_or_else(|| missing(&start))
    }

    /// Folder of the clones of shared stores.
    ///
    /// # Errors
    /// `Invalid` when neither `PEAT_HOME` nor `HOME` is set.
    pub fn home(&self) -> Result<PathBuf> {
        self.home.clone().ok_or_else(|| {
            Error::invalid("there is no folder for local copies: neither PEAT_HOME nor HOME is set")
                .with_hint("set PEAT_HOME to a folder that only you can write to")
        })
    }
}

/// The nearest folder at or above `start` with a marker; does not leave a git checkout.
fn ancestor(start: &Path) -> Option<PathBuf> {
    for dir in start.ancestors().take(MAX_LEVELS) {
        if dir.join(MARKER).is_file() {
            return Some(dir.to_owned());
        }
        if dir.join(".git").exists() {
            return None;
        }
    }
    None
}

fn missing(start: &Path) -> Error {
    if start.join(LOCAL).is_dir() {
        return Error::new(
            Kind::Invalid,
            format!("the repo in {} is half-initialised: {LOCAL}/ is there, {MARKER} is not", start.display()),
        )
        .with_code("half_initialised")
        .with_hint(
            "restore .peat.yaml from git, or write a new one with 'peat init --force'; the data in .peat/ stays",
        );
    }
    Error::not_found(format!("no Peat repo in {} or above it", start.display()))
        .with_code("not_a_repo")
        .with_hint("make one here with 'peat init', or name one with --repo-dir or PEAT_REPO_DIR")
}

fn home(env: &Env) -> Option<PathBuf> {
    if let Some(dir) = env.var("PEAT_HOME") {
        return Some(PathBuf::from(dir));
    }
    let data = env
        .var("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| env.var("HOME").map(|dir| Path::new(dir).join(".local/share")));
    data.map(|dir| dir.join("peat"))
}

fn log_level(global: &Global, env: &Env) -> Option<LogLevel> {
    use clap::ValueEnum;
    let counted = match global.verbose {
        0 => None,
        1 => Some(LogLevel::Info),
        2 => Some(LogLevel::Debug),
        _ => Some(LogLevel::Trace),
    };
    let from_env = || env.var("PEAT_LOG_LEVEL").and_then(|level| LogLevel::from_str(level, true).ok());
    global.log_level.or(counted).or_else(from_env)
}

/// Whether clap may colour its help; asked before anything is parsed.
pub(crate) fn colour(args: &[OsString], env: &Env) -> clap::ColorChoice {
    let refused = args.iter().any(|arg| arg == "--no-color" || arg == "--json");
    if refused || env.var("NO_COLOR").is_some() { clap::ColorChoice::Never } else { clap::ColorChoice::Auto }
}
