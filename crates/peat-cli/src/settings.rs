//! Flags, environment and folders resolved into one value before a command runs.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use peat_types::Env;

use crate::args::{Global, LogFormat, LogLevel};
use crate::keeper::VARIABLE;
use crate::logging::FILTER;

/// Everything a command needs to know about how it was called.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub json: bool,
    pub stats: bool,
    pub quiet: bool,
    /// The level that a flag asks for.
    pub log_flag: Option<LogLevel>,
    /// The level that the environment asks for.
    pub log_level: Option<LogLevel>,
    /// The filter that the environment asks for.
    pub log_filter: Option<String>,
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
    pub repo_dir: Option<PathBuf>,
    /// Machine-wide folder of clones of shared stores.
    pub home: Option<PathBuf>,
    /// Folder for temporary files.
    pub temporary: PathBuf,
    /// Who is named in leases and entries, for people only.
    pub user: String,
    /// Whether maintenance may run by itself.
    pub maintenance: bool,
    /// Variables that are set to what they cannot be, and are passed over: a line for each.
    pub misunderstood: Vec<String>,
}

impl Settings {
    /// Whether progress may be drawn.
    pub fn draw(&self) -> bool {
        self.terminal_err && !self.quiet && !self.json
    }

    /// Resolves flags first, then the environment, then defaults.
    pub fn resolve(global: Global, env: &Env) -> Self {
        let (terminal_out, terminal_err) = (std::io::stdout().is_terminal(), std::io::stderr().is_terminal());
        let plain = global.no_color || env.var("NO_COLOR").is_some() || env.var("TERM") == Some("dumb");
        Self {
            json: global.json,
            stats: global.stats,
            quiet: global.quiet,
            log_flag: log_flag(&global),
            log_level: env.var("PEAT_LOG_LEVEL").and_then(|level| LogLevel::from_str(level, true).ok()),
            log_filter: env.var(FILTER).map(str::to_owned),
            log_format: global.log_format,
            colour_out: terminal_out && !plain && !global.json,
            colour_err: terminal_err && !plain && !global.json,
            terminal_out,
            terminal_err,
            terminal_in: std::io::stdin().is_terminal(),
            repo_dir: global.repo_dir.or_else(|| env.var("PEAT_REPO_DIR").map(PathBuf::from)),
            home: home(env),
            temporary: PathBuf::from(env.var("TMPDIR").unwrap_or("/tmp")),
            maintenance: env.var(VARIABLE) != Some("off"),
            misunderstood: misunderstood(env),
            user: env.var("USER").or_else(|| env.var("LOGNAME")).unwrap_or("unknown").to_owned(),
        }
    }
}

fn misunderstood(env: &Env) -> Vec<String> {
    let level = env.var("PEAT_LOG_LEVEL").filter(|level| LogLevel::from_str(level, true).is_err());
    let level = level.map(|is| ("PEAT_LOG_LEVEL", is, "trace, debug, info, warning or error"));
    let maintenance = env.var(VARIABLE).filter(|is| !["on", "off"].contains(is));
    let maintenance = maintenance.map(|is| (VARIABLE, is, "on or off"));
    let line = |(name, is, may): (&str, &str, &str)| format!("{name} is '{is}', and passed over: it may be {may}");
    level.into_iter().chain(maintenance).map(line).collect()
}

fn home(env: &Env) -> Option<PathBuf> {
    if let Some(dir) = env.var("PEAT_HOME") {
        return Some(PathBuf::from(dir));
    }
    let data = env.var("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute()).or_else(|| {
        env.var("HOME").filter(|dir| Path::new(dir).is_absolute()).map(|dir| Path::new(dir).join(".local/share"))
    });
    data.map(|dir| dir.join("peat"))
}

fn log_flag(global: &Global) -> Option<LogLevel> {
    let counted = match global.verbose {
        0 => None,
        1 => Some(LogLevel::Info),
        2 => Some(LogLevel::Debug),
        _ => Some(LogLevel::Trace),
    };
    global.log_level.or(counted)
}

/// Whether clap may colour its help; asked before anything is parsed.
pub(crate) fn colour(args: &[OsString], env: &Env) -> clap::ColorChoice {
    let refused = args.iter().any(|arg| arg == "--no-color" || arg == "--json");
    if refused || env.var("NO_COLOR").is_some() { clap::ColorChoice::Never } else { clap::ColorChoice::Auto }
}
