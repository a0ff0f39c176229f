//! Signals that ask this process to stop.

use peat_types::{Error, Kind, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::INTERRUPTED;

/// The error of a command that a signal stopped.
pub(crate) fn interrupted() -> Error {
    Error::new(Kind::Cancelled, "interrupted").with_code(INTERRUPTED)
}

/// SIGINT, SIGTERM, and SIGHUP, which comes when the terminal goes away.
pub(crate) struct Signals {
    int: Signal,
    term: Signal,
    /// None under `nohup`, which is meant to outlive the terminal.
    hup: Option<Signal>,
}

impl Signals {
    /// Starts to listen; from then on these signals do not end the process by themselves.
    pub fn watch() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|e| Error::internal("cannot listen for signals").with_source(e));
        let hup = if hangup_ignored() { None } else { Some(listen(SignalKind::hangup())?) };
        Ok(Self { int: listen(SignalKind::interrupt())?, term: listen(SignalKind::terminate())?, hup })
    }

    /// Resolves at the next one.
    pub async fn next(&mut self) {
        let hup = async {
            match &mut self.hup {
                Some(hup) => drop(hup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
            () = hup => {}
        }
    }
}

/// Whether this process was started with SIGHUP ignored, as `nohup` does. Where the system does not say, it counts as
/// ignored: listening would take it away from who asked for it.
fn hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is signal 1, the lowest bit.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 != 0)
}
