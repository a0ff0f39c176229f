//! A state as people name it: by the number of its entry, or by a time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use peat_types::{Error, Result, Seq, Timestamp};

use crate::duration;

/// Which state is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The state after this entry.
    Entry(Seq),
    /// The last state written at or before this time.
    Time(Timestamp),
    /// The last state written so long ago or earlier.
    Ago(Duration),
}

/// A [`When`] with the moment it was asked at taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    Entry(Seq),
    Time(Timestamp),
}

impl When {
    pub(crate) fn at(self, now: Timestamp) -> Point {
        match self {
            Self::Entry(seq) => Point::Entry(seq),
            Self::Time(time) => Point::Time(time),
            Self::Ago(age) => {
                let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                Point::Time(Timestamp::from_millis(now.as_millis().saturating_sub(age)))
            }
        }
    }
}

/// `57`, `2d`, `2026-11-30T10:00:00Z`, `2026-11-30T10:00`, `2026-11-30`. A time without a zone is UTC, as all times that
/// Peat prints.
impl FromStr for When {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(|seq| Self::Entry(Seq(seq))).map_err(|_| bad(text));
        }
        if let Ok(age) = duration::parse(text) {
            return Ok(Self::Ago(age));
        }
        [text.to_owned(), format!("{text}Z"), format!("{text}T00:00:00Z")]
            .iter()
            .find_map(|text| text.parse().ok())
            .map(Self::Time)
            .ok_or_else(|| bad(text))
    }
}

fn bad(text: &str) -> Error {
    // In the message: of an argument nothing else is shown.
    Error::invalid(format!(
        "'{text}' names no state: write the number of an entry such as 57, an age such as 90m, 36h or 2d, or a time such as 2026-11-30T10:00:00Z"
    ))
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(seq) => write!(f, "entry {seq}"),
            Self::Time(time) => time.fmt(f),
            Self::Ago(age) => write!(f, "{} ago", duration::human(*age)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_named_by_entry_age_or_time() {
        let time = |text: &str| When::Time(text.parse().unwrap());
        for (text, when) in [
            ("57", When::Entry(Seq(57))),
            ("0", When::Entry(Seq::ZERO)),
            ("2d", When::Ago(Duration::from_secs(172_800))),
            ("90m", When::Ago(Duration::from_secs(5_400))),
            ("2026-11-30T10:00:00Z", time("2026-11-30T10:00:00Z")),
            ("2026-11-30T10:00:00+02:00", time("2026-11-30T08:00:00Z")),
            ("2026-11-30T10:00", time("2026-11-30T10:00:00Z")),
            ("2026-11-30 10:00", time("2026-11-30T10:00:00Z")),
            ("2026-11-30", time("2026-11-30T00:00:00Z")),
        ] {
            assert_eq!(text.parse::<When>().unwrap(), when, "{text}");
        }
        for text in ["", "-1", "yesterday", "2026-13-01", "99999999999999999999", "1e3", "0d"] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
        let now = Timestamp::from_millis(10_000);
        assert_eq!(When::Ago(Duration::from_secs(4)).at(now), Point::Time(Timestamp::from_millis(6_000)));
    }
}
