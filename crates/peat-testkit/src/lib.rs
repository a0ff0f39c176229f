//! Fakes and harnesses for Peat's own tests.

pub mod explore;
pub mod sim;
