//! Operations as spans: what is timed, shown by `-v` and exported as a trace. See `docs/design/015-observability.md`.

use tracing::{Instrument, Span};

use crate::{Error, Result};

/// Name of the field that says how an operation failed: one of few words, never a text.
pub const ERROR_TYPE: &str = "error.type";

/// A number in a span: whole numbers of 64 bits with a sign are the only ones that traces have.
pub fn number(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A span for an operation that people know: `operation!("sync", peat.sync.mode = "pull")`. Fields that are known later
/// are declared as `tracing::field::Empty`. No field may hold contents, inputs, credentials or addresses with a query.
#[macro_export]
macro_rules! operation {
    ($name:literal $(, $($fields:tt)*)?) => {
        $crate::tracing::info_span!($name, "error.type" = $crate::tracing::field::Empty $(, $($fields)*)?)
    };
}

/// A span for a step of an operation, as [`operation!`].
#[macro_export]
macro_rules! step {
    ($name:literal $(, $($fields:tt)*)?) => {
        $crate::tracing::debug_span!($name, "error.type" = $crate::tracing::field::Empty $(, $($fields)*)?)
    };
}

/// Does `work` in `span`, which learns of a failure.
///
/// # Errors
/// Those of `work`.
pub async fn in_span<T>(span: Span, work: impl Future<Output = Result<T>>) -> Result<T> {
    let outcome = work.instrument(span.clone()).await;
    if let Err(error) = &outcome {
        failed(&span, error);
    }
    outcome
}

/// Notes a failure on a span.
pub fn failed(span: &Span, error: &Error) {
    span.record(ERROR_TYPE, error.code());
}
