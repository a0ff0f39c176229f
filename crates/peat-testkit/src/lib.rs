//! Fakes and harnesses for Peat's own tests.

pub mod clock;
pub mod conformance;
