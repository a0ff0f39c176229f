//! Ctrl-C: the first one asks the command to stop, the second one stops waiting for that.

use peat_types::{Error, Kind, Result};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::INTERRUPTED;

/// The error of a command that a signal stopped.
pub(crate) fn interrupted() -> Error {
    Error::new(Kind::Cancelled, "interrupted").with_code(INTERRUPTED)
}

/// Resolves when somebody asks this process to stop (SIGINT or SIGTERM).
pub(crate) async fn requested() -> Result<()> {
    let install = |kind| signal(kind).map_err(|e| Error::internal("cannot watch for signals").with_source(e));
    let (mut int, mut term) = (install(SignalKind::interrupt())?, install(SignalKind::terminate())?);
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
    Ok(())
}
