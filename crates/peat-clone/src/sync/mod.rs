//! Bringing the clone up to date, and contents where they are wanted.

mod hydrate;
mod places;
mod pull;
mod refresh;

pub(crate) use hydrate::{AtHand, LOST};
pub(crate) use refresh::{Base, Look, RECENT};
