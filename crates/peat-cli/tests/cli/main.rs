//! The built binary, as a user meets it. One module per topic; acceptance scenarios carry their id in the test's name.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod grammar;
mod hints;
mod licences;
mod sandbox;
