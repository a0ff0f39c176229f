//! Random 128-bit identities. Their text form is 32 lower-case hex digits: fixed width, safe in any object key.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Env, Error};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name([u8; 16]);

        impl $name {
            /// A fresh id from the randomness of `env`.
            pub fn random(env: &Env) -> Self {
                Self(env.random_bytes())
            }

            /// The id with exactly these bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The sixteen bytes of the id.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let mut bytes = [0; 16];
                if text.bytes().any(|b| b.is_ascii_uppercase()) || hex::decode_to_slice(text, &mut bytes).is_err() {
                    return Err(Error::invalid(format!("'{text}' is not an id of 32 lower-case hex digits")));
                }
                Ok(Self(bytes))
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

id!(
    /// Identity of one ledger. A copy of a ledger gets a new one.
    LedgerId
);
id!(
    /// Identity of one local clone; re-minted when the folder was copied.
    CloneId
);
id!(
    /// Identity of one process instance (never a host name or a pid).
    InstanceId
);
id!(
    /// One attempt at a change.
    TxId
);
id!(
    /// One journalled intention; permanent over all attempts at it.
    ChangeId
);
id!(
    /// One run that holds a lease.
    RunNonce
);
id!(
    /// The random part of a pack's name.
    PackId
);
id!(
    /// The random mark of one log entry as encoded by one writer.
    EntryId
);
