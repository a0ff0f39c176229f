use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// A point in wall-clock time, to the millisecond. Informational: nothing orders or expires by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Timestamp(i64);

impl Timestamp {
    /// The time `millis` milliseconds after 1970-01-01 UTC.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Milliseconds from `earlier` to this time; negative when it lies before.
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0 - earlier.0
    }
}

/// ISO-8601 UTC with exactly three decimals, as everywhere in Peat's files: `2026-07-20T09:15:02.100Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let time: jiff::Timestamp =
            text.parse().map_err(|e| Error::invalid(format!("'{text}' is not an ISO-8601 time")).with_source(e))?;
        Ok(Self(time.as_millisecond()))
    }
}

impl TryFrom<String> for Timestamp {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.to_string()
    }
}
