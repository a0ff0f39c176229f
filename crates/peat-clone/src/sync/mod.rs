//! Bringing the clone up to date, and contents where they are wanted.

mod content;
mod hydrate;
mod places;
mod pull;
mod refresh;

pub(crate) use content::LOST;
pub(crate) use hydrate::{AtHand, WINDOW};
pub(crate) use refresh::{ACCEPT, Base, Look, RECENT};
