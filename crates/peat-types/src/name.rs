use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, ItemPath};

/// Names of folders of a ledger: a namespace of that name could be taken for one of them.
const RESERVED: [&str; 4] = ["log", "pack", "tx", "beat"];

/// Slug of a namespace: `[a-z0-9][a-z0-9-]{0,62}`, and no name of a ledger's folders. Always present; `default` unless
/// given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Namespace(String);

impl Namespace {
    /// The slug.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl FromStr for Namespace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let ok = (1..=63).contains(&text.len())
            && !text.starts_with('-')
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !ok {
            return Err(Error::invalid(format!("'{text}' is not a namespace name")).with_hint(
                "use 1 to 63 lower-case letters, digits and hyphens, not starting with a hyphen, such as 'infra'",
            ));
        }
        if RESERVED.contains(&text) {
            return Err(Error::invalid(format!(
                "'{text}' cannot be the name of a namespace: a ledger has a folder of that name"
            ))
            .with_hint("choose another name, such as 'infra'"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Key of a unit, the thing that is isolated and pulled as a whole: `model/<definition id>`, `stream/<clone id>`, ….
/// Obeys the rules of [`ItemPath`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Unit(String);

impl Unit {
    /// The unit that holds all data, outputs and the lease of one model instance.
    ///
    /// # Errors
    /// `Invalid` when `definition_id` cannot stand in a path.
    pub fn model(definition_id: &str) -> Result<Self, Error> {
        format!("model/{definition_id}").parse()
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Unit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse::<ItemPath>().map(|_| Self(text.to_owned()))
    }
}

macro_rules! text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

text!(Namespace);
text!(Unit);
