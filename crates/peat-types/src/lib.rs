//! Values that every room of Peat shares. Nothing here does I/O: clock, sleep and randomness come through [`Env`].

mod env;
mod error;
mod hash;
mod ids;
mod name;
mod path;
mod seq;
mod span;
mod time;

pub use env::{Clock, Env, Mutation, Steps};
pub use error::{Error, Kind, Result};
pub use hash::{Hash, Hasher};
pub use ids::{ChangeId, CloneId, EntryId, InstanceId, LedgerId, PackId, RunNonce, TxId};
pub use name::{Namespace, Unit};
pub use path::ItemPath;
pub use seq::Seq;
pub use span::{ERROR_TYPE, failed, in_span, number};
pub use time::Timestamp;
#[doc(hidden)]
pub use tracing;
