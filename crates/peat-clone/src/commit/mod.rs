//! Committing: from an intention in the journal to an entry in the log, once.

mod draft;
mod foresee;
mod pending;
mod release;
mod send;
mod settle;
mod upload;
mod view;

pub(crate) use draft::{Dead, LEASE_LOST};
pub use foresee::Foreseen;
pub(crate) use release::Start;
pub(crate) use send::{AGAIN, How, Outcome};
use upload::Placed;
use view::Overlay;

/// Nobody was found dead.
pub(crate) static NOBODY: Dead = Dead::new();
