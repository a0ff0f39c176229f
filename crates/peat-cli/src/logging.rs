//! The log on stderr: what happens, and each span when it ends. Silent unless asked for.

mod lines;

use peat_types::Env;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::args::LogLevel;
use crate::printer::Printer;
use crate::settings::Settings;
use lines::Lines;

/// A filter in the words of `tracing`: `peat_ledger=debug,peat_objects=trace`.
pub(crate) const FILTER: &str = "PEAT_LOG";

/// A part of what hears of spans and events.
pub(crate) type Part = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts logging as asked for, and passes everything on to `others`.
pub(crate) fn start(settings: &Settings, printer: &Printer, env: &Env, others: Option<Part>) {
    let lines = filter(settings, printer).map(|filter| {
        let lines = Lines::new(printer.clone(), env.clone(), settings.log_format, settings.colour_err);
        lines.with_filter(filter).boxed()
    });
    let parts: Vec<Part> = lines.into_iter().chain(others).collect();
    if !parts.is_empty() {
        // A second start in one process, as in a test, keeps the first.
        let _ = Registry::default().with(parts).try_init();
    }
}

/// What is logged; none for nothing.
fn filter(settings: &Settings, printer: &Printer) -> Option<EnvFilter> {
    if let (None, Some(wanted)) = (settings.log_flag, &settings.log_filter) {
        match EnvFilter::try_new(wanted) {
            Ok(filter) => return Some(filter),
            Err(error) => printer.warning(&format!(
                "{FILTER} is not understood, and passed over: {error}; write it as peat_ledger=debug,peat_objects=trace"
            )),
        }
    }
    settings.log_flag.or(settings.log_level).map(|level| EnvFilter::new(directives(level)))
}

fn directives(level: LogLevel) -> String {
    let level = match level {
        // Other people's libraries only speak at the most talkative level.
        LogLevel::Trace => return "trace".to_owned(),
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning => "warn",
        LogLevel::Error => "error",
    };
    let rooms = ["cli", "engine", "catalog", "clone", "ledger", "objects", "types"];
    rooms.map(|room| format!("peat_{room}={level}")).join(",")
}
