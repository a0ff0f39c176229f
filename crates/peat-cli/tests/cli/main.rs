//! The built binary, as a user meets it. One module per topic; acceptance scenarios carry their id in the test's name.

// A test fails by panicking, and the processes it watches run in real time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod bad_input;
mod cost_table;
mod costs;
mod data;
mod definitions;
mod demo;
mod doctor;
mod failing;
mod grammar;
mod hints;
mod history;
mod interrupt;
mod killed;
mod large;
mod licences;
mod locks;
mod mend;
mod moving;
mod peers;
mod policies;
mod repos;
mod runs;
mod sandbox;
mod shapes;
mod sharing;
mod spans;
mod traces;
#[path = "../common/typed.rs"]
mod typed;
mod unmounted;
mod upkeep;
mod uprooted;
mod watch;
