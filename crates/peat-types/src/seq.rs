use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a log entry. Entry 0 is written when a ledger is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The first entry of every ledger.
    pub const ZERO: Self = Self(0);

    /// The entry after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number as 16 hex digits that sort newest first: `2^64 - 1 - seq`.
    pub fn inverted(self) -> String {
        format!("{:016x}", u64::MAX - self.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
