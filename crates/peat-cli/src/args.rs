//! The top of the grammar: options that every command takes.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, ValueEnum};

use crate::commands::Command;

/// Shared state of automation repositories, in an append-only ledger in a bucket.
#[derive(Debug, Parser)]
#[command(
    name = "peat",
    version,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "Start with 'peat demo', or 'peat init' in the folder of your automation."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Work on the repo in this folder [env: PEAT_REPO_DIR]
    #[arg(short = 'C', long, global = true, value_name = "DIR")]
    pub repo_dir: Option<PathBuf>,
    /// Print JSON on stdout, one document unless the command says otherwise, and errors as JSON on stderr; never ask: what asks needs --yes
    #[arg(long, global = true)]
    pub json: bool,
    /// Say how many requests and bytes this command cost
    #[arg(long, global = true)]
    pub stats: bool,
    /// Say nothing but results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Log what is being done; twice for more, three times for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Log from this level on [env: PEAT_LOG_LEVEL]
    #[arg(long, global = true, value_name = "LEVEL", hide_possible_values = true)]
    pub log_level: Option<LogLevel>,
    /// Form of the log on stderr
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", hide_default_value = true)]
    pub log_format: LogFormat,
    /// Never use colours [env: NO_COLOR]
    #[arg(long, global = true)]
    pub no_color: bool,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Trace,
    Debug,
    Info,
    #[value(alias = "warn")]
    Warning,
    #[value(alias = "fatal")]
    Error,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}
