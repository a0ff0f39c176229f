//! One error for all rooms: a kind that tells the caller what to do, a slug for scripts, hints, and the chain of causes.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Result with Peat's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The named thing definitely does not exist: name another one or create it.
    NotFound,
    /// The named thing exists already: name another one.
    AlreadyExists,
    /// Somebody else changed the same thing: look, then decide.
    Conflict,
    /// Somebody else holds the lease or lock: wait or try again later.
    Contended,
    /// The store cannot be reached or did not answer: try again later. Nothing is known about what it did.
    Offline,
    /// The store or the system refuses: get the right.
    Denied,
    /// This version, store or platform cannot do it.
    Unsupported,
    /// Stored bytes are not what they must be: stop, inspect, repair.
    Damaged,
    /// The input is wrong: correct it.
    Invalid,
    /// The caller or user stopped it.
    Cancelled,
    /// A defect in Peat.
    Internal,
}

impl Kind {
    /// The slug used in machine-readable errors when no more precise one was set.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::Conflict => "conflict",
            Self::Contended => "contended",
            Self::Offline => "offline",
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
            Self::Damaged => "damaged",
            Self::Invalid => "validation_failed",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }
}

/// An error with its kind, slug, hints and cause. `Display` prints this level only; the chain is walked by the printer.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    code: &'static str,
    message: String,
    hints: Vec<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    retry_after: Option<Duration>,
}

impl Error {
    /// An error of `kind`; `message` is one line that names the thing it is about.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            code: kind.code(),
            message: message.into(),
            hints: Vec::new(),
            source: None,
            retry_after: None,
        }))
    }

    /// Shorthand for [`Kind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// Shorthand for [`Kind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// Shorthand for [`Kind::Damaged`].
    pub fn damaged(message: impl Into<String>) -> Self {
        Self::new(Kind::Damaged, message)
    }

    /// Shorthand for [`Kind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// An I/O error on a file; keeps the path and turns the system's reason into a kind.
    pub fn io(doing: &str, path: &std::path::Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind as E;
        let kind = match source.kind() {
            E::NotFound => Kind::NotFound,
            E::AlreadyExists => Kind::AlreadyExists,
            E::PermissionDenied | E::ReadOnlyFilesystem => Kind::Denied,
            E::StorageFull | E::QuotaExceeded | E::FileTooLarge => Kind::Offline,
            E::InvalidData | E::UnexpectedEof => Kind::Damaged,
            _ => Kind::Internal,
        };
        let error = Self::new(kind, format!("cannot {doing} {}", path.display()));
        match source.kind() {
            E::StorageFull | E::QuotaExceeded => {
                error.with_code("disk_full").with_hint("free some space, then run the command again: nothing was lost")
            }
            E::ReadOnlyFilesystem => error
                .with_code("read_only")
                .with_hint("the folder is on a read-only file system: remount it writable or use another folder"),
            E::PermissionDenied => error.with_hint(
                "this user may not do that: change the owner or mode of the file or its folder, or run as the user who may",
            ),
            _ => error,
        }
        .with_source(source)
    }

    /// Replaces the machine-readable slug.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.0.code = code;
        self
    }

    /// Adds a remedy: what to do next, naming an existing command where one helps.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hints.push(hint.into());
        self
    }

    /// Sets the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Puts what the error is about before the message of this level.
    #[must_use]
    pub fn prefixed(mut self, about: impl fmt::Display) -> Self {
        self.0.message = format!("{about}: {}", self.0.message);
        self
    }

    /// Wraps this error in a new level of the same kind, slug and hints that says what was being done.
    #[must_use]
    pub fn context(mut self, message: impl Into<String>) -> Self {
        let (kind, code, hints) = (self.0.kind, self.0.code, std::mem::take(&mut self.0.hints));
        let retry_after = self.0.retry_after;
        Self(Box::new(Inner { kind, code, message: message.into(), hints, source: Some(Box::new(self)), retry_after }))
    }

    /// Notes that the other side asked to be left alone for so long.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Duration) -> Self {
        self.0.retry_after = Some(pause);
        self
    }

    /// How long the other side asked to be left alone; asking again before that is refused again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The machine-readable slug.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// Whether this error or one of its causes has the slug.
    pub fn has_code(&self, code: &str) -> bool {
        let mut next: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(error) = next {
            if error.downcast_ref::<Self>().is_some_and(|error| error.code() == code) {
                return true;
            }
            next = error.source();
        }
        false
    }

    /// Remedies, most useful first.
    pub fn hints(&self) -> &[String] {
        &self.0.hints
    }

    /// The messages of this error and its causes, outermost first.
    pub fn chain(&self) -> Vec<String> {
        let mut out = vec![self.to_string()];
        let mut next = StdError::source(self);
        while let Some(error) = next {
            out.push(error.to_string());
            next = error.source();
        }
        out
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}[{}] {}", self.0.kind, self.0.code, self.chain().join(": "))?;
        self.0.hints.iter().try_for_each(|hint| write!(f, " (hint: {hint})"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_found_among_the_causes() {
        let error = Error::invalid("low").context("middle").with_code("conflict").context("top").with_code("disk_full");
        let codes = ["validation_failed", "conflict", "disk_full"];
        assert!(codes.iter().all(|code| error.has_code(code)) && !error.has_code("low"));
        assert_eq!((error.code(), error.chain().len()), ("disk_full", 3));
    }
}
