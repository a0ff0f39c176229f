//! Invariant P: the one grammar of item paths, checked on everything that is written and everything that is read.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::Error;

/// Longest path in bytes.
const MAX_BYTES: usize = 1024;

/// Canonical relative path of an item: `/` between segments, names kept byte for byte as given.
///
/// Refused: absolute paths, empty, `.` and `..` segments, `\`, NUL and other control characters, a segment ending in a
/// dot or space, the device names Windows reserves, more than 1024 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ItemPath(String);

impl ItemPath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its segments.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// This path with one or more segments added.
    ///
    /// # Errors
    /// `Invalid` when the result is not a path.
    pub fn join(&self, rest: &str) -> Result<Self, Error> {
        format!("{}/{rest}", self.0).parse()
    }

    /// The form under which two paths of one unit count as the same name: canonical caseless matching
    /// (Unicode 16, 3.13 D145: NFD, full case folding, NFD), then NFC. Only ever compared, never stored as a name.
    pub fn folded(&self) -> String {
        let nfd: String = self.0.nfd().collect();
        caseless::default_case_fold_str(&nfd).nfc().collect()
    }
}

fn reserved_on_windows(segment: &str) -> bool {
    let stem = segment.split('.').next().unwrap_or_default().trim_end();
    let is = |name: &str| stem.eq_ignore_ascii_case(name);
    if ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"].into_iter().any(is) {
        return true;
    }
    let Some((port, digit)) = stem.split_at_checked(3) else { return false };
    let is_port = port.eq_ignore_ascii_case("COM") || port.eq_ignore_ascii_case("LPT");
    is_port && matches!(digit, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³")
}

impl FromStr for ItemPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse =
            |why: &str| Err(Error::invalid(format!("path {text:?} is refused: {why}")).with_code("invalid_path"));
        if text.is_empty() {
            return refuse("it is empty");
        }
        if text.len() > MAX_BYTES {
            return refuse("it is longer than 1024 bytes");
        }
        if text.chars().any(|c| c.is_control() || c == '\\') {
            return refuse("it holds a control character or a backslash");
        }
        for segment in text.split('/') {
            if segment.is_empty() {
                return refuse("it holds an empty segment");
            }
            if segment == "." || segment == ".." {
                return refuse("it holds a '.' or '..' segment");
            }
            if segment.ends_with('.') || segment.ends_with(' ') {
                return refuse("a segment ends with a dot or a space");
            }
            if reserved_on_windows(segment) {
                return refuse("a segment is a device name on Windows");
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ItemPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ItemPath {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<ItemPath> for String {
    fn from(path: ItemPath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_name_are_one() {
        let folded = |text: &str| text.parse::<ItemPath>().unwrap().folded();
        for (one, other) in [
            ("data/caf\u{e9}", "data/cafe\u{301}"),
            ("data/\u{212b}ngstr\u{f6}m", "data/a\u{30a}ngstro\u{308}m"),
            ("Data/README", "data/readme"),
            ("data/Stra\u{df}e", "data/STRASSE"),
            (
                "data/\u{3a3}\u{3af}\u{3c3}\u{3c5}\u{3c6}\u{3bf}\u{3c2}",
                "data/\u{3c3}\u{3af}\u{3c3}\u{3c5}\u{3c6}\u{3bf}\u{3c3}",
            ),
        ] {
            assert_eq!(folded(one), folded(other), "{one} {other}");
            // Only compared so: the name itself stays as it was given.
            assert_eq!(one.parse::<ItemPath>().unwrap().as_str(), one);
        }
        assert_ne!(folded("data/cafe"), folded("data/caf\u{e9}"));
    }
}
