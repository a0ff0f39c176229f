//! Fakes and harnesses for Peat's own tests.

pub mod aws;
mod background;
pub mod clock;
pub mod cloud;
pub mod collector;
pub mod conformance;
pub mod distance;
pub mod explore;
pub mod iam;
pub mod liars;
pub mod proxy;
pub mod raw;
pub mod s3;
pub mod sim;
pub mod tls;
