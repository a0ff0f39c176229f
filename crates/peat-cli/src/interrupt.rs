//! Signals that ask this process to stop.

use peat_types::{Error, Kind, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::INTERRUPTED;

/// The error of a command that a signal stopped.
pub(crate) fn interrupted() -> Error {
    Error::new(Kind::Cancelled, "interrupted").with_code(INTERRUPTED)
}

/// SIGINT and SIGTERM.
pub(crate) struct Signals {
    int: Signal,
    term: Signal,
}

impl Signals {
    /// Starts to listen; from then on these signals do not end the process by themselves.
    pub fn watch() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|e| Error::internal("cannot listen for signals").with_source(e));
        Ok(Self { int: listen(SignalKind::interrupt())?, term: listen(SignalKind::terminate())? })
    }

    /// Resolves at the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}
