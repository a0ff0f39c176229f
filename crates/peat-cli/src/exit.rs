//! How an invocation ends.

use std::process::ExitCode;

use peat_types::{Error, Kind, Result};

/// The exit statuses, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, including a cancelled prompt and a reader that closed the pipe.
    Success = 0,
    /// An error, a failed run, a failed check: always with an error that says which.
    Failure = 1,
    /// The command line could not be understood.
    Usage = 2,
    /// Somebody else held the lease or lock for too long: try again later.
    Busy = 75,
    /// Stopped by a signal.
    Interrupted = 130,
}

/// Slug of an error about the command line itself.
pub(crate) const USAGE: &str = "usage";
/// Slug of an error because a signal arrived.
pub(crate) const INTERRUPTED: &str = "interrupted";
/// Slug of the non-error that the reader of our output went away.
pub(crate) const BROKEN_PIPE: &str = "broken_pipe";

/// Slug of an error because a check that the report tells of failed.
pub(crate) const CHECK_FAILED: &str = "check_failed";
/// Slug of an error because the report tells of something that could not be done.
pub(crate) const INCOMPLETE: &str = "incomplete";

/// The end of a command whose report says how things are: where not all is `well`, an error goes with it, so that whoever
/// reads errors alone sees that there is one, too.
pub(crate) fn end(well: bool, code: &'static str, message: impl Into<String>) -> Result<Exit> {
    if well { Ok(Exit::Success) } else { Err(Error::new(Kind::Conflict, message).with_code(code)) }
}

impl Exit {
    /// In one word, for traces.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Usage => USAGE,
            Self::Busy => "busy",
            Self::Interrupted => INTERRUPTED,
        }
    }

    /// The status that belongs to an error.
    pub fn of(error: &Error) -> Self {
        match error.code() {
            BROKEN_PIPE => Self::Success,
            USAGE => Self::Usage,
            INTERRUPTED => Self::Interrupted,
            _ if error.kind() == Kind::Contended => Self::Busy,
            _ => Self::Failure,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
