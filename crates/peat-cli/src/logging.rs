//! The log on stderr. Silent unless asked for.

use tracing_subscriber::EnvFilter;

use crate::args::{LogFormat, LogLevel};
use crate::settings::Settings;

/// Starts logging as asked for.
pub(crate) fn start(settings: &Settings) {
    let Some(level) = settings.log_level else { return };
    let level = match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning => "warn",
        LogLevel::Error => "error",
    };
    // Other people's libraries only speak at the most talkative level.
    let filter = if level == "trace" { level.to_owned() } else { crates_at(level) };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .with_ansi(settings.colour_err);
    // A second start in one process, as in a test, keeps the first.
    let _ = match settings.log_format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

fn crates_at(level: &str) -> String {
    let rooms = ["cli", "engine", "catalog", "clone", "ledger", "objects", "types"];
    rooms.map(|room| format!("peat_{room}={level}")).join(",")
}
