//! What a team does all day, told with real processes on two machines that share nothing but a bucket.
//!
//! By default the bucket is on the test kit's server. `PEAT_TEST_STORE` (a URL; the rest in the variables of the service's
//! tools) puts it on a server that somebody started, and `PEAT_STORY_RUNS` makes the loops longer.

// A test fails by panicking, and the processes it watches run in real time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod clouds;
mod keeping;
mod machine;
mod naming;
mod relocating;
mod reports;
mod rights;
mod same_model;
mod syncing;
mod tending;
mod together;
#[path = "../common/typed.rs"]
mod typed;
mod watch;
